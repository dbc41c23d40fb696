"""Whether a topic accepts a new schema after others, or a consumer with a schema: the strategies,
and the rule of each type.

AVRO and JSON follow the resolution of Avro for Java, as in Apache Pulsar. KEY_VALUE follows the
rules of both its parts. PROTOBUF_NATIVE compares the name of its message. Every other type is
compatible with itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pulsarish.model.avro import parse_avro
from pulsarish.model.avro_resolution import mismatch
from pulsarish.model.errors import IncompatibleSchema, InvalidSchema
from pulsarish.model.policy_words import SchemaStrategy
from pulsarish.model.schema import (
    AVRO_DEFINED,
    Schema,
    SchemaType,
    VersionedSchema,
    fingerprint,
    split_key_value,
)

__all__ = ["check_consumer", "check_new", "check_valid"]

_RESOLVED: Final = frozenset({SchemaType.AVRO, SchemaType.JSON})
_TRANSITIVE: Final = "_TRANSITIVE"


class _ProtobufNative(msgspec.Struct):
    """The definition of a PROTOBUF_NATIVE schema, in JSON."""

    fileDescriptorSet: str  # noqa: N815 - Apache Pulsar's own name
    rootMessageTypeName: str  # noqa: N815
    rootFileDescriptorName: str  # noqa: N815


def check_valid(schema: Schema) -> None:
    """Check that the definition is valid for its type. Raises ``InvalidSchema``."""
    match schema.type:
        case SchemaType.NONE | SchemaType.AUTO_CONSUME:
            raise InvalidSchema(
                f"a schema of type {schema.type.name} says nothing of the content and is not kept"
            )
        case _ if schema.type in AVRO_DEFINED:
            _ = parse_avro(schema.data)
        case SchemaType.KEY_VALUE:
            for part in split_key_value(schema):
                if part.type is not SchemaType.NONE:
                    check_valid(part)
        case SchemaType.PROTOBUF_NATIVE:
            _ = _root_message(schema)
        case SchemaType.EXTERNAL:
            return
        case SchemaType.STRING if schema.data == b"null":
            return  # what Apache Pulsar's Python client sends for "no definition"
        case _ if schema.data:
            raise InvalidSchema(
                f"a schema of type {schema.type.name} has no definition, and one of "
                f"{len(schema.data)} bytes was given"
            )
        case _:
            return


def check_new(strategy: SchemaStrategy, before: Sequence[VersionedSchema], new: Schema) -> None:
    """Check that ``new`` may follow the schemas ``before``, oldest first.

    Raises ``IncompatibleSchema``, ``InvalidSchema``.
    """
    if strategy == "ALWAYS_COMPATIBLE":
        return
    for each in before if strategy.endswith(_TRANSITIVE) else before[-1:]:
        _check(strategy, each, new)


def check_consumer(
    strategy: SchemaStrategy, before: Sequence[VersionedSchema], schema: Schema
) -> None:
    """Check that a consumer with a schema can read what was, and will be, written with the topic's
    schemas, oldest first.

    It must read what the newest one writes. With a transitive strategy it must read what all of
    them write. Raises ``IncompatibleSchema``, ``InvalidSchema``.
    """
    same = fingerprint(schema)
    if any(fingerprint(each.schema) == same for each in before):
        return
    check_new(
        strategy
        if strategy in ("BACKWARD_TRANSITIVE", "FULL_TRANSITIVE")
        else _for_consumer(strategy),
        before,
        schema,
    )


def _for_consumer(strategy: SchemaStrategy) -> SchemaStrategy:
    return strategy if strategy.startswith("ALWAYS_") else "BACKWARD"


def _check(strategy: SchemaStrategy, before: VersionedSchema, new: Schema) -> None:
    reason = _reason(strategy, before.schema, new)
    if reason:
        raise IncompatibleSchema(
            f"the schema is not compatible with version {before.version} of the topic "
            f"({strategy}): {reason}"
        )


def _reason(strategy: SchemaStrategy, old: Schema, new: Schema) -> str:
    """Return why ``new`` may not follow ``old``; empty when it may."""
    if new.type is not old.type:
        return f"its type is {new.type.name}, that of the topic is {old.type.name}"
    if strategy == "ALWAYS_INCOMPATIBLE":
        return "the strategy allows no other schema"
    if new.type in _RESOLVED:
        return _avro_reason(strategy, old, new)
    if new.type is SchemaType.KEY_VALUE:
        for part, old_part, new_part in zip(
            ("key", "value"), split_key_value(old), split_key_value(new), strict=True
        ):
            if (old_part.type, old_part.data) != (new_part.type, new_part.data) and (
                reason := _reason(strategy, old_part, new_part)
            ):
                return f"{part}: {reason}"
        return ""
    if new.type is SchemaType.PROTOBUF_NATIVE and _root_message(old) != _root_message(new):
        return f"its message is {_root_message(new)}, that of the topic is {_root_message(old)}"
    return ""


def _avro_reason(strategy: SchemaStrategy, old: Schema, new: Schema) -> str:
    if old.data == new.data:
        return ""
    before, after = parse_avro(old.data), parse_avro(new.data)
    direction = strategy.removesuffix(_TRANSITIVE)
    if direction in ("BACKWARD", "FULL") and (reason := mismatch(after, before)):
        return f"it does not read what was written before it: {reason}"
    if direction in ("FORWARD", "FULL") and (reason := mismatch(before, after)):
        return f"what is written with it is not readable with the one before: {reason}"
    return ""


def _root_message(schema: Schema) -> str:
    try:
        return msgspec.json.decode(schema.data, type=_ProtobufNative).rootMessageTypeName
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidSchema(
            f"the definition of a PROTOBUF_NATIVE schema cannot be read: {error}"
        ) from None
