"""Frames of Apache Pulsar's binary protocol: split received bytes into frames, and encode the two
most frequent frames.

``total size u32 | command size u32 | command``, big-endian; the total excludes its own field. SEND
and MESSAGE carry an entry after the command. Before the entry there may be fields that a broker
added (``0x0e02``, size u32, bytes). An entry of an old client has no magic and no checksum and
begins with the size of its metadata. Source: Apache Pulsar's public binary protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError, Message
from google_crc32c import extend

from pulsarish.model.errors import Malformed
from pulsarish.model.position import Position
from pulsarish.wire._pb.pulsar_pb2 import Command
from pulsarish.wire.entry import MAGIC
from pulsarish.wire.varint import ONE_BYTE, encode_varint

__all__ = [
    "ENVELOPE_BYTES_MAX",
    "Frame",
    "FrameReader",
    "carried_entry",
    "command_body",
    "command_frame",
    "delivery_frame_head",
    "delivery_place",
    "parse_command",
    "receipt_frames",
]

ENVELOPE_BYTES_MAX: Final = 10 * 1024
"""Bytes that a frame may have beyond the largest message: sizes, command and metadata.

Apache Pulsar's number.
"""

_PIECES_MAX: Final = 256
"""This many pieces of an incomplete frame are joined into one: a piece of 2 bytes takes 35 in
memory.
"""
_BROKER_METADATA_MAGIC: Final = 0x0E02
_SIZES: Final = struct.Struct(">II")
_SIZE: Final = struct.Struct(">I")
_MAGIC_SIZE: Final = struct.Struct(">HI")
_SEND: Final = 6
_ACK: Final = 10
_FLOW: Final = 11
_MINUS_ONE: Final = b"\xff" * 9 + b"\x01"


class Frame(NamedTuple):
    command: bytes
    payload: memoryview


class FrameReader:
    """The core of reading: receives pieces of a connection's bytes, returns whole frames."""

    __slots__ = ("_need", "_parts", "_pieces", "broken", "frame_bytes_max", "held_bytes")

    def __init__(self, frame_bytes_max: int) -> None:
        self.broken: Malformed | None = None
        """Why nothing more can be read: the bytes after the last returned frames are not a
        frame.
        """
        self.frame_bytes_max = frame_bytes_max
        """The largest frame, without its size field. May be changed between two calls."""
        self.held_bytes = 0
        """The bytes of an incomplete frame."""
        self._parts: list[bytes] = []
        self._pieces = 0
        self._need = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes complete.

        Keeps at most one frame of the largest size and what arrived with its end.
        """
        frames: list[Frame] = []
        if self.broken is not None:
            return frames
        if self._parts:
            self._parts.append(data)
            self.held_bytes += len(data)
            if self.held_bytes < self._need:
                self._pieces += 1
                if self._pieces == _PIECES_MAX:
                    self._parts[-_PIECES_MAX:] = [b"".join(self._parts[-_PIECES_MAX:])]
                    self._pieces = 0
                return frames
            data = b"".join(self._parts)
            self._parts.clear()
            self.held_bytes = self._pieces = 0
        at, end = 0, len(data)
        view = memoryview(data)
        need = _SIZES.size
        while end - at >= _SIZES.size:
            total, size = _SIZES.unpack_from(data, at)
            if not _SIZE.size + size <= total <= self.frame_bytes_max:
                self.broken = Malformed(
                    f"a frame of {total} bytes with a command of {size}; frames are "
                    f"{_SIZE.size} to {self.frame_bytes_max} bytes"
                    " and hold their command"
                )
                return frames
            after = at + _SIZE.size + total
            if after > end:
                need = _SIZE.size + total
                break
            start = at + _SIZES.size
            frames.append(Frame(data[start : start + size], view[start + size : after]))
            at = after
        if at < end:
            self._parts.append(data[at:] if at else data)
            self.held_bytes = end - at
            self._need = need
        return frames


def carried_entry(payload: memoryview) -> memoryview | bytes:
    """Return the entry of a SEND, from its magic on.

    Adds a missing checksum. Raises ``Malformed``.
    """
    try:
        (magic,) = struct.unpack_from(">H", payload)
        if magic == _BROKER_METADATA_MAGIC:
            payload = payload[_MAGIC_SIZE.size + _MAGIC_SIZE.unpack_from(payload)[1] :]
            (magic,) = struct.unpack_from(">H", payload)
    except struct.error:
        raise Malformed(f"a SEND carries {len(payload)} bytes, which are no entry") from None
    if magic == MAGIC:
        return payload
    body = bytes(payload)
    return _MAGIC_SIZE.pack(MAGIC, extend(0, body)) + body


def parse_command(encoded: bytes) -> Command:
    """Return a complete command: it has all required fields, and its texts are UTF-8.

    Raises ``Malformed``.

    Protobuf would return a text field that is not UTF-8 as bytes, which callers do not expect.
    """
    try:
        command = Command.FromString(encoded)
    except DecodeError as error:
        raise Malformed(f"not a command: {error}") from None
    # Nearly all commands are of these three types. They have no text, but properties may.
    kind = command.type
    if kind not in (_SEND, _FLOW):
        if not command.IsInitialized():
            raise Malformed(f"a command of type {kind} lacks a field that it must have")
        if kind != _ACK or command.ack.properties:
            _check_texts(command)
    return command


def _check_texts(message: Message) -> None:
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING:
            for text in (value,) if isinstance(value, str | bytes) else value:
                if type(text) is not str:
                    raise Malformed(f"{field.full_name} is no UTF-8")
        elif field.type == field.TYPE_MESSAGE:
            for inner in (value,) if isinstance(value, Message) else value:
                _check_texts(inner)


def command_body(command: Command) -> Any:
    """Return the part of a command that its type names, if it has a request id.

    A relay needs it to forward requests and answers.
    """
    field = Command.DESCRIPTOR.fields_by_number.get(command.type)
    if (
        field is None
        or field.message_type is None
        or "request_id" not in field.message_type.fields_by_name
    ):
        return None
    return getattr(command, field.name)


def command_frame(command: Command) -> bytes:
    encoded = command.SerializeToString()
    return _SIZES.pack(_SIZE.size + len(encoded), len(encoded)) + encoded


# A protobuf object for each receipt and delivery would cost more than everything else that is done
# for a message. The bytes below are those of Command.send_receipt and Command.message; a test
# compares them.


def receipt_frames(
    producer_id: int, sends: Iterable[tuple[int, int]], ledger_id: int, first_entry: int
) -> list[bytes]:
    """Return SEND_RECEIPT frames for consecutive entries.

    ``sends``: the sequence id and highest sequence id of each. A negative ledger id means that
    there is none.
    """
    frames: list[bytes] = []
    producer = b"\x08" + encode_varint(producer_id) + b"\x10"
    nowhere = b"\x08" + _MINUS_ONE + b"\x10" + _MINUS_ONE
    ledger = b"\x08" + encode_varint(ledger_id) + b"\x10"
    entry_id = first_entry
    for sequence_id, highest in sends:
        place = nowhere if ledger_id < 0 else ledger + encode_varint(entry_id)
        entry_id += 1
        body = producer + encode_varint(sequence_id) + b"\x1a" + ONE_BYTE[len(place)] + place
        if highest:
            body += b"\x20" + encode_varint(highest)
        size = len(body)
        frames.append(_SIZES.pack(size + 8, size + 4) + b"\x08\x07\x3a" + ONE_BYTE[size] + body)
    return frames


def delivery_place(position: Position, partition: int) -> bytes:
    """Return the part of a MESSAGE's head that says where the entry is: the same for all consumers.

    ``partition``: -1 for none.
    """
    place = b"\x08" + encode_varint(position.ledger_id) + b"\x10" + encode_varint(position.entry_id)
    if partition >= 0:
        place += b"\x18" + encode_varint(partition)
    return b"\x12" + ONE_BYTE[len(place)] + place


def delivery_frame_head(
    consumer_id: int,
    place: bytes,
    payload_bytes: int,
    *,
    redelivery_count: int,
    ack_set: Sequence[int],
    epoch: int,
) -> bytes:
    """Return what precedes the entry in a MESSAGE.

    ``place`` is from ``delivery_place``; ``epoch``: -1 for none; ``ack_set``: words of messages to
    deliver.
    """
    body = b"\x08" + encode_varint(consumer_id) + place
    if redelivery_count:
        body += b"\x18" + encode_varint(redelivery_count)
    for word in ack_set:
        body += b"\x20" + encode_varint(word)
    if epoch >= 0:
        body += b"\x28" + encode_varint(epoch)
    command = b"\x08\x09\x4a" + encode_varint(len(body)) + body
    return _SIZES.pack(_SIZE.size + len(command) + payload_bytes, len(command)) + command
