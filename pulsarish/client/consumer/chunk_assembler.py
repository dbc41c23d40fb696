"""The core of assembling chunks: the entries of one large message become one entry again.

A message comes out once, whole, with the positions of all its entries; never when a chunk is
missing. At most ``pending_max`` messages and ``PENDING_BYTES_MAX`` bytes wait for further chunks.
What is evicted for that is returned once by ``take_lost``.

Pure: no clock, no I/O, no lock. ``stamp`` passes the time; the shell holds the consumer's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pulsarish.client.consumer.redelivery import EntryKey
from pulsarish.client.messages.message import UNPACKED_BYTES_MAX, Entry
from pulsarish.model.errors import ChecksumError, OperationNotSupported
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import ENCRYPTION_TAG_BYTES, payload_start

__all__ = ["PENDING_BYTES_MAX", "SHARED_REDELIVERIES", "ChunkAssembler", "LostChunks"]

PENDING_BYTES_MAX: Final = UNPACKED_BYTES_MAX
"""The limit for all waiting chunks of a consumer, in bytes."""
SHARED_REDELIVERIES: Final = 1_000
"""How often a chunk is requested again before it is given up, when other consumers may hold the
missing chunks.
"""


@dataclass(slots=True)
class LostChunks:
    """Entries of messages that cannot be assembled."""

    done: list[EntryKey] = field(default_factory=list)
    """To acknowledge: the missing chunks will not come."""
    again: list[EntryKey] = field(default_factory=list)
    """To request again."""


def _total_bytes(entry: Entry, metadata: MessageMetadata) -> int:
    """Return the size of all chunks together, which counts no tags of encryption."""
    tags = ENCRYPTION_TAG_BYTES * metadata.num_chunks_from_msg if entry.is_sealed else 0
    return metadata.total_chunk_msg_size + tags


class _Pending:
    """A message whose first chunks have arrived."""

    __slots__ = (
        "count",
        "head",
        "keys",
        "parts",
        "redelivery_count",
        "seen",
        "size_bytes",
        "total_bytes",
    )

    def __init__(self, entry: Entry, head: bytes, metadata: MessageMetadata) -> None:
        self.head = head
        self.count = metadata.num_chunks_from_msg
        self.total_bytes = _total_bytes(entry, metadata)
        self.redelivery_count = entry.redelivery_count
        self.keys: list[EntryKey] = []
        self.parts: list[bytes] = []
        self.size_bytes = 0
        self.seen = 0.0


class ChunkAssembler:
    """The incomplete messages of one topic.

    ``pending_max`` 0: no limit; ``expire_seconds`` 0: no timeout.
    """

    def __init__(
        self,
        *,
        pending_max: int,
        expire_seconds: float,
        acknowledge_oldest: bool,
        stamp: Callable[[], tuple[float, int]],
        shared: bool = False,
    ) -> None:
        """``shared``: other consumers of the subscription may have received the missing chunks.

        ``acknowledge_oldest``: acknowledge the oldest message when it is evicted, instead of
        requesting it again.

        ``stamp`` returns the monotonic time in seconds and the wall clock in milliseconds.
        """
        self._pending_max = pending_max
        self._expire_seconds = expire_seconds
        self._acknowledge_oldest = acknowledge_oldest
        self._stamp = stamp
        self._shared = shared
        self._pending: dict[str, _Pending] = {}  # by the producer's id of the message, oldest first
        self._size_bytes = 0
        self._lost = LostChunks()

    def add(self, entry: Entry, metadata: MessageMetadata) -> Entry | None:
        """Add a chunk.

        Returns the whole message as an entry at the position of its last chunk, or ``None``.

        Raises ``ChecksumError`` for chunks that contradict each other, ``OperationNotSupported``
        for a message that is too large.
        """
        key = (entry.ledger_id, entry.entry_id)
        payload = entry.data[payload_start(entry.data) :]
        chunk_id, total = metadata.chunk_id, _total_bytes(entry, metadata)
        if not 0 <= chunk_id < metadata.num_chunks_from_msg or len(payload) > total:
            raise ChecksumError(
                f"the chunk at {key[0]}:{key[1]} says that it is number {chunk_id} of "
                f"{metadata.num_chunks_from_msg}"
            )
        if total > UNPACKED_BYTES_MAX:
            raise OperationNotSupported(
                f"a message in chunks announces {total} bytes; at most {UNPACKED_BYTES_MAX} are "
                "put together here"
            )
        pending = self._pending.get(metadata.uuid)
        if pending is not None and key in pending.keys:
            return None  # a redelivery of a chunk that is here already
        if chunk_id == 0:
            pending = self._begin(entry, metadata, key)
        elif pending is None or chunk_id > len(pending.parts):
            self._miss(entry, metadata, key)
            return None
        elif chunk_id < len(pending.parts):
            # The producer sent it again because it did not know that it was stored.
            pending.keys.append(key)
            return None
        else:
            pending.keys.append(key)
        pending.redelivery_count = min(pending.redelivery_count, entry.redelivery_count)
        return self._grow(pending, metadata, bytes(payload), entry)

    def _begin(self, entry: Entry, metadata: MessageMetadata, key: EntryKey) -> _Pending:
        """Start a message with its first chunk; an earlier start of the same message is dropped."""
        old = self._remove(metadata.uuid)
        if old is None and self._pending_max and len(self._pending) >= self._pending_max:
            self._drop_oldest()
        head = bytes(entry.data[: payload_start(entry.data)])
        pending = self._pending[metadata.uuid] = _Pending(entry, head, metadata)
        # The key of the first chunk stands first. Those of the dropped start are acknowledged with
        # the message.
        pending.keys = [key, *(old.keys if old is not None else ())]
        return pending

    def _grow(
        self, pending: _Pending, metadata: MessageMetadata, payload: bytes, entry: Entry
    ) -> Entry | None:
        pending.parts.append(payload)
        pending.size_bytes += len(payload)
        self._size_bytes += len(payload)
        pending.seen = self._stamp()[0]
        is_last = len(pending.parts) == pending.count
        if pending.size_bytes > pending.total_bytes or (
            is_last and pending.size_bytes != pending.total_bytes
        ):
            self._remove(metadata.uuid)
            raise ChecksumError(
                f"the chunks of {metadata.uuid} up to {entry.ledger_id}:{entry.entry_id} hold "
                f"{pending.size_bytes} bytes and"
                f" announce {pending.total_bytes}"
            )
        if not is_last:
            while self._size_bytes > PENDING_BYTES_MAX:
                self._drop_oldest()
            return None
        self._remove(metadata.uuid)
        data = b"".join((pending.head, *pending.parts))
        whole = Entry(
            entry.ledger_id,
            entry.entry_id,
            pending.redelivery_count,
            data,
            chunks=tuple(pending.keys),
        )
        whole.is_sealed = entry.is_sealed
        return whole

    def _miss(self, entry: Entry, metadata: MessageMetadata, key: EntryKey) -> None:
        """A chunk before this one is missing.

        The message cannot be assembled unless that chunk comes later, from another consumer that
        could not use it.
        """
        pending = None if self._shared else self._remove(metadata.uuid)
        keys = [*(pending.keys if pending is not None else ()), key]
        age_ms = self._stamp()[1] - metadata.publish_time
        is_old = self._expire_seconds > 0 and age_ms > self._expire_seconds * 1_000
        (
            self._lost.done
            if is_old and self._is_hopeless(entry.redelivery_count)
            else self._lost.again
        ).extend(keys)

    def _is_hopeless(self, redelivery_count: int) -> bool:
        return not self._shared or redelivery_count >= SHARED_REDELIVERIES

    def _drop_oldest(self) -> None:
        pending = self._remove(next(iter(self._pending)))
        assert pending is not None
        (self._lost.done if self._acknowledge_oldest else self._lost.again).extend(pending.keys)

    def _remove(self, uuid: str) -> _Pending | None:
        pending = self._pending.pop(uuid, None)
        if pending is not None:
            self._size_bytes -= pending.size_bytes
        return pending

    def take_lost(self) -> LostChunks:
        """Return what was given up since the last call."""
        lost, self._lost = self._lost, LostChunks()
        return lost

    def clear(self) -> None:
        """Drop everything: after a reconnection or a seek it is delivered again, or no longer
        wanted.
        """
        self._pending.clear()
        self._size_bytes = 0
        self._lost = LostChunks()

    # Time.

    def next_due(self) -> float | None:
        """When the next message times out."""
        if not self._expire_seconds or not self._pending:
            return None
        return min(pending.seen for pending in self._pending.values()) + self._expire_seconds

    def expire(self, now: float) -> None:
        """Give up messages that waited too long: their producer does not continue."""
        for uuid in [
            uuid
            for uuid, pending in self._pending.items()
            if pending.seen + self._expire_seconds <= now
        ]:
            pending = self._remove(uuid)
            assert pending is not None
            (
                self._lost.done if self._is_hopeless(pending.redelivery_count) else self._lost.again
            ).extend(pending.keys)

    def excuse(self, now: float) -> None:
        """Restart all timeouts: this consumer accepted nothing, so no chunk could come."""
        for pending in self._pending.values():
            pending.seen = now

    def check(self) -> None:
        assert (
            self._size_bytes
            == sum(pending.size_bytes for pending in self._pending.values())
            <= PENDING_BYTES_MAX
        )
        assert not self._pending_max or len(self._pending) <= self._pending_max
        for pending in self._pending.values():
            assert 0 < len(pending.parts) < pending.count
            assert len(pending.parts) <= len(pending.keys) == len(set(pending.keys))
