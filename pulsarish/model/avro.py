"""Avro schemas: parse a definition. Definitions come from outside, so depth is bounded."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from pulsarish.model.errors import InvalidSchema

__all__ = ["DEPTH_MAX", "AvroField", "AvroType", "parse_avro", "unqualified"]

DEPTH_MAX: Final = 100
"""Limit of the nesting of types in a definition."""

_PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
# Java uses the dollar sign for classes within classes; Apache Pulsar accepts it too.
_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*(\.[A-Za-z_$][A-Za-z0-9_$]*)*")


@dataclass(slots=True, eq=False)
class AvroField:
    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    default: Any = msgspec.UNSET

    @property
    def has_default(self) -> bool:
        return self.default is not msgspec.UNSET


@dataclass(slots=True, eq=False)
class AvroType:
    """One type.

    ``kind`` decides which fields are used: the name of a primitive, or record, enum, fixed, array,
    map, union.
    """

    kind: str
    name: str = ""  # with its namespace
    aliases: tuple[str, ...] = ()  # with their namespaces
    fields: list[AvroField] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    size: int = 0
    # an array or a map has one; a union has its branches
    parts: list[AvroType] = field(default_factory=list)

    @property
    def shown(self) -> str:
        if self.kind == "union":
            return f"[{', '.join(part.shown for part in self.parts)}]"
        return f"{self.kind} {self.name}" if self.name else self.kind


def parse_avro(data: bytes) -> AvroType:
    """Return the type of a definition in JSON.

    Raises ``InvalidSchema`` that names the problem and its place.
    """
    try:
        return _Parser().type(msgspec.json.decode(data), "", "the schema", 0)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidSchema(f"the definition of the schema is not JSON: {error}") from None
    except RecursionError:
        raise InvalidSchema(
            f"the definition of the schema is deeper than {DEPTH_MAX} types"
        ) from None


def unqualified(name: str) -> str:
    return name.rpartition(".")[2]


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def type(self, definition: Any, namespace: str, where: str, depth: int) -> AvroType:
        if depth > DEPTH_MAX:
            raise InvalidSchema(f"the definition of the schema is deeper than {DEPTH_MAX} types")
        if isinstance(definition, str):
            return self._reference(definition, namespace, where)
        if isinstance(definition, list):
            return self._union(definition, namespace, where, depth)
        if not isinstance(definition, dict) or "type" not in definition:
            raise InvalidSchema(
                f"{where}: an Avro type is a name, a list, or an object with a type, not "
                f"{_shown(definition)}"
            )
        kind = definition["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(definition, namespace, where, depth)
        if kind in ("array", "map"):
            word = "items" if kind == "array" else "values"
            if word not in definition:
                raise InvalidSchema(f"{where}: a type {kind} needs {word}")
            return AvroType(
                kind, parts=[self.type(definition[word], namespace, f"{where}.{word}", depth + 1)]
            )
        return self.type(kind, namespace, where, depth + 1)

    def _reference(self, name: str, namespace: str, where: str) -> AvroType:
        if name in _PRIMITIVES:
            return AvroType(name)
        found = self._named.get(
            name if "." in name or not namespace else f"{namespace}.{name}"
        ) or self._named.get(name)
        if found is None:
            raise InvalidSchema(
                f"{where}: the type {name!r} is neither Avro's own nor defined before it is used"
            )
        return found

    def _union(self, definition: list[Any], namespace: str, where: str, depth: int) -> AvroType:
        branches = [
            self.type(each, namespace, f"{where}[{index}]", depth + 1)
            for index, each in enumerate(definition)
        ]
        seen = set()
        for branch in branches:
            key = branch.name or branch.kind
            if branch.kind == "union":
                raise InvalidSchema(f"{where}: a union holds a union")
            if key in seen:
                raise InvalidSchema(f"{where}: a union holds {branch.shown} twice")
            seen.add(key)
        return AvroType("union", parts=branches)

    def _definition(
        self, definition: dict[str, Any], namespace: str, where: str, depth: int
    ) -> AvroType:
        name = definition.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidSchema(
                f"{where}: a {definition['type']} needs a name of letters, digits and "
                f"underscores, not {_shown(name)}"
            )
        given = definition.get("namespace", namespace)
        if not isinstance(given, str):
            raise InvalidSchema(f"{where}: a namespace is a text, not {_shown(given)}")
        if "." in name:
            given = name.rpartition(".")[0]
        full = name if "." in name or not given else f"{given}.{name}"
        if full in self._named:
            raise InvalidSchema(f"{where}: the type {full} is defined twice")
        kind = "record" if definition["type"] == "error" else definition["type"]
        aliases = tuple(
            [
                alias if "." in alias or not given else f"{given}.{alias}"
                for alias in _names(definition, "aliases", where)
            ]
        )
        made = self._named[full] = AvroType(kind, full, aliases)
        match kind:
            case "record":
                self._fields(made, definition, given, where, depth)
            case "enum":
                made.symbols = _names(definition, "symbols", where)
                if not made.symbols or len(set(made.symbols)) < len(made.symbols):
                    raise InvalidSchema(f"{where}: the enum {full} needs symbols, each once")
                made.default_symbol = definition.get("default")
                if made.default_symbol is not None and made.default_symbol not in made.symbols:
                    raise InvalidSchema(
                        f"{where}: the default {_shown(made.default_symbol)} of the enum {full} "
                        "is none of its symbols"
                    )
            case _:
                size = definition.get("size")
                if type(size) is not int or size < 0:
                    raise InvalidSchema(
                        f"{where}: the fixed {full} needs a size in bytes, not {_shown(size)}"
                    )
                made.size = size
        return made

    def _fields(
        self, made: AvroType, definition: dict[str, Any], namespace: str, where: str, depth: int
    ) -> None:
        listed = definition.get("fields")
        if not isinstance(listed, list):
            raise InvalidSchema(f"{where}: the record {made.name} needs a list of fields")
        seen = set()
        for each in listed:
            if (
                not isinstance(each, dict)
                or not isinstance(each.get("name"), str)
                or "type" not in each
            ):
                raise InvalidSchema(
                    f"{where}: a field of the record {made.name} needs a name and a type, not "
                    f"{_shown(each)}"
                )
            name = each["name"]
            if name in seen:
                raise InvalidSchema(f"{where}: the record {made.name} has the field {name} twice")
            seen.add(name)
            kind = self.type(each["type"], namespace, f"{where}.{name}", depth + 1)
            made.fields.append(
                AvroField(
                    name, kind, _names(each, "aliases", where), each.get("default", msgspec.UNSET)
                )
            )


def _names(definition: dict[str, Any], word: str, where: str) -> tuple[str, ...]:
    found = definition.get(word, [])
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise InvalidSchema(f"{where}: {word} is a list of names, not {_shown(found)}")
    return tuple(found)


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:60] + "..."
