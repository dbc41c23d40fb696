"""Entries to columns.

Values that a batch shares are kept once an entry and repeated by numpy. Values of its messages are
extracted many at a time.

A batch of equally long messages without their own properties is in fact a table of bytes: the same
head, the same length, only the number differs. ``_table`` finds how many such messages follow each
other, and reads their values by columns. Everything else is read message by message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from pulsarish.client.consumer.chunk_assembler import ChunkAssembler
from pulsarish.client.messages.message import UNPACKED_BYTES_MAX, Entry
from pulsarish.model.errors import ChecksumError
from pulsarish.wire._pb.message_pb2 import MessageMetadata, SingleMessageMetadata
from pulsarish.wire.entry import as_text, split_entry
from pulsarish.wire.payload import decompress

__all__ = ["Own", "Rows", "Unpacker"]

_SIZE: Final = struct.Struct(">I")
_SIZE_TAG: Final = 0x18  # payload_size, the only field that each message has
_NUMBER_TAG: Final = 0x40  # sequence_id
_TABLE_LEAST: Final = 16
"""Fewer consecutive messages are read faster one by one."""

_KEY_TAG: Final = 0x12  # partition_key
_EVENT_TAG: Final = 0x28  # event_time


class Own:
    """Values of messages besides payload and number, by row."""

    __slots__ = ("events", "keys", "nulls", "properties")

    def __init__(self) -> None:
        self.keys: dict[int, str] = {}
        self.events: dict[int, int] = {}  # ms since the epoch
        self.properties: dict[int, dict[str, str]] = {}
        self.nulls: list[int] = []

    def note(self, row: int, metadata: MessageMetadata | SingleMessageMetadata) -> None:
        if metadata.HasField("partition_key"):
            self.keys[row] = as_text(metadata.partition_key)
        if metadata.event_time:
            self.events[row] = metadata.event_time
        if metadata.properties:
            self.properties[row] = {
                as_text(pair.key): as_text(pair.value) for pair in metadata.properties
            }
        if metadata.null_value:
            self.nulls.append(row)

    def take(self, other: Own, place: Callable[[int], int | None]) -> None:
        """Add the values of another object, at the rows that ``place`` returns.

        ``None`` skips a row.
        """
        pairs: tuple[tuple[dict[int, Any], dict[int, Any]], ...] = (
            (self.keys, other.keys),
            (self.events, other.events),
            (self.properties, other.properties),
        )
        for mine, theirs in pairs:
            for row, value in theirs.items():
                if (there := place(row)) is not None:
                    mine[there] = value
        self.nulls += [there for row in other.nulls if (there := place(row)) is not None]


@dataclass(slots=True)
class Rows:
    """Messages as columns.

    Some columns have one value for each entry, with ``counts`` of messages.
    """

    counts: list[int] = field(default_factory=list)
    ledgers: list[int] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)
    publish_times: list[int] = field(default_factory=list)
    producers: list[str] = field(default_factory=list)
    schema_versions: list[bytes] = field(default_factory=list)
    base_numbers: list[int] = field(default_factory=list)
    indexes: list[Any] = field(default_factory=list)
    """An array of batch indexes for each entry."""
    numbers: list[Any] = field(default_factory=list)
    """An array of sequence ids for each entry; -1 where it follows from the entry's."""
    lengths: list[Any] = field(default_factory=list)
    """An array of the values' lengths for each entry."""
    values: list[Any] = field(default_factory=list)
    """The bytes of the values, in any number of parts: bytes, or tables (arrays of bytes) with a
    value in each row.
    """
    own: Own = field(default_factory=Own)
    count: int = 0
    size_bytes: int = 0


