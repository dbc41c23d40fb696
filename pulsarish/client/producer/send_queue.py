"""The core of a producer: messages to batches, batches to entries (``EntrySealer``), and entries in
order until they are answered.

Invariants:

* Sequence ids only grow, unless the program sets them.
* Entries are sent, and sent again, in the order in which they were sealed.
* Every accepted message is completed exactly once: by a receipt, a refusal, a timeout or the end of
  the producer.
* When the oldest entry times out, so does everything behind it: nothing may overtake it (rule 15).
* A batch stays within its limits and never mixes a possible duplicate with other messages.

Pure: no clock, no I/O, no lock. The shell passes the time and holds the producer's lock when
threads share it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pulsarish.client.enums import CompressionType
from pulsarish.client.messages.entry_encoder import (
    BATCHED_BYTES_MAX,
    NO_EXTRAS,
    Extras,
    encode_batch,
)
from pulsarish.client.messages.pending_entries import Batch, Callback, Chunked, PendingEntry
from pulsarish.client.producer.entry_sealer import EntrySealer
from pulsarish.client.producer.key_batches import by_key, key_alone
from pulsarish.client.producer.send_limits import SendLimits, too_big
from pulsarish.model.errors import MessageTooBig, PulsarishError

if TYPE_CHECKING:
    from pulsarish.client.producer.encryption import Encryption

__all__ = ["SendQueue"]

CHUNKED_BYTES_MAX: Final = 1 << 30
"""The largest content that is sent in chunks; consumers do not assemble more."""


class SendQueue:
    """The messages of one producer.

    ``name`` is known once the broker has opened the producer, before the first message.
    """

    def __init__(
        self,
        limits: SendLimits,
        *,
        stamp: Callable[[], tuple[float, int]],
        encryption: Encryption | None = None,
        on_sealed: Callable[[PendingEntry], None] | None = None,
    ) -> None:
        """``stamp`` returns the monotonic time in seconds and the wall clock in milliseconds.

        ``encryption``: of each entry's payload, after its compression.

        ``on_sealed``: called with each entry when it is made.
        """
        self._limits: Final = limits
        self._stamp = stamp
        self._on_sealed = on_sealed
        self._sealer: Final = EntrySealer(
            self._put if on_sealed is None else self._put_and_tell,
            compression=limits.compression,
            chunking=limits.chunking,
            timeout_seconds=limits.timeout_seconds,
            stamp=stamp,
            encryption=encryption,
        )
        self._open: Batch | None = None
        self._queue: deque[PendingEntry] = deque()  # sealed, not sent
        self._oversized: deque[PendingEntry] = deque()  # sealed, and never to be sent
        # Sent on the present connection, in order. First those that timed out, whose answers are
        # ignored.
        self._abandoned: deque[PendingEntry] = deque()
        self._sent: deque[PendingEntry] = deque()
        self._next_sequence_id = 0
        self.pushed_sequence_id = -1
        """The highest sequence id that was stored at the first opening or accepted since."""
        self.last_sequence_id = -1
        """The highest sequence id that is known to be stored."""
        self.pending_count = 0
        """Messages that were accepted and not completed."""
        self.answered_bytes = 0
        """Of the entries that were answered."""
        self.max_message_bytes = 5 << 20
        self._batch_bytes_max = self._batch_limit()

    # What the broker answers when it opens the producer.

    def named(self, name: str, *, last_sequence_id: int, initial_sequence_id: int | None) -> None:
        """Set the name that all entries carry and the first sequence id, at the first opening."""
        self._sealer.use_name(name)
        # As in Apache Pulsar's clients, a program's own count is where its ids go on from.
        self.last_sequence_id = (
            last_sequence_id if initial_sequence_id is None else initial_sequence_id
        )
        self._next_sequence_id = self.last_sequence_id + 1
        self.pushed_sequence_id = last_sequence_id

    def use_schema(self, version: bytes) -> None:
        """Set the schema version for entries sealed from now on, at every opening; empty: no
        schema.
        """
        self._sealer.use_schema(version)

    @property
    def is_waiting(self) -> bool:
        """Whether messages wait for the producer to be opened for the first time."""
        return False

    def release(self) -> Sequence[tuple[PendingEntry, PulsarishError]]:
        """Accept what waited for the first opening. Returns what is refused, with the reason."""
        return ()

    # The program's side.

    @property
    def newest_sequence_id(self) -> int:
        """The highest sequence id of an accepted message."""
        return self._next_sequence_id - 1

    @property
    def has_room(self) -> bool:
        return self.pending_count < self._limits.max_pending_messages

    @property
    def is_roomy(self) -> bool:
        """Whether a quarter of the queue is free."""
        return self.pending_count * 4 <= self._limits.max_pending_messages * 3

    @property
    def is_filling(self) -> bool:
        """Whether a batch is open that the next message without a key should join."""
        return self._open is not None

    def add(
        self,
        payload: bytes,
        callback: Callback,
        extras: Extras | None = None,
        sequence_id: int | None = None,
    ) -> bool:
        """Accept a message; there must be room.

        Returns whether the shell has something new to do: an open batch to time, or a first entry
        to send. Further entries are sent with those that wait already. Raises ``MessageTooBig``.
        """
        limits = self._limits
        size = len(payload)
        if limits.chunking and size > CHUNKED_BYTES_MAX:
            raise MessageTooBig(
                f"content of {size} bytes is above the {CHUNKED_BYTES_MAX} bytes that may be sent "
                "in chunks"
            )
        if (
            size > self.max_message_bytes
            and limits.compression is CompressionType.NONE
            and not limits.chunking
        ):
            raise MessageTooBig(
                f"content of {size} bytes is above the broker's limit of {self.max_message_bytes} "
                "bytes a message"
            )
        self.pending_count += 1
        was_idle = not self._queue
        if sequence_id is None:
            sequence_id = self._next_sequence_id
            is_own = False
        else:
            is_own = True
        alone = (
            not limits.batching
            # Sequence ids grow in the order of entries. That is not the order of messages when
            # batches are made by key.
            or (limits.by_key and is_own)
            or (extras is not None and extras.is_sent_alone)
            # A possible duplicate: in a batch, the broker would drop new messages with it.
            or sequence_id <= self.pushed_sequence_id
        )
        batch = self._open
        news = False
        size += BATCHED_BYTES_MAX
        if extras is not None:
            size += extras.size_bytes_max()
        if batch is not None and (alone or batch.size_bytes + size > self._batch_bytes_max):
            self.seal()
            batch, news = None, was_idle
        if sequence_id >= self._next_sequence_id:
            self._next_sequence_id = sequence_id + 1
        if alone:
            if sequence_id > self.pushed_sequence_id:
                self.pushed_sequence_id = sequence_id
            self._sealer.seal_one(
                payload, callback, extras, sequence_id, bytes_max=self.max_message_bytes
            )
            return was_idle or bool(self._oversized)
        self.pushed_sequence_id = sequence_id
        if batch is None:
            batch = self._open = Batch(sequence_id, self._stamp()[0])
            news = True
        count = len(batch.payloads)
        if batch.sequence_ids is not None:
            batch.sequence_ids.append(sequence_id)
        elif sequence_id != batch.first_sequence_id + count:
            batch.sequence_ids = [
                *range(batch.first_sequence_id, batch.first_sequence_id + count),
                sequence_id,
            ]
        if extras is not None:
            batch.extras[count] = extras
        batch.payloads.append(payload)
        batch.callbacks.append(callback)
        batch.size_bytes += size
        if (
            count + 1 >= limits.batch_messages_max
            or batch.size_bytes >= self._batch_bytes_max
            or not self.has_room
        ):
            self.seal()
            return was_idle or bool(self._oversized)
        return news

    def add_batch(
        self,
        batch: bytes,
        count: int,
        first: int,
        last: int,
        callback: Callback,
        of_all: Extras = NO_EXTRAS,
    ) -> bool:
        """Accept a batch that the program made (``encode_batch``): ``count`` messages with sequence
        ids ``first`` to ``last``, as one entry with one callback. It counts as one pending message.
        ``of_all``: what the metadata of the entry carries. Returns the same as ``add``.
        """
        was_idle = not self._queue
        self.seal()
        self.pending_count += 1
        self.pushed_sequence_id = max(self.pushed_sequence_id, last)
        self._next_sequence_id = max(self._next_sequence_id, last + 1)
        self._sealer.seal_batch(batch, count, first, last, (callback,), of_all)
        return was_idle or bool(self._oversized)

    def open_batch_since(self) -> float | None:
        """When the open batch got its first message."""
        return None if self._open is None else self._open.opened_at

    def seal(self) -> None:
        """Close the open batch, if any, and queue it as an entry."""
        batch, self._open = self._open, None
        if batch is None:
            return
        count = len(batch.payloads)
        if self._limits.by_key and batch.extras:
            self._seal_by_key(batch)
            return
        sequence_ids: Sequence[int] = batch.sequence_ids or range(
            batch.first_sequence_id, batch.first_sequence_id + count
        )
        self._seal_batch(batch.payloads, batch.callbacks, batch.extras, sequence_ids, NO_EXTRAS)

    def _seal_by_key(self, batch: Batch) -> None:
        sequence_id = batch.first_sequence_id
        for indexes in by_key(len(batch.payloads), batch.extras):
            payloads = [batch.payloads[index] for index in indexes]
            callbacks = [batch.callbacks[index] for index in indexes]
            extras = {
                at: batch.extras[index] for at, index in enumerate(indexes) if index in batch.extras
            }
            self._seal_batch(
                payloads,
                callbacks,
                extras,
                range(sequence_id, sequence_id + len(indexes)),
                key_alone(extras.get(0)),
            )
            sequence_id += len(indexes)

    def _seal_batch(
        self,
        payloads: list[bytes],
        callbacks: list[Callback],
        extras: Mapping[int, Extras],
        sequence_ids: Sequence[int],
        of_all: Extras,
    ) -> None:
        """Seal one batch. ``of_all``: what the metadata of the entry carries."""
        count = len(payloads)
        if count == 1:
            self._sealer.seal_one(
                payloads[0],
                callbacks[0],
                extras.get(0),
                sequence_ids[0],
                bytes_max=self.max_message_bytes,
            )
            return
        raw = encode_batch(payloads, sequence_ids, extras)
        self._sealer.seal_batch(raw, count, sequence_ids[0], sequence_ids[-1], callbacks, of_all)

    def _put_and_tell(self, entry: PendingEntry) -> None:
        assert self._on_sealed is not None
        self._on_sealed(entry)
        self._put(entry)

    def _put(self, entry: PendingEntry) -> None:
        is_sent = len(entry.parts[1]) <= self.max_message_bytes
        (self._queue if is_sent else self._oversized).append(entry)

    def flush(self, done: Callable[[], None]) -> None:
        """Seal, and call ``done`` when everything accepted so far is completed (at once when
        nothing is pending).
        """
        self.seal()
        if self._queue:
            self._queue[-1].flushes = (*self._queue[-1].flushes, done)
            return
        # Oversized entries fail on the next flush of the shell, so wait for the last sent entry.
        waited_for = self._sent or self._oversized
        if waited_for:
            waited_for[-1].flushes = (*waited_for[-1].flushes, done)
        else:
            done()

    def _batch_limit(self) -> int:
        return min(
            self._limits.batch_bytes_max,
            max(1, self.max_message_bytes - self._sealer.overhead_bytes),
        )

    # The connection's side.

    @property
    def has_entries(self) -> bool:
        return bool(self._queue)

    def take(self, bytes_max: int) -> list[PendingEntry]:
        """Return entries to send now, at least one if there is any, and mark them as sent."""
        taken: list[PendingEntry] = []
        queue, size = self._queue, 0
        while queue and (not taken or size + queue[0].size_bytes <= bytes_max):
            entry = queue.popleft()
            size += entry.size_bytes
            taken.append(entry)
        self._sent.extend(taken)
        return taken

    def limit_messages(self, bytes_max: int) -> None:
        """Set the broker's limit for an entry. Waiting entries must keep it too."""
        self.max_message_bytes = bytes_max
        # A batch is one entry: messages that fit alone must not be refused because they share a
        # batch.
        self._batch_bytes_max = self._batch_limit()
        if any(len(entry.parts[1]) > bytes_max for entry in self._queue):
            entries, self._queue = self._queue, deque()
            # An oversized chunk fails its whole message.
            great = {
                id(entry.chunked or entry) for entry in entries if len(entry.parts[1]) > bytes_max
            }
            for entry in entries:
                (self._oversized if id(entry.chunked or entry) in great else self._queue).append(
                    entry
                )

    def take_oversized(self) -> list[tuple[PendingEntry, PulsarishError]]:
        """Remove and return entries above the broker's limit.

        Their size is known only after compression.
        """
        refused = [(entry, too_big(entry, self.max_message_bytes)) for entry in self._oversized]
        self.pending_count -= sum(len(entry.callbacks) for entry in self._oversized)
        self._oversized.clear()
        return refused

    def answered(self, count: int) -> list[PendingEntry | None]:
        """Return the next ``count`` sent entries, which were answered, in order; ``None`` for one
        that timed out before.
        """
        out = len(self._abandoned) + len(self._sent)
        assert count <= out, f"{count} entries were answered, {out} are out"
        done: list[PendingEntry | None] = []
        size_bytes = 0
        for _ in range(count):
            if self._abandoned:
                entry = self._abandoned.popleft()
                done.append(None)
            else:
                entry = self._sent.popleft()
                self.pending_count -= len(entry.callbacks)
                size_bytes += entry.size_bytes
                done.append(entry)
            self.last_sequence_id = max(self.last_sequence_id, entry.highest_sequence_id)
        self.answered_bytes += size_bytes
        return done

    def sent_before(self, count: int) -> PendingEntry | None:
        """Return the last of the next ``count`` sent entries, to verify a receipt."""
        index = count - 1 - len(self._abandoned)
        if index < 0:
            return self._abandoned[index] if count > 0 else None
        return self._sent[index] if index < len(self._sent) else None

    def refused(self) -> PendingEntry | None:
        """Return the next sent entry, which was finally refused; ``None`` when it timed out
        before.
        """
        if self._abandoned:
            self._abandoned.popleft()
            return None
        entry = self._sent.popleft()
        if entry.chunked is not None:
            entry = self._without_chunks(entry, entry.chunked)
        self.pending_count -= len(entry.callbacks)
        return entry

    def _without_chunks(self, refused: PendingEntry, chunked: Chunked) -> PendingEntry:
        """Drop the unsent chunks of a refused message.

        Returns the entry to fail for the message.
        """
        self._queue = deque(entry for entry in self._queue if entry.chunked is not chunked)
        last, chunked.last = chunked.last, None
        if last is None:
            return refused  # the message has failed already
        if last is refused or all(entry is not last for entry in self._sent):
            return last
        # The chunk was sent; its answer completes nothing.
        failed = PendingEntry(last.sequence_id, -1, last.callbacks, last.parts, last.deadline)
        last.callbacks = ()
        return failed

    def disconnected(self) -> None:
        """Queue everything that was sent and not answered again, first and in order."""
        self._abandoned.clear()
        self._queue.extendleft(reversed(self._sent))
        self._sent.clear()

    # Time and end.

    def next_deadline(self) -> float | None:
        for entries in (self._sent, self._queue):
            if entries:
                return entries[0].deadline
        return None

    def expired(self, now: float) -> list[PendingEntry]:
        """Return everything that is pending, in order, the open batch too, if the oldest entry has
        timed out.

        Entries behind it must fail as well. Otherwise they would be stored first when the program
        sends the failed message again, and deduplication would then drop that message. Entries on
        the wire may still be stored; their answers are ignored.
        """
        oldest = self.next_deadline()
        if oldest is None or oldest > now:
            return []
        self.seal()
        late = [*self._sent, *self._queue]
        self._abandoned += self._sent
        self._sent.clear()
        self._queue.clear()
        for entry in late:
            self.pending_count -= len(entry.callbacks)
        return late

    def end(self) -> list[PendingEntry]:
        """Remove and return everything that is not completed, in order."""
        self.seal()
        left = [*self._sent, *self._queue, *self._oversized]
        for entries in (self._abandoned, self._sent, self._queue, self._oversized):
            entries.clear()
        self.pending_count = 0
        return left

    def check(self) -> None:
        """Assert the invariants that hold between any two calls."""
        live = [*self._sent, *self._queue]
        oversized = sum(len(entry.callbacks) for entry in self._oversized)
        filling = len(self._open.payloads) if self._open is not None else 0
        assert (
            self.pending_count == sum(len(entry.callbacks) for entry in live) + oversized + filling
        )
        assert self._open is None or len(self._open.payloads) == len(self._open.callbacks)
        assert all(entry.deadline <= after.deadline for entry, after in pairwise(live))
        assert all(
            len(entry.callbacks) <= max(1, self._limits.batch_messages_max) for entry in live
        )
        assert all(entry.callbacks or entry.chunked is not None for entry in live)
