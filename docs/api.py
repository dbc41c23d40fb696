"""Writes api.md, the reference of the Python client, from its signatures and docstrings.

python docs/api.py            write it
python docs/api.py --check    exit with 1 when it is not current
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).with_name("api.md")
MODULES: Final = {
    "pulsarish": "The blocking client, and what both clients share.",
    "pulsarish.asyncio": "The asyncio client. Shared names are those of `pulsarish`.",
    "pulsarish.schema": "Records, whose fields make schemas for JSON and Avro.",
    "pulsarish.admin": "Administration.",
    "pulsarish.testing": "Tests of programs: see [testing.md](testing.md).",
}
_LINE_MAX: Final = 96
_HEAD: Final = """# Reference of the Python client

Written by `docs/api.py` from the signatures and docstrings of the code. Tasks, with
examples, are in [clients.md](clients.md) and [recipes.md](recipes.md).
"""
_ITEM: Final = re.compile(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*): ", re.MULTILINE)
_ROLE: Final = re.compile(r":(?:meth|class|func|attr):`~?([^`]+)`")


def render() -> str:
    shown: set[int] = set()
    return "\n".join([_HEAD, *(line for name in MODULES for line in _module(name, shown))])


def _module(name: str, shown: set[int]) -> Iterator[str]:
    module = importlib.import_module(name)
    yield from (f"## {name}", "", MODULES[name], "")
    errors: list[str] = []
    for each in sorted(module.__all__, key=lambda each: (each != "Client", each)):
        found = getattr(module, each)
        if id(found) in shown:
            continue
        shown.add(id(found))
        if inspect.isclass(found) and issubclass(found, BaseException):
            errors.append(f"* `{each}`: {_paragraphs(found)[0]}")
        elif inspect.isclass(found):
            yield from _class(each, found)
        elif inspect.isroutine(found):
            yield from (f"### {each}", "", *_call(each, found))
    if errors:
        yield from ("### Errors", "", *errors, "")


def _class(name: str, found: type) -> Iterator[str]:
    yield from (f"### {name}", "")
    if issubclass(found, enum.Enum):
        yield from (*_text(found), ", ".join(f"`{each.name}`" for each in found), "")
        return
    yield from _call(name, found)
    if found.__init__.__doc__ and inspect.isfunction(found.__init__):
        yield from _text(found.__init__)
    for each, member in sorted(_members(found).items()):
        what: Any = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if isinstance(member, property):
            yield from (f"#### {name}.{each}", "", *_text(member))
        elif inspect.isroutine(what):
            yield from (f"#### {name}.{each}", "", *_call(f"{name}.{each}", what))


def _members(found: type) -> dict[str, object]:
    """Return the public members, of this project's classes only, the nearest definition of each."""
    members: dict[str, object] = {}
    for base in reversed(found.__mro__):
        if base.__module__.startswith("pulsarish"):
            members |= {name: each for name, each in vars(base).items() if name[0] != "_"}
    return members


def _call(name: str, found: Callable[..., Any]) -> Iterator[str]:
    prefix = "async " if inspect.iscoroutinefunction(found) else ""
    yield from ("```python", *_signature(prefix + name, found), "```", "", *_text(found))


def _signature(name: str, found: Callable[..., Any]) -> list[str]:
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return [name]
    parts: list[str] = []
    kinds = inspect.Parameter
    parameters = [
        each for each in signature.parameters.values() if each.name not in {"self", "cls"}
    ]
    for index, each in enumerate(parameters):
        before = parameters[index - 1].kind if index else None
        if each.kind is kinds.KEYWORD_ONLY and before not in {
            kinds.KEYWORD_ONLY,
            kinds.VAR_POSITIONAL,
        }:
            parts.append("*")
        parts.append(_parameter(each))
        after = parameters[index + 1].kind if index + 1 < len(parameters) else None
        if each.kind is kinds.POSITIONAL_ONLY and after is not kinds.POSITIONAL_ONLY:
            parts.append("/")
    returned = ""
    if not inspect.isclass(found) and signature.return_annotation is not signature.empty:
        returned = f" -> {_annotation(signature.return_annotation)}"
    line = f"{name}({', '.join(parts)}){returned}"
    if len(line) <= _LINE_MAX:
        return [line]
    return [f"{name}(", *(f"    {part}," for part in parts), f"){returned}"]


def _parameter(each: inspect.Parameter) -> str:
    stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    text = stars + each.name
    if each.annotation is not each.empty:
        text += f": {_annotation(each.annotation)}"
    if each.default is not each.empty:
        default = each.default
        shown = str(default) if isinstance(default, enum.Enum) else repr(default)
        text += f" = {re.sub(r' at 0x[0-9a-f]+', '', shown)}"
    return text


def _annotation(annotation: object) -> str:
    if isinstance(annotation, str):
        return annotation
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return re.sub(r"[~+-](?=[A-Z])|typing\.|\bpulsarish(?:\.\w+)*\.", "", text)


def _paragraphs(found: object) -> list[str]:
    text = _ROLE.sub(r"`\1`", inspect.getdoc(found) or "").replace("``", "`")
    return [each for each in text.split("\n\n") if each.strip()] or [""]


def _text(found: object) -> Iterator[str]:
    for paragraph in _paragraphs(found):
        if not paragraph:
            continue
        if paragraph.startswith("Args:\n"):
            items = _ITEM.sub(r"* `\1`: ", paragraph[6:]).replace("\n        ", "\n  ")
            yield from ("Arguments:", "", items, "")
        elif paragraph.startswith("    "):
            yield from ("```python", inspect.cleandoc("\n" + paragraph), "```", "")
        else:
            yield from (paragraph, "")


def main() -> int:
    text = render()
    if "--check" in sys.argv[1:]:
        return 0 if FILE.exists() and FILE.read_text() == text else 1
    FILE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
