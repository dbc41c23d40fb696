"""Schemas in the messages between client and broker."""

from __future__ import annotations

from pulsarish.client.schemas.schema import Schema, schema_info
from pulsarish.model import schema as model
from pulsarish.model.errors import OperationNotSupported
from pulsarish.model.schema import SchemaType
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["schema_from", "schema_message"]


def schema_message(schema: Schema) -> pb.Schema | None:
    """Return the schema that a producer or consumer registers; ``None`` if it has no definition."""
    info = schema_info(schema)
    if info is None:
        return None
    return pb.Schema(
        type=int(info.type), data=info.data, name=info.name, properties=dict(info.properties)
    )


def schema_from(message: pb.Schema) -> model.Schema:
    """Return the schema of a broker's message.

    Raises ``OperationNotSupported`` for a type of a newer version.
    """
    try:
        kind = SchemaType(message.type)
    except ValueError:
        raise OperationNotSupported(f"this client knows no schema of type {message.type}") from None
    return model.Schema(kind, message.data, message.name, dict(message.properties))
