"""Schemas and the fields of records, with the names of ``pulsar.schema`` of Apache Pulsar's Python client."""

from __future__ import annotations

from pulsarish.client.auto_schema import AutoConsumeSchema
from pulsarish.client.avro_schema import AvroSchema
from pulsarish.client.key_value_schema import KeyValue, KeyValueEncodingType, KeyValueSchema
from pulsarish.client.protobuf_schema import ProtobufNativeSchema
from pulsarish.client.records import Array, Boolean, Bytes, CustomEnum, Double, Field, Float, Integer, Long, Map, Null, Record, String
from pulsarish.client.schema import BytesSchema, JsonSchema, Schema, StringSchema

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
