"""A consumer's schema that follows the topic: each message is decoded by the schema that it was
written with.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Final

from pulsarish.client.schemas.avro import avro_decoder
from pulsarish.client.schemas.key_value import key_value_decoder, key_value_parts
from pulsarish.client.schemas.protobuf import protobuf_decoder
from pulsarish.client.schemas.schema import Decode, StringSchema
from pulsarish.model import schema as model
from pulsarish.model.errors import InvalidArgument, OperationNotSupported
from pulsarish.model.schema import SchemaType

__all__ = ["AutoConsumeSchema"]

_INFO: Final = model.Schema(SchemaType.AUTO_CONSUME, b"", "AUTO_CONSUME")
# In the form of Apache Pulsar's Java client. Dates and times are milliseconds.
_NUMBERS: Final = {
    SchemaType.BOOLEAN: ">?",
    SchemaType.INT8: ">b",
    SchemaType.INT16: ">h",
    SchemaType.INT32: ">i",
    SchemaType.INT64: ">q",
    SchemaType.FLOAT: ">f",
    SchemaType.DOUBLE: ">d",
    SchemaType.DATE: ">q",
    SchemaType.TIME: ">q",
    SchemaType.TIMESTAMP: ">q",
}


class AutoConsumeSchema:
    """A schema for consumers, readers and table views.

    Values of Avro, JSON and protobuf schemas are dicts, those of texts and numbers are texts and
    numbers. ``KeyValue`` holds a pair of these. Values without a schema are bytes.
    """

    def encode(self, value: object) -> bytes:
        raise InvalidArgument(
            "AutoConsumeSchema only reads: give the producer the schema of what it sends"
        )

    def decode(self, data: bytes) -> Any:
        """Return the payload of a message without a schema."""
        return data

    def reader_for(self, writer: model.Schema) -> Decode:
        """Return how to decode messages that were written with a schema.

        Raises ``OperationNotSupported`` for a type that this client does not decode.
        """
        match writer.type:
            case SchemaType.AVRO:
                return avro_decoder(writer)
            case SchemaType.JSON:
                return _json
            case SchemaType.STRING:
                return StringSchema().decode
            case kind if kind in _NUMBERS:
                layout = struct.Struct(_NUMBERS[kind])
                return lambda data: _number(layout, kind, data)
            case SchemaType.KEY_VALUE:
                return key_value_decoder(
                    writer, *(self.reader_for(part) for part in key_value_parts(writer))
                )
            case SchemaType.PROTOBUF_NATIVE:
                return protobuf_decoder(writer)
            case SchemaType.NONE:
                return self.decode
            case kind:
                raise OperationNotSupported(
                    f"this client does not read messages of schema type {kind.name}: read them "
                    "with data()"
                )

    def schema_info(self) -> model.Schema:
        return _INFO


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise InvalidArgument(f"the message is not JSON ({error}): read it with data()") from None


def _number(layout: struct.Struct, kind: SchemaType, data: bytes) -> Any:
    if len(data) != layout.size:
        raise InvalidArgument(
            f"the message has {len(data)} bytes, and {kind.name} has {layout.size}: read it with "
            "data()"
        )
    return layout.unpack(data)[0]
