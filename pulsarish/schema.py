"""Schemas and the fields of records, with the names of ``pulsar.schema`` of Apache Pulsar's Python
client.
"""

from __future__ import annotations

from pulsarish.client.schemas.auto_consume import AutoConsumeSchema
from pulsarish.client.schemas.avro import AvroSchema
from pulsarish.client.schemas.key_value import KeyValue, KeyValueEncodingType, KeyValueSchema
from pulsarish.client.schemas.protobuf import ProtobufNativeSchema
from pulsarish.client.schemas.records import (
    Array,
    Boolean,
    Bytes,
    CustomEnum,
    Double,
    Field,
    Float,
    Integer,
    Long,
    Map,
    Null,
    Record,
    String,
)
from pulsarish.client.schemas.schema import BytesSchema, JsonSchema, Schema, StringSchema

__all__ = [
    "Array",
    "AutoConsumeSchema",
    "AvroSchema",
    "Boolean",
    "Bytes",
    "BytesSchema",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Integer",
    "JsonSchema",
    "KeyValue",
    "KeyValueEncodingType",
    "KeyValueSchema",
    "Long",
    "Map",
    "Null",
    "ProtobufNativeSchema",
    "Record",
    "Schema",
    "String",
    "StringSchema",
]
