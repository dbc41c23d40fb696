"""What a compacted view keeps: the core of compaction. No I/O.

First every entry up to the horizon is observed, in the order of the log. Then each is selected
from, in the same order. Of each key the newest message stays. Of a key whose newest message is
empty (a tombstone) nothing stays. Messages of a batch are judged one by one. A removed message
leaves a mark in its batch, so that the others keep their indexes.

* All chunks of the newest message of a key stay. Chunks of a message that ends beyond the horizon
  stay, too.
* A batch that cannot be read here (encrypted, damaged, compressed with an unknown kind) stays
  whole. It may contain messages that are older than a later tombstone, so later tombstones stay
  like other messages.
* Tombstones stay for a while for consumers that return in the middle, and may contain what the
  tombstone removes: see ``Audience``.
"""

from __future__ import annotations

import struct
from enum import IntFlag
from hashlib import blake2b
from typing import Final, NamedTuple

from pulsarish.model.errors import ChecksumError, NotAllowedError, OperationNotSupported
from pulsarish.model.position import Position
from pulsarish.wire._pb.message_pb2 import NONE, MessageMetadata, SingleMessageMetadata
from pulsarish.wire.entry import ENCRYPTION_TAG_BYTES, as_bytes, encode_entry, split_entry
from pulsarish.wire.payload import compress, decompress, split_batch

__all__ = ["Audience", "Kept", "KeyLimits", "KeySurvey", "last_batch_index"]

Buffer = bytes | memoryview

_KEY_BYTES_MAX: Final = 32  # longer keys are stored as a digest, so that memory per key is bounded
_INDEX_BITS: Final = 20  # of a place: enough for MESSAGES_IN_BATCH_MAX
_ENTRY_BITS: Final = 64
_SIZE: Final = struct.Struct(">I")
_UNPACKED_BYTES_MAX: Final = 64 << 20


class Audience(IntFlag):
    """Which consumers get a kept entry: those that read the view from its beginning, those that
    return in the middle, or both.
    """

    FRESH = 1
    RETURNING = 2
    ALL = 3


class Kept(NamedTuple):
    """An entry of the view.

    ``left``: of a batch with removed messages, those that remain, as bits from the lowest; empty:
    all.
    """

    audience: Audience
    payload: Buffer
    left: bytes = b""


class KeyLimits(NamedTuple):
    """Limits of one run.

    ``tombstones_from_ms``: tombstones published before this time are removed.
    """

    keys_max: int
    retain_null_key: bool
    tombstones_from_ms: int


class _Message(NamedTuple):
    """One message of an entry, with its number.

    ``start`` to ``end``: its bytes in the batch, its size field included.
    """

    number: int
    key: bytes | None
    is_tombstone: bool
    start: int
    end: int


class _Chunks(NamedTuple):
    uuid: str
    places: list[int]
    publish_time: int


