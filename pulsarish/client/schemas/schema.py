"""Schemas: how a value becomes the bytes of a message and back, and what the client sends to the
broker about it.

A schema is any object with ``encode`` and ``decode``. The client also uses these methods where they
exist: ``schema_info`` returns the topic's schema. ``reader_for`` returns how to decode another
version; a consumer calls it once for each version. ``message_key`` moves a part of each value into
the message's key (``KeyValueSchema``). ``to_plain`` returns a value as dicts, lists and plain
values, for the columns of a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import UnionType
from typing import Any, Final, Generic, NamedTuple, Protocol, cast, overload

import msgspec

from pulsarish.client.checks import check_text, shown
from pulsarish.client.errors import InvalidType
from pulsarish.client.schemas.python_types import TypedShape, definition_of
from pulsarish.client.schemas.records import Record
from pulsarish.client.type_variables import Value
from pulsarish.model import schema as model
from pulsarish.model.errors import InvalidArgument, PulsarishError
from pulsarish.model.schema import SchemaType

__all__ = [
    "BytesSchema",
    "Decode",
    "JsonSchema",
    "KeyedDecode",
    "MessageKey",
    "ReaderFor",
    "Schema",
    "StringSchema",
    "message_key",
    "reader_for",
    "schema_info",
]

Decode = Callable[[bytes], Any]
ReaderFor = Callable[[model.Schema], Decode]


class MessageKey(NamedTuple):
    """What a message carries of a value besides the payload.

    ``key``: ``None`` for no key. ``is_null``: there is no payload.
    """

    key: bytes | None
    is_null: bool


class KeyedDecode:
    """Decodes values that need the message's key as well as the payload."""

    def __init__(self, both: Callable[[bytes | None, bytes | None], Any]) -> None:
        """``both`` returns the value of a key and a payload; either may be missing."""
        self.both = both

    def __call__(self, data: bytes) -> Any:
        raise InvalidArgument(
            "the key of this value is the message's own, which is not at hand here: read the "
            "payload as it is"
        )


class Schema(Protocol[Value]):
    """Converts between the value of a message and its bytes."""

    def encode(self, obj: Value) -> bytes:
        """Return the bytes of a value. Raises ``InvalidArgument`` for a value of another type."""
        ...

    def decode(self, data: bytes) -> Value:
        """Return the value of bytes. Raises ``InvalidArgument`` for bytes that hold no value."""
        ...


def schema_info(schema: Schema[Any]) -> model.Schema | None:
    """Return the schema that the client registers with the broker; ``None`` if the schema has no
    definition.
    """
    describe = getattr(schema, "schema_info", None)
    found = describe() if callable(describe) else None
    return found if isinstance(found, model.Schema) else None


def reader_for(schema: Schema[Any]) -> ReaderFor | None:
    """Return the schema's ``reader_for``; ``None`` if it has none."""
    found = getattr(schema, "reader_for", None)
    return cast("ReaderFor", found) if callable(found) else None


def message_key(schema: Schema[Any]) -> Callable[[Any], MessageKey] | None:
    """Return the schema's ``message_key``; ``None`` if it has none."""
    found = getattr(schema, "message_key", None)
    return cast("Callable[[Any], MessageKey]", found) if callable(found) else None


class BytesSchema:
    """Bytes as they are; the default."""

    def encode(self, data: object) -> bytes:
        if type(data) is bytes:
            return data
        if isinstance(data, (bytes, bytearray, memoryview)):
            return bytes(data)
        raise InvalidType(
            f"content is of type {type(data).__name__}: pass bytes, or give the producer a schema"
        )

    def decode(self, data: bytes) -> bytes:
        return data


_STRING: Final = model.Schema(SchemaType.STRING, b"", "STRING")


class StringSchema:
    """Text as UTF-8."""

    def encode(self, obj: object) -> bytes:
        if not isinstance(obj, str):
            raise InvalidType(f"content is of type {type(obj).__name__}: StringSchema takes str")
        return check_text("content", obj).encode()

    def decode(self, data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument(
                f"the message is no UTF-8 text ({error}): read it with data()"
            ) from None

    def schema_info(self) -> model.Schema:
        return _STRING


class JsonSchema(Generic[Value]):
    """JSON.

    Args:
        record_cls: a ``Record``, dataclass, msgspec Struct or TypedDict to decode into and to
            validate against. Without it, any JSON.

    The topic's schema is the Avro definition of the class. The client registers no schema without a
    class, and for a class with a field that Avro cannot define.
    """

    @overload
    def __init__(self: JsonSchema[Any]) -> None: ...

    @overload
    def __init__(self, record_cls: type[Value]) -> None: ...

    @overload
    def __init__(self: JsonSchema[Any], record_cls: UnionType) -> None: ...

    def __init__(self, record_cls: Any = Any) -> None:
        """Raises ``InvalidArgument`` for a type that JSON cannot be decoded into."""
        self._record_cls = record_cls
        self._of_record = isinstance(record_cls, type) and issubclass(record_cls, Record)
        try:
            self._decoder = msgspec.json.Decoder(dict[str, Any] if self._of_record else record_cls)
        except TypeError as error:
            raise InvalidType(
                f"record_cls is {shown(record_cls)}: pass a dataclass, msgspec Struct or "
                f"TypedDict ({error})"
            ) from None
        definition = record_cls.schema() if self._of_record else definition_of(record_cls)
        self._shape = None if definition is None or self._of_record else TypedShape(record_cls)
        self._info = (
            None
            if definition is None
            else model.Schema(SchemaType.JSON, json.dumps(definition).encode(), "JSON")
        )

    def encode(self, obj: object) -> bytes:
        try:
            if self._of_record:
                if not isinstance(obj, self._record_cls):
                    raise InvalidType(
                        f"content is of type {type(obj).__name__}: this producer's schema takes "
                        f"{self._record_cls.__name__}"
                    )
                obj = obj.to_plain(is_json=True)
            return msgspec.json.encode(obj)
        except PulsarishError:
            raise
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"content cannot be written as JSON: {error}") from None

    def decode(self, data: bytes) -> Value:
        try:
            found = self._decoder.decode(data)
            value: Value = self._record_cls.from_plain(found) if self._of_record else found
        except (msgspec.DecodeError, msgspec.ValidationError, TypeError) as error:
            raise InvalidArgument(
                f"the message is not the JSON that was asked for ({error}): read it with data()"
            ) from None
        return value

    def to_plain(self, value: Any) -> Any:
        """Return a value as dicts, lists and plain values."""
        if self._of_record:
            return value.to_plain(is_json=False)
        return value if self._shape is None else self._shape.to_builtins(value)

    def schema_info(self) -> model.Schema | None:
        return self._info
