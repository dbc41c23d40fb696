"""What a hostile peer sends: messages with values that no client sends, and bytes that are not a
message.

The messages are valid ones with one or more fields changed. Texts become other texts of a fixed
list, so that no changed message names a topic, a subscription or a ledger of another program.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, cast

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from pulsarish.model.errors import InvalidArgument
from pulsarish.model.topic_name import TopicName, encode_segment
from pulsarish.wire._pb import pulsar_pb2 as pb
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import encode_entry

__all__ = [
    "LOCAL_NAMES",
    "SUBSCRIPTION",
    "TOPICS",
    "WILD_IDS",
    "changed",
    "entry",
    "frame",
    "garbage",
    "send_frame",
]

SUBSCRIPTION: Final = "hostile"
TOPICS: Final = (
    "persistent://public/default/hostile0",
    "persistent://public/default/hostile1",
    "non-persistent://public/default/hostile2",
)
_TEXTS: Final = (
    *TOPICS,
    SUBSCRIPTION,
    "",
    "persistent://",
    "persistent://public",
    "persistent://nobody/nothing/hostile",
    "persistent://public/default/hostile0-partition-99999999999",
    "..",
    "\x00\x1b[31m",
    "\u202ehostile",
    "h" * 600,
)


def _local_names() -> Iterator[str]:
    for text in _TEXTS:
        with suppress(InvalidArgument):
            yield encode_segment(TopicName.parse(text).local)


LOCAL_NAMES: Final = tuple(_local_names())
"""Local names, as in the metadata, of all topics that a hostile peer can make."""
WILD_IDS: Final = (
    0,
    1,
    2,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53,
    2**62,
    2**63 - 2,
    2**63 - 1,
    2**63,
    2**64 - 2,
    2**64 - 1,
)
_BITS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (32, True),
    FieldDescriptor.CPPTYPE_UINT32: (32, False),
    FieldDescriptor.CPPTYPE_INT64: (64, True),
    FieldDescriptor.CPPTYPE_UINT64: (64, False),
}
_SIZES: Final = struct.Struct(">II")


def _wild_number(rng: random.Random, bits: int, *, signed: bool) -> int:
    value = rng.choice(WILD_IDS) % (1 << bits)
    return value - (1 << bits) if signed and value >= 1 << (bits - 1) else value


def _wild(rng: random.Random, field: FieldDescriptor, now: Any) -> Any:
    if field.cpp_type in _BITS:
        bits, signed = _BITS[field.cpp_type]
        return _wild_number(rng, bits, signed=signed)
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_BOOL:
            return not now
        case FieldDescriptor.CPPTYPE_ENUM:
            return rng.choice(
                [each.number for each in cast("EnumDescriptor", field.enum_type).values]
            )
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return rng.randbytes(rng.choice((0, 1, 9, 200)))
        case FieldDescriptor.CPPTYPE_STRING:
            return rng.choice(_TEXTS)
        case _:
            return now


def _change_one(rng: random.Random, message: Message, *, unsets: bool) -> None:
    fields = [cast("FieldDescriptor", field) for field in message.DESCRIPTOR.fields]
    if rng.random() < 0.8:
        fields = [field for field, _ in message.ListFields()] or fields
    fields = [
        field
        for field in fields
        if field.message_type is None or not field.message_type.GetOptions().map_entry
    ]
    if not fields:
        return
    field = rng.choice(fields)
    if unsets and rng.random() < 0.1:
        message.ClearField(field.name)
    elif field.is_repeated:
        values = getattr(message, field.name)
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            for _ in range(rng.choice((1, 3))):
                _change_one(rng, values.add(), unsets=unsets)
        else:
            values.extend(_wild(rng, field, 0) for _ in range(rng.choice((1, 2, 30))))
    elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        _change_one(rng, getattr(message, field.name), unsets=unsets)
    else:
        setattr(message, field.name, _wild(rng, field, getattr(message, field.name)))


def changed(rng: random.Random, message: Message, *, most: int = 2) -> bytes:
    """Return an encoded message with up to ``most`` of its fields changed.

    Rarely a required field is not set.
    """
    copy = type(message)()
    copy.CopyFrom(message)
    for _ in range(rng.randint(0, most)):
        _change_one(rng, copy, unsets=True)
    return copy.SerializePartialToString()


def frame(encoded: bytes, payload: bytes = b"") -> bytes:
    """Return a frame of Apache Pulsar's binary protocol."""
    return _SIZES.pack(4 + len(encoded) + len(payload), len(encoded)) + encoded + payload


def entry(sequence_id: int, payload: bytes = b"x") -> bytes:
    """Return an entry with one message of a hostile producer."""
    return encode_entry(
        MessageMetadata(producer_name=SUBSCRIPTION, sequence_id=sequence_id, publish_time=1),
        payload,
    )


def send_frame(producer_id: int, sequence_id: int, payload: bytes | None = None) -> bytes:
    """Return a SEND, with a good entry unless ``payload`` replaces it."""
    send = pb.Command(type=6, send=pb.Send(producer_id=producer_id, sequence_id=sequence_id))
    return frame(send.SerializeToString(), entry(sequence_id) if payload is None else payload)


def garbage(rng: random.Random, good: bytes) -> bytes:
    """Return bytes that are not a frame: random bytes, or a frame that is cut, has wrong sizes, or
    has one byte changed.
    """
    match rng.randrange(4):
        case 0:
            return rng.randbytes(rng.choice((1, 3, 8, 300)))
        case 1:
            return good[: rng.randrange(1, len(good))]
        case 2:
            return (
                _SIZES.pack(rng.choice(WILD_IDS) % 2**32, rng.choice(WILD_IDS) % 2**32) + good[8:]
            )
        case _:
            # Only the fixed part before the first text: a changed text could name what another
            # program uses.
            return good[:4] + bytes([rng.randrange(256)]) + good[5:]
