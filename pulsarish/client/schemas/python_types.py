"""Avro definitions of Python types: dataclasses, msgspec Structs, TypedDicts, and the types of
their fields.

``int`` becomes a long, ``float`` a double, ``X | None`` a union with null. A field's default is
part of the definition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT, inspect

from pulsarish.client.checks import shown
from pulsarish.client.errors import InvalidType
from pulsarish.model.errors import InvalidArgument

__all__ = ["TypedShape", "definition_of"]

_LONG_END: Final = 1 << 63
_FIELDS = (inspect.DataclassType, inspect.StructType, inspect.TypedDictType, inspect.NamedTupleType)
_SIMPLE: dict[type[inspect.Type], str] = {
    inspect.NoneType: "null",
    inspect.BoolType: "boolean",
    inspect.IntType: "long",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.BytesType: "bytes",
}


class _NoDefinition(Exception):
    """Avro has no equivalent of this type."""


def definition_of(kind: Any) -> Any:
    """Return the definition of a class with fields.

    ``None`` for another class, or when Avro has no equivalent of a field.
    """
    try:
        info = inspect.type_info(kind)
        return _definition(info, set()) if isinstance(info, _FIELDS) else None
    except (_NoDefinition, TypeError):
        return None


def _definition(info: inspect.Type, known: set[str]) -> Any:
    simple = _SIMPLE.get(type(info))
    if simple is not None:
        return simple
    match info:
        case inspect.ListType() | inspect.VarTupleType() | inspect.CollectionType():
            return {"type": "array", "items": _definition(info.item_type, known)}
        case inspect.DictType() if isinstance(info.key_type, inspect.StrType):
            return {"type": "map", "values": _definition(info.value_type, known)}
        case inspect.EnumType():
            return _named(
                info.cls.__name__,
                known,
                lambda: {"type": "enum", "symbols": [member.name for member in info.cls]},
            )
        case inspect.UnionType():
            branches = [_definition(each, known) for each in info.types]
            # Null first, since a default of None requires it.
            return sorted(branches, key=lambda branch: branch != "null")
        case (
            inspect.DataclassType()
            | inspect.StructType()
            | inspect.TypedDictType()
            | inspect.NamedTupleType()
        ):
            return _named(
                info.cls.__name__,
                known,
                lambda: {"type": "record", "fields": [_field(each, known) for each in info.fields]},
            )
        case _:
            raise _NoDefinition(type(info).__name__)


def _named(name: str, known: set[str], make: Callable[[], dict[str, Any]]) -> Any:
    if name in known:
        return name
    known.add(name)
    found = make()
    return {"type": found.pop("type"), "name": name, **found}


def _field(field: inspect.Field, known: set[str]) -> dict[str, Any]:
    found = {"name": field.encode_name, "type": _definition(field.type, known)}
    default = field.default
    if default is NODEFAULT and field.default_factory is not NODEFAULT:
        default = field.default_factory()
    if default is not NODEFAULT:
        plain = _to_avro(msgspec.to_builtins(default, builtin_types=(bytes,)), field.type)
        # Avro allows defaults for the first branch of a union only.
        if not isinstance(found["type"], list) or (plain is None) == (found["type"][0] == "null"):
            found["default"] = plain.decode("latin-1") if isinstance(plain, bytes) else plain
        elif plain is not None:
            found["type"] = [*found["type"][1:], found["type"][0]]
            found["default"] = plain.decode("latin-1") if isinstance(plain, bytes) else plain
    return found


class TypedShape:
    """Converts between values of a class and the plain objects that Avro writes."""

    def __init__(self, kind: Any) -> None:
        """Raises ``InvalidArgument`` for a class that Avro has no equivalent of."""
        try:
            self._info = inspect.type_info(kind)
            if not isinstance(self._info, _FIELDS):
                raise InvalidType(
                    f"record_cls is {shown(kind)}: pass a Record, dataclass, msgspec Struct or "
                    "TypedDict"
                )
            self.definition: dict[str, Any] = _definition(self._info, set())
        except InvalidType:
            raise
        except (_NoDefinition, TypeError) as error:
            raise InvalidArgument(
                f"record_cls {kind!r} has a field that Avro has nothing like: {error}"
            ) from None
        self._kind = kind
        self._has_enums = "'enum'" in repr(self.definition)

    def to_plain(self, value: Any) -> Any:
        """Return the plain object. Raises ``InvalidArgument`` for a value of another class."""
        if isinstance(self._info, (inspect.DataclassType, inspect.StructType)) and not isinstance(
            value, self._info.cls
        ):
            raise InvalidType(
                f"content is of type {type(value).__name__}: this producer's schema takes "
                f"{self._info.cls.__name__}"
            )
        return _to_avro(msgspec.to_builtins(value, builtin_types=(bytes,)), self._info)

    def to_builtins(self, value: Any) -> Any:
        """Return the plain object of a value of the class, without a check."""
        found = msgspec.to_builtins(value, builtin_types=(bytes,))
        return _to_avro(found, self._info) if self._has_enums else found

    def from_plain(self, found: Any) -> Any:
        """Return the value of a plain object. Raises ``msgspec.ValidationError``."""
        return msgspec.convert(_from_avro(found, self._info), self._kind)


def _to_avro(value: Any, info: inspect.Type) -> Any:
    return _converted(value, info, lambda each, cls: cls(each).name)


def _from_avro(value: Any, info: inspect.Type) -> Any:
    return _converted(value, info, lambda each, cls: cls[each].value)


def _converted(value: Any, info: inspect.Type, of_enum: Callable[[Any, Any], Any]) -> Any:
    """Return the value with each enum member in its other form."""
    if value is None:
        return None
    match info:
        case inspect.EnumType():
            return of_enum(value, info.cls)
        case inspect.IntType() if not -_LONG_END <= value < _LONG_END:
            raise InvalidArgument(
                f"content has the number {value}, which is more than the 64 bits that Avro has"
            )
        case inspect.ListType() | inspect.VarTupleType() | inspect.CollectionType():
            return [_converted(each, info.item_type, of_enum) for each in value]
        case inspect.DictType():
            return {key: _converted(each, info.value_type, of_enum) for key, each in value.items()}
        case inspect.UnionType():
            others = [each for each in info.types if not isinstance(each, inspect.NoneType)]
            # With several types the plain form does not show which one is meant, and only enums
            # change.
            return _converted(value, others[0], of_enum) if len(others) == 1 else value
        case (
            inspect.DataclassType()
            | inspect.StructType()
            | inspect.TypedDictType()
            | inspect.NamedTupleType()
        ):
            kinds = {field.encode_name: field.type for field in info.fields}
            return {
                name: _converted(each, kinds[name], of_enum) if name in kinds else each
                for name, each in value.items()
            }
        case _:
            return value
