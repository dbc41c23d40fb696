"""The stream that carries adds to one bookie: one queue for all ledgers of this process, encoded batches in, ranges of answers out."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pulsarish.ledger.bookie_stream import AddressBook, BookieStream
from pulsarish.ledger.options import LedgerOptions
from pulsarish.runtime.seams import Buffer, World
from pulsarish.wire.bookie import decode_add_response, encode_add_encoded, encode_sizes

__all__ = ["AddChunk", "AddHandler", "AddStream", "encode_chunk"]

_JOIN_BELOW_BYTES = 4_096  # mean size of a part up to which one copy now is cheaper than many parts in three messages


@dataclass(frozen=True, slots=True)
class AddChunk:
    """Some entries of one ledger, encoded once for all the bookies that they go to."""

    ledger_id: int
    size_field: bytes
    parts: tuple[Buffer, ...]
    size_bytes: int


def encode_chunk(ledger_id: int, parts: Sequence[Buffer], sizes: Sequence[int]) -> AddChunk:
    """``parts`` are the records' bytes in order, in as many pieces as they come; ``sizes`` has one number a record."""
    size_bytes = sum(sizes)
    frozen = (b"".join(parts),) if size_bytes < _JOIN_BELOW_BYTES * len(parts) else tuple(parts)
    return AddChunk(ledger_id, encode_sizes(sizes), frozen, size_bytes)


class AddHandler(Protocol):
    """A ledger's side of the add streams it uses."""

    def add_answered(self, member: str, first: int, last: int, code: int) -> None:
        """Entries ``first..last`` ended with this code at this bookie; 0: stored and synced."""
        ...

    def answers_done(self) -> None:
        """All rows of one message were handed over, or there is room in a queue that was crowded. A ledger that waits for room waits
        for this or for ``member_failed``: every way in which a queue gets room ends in one of them."""
        ...

    def member_failed(self, member: str, reason: str) -> None:
        """The stream is gone: what was not answered by this bookie never will be, and its queue is empty."""
        ...


class AddStream(BookieStream):
    """Adds to one bookie. ``recovery`` marks them as written by recovery: accepted on a fenced ledger; those have a lane of their own."""

    def __init__(self, world: World, options: LedgerOptions, book: AddressBook, member: str, *, recovery: bool) -> None:
        super().__init__(world, options, book, member, method="bookie.add", lane="recovery" if recovery else "add")
        self._recovery = recovery
        self._handlers: dict[int, AddHandler] = {}
        self._queue: deque[AddChunk] = deque()
        self._queued_bytes = 0
        self._out: deque[int] = deque()  # bytes of each message that is not answered
        self._out_bytes = 0
        self._heartbeat_due = False

    @property
    def backlog_bytes(self) -> int:
        """Bytes that wait or are unanswered: what a slow bookie costs this process."""
        return self._queued_bytes + self._out_bytes

    @property
    def crowded(self) -> bool:
        """Whether half of the limit is used. Then the caller that appends should wait."""
        return self.backlog_bytes * 2 >= self._options.bookie_queue_bytes

    @property
    def in_use(self) -> bool:
        return bool(self._handlers)

    def attach(self, ledger_id: int, handler: AddHandler) -> None:
        self._handlers[ledger_id] = handler

    def detach(self, ledger_id: int) -> None:
        """Answers for this ledger are not wanted any more, and what it still has in the queue is not sent."""
        if self._handlers.pop(ledger_id, None) is not None:
            self.drop(ledger_id)

    def drop(self, ledger_id: int) -> None:
        """Take a ledger's entries out of the queue: the bookie was given up for it."""
        kept = deque(chunk for chunk in self._queue if chunk.ledger_id != ledger_id)
        if len(kept) != len(self._queue):
            was_crowded = self.crowded
            self._queue = kept
            self._queued_bytes = sum(chunk.size_bytes for chunk in kept)
            if was_crowded and not self.crowded:
                # Later, because the ledger that gives up its entries is in the middle of a change.
                asyncio.get_running_loop().call_soon(self._announce_room_contained)

    def push(self, chunk: AddChunk) -> str | None:
        """Queue a chunk. Returns why that was refused: the bookie is down or so slow that its queue is full."""
        if self.down or self._closed:
            return f"bookie {self.member} is not reachable"
        if self._queue and self.backlog_bytes + chunk.size_bytes > self._options.bookie_queue_bytes:
            return f"bookie {self.member} is too slow: {self.backlog_bytes} bytes wait for it"
        self._queue.append(chunk)
        self._queued_bytes += chunk.size_bytes
        self._wake()
        return None

    def _next_message(self) -> list[Buffer] | None:
        if not self._queue and not self._heartbeat_due:
            return None
        self._heartbeat_due = False
        size_fields: list[bytes] = []
        parts: list[Buffer] = []
        size_bytes = 0
        target = self._options.message_bytes_target
        while self._queue and (not parts or size_bytes + self._queue[0].size_bytes <= target):
            chunk = self._queue.popleft()
            size_fields.append(chunk.size_field)
            parts.extend(chunk.parts)
            size_bytes += chunk.size_bytes
        self._queued_bytes -= size_bytes
        self._out.append(size_bytes)
        self._out_bytes += size_bytes
        return encode_add_encoded(self.member, recovery=self._recovery, size_fields=size_fields, parts=parts, size_bytes=size_bytes)

    def _presses(self) -> bool:
        return self._queued_bytes >= self._options.overlap_bytes

    def _heard(self, data: bytes) -> int:
        answered, rows = decode_add_response(data)
        was_crowded = self.crowded
        for _ in range(min(answered - self._answered_count, len(self._out))):
            self._out_bytes -= self._out.popleft()
        touched: dict[int, AddHandler] = {}
        for row in rows:
            handler = self._handlers.get(row.ledger_id)
            if handler is not None:
                touched[row.ledger_id] = handler
                handler.add_answered(self.member, row.first, row.last, row.code)
        if was_crowded and not self.crowded:
            # Also ledgers without an entry in this message may have waited for room.
            touched.update(self._handlers)
        for handler in touched.values():
            handler.answers_done()
        return answered

    def _announce_room_contained(self) -> None:
        try:
            self._announce_room()
        except Exception as error:  # noqa: BLE001  # whatever it is, the other ledgers must hear of the room or of the end
            self._world.tasks.contain(f"room at {self.member}", error, self.scope)

    def _announce_room(self) -> None:
        if self.crowded:
            return
        for ledger_id, handler in list(self._handlers.items()):
            if self._handlers.get(ledger_id) is handler:
                handler.answers_done()

    def _lost(self, reason: str) -> None:
        self._queue.clear()
        self._out.clear()
        self._queued_bytes = self._out_bytes = 0
        for ledger_id, handler in list(self._handlers.items()):
            # One of those before may have detached it.
            if self._handlers.get(ledger_id) is handler:
                handler.member_failed(self.member, reason)

    def tick(self) -> None:
        now = self._clock.monotonic()
        if self.silent(self._options.add_timeout_ms):
            reason = f"bookie {self.member} has not answered for {self._options.add_timeout_ms} ms"
            if self._stream is not None:
                self.break_off(reason)
            else:
                self._lost(reason)
                self._waiting_since = now
        elif (
            self._stream is not None
            and self._handlers
            and not self._queue
            and self.unanswered_count == 0
            and (now - self._last_heard) * 1000 >= self._options.heartbeat_interval_ms
        ):
            self._heartbeat_due = True
            self._signal.set()
