"""The reference of all keys, generated from their declarations: for the command ``pulsarish
pipeline keys`` and for docs/spark.md.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Final

from pulsarish.spark.pipelines.declaration import Key, Part, PartOf, keys_of
from pulsarish.spark.pipelines.parts import SINKS, SOURCES, Pipeline
from pulsarish.spark.pipelines.steps import STEPS

__all__ = ["reference"]

_PROSE_COLUMNS: Final = 88


def reference() -> str:
    """Return the reference as Markdown, with headings of the fourth level."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "#### The file"
    yield ""
    yield from _table(Pipeline)
    yield "| `sources` | names to sources | **needed** | where rows come from; `type` says which |"
    yield "| `steps` | names to steps | | what becomes of them; `type` says which |"
    yield "| `sinks` | names to sinks | **needed** | where they go; `type` says which |"
    for each in keys_of(Pipeline):
        if isinstance(each.kind, PartOf):
            yield from _part(f"`{each.name}`", each.kind.part)
    for title, types in (("Sources", SOURCES), ("Steps", STEPS), ("Sinks", SINKS)):
        yield ""
        yield f"#### {title}"
        yield from _parts(types)


def _parts(types: Mapping[str, type[Part]]) -> Iterator[str]:
    for word, part in types.items():
        yield from _part(f"`type: {word}`", part)


def _part(title: str, part: type[Part]) -> Iterator[str]:
    yield ""
    text = f"{title}: {' '.join((part.__doc__ or '').split())}"
    yield textwrap.fill(text, _PROSE_COLUMNS, break_long_words=False, break_on_hyphens=False)
    yield ""
    yield from _table(part)


def _table(part: type[Part]) -> Iterator[str]:
    yield "| key | what may stand there | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for each in keys_of(part):
        yield f"| `{each.name}` | {each.kind.shown} | {_default(each)} | {each.meaning} |"


def _default(key: Key) -> str:
    if key.required:
        return "**needed**"
    if key.default in (None, "", [], {}) or isinstance(key.default, Part):
        return ""
    if isinstance(key.default, bool):
        return f"`{str(key.default).lower()}`"
    return f"`{key.default}s`" if key.kind.shown.startswith("a duration") else f"`{key.default}`"