class KeySurvey:
    """One run over a topic: ``observe`` every entry, call ``close``, then ``select`` from every
    entry.
    """

    def __init__(self, topic: str, limits: KeyLimits) -> None:
        self.observed_count = 0
        """Number of messages that were observed."""
        self.kept_count = 0
        """Number of messages that were selected."""
        self._topic = topic
        self._limits = limits
        self._newest: dict[bytes, int] = {}  # key -> place of its newest message
        self._chunks: dict[int, list[int]] = {}  # last chunk of a newest message -> all its chunks
        # by producer, which sends the chunks of one message after the other
        self._unfinished: dict[str, _Chunks] = {}
        self._chunk_places: frozenset[int] = frozenset()
        self._first_opaque: int | None = None

    @property
    def keys_count(self) -> int:
        return len(self._newest)

    # -- first: observe everything

    def observe(self, position: Position, entry: Buffer) -> None:
        """Observe an entry. Raises ``NotAllowedError`` when the topic has more keys than the
        limit.
        """
        metadata, payload = split_entry(entry)
        if metadata.HasField("marker_type"):
            return
        if metadata.num_chunks_from_msg > 1:
            self._observe_chunk(_place(position, 0), metadata)
            return
        opened = _messages(metadata, payload)
        if opened is None:
            self.observed_count += metadata.num_messages_in_batch
            if self._first_opaque is None:
                self._first_opaque = _place(position, 0)
            return
        messages = opened[1]
        self.observed_count += len(messages)
        for message in messages:
            if message.key is not None:
                self._is_newest(
                    message.key,
                    _place(position, message.number),
                    message.is_tombstone,
                    metadata.publish_time,
                )

    def _is_newest(self, key: bytes, place: int, is_tombstone: bool, publish_time: int) -> None:
        before = self._newest.get(key)
        if before is not None and self._chunks:
            self._chunks.pop(before, None)
        if (
            is_tombstone
            and self._first_opaque is None
            and publish_time < self._limits.tombstones_from_ms
        ):
            self._newest.pop(key, None)
            return
        self._newest[key] = place
        if before is None and len(self._newest) > self._limits.keys_max:
            raise NotAllowedError(
                f"topic {self._topic} has more than {self._limits.keys_max} keys, the limit "
                "topic_compaction_keys_max: it is not compacted;"
                " raise the limit (a key takes about 200 bytes of the broker's memory while it "
                "runs)"
            )

    def _observe_chunk(self, place: int, metadata: MessageMetadata) -> None:
        unfinished = self._unfinished.get(metadata.producer_name)
        if unfinished is None or unfinished.uuid != metadata.uuid or metadata.chunk_id == 0:
            # A producer that starts a message again has given up the earlier chunks.
            unfinished = self._unfinished[metadata.producer_name] = _Chunks(
                metadata.uuid, [], metadata.publish_time
            )
        unfinished.places.append(place)
        if metadata.chunk_id + 1 < metadata.num_chunks_from_msg:
            return
        del self._unfinished[metadata.producer_name]
        self.observed_count += 1
        key = _key_of(metadata)
        if key is not None:
            self._is_newest(key, place, False, metadata.publish_time)
        if key is not None or self._limits.retain_null_key:
            self._chunks[place] = unfinished.places

    def close(self) -> None:
        """Finish observing: everything up to the horizon was observed."""
        live = [
            chunks
            for chunks in self._unfinished.values()
            if chunks.publish_time >= self._limits.tombstones_from_ms
        ]
        places = [place for chunks in self._chunks.values() for place in chunks]
        places += [place for chunks in live for place in chunks.places]
        self._chunk_places = frozenset(places)

    # -- then: select what stays

    def select(self, position: Position, entry: Buffer) -> list[Kept]:
        """Return what the view holds in place of an entry, at the same position.

        Two forms where its audiences see different things.
        """
        metadata, payload = split_entry(entry)
        if metadata.HasField("marker_type"):
            return []
        if metadata.num_chunks_from_msg > 1:
            place = _place(position, 0)
            self.kept_count += place in self._chunks
            return [Kept(Audience.ALL, entry)] if place in self._chunk_places else []
        opened = _messages(metadata, payload)
        if opened is None:
            self.kept_count += metadata.num_messages_in_batch
            return [Kept(Audience.ALL, entry)]
        unpacked, messages = opened
        live, tombstones = self._judge(position, messages)
        self.kept_count += len(live)
        if not metadata.HasField("num_messages_in_batch"):
            if live:
                return [Kept(Audience.ALL, entry)]
            return [Kept(Audience.RETURNING, entry)] if tombstones else []

        def form(audience: Audience, kept: list[_Message]) -> Kept:
            if len(kept) == metadata.num_messages_in_batch:
                return Kept(audience, entry)
            left = sum(1 << message.number for message in kept)
            return Kept(
                audience,
                _rewritten(metadata, unpacked, kept),
                left.to_bytes((left.bit_length() + 7) // 8, "little"),
            )

        if not tombstones:
            return [form(Audience.ALL, live)] if live else []
        forms = [form(Audience.FRESH, live)] if live else []
        return [*forms, form(Audience.RETURNING, live + tombstones)]

    def _judge(
        self, position: Position, messages: list[_Message]
    ) -> tuple[list[_Message], list[_Message]]:
        """Return the messages that stay for all consumers, and the tombstones that stay only for
        those that return.
        """
        live: list[_Message] = []
        tombstones: list[_Message] = []
        for message in messages:
            place = _place(position, message.number)
            if message.key is None:
                if self._limits.retain_null_key:
                    live.append(message)
            elif self._newest.get(message.key) == place:
                hidden = message.is_tombstone and (
                    self._first_opaque is None or place < self._first_opaque
                )
                (tombstones if hidden else live).append(message)
        return live, tombstones


def _place(position: Position, index: int) -> int:
    """Return a message's place in the log, as one number that sorts in log order."""
    return (position.ledger_id << _ENTRY_BITS | position.entry_id) << _INDEX_BITS | index


def _key_of(metadata: MessageMetadata | SingleMessageMetadata) -> bytes | None:
    if not metadata.HasField("partition_key"):
        return None
    key = as_bytes(metadata.partition_key)
    # No digest is as short as a key that stands for itself.
    return key if len(key) < _KEY_BYTES_MAX else blake2b(key, digest_size=_KEY_BYTES_MAX).digest()


def _messages(
    metadata: MessageMetadata, payload: memoryview
) -> tuple[bytes, list[_Message]] | None:
    """Return the unpacked payload of a batch and its messages, or the one message of another entry.

    ``None`` for a batch that cannot be read.
    """
    if not metadata.HasField("num_messages_in_batch"):
        size = metadata.uncompressed_size if metadata.compression != NONE else len(payload)
        if metadata.encryption_keys and metadata.compression == NONE:
            size -= ENCRYPTION_TAG_BYTES
        return b"", [_Message(0, _key_of(metadata), metadata.null_value or size == 0, 0, 0)]
    if metadata.encryption_keys:
        return None
    try:
        unpacked = decompress(
            metadata.compression,
            bytes(payload),
            metadata.uncompressed_size,
            bytes_max=_UNPACKED_BYTES_MAX,
        )

        def made(index: int, head: int, start: int, end: int) -> _Message:
            single = SingleMessageMetadata.FromString(unpacked[head:start])
            return _Message(
                index, _key_of(single), single.null_value or end == start, head - _SIZE.size, end
            )

        return unpacked, split_batch(unpacked, metadata.num_messages_in_batch, made)
    except (ChecksumError, OperationNotSupported):
        return None


def _rewritten(metadata: MessageMetadata, unpacked: bytes, kept: list[_Message]) -> bytes:
    """Return the batch with these messages unchanged, and a mark in place of each other one."""
    single = SingleMessageMetadata(payload_size=0, compacted_out=True).SerializeToString()
    mark = _SIZE.pack(len(single)) + single
    parts = [mark] * metadata.num_messages_in_batch
    for message in kept:
        parts[message.number] = unpacked[message.start : message.end]
    payload = b"".join(parts)
    changed = MessageMetadata()
    changed.CopyFrom(metadata)
    if metadata.compression != NONE:
        changed.uncompressed_size = len(payload)
        payload = compress(metadata.compression, payload)
    elif metadata.HasField("uncompressed_size"):
        changed.uncompressed_size = len(payload)
    return encode_entry(changed, payload)


def last_batch_index(entry: Buffer) -> int:
    """Return the index of the last message that compaction left in a batch; -1 for an entry that is
    not a batch.
    """
    metadata, payload = split_entry(entry)
    if not metadata.HasField("num_messages_in_batch"):
        return -1
    opened = _messages(metadata, payload)
    return (
        metadata.num_messages_in_batch - 1
        if opened is None
        else max(message.number for message in opened[1])
    )
