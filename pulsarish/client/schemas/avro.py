"""Avro: values of a class, or dicts, in Avro's binary form, decoded with the schema that they were
written with.

It needs fastavro, which the extra ``avro`` installs.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping
from typing import Any, Final, Generic, overload

import msgspec

from pulsarish.client.checks import shown
from pulsarish.client.errors import InvalidType
from pulsarish.client.schemas.python_types import TypedShape
from pulsarish.client.schemas.records import Record
from pulsarish.client.schemas.schema import Decode
from pulsarish.client.type_variables import Value
from pulsarish.model import schema as model
from pulsarish.model.avro import parse_avro
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.schema import SchemaType
from pulsarish.runtime.extras import optional_module

__all__ = ["AvroSchema", "avro_decoder"]

# fastavro raises these for values that do not fit, and for bytes that hold no value.
_UNFIT: Final = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    IndexError,
    ArithmeticError,
    EOFError,
    StopIteration,
    RecursionError,
    MemoryError,
    struct.error,
)


def _fastavro() -> Any:
    return optional_module("fastavro", "avro", "AvroSchema")


def _parsed(definition: Any, what: str) -> Any:
    fastavro = _fastavro()
    try:
        return fastavro.parse_schema(definition)
    except (*_UNFIT, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise InvalidArgument(f"{what} is no Avro schema: {error!r}") from None


class _RecordShape:
    def __init__(self, record_cls: type[Record]) -> None:
        self._class = record_cls
        self.definition = record_cls.schema()

    def to_plain(self, value: Any) -> Any:
        if not isinstance(value, self._class):
            raise InvalidType(
                f"content is of type {type(value).__name__}: this producer's schema takes "
                f"{self._class.__name__}"
            )
        return value.to_plain(is_json=False)

    def from_plain(self, found: Any) -> Any:
        return self._class.from_plain(found)


class _DictShape:
    def __init__(self, definition: Mapping[str, Any]) -> None:
        self.definition = dict(definition)

    def to_plain(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise InvalidType(
                f"content is of type {type(value).__name__}: a schema by its definition takes a "
                "dict"
            )
        return value

    def from_plain(self, found: Any) -> Any:
        return found


class AvroSchema(Generic[Value]):
    """A schema of a class or of a definition.

    Args:
        record_cls: a ``Record``, dataclass, msgspec Struct or TypedDict.
        schema_definition: an Avro schema, for dicts.
    """

    @overload
    def __init__(
        self, record_cls: type[Value], schema_definition: Mapping[str, Any] | None = None
    ) -> None: ...

    @overload
    def __init__(
        self: AvroSchema[dict[str, Any]],
        record_cls: None = None,
        *,
        schema_definition: Mapping[str, Any],
    ) -> None: ...

    @overload
    def __init__(
        self: AvroSchema[dict[str, Any]], record_cls: None, schema_definition: Mapping[str, Any]
    ) -> None: ...

    def __init__(
        self, record_cls: Any = None, schema_definition: Mapping[str, Any] | None = None
    ) -> None:
        """Raises ``InvalidArgument`` for a type that Avro cannot express, ``OperationNotSupported``
        without fastavro.
        """
        if record_cls is None and schema_definition is None:
            raise InvalidArgument("AvroSchema needs record_cls or schema_definition")
        self._shape: _RecordShape | _DictShape | TypedShape
        if record_cls is None:
            assert schema_definition is not None
            if not isinstance(schema_definition, Mapping):
                raise InvalidType(
                    f"schema_definition is {shown(schema_definition)}: pass an Avro schema as a "
                    "dict"
                )
            self._shape = _DictShape(schema_definition)
        elif isinstance(record_cls, type) and issubclass(record_cls, Record):
            self._shape = _RecordShape(record_cls)
        else:
            self._shape = TypedShape(record_cls)
        self._info = model.Schema(
            SchemaType.AVRO, json.dumps(self._shape.definition).encode(), "AVRO"
        )
        # the broker's own check, which is stricter than the library's
        _ = parse_avro(self._info.data)
        self._parsed = _parsed(self._shape.definition, "the schema's definition")

    def encode(self, value: Value) -> bytes:
        plain = self._shape.to_plain(value)
        buffer = io.BytesIO()
        try:
            _fastavro().schemaless_writer(buffer, self._parsed, plain)
        except _UNFIT as error:
            raise InvalidArgument(f"content does not fit its Avro schema: {error!r}") from None
        return buffer.getvalue()

    def decode(self, data: bytes) -> Value:
        """Return the value of bytes that were written with this very schema."""
        return self._decoded(data, self._parsed)

    def to_plain(self, value: Any) -> Any:
        """Return a value as dicts, lists and plain values."""
        shape = self._shape
        return shape.to_builtins(value) if type(shape) is TypedShape else shape.to_plain(value)

    def reader_for(self, writer: model.Schema) -> Decode:
        """Return how to decode what another version wrote.

        Raises ``InvalidArgument`` for a schema that is not Avro.
        """
        if writer.type is not SchemaType.AVRO:
            raise InvalidArgument(
                f"it was written with a schema of type {writer.type.name}, not AVRO: read it with "
                "data()"
            )
        definition = _definition(writer)
        own = self._shape.definition
        if isinstance(definition, dict) and definition.get("type") == own.get("type") == "record":
            # The topic's schema may have another name. The name does not affect the content.
            definition = {key: value for key, value in definition.items() if key != "namespace"}
            definition["name"] = own["name"]
            if "namespace" in own:
                definition["namespace"] = own["namespace"]
        parsed = _parsed(definition, "the schema that it was written with")
        return lambda data: self._decoded(data, parsed)

    def schema_info(self) -> model.Schema:
        return self._info

    def _decoded(self, data: bytes, writer: Any) -> Value:
        found = _read(data, writer, self._parsed)
        try:
            value: Value = self._shape.from_plain(found)
        except (TypeError, KeyError, msgspec.ValidationError) as error:
            raise InvalidArgument(
                f"the message does not hold what was asked for ({error}): read it with data()"
            ) from None
        return value


def _definition(writer: model.Schema) -> Any:
    try:
        return json.loads(writer.data)
    except ValueError as error:
        raise InvalidArgument(f"the schema that it was written with is not JSON: {error}") from None


def _read(data: bytes, writer: Any, reader: Any) -> Any:
    fastavro = _fastavro()
    buffer = io.BytesIO(data)
    try:
        found = fastavro.schemaless_reader(buffer, writer, reader)
    except (*_UNFIT, fastavro.read.SchemaResolutionError) as error:
        raise InvalidArgument(
            f"the message is not the Avro that was asked for ({error!r}): read it with data()"
        ) from None
    if buffer.tell() != len(data):
        raise InvalidArgument(
            f"{len(data) - buffer.tell()} bytes follow the Avro value in the message: read it "
            "with data()"
        )
    return found


def avro_decoder(writer: model.Schema) -> Decode:
    """Return a decoder that gives dicts.

    It needs only the schema that the messages were written with.
    """
    parsed = _parsed(_definition(writer), "the schema that it was written with")
    return lambda data: _read(data, parsed, None)