class Unpacker:
    """Unpacks entries of one split.

    ``with_values``, ``with_numbers``: whether values and sequence ids are needed.

    ``beginning`` returns the earlier chunks of a message whose first chunks were not in the split.
    """

    def __init__(
        self,
        *,
        with_values: bool,
        with_numbers: bool,
        beginning: Callable[[Entry, MessageMetadata], list[Entry]],
    ) -> None:
        self.rows = Rows()
        self._with_values = with_values
        self._with_numbers = with_numbers
        self._beginning = beginning
        self._begun: set[str] = set()  # messages whose beginning has arrived, or was requested
        self._chunks = ChunkAssembler(
            pending_max=0, expire_seconds=0.0, acknowledge_oldest=False, stamp=lambda: (0.0, 0)
        )

    def take_rows(self) -> Rows:
        """Return the rows so far."""
        rows, self.rows = self.rows, Rows()
        return rows

    def add(self, entry: Entry, *, after: int = -1, upto: int = -1) -> None:
        """Add an entry.

        ``after``, ``upto``: of its messages only those after ``after``, and not after ``upto``
        unless that is -1.

        Raises ``ChecksumError`` when the content does not match the metadata,
        ``OperationNotSupported`` for an unknown compression.
        """
        metadata, packed = split_entry(entry.data)
        if metadata.HasField("marker_type"):
            return  # the brokers' own
        if metadata.num_chunks_from_msg > 1 and not entry.chunks:
            whole = self._chunk(entry, metadata)
            if whole is None:
                return
            entry = whole
            metadata, packed = split_entry(entry.data)
        if metadata.encryption_keys:
            # The connector has no key: the value is the payload as it was sent, in one piece.
            self._single(entry, metadata, packed)
            return
        payload: bytes | memoryview = packed
        if metadata.compression:
            payload = decompress(
                metadata.compression,
                bytes(packed),
                metadata.uncompressed_size,
                bytes_max=UNPACKED_BYTES_MAX,
            )
        if not metadata.HasField("num_messages_in_batch"):
            self._single(entry, metadata, payload)
            return
        try:
            self._batch(entry, metadata, payload, after, upto)
        except (IndexError, struct.error, DecodeError) as error:
            raise ChecksumError(
                f"the batch at {entry.ledger_id}:{entry.entry_id} is cut or damaged: {error}"
            ) from None

    def _chunk(self, entry: Entry, metadata: MessageMetadata) -> Entry | None:
        """Return the whole message after its last chunk."""
        # A producer that got no answer sends chunks again. Repeated chunks of a complete message
        # have its beginning before them.
        is_first_seen = metadata.uuid not in self._begun
        self._begun.add(metadata.uuid)
        if metadata.chunk_id > 0 and is_first_seen:
            for earlier in self._beginning(entry, metadata):
                self._chunks.add(earlier, split_entry(earlier.data)[0])
        whole = self._chunks.add(entry, metadata)
        self._chunks.take_lost()
        return whole

    # -- one message

    def _single(self, entry: Entry, metadata: MessageMetadata, payload: bytes | memoryview) -> None:
        rows = self.rows
        rows.own.note(rows.count, metadata)
        self._entry(entry, metadata, 1)
        rows.indexes.append(-1)
        rows.numbers.append(metadata.sequence_id)
        rows.lengths.append(len(payload))
        if self._with_values:
            rows.values.append(payload)
            rows.size_bytes += len(payload)

    def _entry(self, entry: Entry, metadata: MessageMetadata, count: int) -> None:
        rows = self.rows
        rows.counts.append(count)
        rows.count += count
        rows.ledgers.append(entry.ledger_id)
        rows.entries.append(entry.entry_id)
        rows.publish_times.append(metadata.publish_time)
        rows.producers.append(metadata.producer_name)
        rows.schema_versions.append(metadata.schema_version)
        rows.base_numbers.append(metadata.sequence_id)

    # -- a batch

    def _batch(
        self,
        entry: Entry,
        metadata: MessageMetadata,
        payload: bytes | memoryview,
        after: int,
        upto: int,
    ) -> None:
        cut = _Cut(payload, metadata.num_messages_in_batch, self._with_numbers)
        cut.run()
        rows = self.rows
        starts, ends, indexes, numbers = cut.starts, cut.ends, cut.indexes, cut.numbers
        base = rows.count
        if after >= 0 or upto >= 0:
            kept = np.flatnonzero((indexes > after) & ((indexes <= upto) if upto >= 0 else True))
            starts, ends, indexes, numbers = starts[kept], ends[kept], indexes[kept], numbers[kept]
            place = {old: base + new for new, old in enumerate(kept.tolist())}
            rows.own.take(cut.own, place.get)
        else:
            rows.own.take(cut.own, base.__add__)
        count = len(starts)
        if count == 0:
            return
        self._entry(entry, metadata, count)
        rows.indexes.append(indexes)
        # A message without its own number gets it from its index in the batch.
        rows.numbers.append(
            np.where(numbers >= 0, numbers, metadata.sequence_id + indexes)
            if self._with_numbers
            else numbers
        )
        lengths = ends - starts
        rows.lengths.append(lengths)
        if self._with_values:
            rows.values.append(_gather(payload, starts, lengths))
            rows.size_bytes += int(lengths.sum())


