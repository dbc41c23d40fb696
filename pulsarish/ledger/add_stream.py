"""The stream that carries adds to one bookie. All ledgers of this process share its queue.

Entries go out in encoded batches. Answers come back as ranges of entries.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pulsarish.ledger.bookie_stream import BookieStream
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.slow_adds import AddTimes
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.seams import Buffer, World
from pulsarish.wire.bookie import decode_add_response, encode_add_encoded, encode_sizes

__all__ = ["AddChunk", "AddHandler", "AddStream", "encode_chunk"]

# mean size of a part up to which one copy now costs less than many parts in three messages
_JOIN_BELOW_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class AddChunk:
    """Some entries of one ledger, encoded once for all the bookies that they go to."""

    ledger_id: int
    size_field: bytes
    parts: tuple[Buffer, ...]
    size_bytes: int


def encode_chunk(ledger_id: int, parts: Sequence[Buffer], sizes: Sequence[int]) -> AddChunk:
    """Encode records.

    Args:
        parts: the records' bytes in order, in any number of pieces.
        sizes: one size in bytes for each record.
    """
    size_bytes = sum(sizes)
    frozen = (b"".join(parts),) if size_bytes < _JOIN_BELOW_BYTES * len(parts) else tuple(parts)
    return AddChunk(ledger_id, encode_sizes(sizes), frozen, size_bytes)


class AddHandler(Protocol):
    """A ledger's side of the add streams that it uses."""

    def add_answered(self, member: str, first: int, last: int, code: int) -> None:
        """Handle the answer of a bookie: entries ``first..last`` ended with this code; 0: stored
        and synced.
        """
        ...

    def answers_done(self) -> None:
        """Note that all answers of one message were handled, or that a crowded queue has room
        again.

        A ledger that waits for room waits for this call or for ``member_failed``. Every event that
        gives a queue room ends in one of the two.
        """
        ...

    def member_failed(self, member: str, reason: str) -> None:
        """Handle the loss of the stream.

        This bookie never answers what is unanswered, and its queue is empty.
        """
        ...


class AddStream(BookieStream):
    """Adds to one bookie.

    ``recovery`` marks the adds as written by recovery: a fenced ledger accepts them. They have a
    lane of their own.
    """

    def __init__(
        self,
        world: World,
        options: LedgerOptions,
        book: AddressBook,
        member: str,
        *,
        recovery: bool,
    ) -> None:
        super().__init__(
            world,
            options,
            book,
            member,
            method="bookie.add",
            lane="recovery" if recovery else "add",
        )
        self._recovery = recovery
        self._handlers: dict[int, AddHandler] = {}
        self._queue: deque[AddChunk] = deque()
        self._queued_bytes = 0
        self._out: deque[int] = deque()  # bytes of each unanswered message
        self._out_bytes = 0
        self._heartbeat_due = False
        # When each unanswered message was sent, and what answers took since ``take_times``.
        # Not for recovery, nor where slow bookies are not looked for.
        self._are_timed = options.slow_adds_ratio > 0 and not recovery
        self._sent_at: deque[float] = deque()
        self._took_seconds = 0.0
        self._took_count = 0

    @property
    def backlog_bytes(self) -> int:
        """The bytes that wait or are unanswered: the memory that a slow bookie costs this
        process.
        """
        return self._queued_bytes + self._out_bytes

    @property
    def crowded(self) -> bool:
        """Whether half of the limit is used. Then the caller that appends should wait."""
        return self.backlog_bytes * 2 >= self._options.bookie_queue_bytes

    @property
    def in_use(self) -> bool:
        return bool(self._handlers)

    def has_handler(self, ledger_id: int) -> bool:
        """Whether answers about a ledger have a handler, which another one would replace."""
        return ledger_id in self._handlers

    def attach(self, ledger_id: int, handler: AddHandler) -> None:
        self._handlers[ledger_id] = handler

    def detach(self, ledger_id: int) -> None:
        """Drop a ledger's handler and what the ledger still has in the queue.

        Its answers are ignored from now on.
        """
        if self._handlers.pop(ledger_id, None) is not None:
            self.drop(ledger_id)

    def drop(self, ledger_id: int) -> None:
        """Remove a ledger's entries from the queue, because the ledger gave up this bookie."""
        kept = deque(chunk for chunk in self._queue if chunk.ledger_id != ledger_id)
        if len(kept) != len(self._queue):
            was_crowded = self.crowded
            self._queue = kept
            self._queued_bytes = sum(chunk.size_bytes for chunk in kept)
            if was_crowded and not self.crowded:
                # Call later, because the ledger that gives up its entries is in the middle of a
                # change.
                asyncio.get_running_loop().call_soon(self._announce_room_contained)

    def push(self, chunk: AddChunk) -> str | None:
        """Queue a chunk.

        Return why it was refused: the bookie is down, or so slow that its queue is full.
        """
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
        if self._are_timed:
            self._sent_at.append(self._clock.monotonic())
        self._out_bytes += size_bytes
        return encode_add_encoded(
            self.member,
            recovery=self._recovery,
            size_fields=size_fields,
            parts=parts,
            size_bytes=size_bytes,
        )

    def _presses(self) -> bool:
        return self._queued_bytes >= self._options.overlap_bytes

    def _heard(self, data: bytes) -> int:
        answered, rows = decode_add_response(data)
        was_crowded = self.crowded
        for _ in range(min(answered - self._answered_count, len(self._out))):
            size_bytes = self._out.popleft()
            self._out_bytes -= size_bytes
            if self._are_timed:
                sent_at = self._sent_at.popleft()
                if size_bytes:  # not a heartbeat, which waits for no disk
                    self._took_seconds += self._last_heard - sent_at
                    self._took_count += 1
        touched: dict[int, AddHandler] = {}
        for row in rows:
            handler = self._handlers.get(row.ledger_id)
            if handler is not None:
                touched[row.ledger_id] = handler
                handler.add_answered(self.member, row.first, row.last, row.code)
        if was_crowded and not self.crowded:
            # Ledgers without an entry in this message may have waited for room, too.
            touched.update(self._handlers)
        for handler in touched.values():
            handler.answers_done()
        return answered

    def take_times(self, now: float) -> AddTimes | None:
        """Return how long adds took since the last call; ``None``: there were none."""
        count, total = self._took_count, self._took_seconds
        self._took_count, self._took_seconds = 0, 0.0
        waits = bool(self._sent_at) and self._out[0] > 0
        if not count and not waits:
            return None
        return AddTimes(total / count if count else None, now - self._sent_at[0] if waits else 0.0)

    def _announce_room_contained(self) -> None:
        try:
            self._announce_room()
        except Exception as error:  # noqa: BLE001
            # Whatever it is, the other ledgers must hear of the room or of the end.
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
        self._sent_at.clear()
        self._queued_bytes = self._out_bytes = 0
        for ledger_id, handler in list(self._handlers.items()):
            # A handler called before may have detached this one.
            if self._handlers.get(ledger_id) is handler:
                handler.member_failed(self.member, reason)

    def forgive(self) -> None:
        super().forgive()
        if self._are_timed:
            self._sent_at = deque([self._last_heard] * len(self._sent_at))
            self._took_count, self._took_seconds = 0, 0.0

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
