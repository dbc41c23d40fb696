"""Declarations of a pipeline's file: one class for each part, one declaration for each key.

Files are read and the reference is generated from them.

A key is declared at its field: ``rate: int | None = declared(Integer(1), "messages a second",
default=None)``. The kind of a key converts a node to a value, or records a mistake that names the
key, the value found and the allowed values.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeVar

from pulsarish.model.units import parse_duration
from pulsarish.spark.pipelines.ddl import ColumnsError, column_names
from pulsarish.spark.pipelines.nodes import (
    Node,
    Reading,
    entries,
    items,
    line_of,
    near,
    scalar,
    shown,
)

__all__ = [
    "BAD",
    "Choice",
    "Columns",
    "Duration",
    "Flag",
    "Integer",
    "Key",
    "Kind",
    "ListOf",
    "MapOf",
    "Name",
    "Part",
    "PartOf",
    "Reference",
    "Text",
    "declared",
    "keys_of",
    "read_part",
]

P = TypeVar("P", bound="Part")

BAD: Final = object()
"""Returned by a kind for a node of another kind; the mistake has been recorded."""

_REQUIRED: Final = object()
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TRUTHS: Final = {"true": True, "false": False}


class Kind(Protocol):
    @property
    def shown(self) -> str:
        """Allowed values, for the reference."""
        ...

    def read(self, node: Node, path: str, reading: Reading) -> Any: ...


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    kind: Kind
    meaning: str
    default: Any

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED


@dataclass(frozen=True, kw_only=True)
class Part:
    """A mapping of the file with declared keys. ``at``: its line; ``lines``: those of its keys."""

    TYPE: ClassVar[str] = ""
    """The value of its key ``type``, where there is a choice."""

    name: str = ""
    place: str = ""
    """Its name in messages: sinks.hourly."""
    at: int = 0
    lines: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def line(self, name: str) -> int:
        return self.lines.get(name, self.at)


def declared(kind: Kind, meaning: str, *, default: Any = _REQUIRED) -> Any:
    """Declare a field of a ``Part`` that is a key of the file.

    Without ``default`` the key is required.
    """
    metadata = {"kind": kind, "meaning": meaning, "default": default}
    if default is _REQUIRED:
        return dataclasses.field(metadata=metadata)
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def keys_of(cls: type[Part]) -> list[Key]:
    """Return the keys, required ones first, otherwise in declared order."""
    found = [
        Key(
            field.name, field.metadata["kind"], field.metadata["meaning"], field.metadata["default"]
        )
        for field in dataclasses.fields(cls)
        if "kind" in field.metadata
    ]
    return sorted(found, key=lambda each: not each.required)


def read_part(
    cls: type[P],
    node: Node,
    path: str,
    reading: Reading,
    *,
    name: str = "",
    also: Sequence[str] = (),
) -> P | None:
    """Read a part from its node.

    Return None when something in it is wrong; all mistakes have been recorded.

    ``path``: the part's name in messages; ``name``: the key of the part, where that is a name;
    ``also``: keys that the caller reads itself.
    """
    given = entries(node, path, reading)
    if cls.TYPE:
        given.pop("type", None)
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    known = {each.name: each for each in keys_of(cls)}
    for word, (key_node, value_node) in given.items():
        lines[word] = line_of(value_node)
        if word not in known:
            words = [*known, *also]
            reading.wrong(
                key_node,
                f"{path or 'the pipeline'}: there is no key {word!r}; keys are "
                f"{', '.join(words)}.{near(word, words)}",
            )
        else:
            values[word] = known[word].kind.read(
                value_node, f"{path}.{word}" if path else word, reading
            )
    whole = True
    for each in known.values():
        if each.required and each.name not in given:
            reading.wrong(
                node,
                f"{path or 'the pipeline'}: {each.name} is missing: {each.meaning} "
                f"({each.kind.shown})",
            )
            whole = False
    if not whole or any(value is BAD for value in values.values()) or not set(given) <= set(known):
        return None
    values.setdefault("name", name)
    return cls(place=path, at=line_of(node), lines=lines, **values)


def _refuse(node: Node, path: str, reading: Reading, allowed: str) -> object:
    reading.wrong(node, f"{path}: here stands {shown(node)}; it must be {allowed}")
    return BAD


@dataclass(frozen=True, slots=True)
class Text:
    shown: str = "text"
    empty: bool = False
    """Whether it may be empty."""

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        text = scalar(node)
        return (
            text
            if text or (self.empty and text is not None)
            else _refuse(node, path, reading, self.shown)
        )


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns with their types."""

    shown: str = "columns as Spark writes them: name type, name type"

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        text = scalar(node) or ""
        try:
            column_names(text)
        except ColumnsError as error:
            reading.wrong(node, f"{path}: {error}; it must be {self.shown}")
            return BAD
        return text