def _gather(payload: bytes | memoryview, starts: Any, lengths: Any) -> Any:
    """Return the bytes of all values, as a part of ``Rows.values``.

    Equally long ones at equal distances are not copied here.
    """
    count = len(starts)
    if count == 1:
        return memoryview(payload)[int(starts[0]) : int(starts[0] + lengths[0])]
    stride, length = int(starts[1] - starts[0]), int(lengths[0])
    if (lengths == length).all() and (np.diff(starts) == stride).all():
        whole = np.frombuffer(payload, np.uint8)
        # Strided views are checked by hand: the last value ends at most at the end of the payload.
        return np.lib.stride_tricks.as_strided(
            whole[int(starts[0]) :], (count, length), (stride, 1), writeable=False
        )
    view = memoryview(payload)
    return b"".join(
        [
            view[start:end]
            for start, end in zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        ]
    )


class _Cut:
    """Positions of the messages of a batch: arrays of starts and ends, the indexes in the batch,
    the numbers (-1: none).
    """

    def __init__(self, payload: bytes | memoryview, count: int, with_numbers: bool) -> None:
        self._payload = payload
        self._bytes = np.frombuffer(payload, np.uint8)
        self._count = count
        self._with_numbers = with_numbers
        self._starts: list[Any] = []
        self._ends: list[Any] = []
        self._indexes: list[Any] = []
        self._numbers: list[Any] = []
        self._row = 0
        self._texts: dict[bytes, str] = {}
        self.own = Own()

    def run(self) -> None:
        at = index = 0
        patience = 0  # messages to read one by one before the next search for a table
        wait = _TABLE_LEAST
        while index < self._count:
            if patience == 0:
                rows, at = self._table(at, index)
                if rows:
                    index += rows
                    self._row += rows
                    if rows >= _TABLE_LEAST:
                        wait = _TABLE_LEAST
                        continue
                patience, wait = wait, min(4 * wait, 4_096)
            span = min(patience, self._count - index)
            at = self._one_by_one(at, index, span)
            index += span
            patience -= span
        if at != len(self._payload):
            raise IndexError(
                f"{len(self._payload)} bytes hold {self._count} messages of {at} bytes"
            )
        self.starts = np.concatenate(self._starts) if self._starts else np.empty(0, np.int64)
        self.ends = np.concatenate(self._ends) if self._ends else np.empty(0, np.int64)
        self.indexes = np.concatenate(self._indexes) if self._indexes else np.empty(0, np.int64)
        self.numbers = np.concatenate(self._numbers) if self._numbers else np.empty(0, np.int64)

    def _table(self, at: int, index: int) -> tuple[int, int]:
        """Return how many messages from here on are plain and equally long, and where they end."""
        payload = self._payload
        head_size = _SIZE.unpack_from(payload, at)[0]
        head = at + 4
        if head_size < 2 or payload[head] != _SIZE_TAG:
            return 0, at
        length, number_at = _varint(payload, head + 1)
        start = head + head_size
        number_size = 0
        if number_at != start:
            if payload[number_at] != _NUMBER_TAG:
                return 0, at
            number_size = start - number_at - 1
        stride = 4 + head_size + length
        most = min(self._count - index, (len(payload) - at) // stride)
        if most < 2 or number_size > 9:
            return 0, at
        table = self._bytes[at : at + most * stride].reshape(most, stride)
        fixed = number_at + (1 if number_size else 0) - at
        same = (table[:, :fixed] == table[0, :fixed]).all(axis=1)
        if number_size:
            number = table[:, fixed : fixed + number_size]
            same &= number[:, -1] < 0x80
            if number_size > 1:
                same &= (number[:, :-1] >= 0x80).all(axis=1)
        rows = most if same.all() else int(same.argmin())
        if rows < 2:
            return 0, at
        starts = at + 4 + head_size + stride * np.arange(rows, dtype=np.int64)
        self._starts.append(starts)
        self._ends.append(starts + length)
        self._indexes.append(np.arange(index, index + rows, dtype=np.int64))
        self._numbers.append(self._table_numbers(table[:rows, fixed : fixed + number_size], rows))
        return rows, at + rows * stride

    def _table_numbers(self, table: Any, rows: int) -> Any:
        if not self._with_numbers or table.shape[1] == 0:
            return np.full(rows, -1, np.int64)
        numbers = np.zeros(rows, np.int64)
        for place in range(table.shape[1]):
            numbers |= (table[:, place].astype(np.int64) & 0x7F) << (7 * place)
        return numbers

    def _one_by_one(self, at: int, index: int, span: int) -> int:
        """Read messages one by one.

        Those with a key, an event time and a number are read here, others by the generated class.
        """
        payload = self._payload = bytes(self._payload)  # faster to read than a view
        starts: list[int] = []
        ends: list[int] = []
        indexes: list[int] = []
        numbers: list[int] = []
        size_at, keys, events, texts = (
            _SIZE.unpack_from,
            self.own.keys,
            self.own.events,
            self._texts,
        )
        row = self._row
        for each in range(index, index + span):
            head = place = at + 4
            start = head + size_at(payload, at)[0]
            number = length = -1
            event = 0
            key: bytes | None = None
            if payload[place] == _KEY_TAG:
                size, after = _varint(payload, place + 1)
                place = after + size
                key = payload[after:place]
            if payload[place] == _SIZE_TAG:
                length, place = _varint(payload, place + 1)
                if place < start and payload[place] == _EVENT_TAG:
                    event, place = _varint(payload, place + 1)
                if place < start and payload[place] == _NUMBER_TAG:
                    number, place = _varint(payload, place + 1)
            if place == start and length >= 0:
                if key is not None:
                    text = texts.get(key)
                    if text is None:
                        text = texts[key] = key.decode(errors="replace")
                    keys[row] = text
                if event:
                    events[row] = event
            else:
                single = SingleMessageMetadata.FromString(payload[head:start])
                length = single.payload_size
                if single.compacted_out:
                    at = start + length
                    continue
                number = single.sequence_id if single.HasField("sequence_id") else -1
                self.own.note(row, single)
            at = start + length
            row += 1
            starts.append(start)
            ends.append(at)
            indexes.append(each)
            numbers.append(number)
        self._row = row
        if starts:
            self._starts.append(np.array(starts, np.int64))
            self._ends.append(np.array(ends, np.int64))
            self._indexes.append(np.array(indexes, np.int64))
            self._numbers.append(np.array(numbers, np.int64))
        if at > len(payload):
            raise IndexError("a message reaches past the end")
        return at


def _varint(payload: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return the number at a position, and where it ends."""
    byte = payload[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = payload[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if shift > 63:
            raise IndexError("a varint is too long")
