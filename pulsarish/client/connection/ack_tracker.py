"""The core of a consumer's acknowledgements: which messages of a batch are acknowledged, and what
to send to the broker.

An entry is acknowledged once all its messages are, or index by index with batch index
acknowledgement. One cumulative position covers everything before it. What has no answer when the
connection breaks is sent again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pulsarish.client.message_id import MessageId

__all__ = ["AckBatch", "AckTracker"]

Done = Callable[[BaseException | None], None]


@dataclass(slots=True)
class AckBatch:
    """Acknowledgements that are sent together."""

    # ledger, entry, batch index (-1: the whole entry)
    ids: list[tuple[int, int, int]] = field(default_factory=list)
    cumulative: tuple[int, int, int] | None = None
    waiters: list[Done] = field(default_factory=list)
    """Callbacks for the broker's answer; empty: no answer is requested."""


class _Batch:
    """The unacknowledged messages of a delivered batch."""

    __slots__ = ("done", "left")

    def __init__(self, size: int) -> None:
        self.done = bytearray(size)
        self.left = size

    def finish(self, indexes: Sequence[int]) -> None:
        """Note acknowledged indexes, those beyond the batch excepted."""
        done = self.done
        first, after = indexes[0], indexes[-1] + 1
        if (
            1 < len(indexes) == after - first
            and after <= len(done)
            and list(indexes) == list(range(first, after))
        ):
            # Most programs acknowledge in the order of the batch.
            self.left -= done.count(0, first, after)
            done[first:after] = b"\x01" * len(indexes)
            return
        for index in indexes:
            if index < len(done) and not done[index]:
                done[index] = 1
                self.left -= 1


