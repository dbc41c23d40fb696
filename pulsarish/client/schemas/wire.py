"""Schemas as the client tells them to brokers and hears of them."""

from __future__ import annotations

from pulsarish.client.schemas.schema import Schema, schema_info
from pulsarish.model import schema as model
from pulsarish.model.errors import UnsupportedFeature
from pulsarish.model.schema import SchemaType
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["schema_from", "schema_message"]


def schema_message(schema: Schema) -> pb.Schema | None:
    """What a producer or consumer says of its schema, if it says anything."""
    info = schema_info(schema)
    if info is None:
        return None
    return pb.Schema(type=int(info.type), data=info.data, name=info.name, properties=dict(info.properties))


def schema_from(message: pb.Schema) -> model.Schema:
    """Raises ``UnsupportedFeature`` for a type of a newer version."""
    try:
        kind = SchemaType(message.type)
    except ValueError:
        raise UnsupportedFeature(f"this client knows no schema of type {message.type}") from None
    return model.Schema(kind, message.data, message.name, dict(message.properties))
