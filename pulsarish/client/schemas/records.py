"""Records: classes whose attributes are declared by fields, with the names and meanings of Apache
Pulsar's Python client.

    class Order(Record):
        number = Long(required=True)
        notes = Array(String())

A field that is not ``required`` may be ``None``; its definition is a union with null.
``required_default`` writes the default into the definition. With it, a reader can decode messages
that were written before the field existed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from enum import Enum, EnumType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, cast, overload

from pulsarish.client.schemas.record_types import Constructed, Declares
from pulsarish.client.type_variables import Each, Given, Held

__all__ = [
    "Array",
    "Boolean",
    "Bytes",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Integer",
    "Long",
    "Map",
    "Null",
    "Record",
    "String",
]

Definition = Any
"""Avro's definition of a type, in JSON."""


class Field(Generic[Held, Given]):
    """What an attribute holds. ``default``: its value where the program gives none."""

    if TYPE_CHECKING:
        # The attribute of a record holds the value itself, not the field.
        @overload
        def __get__(self, record: None, owner: type[Record]) -> Self: ...

        @overload
        def __get__(self, record: Record, owner: type[Record]) -> Held: ...

        def __get__(self, record: Record | None, owner: type[Record]) -> Self | Held: ...

        def __set__(self, record: Record, value: Given) -> None: ...

        def _held(self) -> Held: ...

    kind: ClassVar[str] = ""
    accepts: ClassVar[tuple[type, ...]] = ()

    def __init__(
        self, default: Given | None = None, required: bool = False, required_default: bool = False
    ) -> None:
        self.is_required = required
        self._required_default = required_default
        self._default = None if default is None else self.checked("default", default)

    def type(self) -> str:
        return self.kind

    def default(self) -> Any:
        return self._default

    def required_default(self) -> bool:
        """Whether the default is part of the definition."""
        return self._required_default

    def schema(self) -> Definition:
        return self.definition(set())

    def definition(self, known: set[str]) -> Definition:
        """Return the Avro definition.

        ``known``: names that are already defined; this call adds those that it defines.
        """
        return self.kind

    def unset(self) -> Any:
        """Return the value of an attribute that the program did not set."""
        return self.default()

    def checked(self, name: str, value: Any) -> Any:
        """Return the value to keep. Raises ``TypeError`` for a value of another type."""
        if value is None and not self.is_required:
            return self.default()
        if not isinstance(value, self.accepts):
            raise TypeError(
                f"the field {name} takes {self._wanted()}, not {value!r} of type "
                f"{type(value).__name__}"
            )
        return value

    def _wanted(self) -> str:
        return " or ".join(kind.__name__ for kind in self.accepts)

    def plain(self, value: Any, *, is_json: bool) -> Any:
        """Return the value as JSON or Avro writes it."""
        return value

    def restored(self, value: Any) -> Any:
        """Undo ``plain``. Leaves a value that does not fit to ``checked``, which rejects it."""
        return value

    def plain_default(self) -> Any:
        default = self.default()
        return default.name if isinstance(default, Enum) else default


class Null(Field[None, None]):
    kind = "null"
    accepts = (type(None),)

    def checked(self, name: str, value: Any) -> Any:
        if value is not None:
            raise TypeError(f"the field {name} takes None, not {value!r}")
        return None


class Boolean(Field[bool, bool | None]):
    kind = "boolean"
    accepts = (bool,)

    def default(self) -> Any:
        return False if self._default is None else self._default


class _Whole(Field[int, int | None]):
    """A whole number with a fixed count of bits."""

    accepts = (int,)
    bits: ClassVar[int]

    def checked(self, name: str, value: Any) -> Any:
        found = super().checked(name, value)
        if found is not None and not -1 << (self.bits - 1) <= found < 1 << (self.bits - 1):
            raise TypeError(f"the field {name} takes int of {self.bits} bits, not {found}")
        return found


class Integer(_Whole):
    kind = "int"
    bits = 32


class Long(_Whole):
    kind = "long"
    bits = 64


class Float(Field[float, float | None]):
    """A number of 32 bits."""

    kind = "float"
    accepts = (float, int)


class Double(Field[float, float | None]):
    """A number of 64 bits."""

    kind = "double"
    accepts = (float, int)