@dataclass(frozen=True, slots=True)
class Name:
    """A name that SQL takes without quotes."""

    shown: str = "a name of letters, digits and _"

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        text = scalar(node)
        return text if text and _NAME.fullmatch(text) else _refuse(node, path, reading, self.shown)


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of a source or step, or of a sink."""

    to: str = "source or step"

    @property
    def shown(self) -> str:
        return f"the name of a {self.to}"

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        return scalar(node) or _refuse(node, path, reading, self.shown)


@dataclass(frozen=True, slots=True)
class Integer:
    least: int
    most: int = 2**31 - 1

    @property
    def shown(self) -> str:
        return f"a whole number from {self.least:,}" + (
            f" to {self.most:,}" if self.most < 2**31 - 1 else ""
        )

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        text = (scalar(node) or "").replace("_", "")
        if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) and self.least <= int(text) <= self.most:
            return int(text)
        return _refuse(node, path, reading, self.shown)


@dataclass(frozen=True, slots=True)
class Flag:
    shown: str = "true or false"

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        found = _TRUTHS.get((scalar(node) or "").lower())
        return found if found is not None else _refuse(node, path, reading, self.shown)


@dataclass(frozen=True, slots=True)
class Duration:
    """In seconds."""

    shown: str = "a duration like 90s, 10m, 1h30m or 7d"

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        try:
            seconds = parse_duration(scalar(node) or "")
        except ValueError as error:
            reading.wrong(node, f"{path}: {error}")
            return BAD
        return seconds if seconds > 0 else _refuse(node, path, reading, self.shown)


@dataclass(frozen=True, slots=True)
class Choice:
    allowed: tuple[str, ...]

    @property
    def shown(self) -> str:
        return ", ".join(self.allowed[:-1]) + f" or {self.allowed[-1]}"

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        text = scalar(node)
        if text in self.allowed:
            return text
        reading.wrong(
            node,
            f"{path}: here stands {shown(node)}; it must be "
            f"{self.shown}.{near(text or '', self.allowed)}",
        )
        return BAD


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; a single item may be given without a list."""

    kind: Kind
    what: str = ""

    @property
    def shown(self) -> str:
        return f"a list of {self.what or self.kind.shown}"

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        found = items(node)
        if found is None:
            found = [node]
        values = [
            self.kind.read(each, f"{path}[{number}]" if len(found) > 1 else path, reading)
            for number, each in enumerate(found)
        ]
        if not values:
            return _refuse(node, path, reading, f"{self.shown}, not an empty one")
        return BAD if any(value is BAD for value in values) else values


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map from words of the user to values."""

    kind: Kind
    what: str

    @property
    def shown(self) -> str:
        return f"a mapping of {self.what}"

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        before = len(reading.mistakes)
        given = entries(node, path, reading)
        values = {
            word: self.kind.read(value, f"{path}.{word}", reading)
            for word, (_, value) in given.items()
        }
        return BAD if len(reading.mistakes) > before or BAD in values.values() else values


@dataclass(frozen=True, slots=True)
class PartOf:
    """A part within a part."""

    part: type[Part]

    @property
    def shown(self) -> str:
        return "a mapping, see below"

    def read(self, node: Node, path: str, reading: Reading) -> Any:
        found = read_part(self.part, node, path, reading)
        return BAD if found is None else found
