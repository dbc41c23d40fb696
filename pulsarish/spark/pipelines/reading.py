"""Read and check a pipeline's file without Spark.

Reports every mistake with its line, all of them at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from pulsarish.spark.pipelines.checking import check
from pulsarish.spark.pipelines.declaration import Part, read_part
from pulsarish.spark.pipelines.nodes import (
    InvalidPipeline,
    Mistake,
    Node,
    Reading,
    compose,
    entries,
    near,
    scalar,
    substitute,
)
from pulsarish.spark.pipelines.parts import SINKS, SOURCES, Pipeline
from pulsarish.spark.pipelines.steps import STEPS

__all__ = ["read_pipeline"]

P = TypeVar("P", bound=Part)

_SECTIONS: Final = ("sources", "steps", "sinks")
HERE: Final = "here"
"""The parameter that every pipeline has: the folder of its file."""


def read_pipeline(file: str, settings: Mapping[str, str]) -> tuple[Pipeline, list[Mistake]]:
    """Return the pipeline of a file, and warnings.

    Args:
        file: its path.
        settings: values of parameters, as by ``--set``.

    Raises ``InvalidPipeline`` with all mistakes, ``OSError`` when the file does not exist.
    """
    reading = Reading(file)
    try:
        text = Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidPipeline(
            f"{file}:1: the file is no text in UTF-8: {error.reason} at byte {error.start}"
        ) from None
    root = compose(text, reading)
    if root is None:
        reading.finish()
        raise AssertionError("without a root there is a mistake")
    values = _parameters(root, file, settings, reading)
    for key, node in root.value:
        if getattr(key, "value", None) != "parameters":
            substitute(node, values, reading)
    pipeline = _pipeline(root, reading)
    if pipeline is not None:
        pipeline = check(replace(pipeline, file=file), reading)
    reading.finish()
    assert pipeline is not None, "a pipeline that was not read has a mistake"
    return pipeline, sorted(reading.warnings)


def _parameters(
    root: Node, file: str, settings: Mapping[str, str], reading: Reading
) -> dict[str, str]:
    node = next(
        (value for key, value in root.value if getattr(key, "value", None) == "parameters"), None
    )
    declared = entries(node, "parameters", reading) if node is not None else {}
    values = {HERE: str(Path(file).resolve().parent)}
    for name, (key, value) in declared.items():
        default = scalar(value)
        if name == HERE:
            reading.wrong(
                key, f"parameters.{HERE}: {HERE} is the folder of the file and cannot be declared"
            )
        elif name in settings:
            values[name] = settings[name]
        elif default is not None:
            # A default may use a parameter that is declared above it.
            substitute(value, values, reading)
            values[name] = str(value.value)
        else:
            reading.wrong(
                key, f"parameters.{name}: it has no default: give it with --set {name}=VALUE"
            )
            values[name] = f"({name})"
    for name in settings:
        if name not in declared:
            known = (
                f"parameters are {', '.join(declared)}." if declared else "the file declares none."
            )
            reading.wrong(
                1, f"--set {name}: there is no parameter {name!r}; {known}{near(name, declared)}"
            )
    return values


def _pipeline(root: Node, reading: Reading) -> Pipeline | None:
    """Read the root.

    Without its three sections it is a part like others; a section maps names to parts, each with a
    type.
    """
    sections = {
        key.value: value for key, value in root.value if getattr(key, "value", None) in _SECTIONS
    }
    given = list(root.value)
    root.value = [
        (key, value) for key, value in given if getattr(key, "value", None) not in _SECTIONS
    ]
    pipeline = read_part(Pipeline, root, "", reading, also=_SECTIONS)
    root.value = given
    entries(root, "the pipeline", reading)  # for repeated sections
    for section in ("sources", "sinks"):
        if section not in sections:
            reading.wrong(
                root, f"the pipeline: {section} is missing: names to what each of them is"
            )
    sources = _section(sections.get("sources"), "sources", SOURCES, reading)
    steps = _section(sections.get("steps"), "steps", STEPS, reading)
    sinks = _section(sections.get("sinks"), "sinks", SINKS, reading)
    if pipeline is None or sources is None or steps is None or sinks is None:
        return None
    if not sinks and "sinks" in sections:
        reading.wrong(sections["sinks"], "sinks: there is none: the pipeline would do nothing")
    return replace(pipeline, sources=sources, steps=steps, sinks=sinks)


def _section(
    node: Node | None, section: str, types: Mapping[str, type[P]], reading: Reading
) -> dict[str, P] | None:
    """Read a section; None when a part of it is wrong."""
    found: dict[str, P] = {}
    before = len(reading.mistakes)
    for name, (key, value) in ({} if node is None else entries(node, section, reading)).items():
        path = f"{section}.{name}"
        if not name.isidentifier() or not name.isascii():
            reading.wrong(
                key, f"{path}: a name has letters, digits and _, and begins with no digit"
            )
            continue
        kind = entries(value, path, reading).get("type")
        if kind is None:
            reading.wrong(value, f"{path}: type is missing; one of {', '.join(types)}")
            continue
        word = scalar(kind[1]) or ""
        if word not in types:
            reading.wrong(
                kind[1],
                f"{path}.type: there is no {section[:-1]} {word!r}; it is one of "
                f"{', '.join(types)}.{near(word, types)}",
            )
            continue
        part = read_part(types[word], value, path, reading, name=name)
        if part is not None:
            found[name] = part
    return found if len(reading.mistakes) == before else None