class Bytes(Field[bytes, bytes | str | None]):
    """Bytes; a ``str`` is encoded as UTF-8."""

    kind = "bytes"
    accepts = (bytes, str)

    def checked(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        found = super().checked(name, value)
        return found.encode() if isinstance(found, str) else found

    def plain(self, value: Any, *, is_json: bool) -> Any:
        return value.decode() if is_json and isinstance(value, bytes) else value


class String(Field[str, str | bytes | None]):
    """Text; ``bytes`` are decoded as UTF-8."""

    kind = "string"
    accepts = (str, bytes)

    def checked(self, name: str, value: Any) -> Any:
        found = super().checked(name, value)
        return found.decode() if isinstance(found, bytes) else found


class CustomEnum(Field[Each, Any]):
    """A member of an ``Enum``, given as a member, by name, or by value.

    JSON carries its value, Avro its name.
    """

    kind = "enum"

    def __init__(
        self,
        enum_type: type[Each],
        default: Any = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        given: object = enum_type
        if not isinstance(given, EnumType):
            raise TypeError(f"CustomEnum takes a subclass of Enum, not {enum_type!r}")
        self.enum_type = cast("type[Enum]", given)
        super().__init__(default, required, required_default)

    def definition(self, known: set[str]) -> Definition:
        name = self.enum_type.__name__
        if name in known:
            return name
        known.add(name)
        return {"type": "enum", "name": name, "symbols": [member.name for member in self.enum_type]}

    def checked(self, name: str, value: Any) -> Any:
        if value is None or isinstance(value, self.enum_type):
            return value
        if isinstance(value, str) and value in self.enum_type.__members__:
            return self.enum_type.__members__[value]
        try:
            return self.enum_type(value)
        except ValueError:
            names = ", ".join(self.enum_type.__members__)
            raise TypeError(
                f"the field {name} takes a member of {self.enum_type.__name__} ({names}), not "
                f"{value!r}"
            ) from None

    def plain(self, value: Any, *, is_json: bool) -> Any:
        if not isinstance(value, Enum):
            return value
        return value.value if is_json else value.name


class _OfRecord(Field[Any, Any]):
    """A record within a record."""

    def __init__(self, record: Record | type[Record]) -> None:
        self._class: type[Record] = record if isinstance(record, type) else type(record)
        declared = {} if isinstance(record, type) else record._declared
        self._given = record if isinstance(record, Record) else None
        super().__init__(**declared)

    def type(self) -> str:
        return self._class.__name__

    def definition(self, known: set[str]) -> Definition:
        return self._class.definition(known)

    def unset(self) -> Any:
        """Return a new record with the values of the one in the declaration."""
        if self._given is None:
            return self._class()
        return deepcopy(self._given)

    def checked(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            value = self._class(**value)
        if value is None and not self.is_required:
            return self.default()
        if not isinstance(value, self._class):
            raise TypeError(
                f"the field {name} takes {self._class.__name__}, not {value!r} of type "
                f"{type(value).__name__}"
            )
        return value

    def plain(self, value: Any, *, is_json: bool) -> Any:
        return value.to_plain(is_json=is_json) if isinstance(value, Record) else value

    def restored(self, value: Any) -> Any:
        return self._class.from_plain(value) if isinstance(value, Mapping) else value

    def plain_default(self) -> Any:
        return self.plain(self.default(), is_json=False)


class _OfMany(Field[Held, Held | None], Generic[Held, Each]):
    """A field that holds many values of another field."""

    def __init__(
        self,
        inner: Declares[Each] | type[Each],
        default: Held | None = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        found = _as_field(inner)
        if found is None:
            raise TypeError(f"{type(self).__name__} takes a field or a record, not {inner!r}")
        self.inner: Field[Any, Any] = found
        super().__init__(default, required, required_default)

    def _each(self, values: Any, convert: Callable[[Any], Any]) -> Any:
        raise NotImplementedError

    def checked(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        return self._each(super().checked(name, value), lambda each: self._one(name, each))

    def _one(self, name: str, value: Any) -> Any:
        if value is None:
            raise TypeError(f"the field {name} takes no None among its values")
        return self.inner.checked(name, value)

    def plain(self, value: Any, *, is_json: bool) -> Any:
        return (
            None
            if value is None
            else self._each(value, lambda each: self.inner.plain(each, is_json=is_json))
        )

    def restored(self, value: Any) -> Any:
        return self._each(value, self.inner.restored) if isinstance(value, self.accepts) else value

    def plain_default(self) -> Any:
        return self.plain(self.default(), is_json=False)


class Array(_OfMany[list[Each], Each]):
    """A list; ``array_type`` is the field, or record, of each item."""

    kind = "array"
    accepts = (list,)

    def definition(self, known: set[str]) -> Definition:
        return {"type": "array", "items": self.inner.definition(known)}

    def _each(self, values: Any, convert: Callable[[Any], Any]) -> Any:
        return [convert(each) for each in values]


class Map(_OfMany[dict[str, Each], Each]):
    """A dict with text keys; ``value_type`` is the field, or record, of each value."""

    kind = "map"
    accepts = (dict,)

    def definition(self, known: set[str]) -> Definition:
        return {"type": "map", "values": self.inner.definition(known)}

    def checked(self, name: str, value: Any) -> Any:
        found = super().checked(name, value)
        if found is not None and not all(isinstance(key, str) for key in found):
            raise TypeError(f"the keys of the field {name} must be str")
        return found

    def _each(self, values: Any, convert: Callable[[Any], Any]) -> Any:
        return {key: convert(each) for key, each in values.items()}


def _as_field(declared: Any) -> Field[Any, Any] | None:
    """Return the field that an attribute of a record's class declares; ``None`` if it declares
    none.
    """
    if isinstance(declared, Field):
        return declared
    if isinstance(declared, EnumType):
        return CustomEnum(cast("type[Enum]", declared))
    if isinstance(declared, Record) or (
        isinstance(declared, type) and issubclass(declared, Record)
    ):
        return _OfRecord(declared)
    return None


class Record(Constructed):
    """Subclass it and declare fields.

    The constructor takes field values by name; missing ones get the field's default.

    ``default``, ``required`` and ``required_default`` are for a record that is a field of another
    record. The constructor ignores unknown names, so a program can read what a newer version wrote.
    """

    _avro_namespace: ClassVar[str | None] = None
    _sorted_fields: ClassVar[bool] = False
    """Whether the definition lists the fields in alphabetical order."""
    _fields: ClassVar[dict[str, Field[Any, Any]]] = {}
    if TYPE_CHECKING:

        @property
        def _declared(self) -> dict[str, Any]: ...

        def _held(self) -> Self: ...

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {
            name: field
            for name, value in vars(cls).items()
            if (field := _as_field(value)) is not None
        }
        cls._fields = {**cls._fields, **own}

    def __init__(
        self,
        default: Any = None,
        required_default: bool = False,
        required: bool = False,
        **values: Any,
    ) -> None:
        object.__setattr__(
            self,
            "_declared",
            {"default": default, "required": required, "required_default": required_default},
        )
        for name, field in self._fields.items():
            if name in values:
                setattr(self, name, values[name])
            else:
                object.__setattr__(self, name, field.unset())

    # Not for type checkers, which would take any name then.
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None:
            field = self._fields.get(name)
            if field is None:
                raise AttributeError(
                    f"{type(self).__name__} has no field {name}; it has {', '.join(self._fields)}"
                )
            object.__setattr__(self, name, field.checked(name, value))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the definition in Avro's JSON, as an object."""
        return cast("dict[str, Any]", cls.definition(set()))

    @classmethod
    def definition(cls, known: set[str]) -> Definition:
        """Return the Avro definition, as ``Field.definition`` does."""
        full = (
            cls.__name__ if cls._avro_namespace is None else f"{cls._avro_namespace}.{cls.__name__}"
        )
        if full in known:
            return full
        known.add(full)
        found: dict[str, Any] = {"type": "record", "name": cls.__name__}
        if cls._avro_namespace is not None:
            found["namespace"] = cls._avro_namespace
        names = sorted(cls._fields) if cls._sorted_fields else cls._fields
        found["fields"] = [_declared_field(name, cls._fields[name], known) for name in names]
        return found

    def to_plain(self, *, is_json: bool) -> dict[str, Any]:
        """Return the fields' values as JSON or Avro writes them."""
        return {
            name: field.plain(getattr(self, name), is_json=is_json)
            for name, field in self._fields.items()
        }

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> Self:
        """Return the record of decoded values. Raises ``TypeError`` for values of another type."""
        return cls(
            **{
                name: field.restored(values[name])
                for name, field in cls._fields.items()
                if name in values
            }
        )

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(
            getattr(self, name) == getattr(other, name) for name in self._fields
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({fields})"


def _declared_field(name: str, field: Field[Any, Any], known: set[str]) -> dict[str, Any]:
    kind = field.definition(known)
    found = {"name": name, "type": kind if field.is_required or kind == "null" else ["null", kind]}
    return found | ({"default": field.plain_default()} if field.required_default() else {})