class AckTracker:
    """Acknowledgements of one consumer. ``group_max``: send when this many wait."""

    def __init__(self, *, group_max: int, batch_index: bool) -> None:
        self._group_max = group_max
        self._batch_index = batch_index
        self._batches: dict[tuple[int, int], _Batch] = {}
        # Waiting indexes of incomplete batches. When a batch completes first, the whole entry is
        # sent instead, so acknowledging a batch message by message costs one id.
        self._indexes: dict[tuple[int, int], list[int]] = {}
        self._waiting = AckBatch()
        self._unanswered: list[AckBatch] = []

    # Deliveries.

    def opened(
        self, ledger_id: int, entry_id: int, batch_size: int, indexes: Sequence[int] | None = None
    ) -> None:
        """A batch was handed to the program.

        Acknowledgements of its earlier deliveries no longer count.

        ``indexes``: the messages that were handed out, if not all; the others count as
        acknowledged.
        """
        if batch_size > 1:
            batch = self._batches[ledger_id, entry_id] = _Batch(batch_size)
            if indexes is not None:
                batch.done = bytearray(b"\x01") * batch_size
                for index in indexes:
                    batch.done[index] = 0
                batch.left = len(indexes)

    def forget_delivered(self) -> None:
        """Forget deliveries that will be repeated, after a reconnection or a seek."""
        self._batches.clear()

    # The program's side.

    def acknowledge(self, message_id: MessageId, chunks: Sequence[tuple[int, int]] = ()) -> bool:
        """Acknowledge a message; ``chunks``: its entries, when it has several.

        Returns whether its whole entry is acknowledged now, so that trackers can forget it.
        """
        return self.acknowledge_indexes(
            (message_id.ledger_id(), message_id.entry_id()),
            (message_id.batch_index(),),
            message_id.batch_size(),
            chunks,
        )

    def acknowledge_indexes(
        self,
        key: tuple[int, int],
        indexes: Sequence[int],
        batch_size: int,
        chunks: Sequence[tuple[int, int]] = (),
    ) -> bool:
        """Acknowledge messages of one entry by their indexes in its batch; -1: it is no batch.

        ``key``: ledger and entry. Returns the same as ``acknowledge``.
        """
        if indexes[0] >= 0:
            if not self._indexes_done(key, indexes, batch_size):
                if self._batch_index:
                    waiting = self._indexes.get(key)
                    if waiting is None:
                        self._indexes[key] = [*indexes]
                    else:
                        waiting += indexes
                return False
            self._indexes.pop(key, None)
        if chunks:
            self._waiting.ids += [(*chunk, -1) for chunk in chunks]
        else:
            self._waiting.ids.append((*key, -1))
        return True

    def wait(self, done: Done) -> bool:
        """Call ``done`` when the broker has answered what waits now.

        Returns ``False`` when nothing waits (an incomplete batch).
        """
        if not self.is_waiting:
            return False
        self._waiting.waiters.append(done)
        return True

    def _indexes_done(self, key: tuple[int, int], indexes: Sequence[int], batch_size: int) -> bool:
        """Note indexes of a batch. Returns whether the batch is complete."""
        batch = self._batches.get(key)
        if batch is None:
            if batch_size <= 1:
                return batch_size == 1
            batch = self._batches[key] = _Batch(batch_size)
        batch.finish(indexes)
        if batch.left:
            return False
        del self._batches[key]
        return True

    def acknowledge_cumulative(self, message_id: MessageId) -> tuple[int, int]:
        """Acknowledge everything up to and including a message.

        Returns the last entry that is acknowledged as a whole.
        """
        ledger, entry, index = (
            message_id.ledger_id(),
            message_id.entry_id(),
            message_id.batch_index(),
        )
        whole = (ledger, entry)
        position = (ledger, entry, -1)
        if index >= 0:
            batch = self._batches.get(whole)
            if batch is None and message_id.batch_size() > 1:
                batch = self._batches[whole] = _Batch(message_id.batch_size())
            if batch is not None and index < len(batch.done):
                for at in range(index + 1):
                    if not batch.done[at]:
                        batch.done[at] = 1
                        batch.left -= 1
                if batch.left:
                    whole = (ledger, entry - 1)
                    position = (
                        (ledger, entry, index) if self._batch_index else (ledger, entry - 1, -1)
                    )
        for key in [key for key in self._batches if key <= whole]:
            del self._batches[key]
        waiting = self._waiting
        # -1 means the whole entry, so it counts as the greatest index.
        if waiting.cumulative is None or _order(position) > _order(waiting.cumulative):
            waiting.cumulative = position
        return whole

    # The connection's side.

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting.ids or self._indexes) or self._waiting.cumulative is not None

    @property
    def is_full(self) -> bool:
        return len(self._waiting.ids) + len(self._indexes) >= self._group_max or bool(
            self._waiting.waiters
        )

    def take(self) -> AckBatch | None:
        """Return what waits, to send it now. A batch with callbacks is kept until ``answered``."""
        if not self.is_waiting:
            return None
        taken, self._waiting = self._waiting, AckBatch()
        if self._indexes:
            taken.ids += [
                (*key, index) for key, indexes in self._indexes.items() for index in indexes
            ]
            self._indexes.clear()
        if taken.waiters:
            self._unanswered.append(taken)
        return taken

    def answered(self, batch: AckBatch) -> list[Done]:
        """Return the callbacks of an answered batch; none when the consumer was disconnected since,
        because all of it is sent again.
        """
        left = [unanswered for unanswered in self._unanswered if unanswered is not batch]
        was_waited_for = len(left) < len(self._unanswered)
        self._unanswered = left
        return batch.waiters if was_waited_for else []

    def again(self, batch: AckBatch) -> None:
        """Queue a batch again that the broker could not process now."""
        if any(unanswered is batch for unanswered in self._unanswered):
            self._unanswered = [
                unanswered for unanswered in self._unanswered if unanswered is not batch
            ]
            self._waiting = _merged([batch, self._waiting])

    def disconnected(self) -> None:
        """Queue what was sent and not answered again, before anything newer.

        Acknowledging twice is harmless.
        """
        self._waiting = _merged([*self._unanswered, self._waiting])
        self._unanswered.clear()

    def end(self) -> list[Done]:
        """End, and return the callbacks that still wait."""
        waiters = [done for batch in (*self._unanswered, self._waiting) for done in batch.waiters]
        self._unanswered.clear()
        self._indexes.clear()
        self._waiting = AckBatch()
        return waiters

    def check(self) -> None:
        for batch in self._batches.values():
            assert batch.left == batch.done.count(0) > 0
        assert all(batch.waiters for batch in self._unanswered)


def _merged(batches: Sequence[AckBatch]) -> AckBatch:
    """Merge into a new batch: a late answer to one of the old batches must not confirm what was
    added.
    """
    merged = AckBatch()
    for batch in batches:
        merged.ids.extend(batch.ids)
        merged.waiters.extend(batch.waiters)
        if batch.cumulative is not None and (
            merged.cumulative is None or _order(batch.cumulative) > _order(merged.cumulative)
        ):
            merged.cumulative = batch.cumulative
    return merged


def _order(position: tuple[int, int, int]) -> tuple[int, int, float]:
    ledger, entry, index = position
    return ledger, entry, float("inf") if index < 0 else index
