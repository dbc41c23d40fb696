"""The core of a consumer's acknowledgements: which messages of a batch are done, and what waits to be told to the broker.

It promises: an entry is acknowledged once all of its messages are (or, with batch index acknowledgement, index by index); one
cumulative position stands for all before it; what was not answered when the connection broke is told again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pulsarish.client.message_id import MessageId

__all__ = ["AckBatch", "AckTracker"]

Done = Callable[[BaseException | None], None]


@dataclass(slots=True)
class AckBatch:
    """Acknowledgements that go out together."""

    ids: list[tuple[int, int, int]] = field(default_factory=list)  # ledger, entry, batch index (-1: the whole entry)
    cumulative: tuple[int, int, int] | None = None
    waiters: list[Done] = field(default_factory=list)
    """Who waits for the broker's answer; none: no answer is asked for."""


class _Batch:
    """The messages of a delivered batch that are not acknowledged."""

    __slots__ = ("done", "left")

    def __init__(self, size: int) -> None:
        self.done = bytearray(size)
        self.left = size


class AckTracker:
    """Acknowledgements of one consumer. ``group_max``: so many waiting ones are sent at once."""

    def __init__(self, *, group_max: int, batch_index: bool) -> None:
        self._group_max = group_max
        self._batch_index = batch_index
        self._batches: dict[tuple[int, int], _Batch] = {}
        # Indexes of unfinished batches that wait to be sent. An entry that is finished before that is sent as a whole instead, so that
        # acknowledging a batch message by message costs one id, not one for each message.
        self._indexes: dict[tuple[int, int], list[int]] = {}
        self._waiting = AckBatch()
        self._unanswered: list[AckBatch] = []

    # What was delivered.

    def opened(self, ledger_id: int, entry_id: int, batch_size: int, indexes: Sequence[int] | None = None) -> None:
        """A batch was handed to the program; acknowledgements of an earlier delivery of it count no more.

        ``indexes``: the messages that were handed out, when not all were; the others count as acknowledged.
        """
        if batch_size > 1:
            batch = self._batches[ledger_id, entry_id] = _Batch(batch_size)
            if indexes is not None:
                batch.done = bytearray(b"\x01") * batch_size
                for index in indexes:
                    batch.done[index] = 0
                batch.left = len(indexes)

    def forget_delivered(self) -> None:
        """What was delivered before (a reconnection, a seek) comes again."""
        self._batches.clear()

    # The program's side.

    def acknowledge(self, message_id: MessageId, chunks: Sequence[tuple[int, int]] = ()) -> bool:
        """One message is processed, of which ``chunks`` are the entries when it is of several. Answers whether its whole entry is, so that
        trackers can forget it."""
        ledger, entry, index = message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()
        if index >= 0 and not self._index_done(ledger, entry, index, message_id.batch_size()):
            if self._batch_index:
                waiting = self._indexes.get((ledger, entry))
                if waiting is None:
                    self._indexes[ledger, entry] = [index]
                else:
                    waiting.append(index)
            return False
        if index >= 0:
            self._indexes.pop((ledger, entry), None)
        if chunks:
            self._waiting.ids += [(*key, -1) for key in chunks]
        else:
            self._waiting.ids.append((ledger, entry, -1))
        return True

    def wait(self, done: Done) -> bool:
        """``done`` is called when the broker has answered what waits now; ``False`` when nothing waits (an unfinished batch)."""
        if not self.is_waiting:
            return False
        self._waiting.waiters.append(done)
        return True

    def _index_done(self, ledger: int, entry: int, index: int, batch_size: int) -> bool:
        """Note one index; whether the batch is complete with it."""
        batch = self._batches.get((ledger, entry))
        if batch is None:
            if batch_size <= 1:
                return batch_size == 1
            batch = self._batches[ledger, entry] = _Batch(batch_size)
        if index >= len(batch.done):
            return False
        if not batch.done[index]:
            batch.done[index] = 1
            batch.left -= 1
        if batch.left:
            return False
        del self._batches[ledger, entry]
        return True

    def acknowledge_cumulative(self, message_id: MessageId) -> tuple[int, int]:
        """Everything up to and including this message is processed. Answers the last entry that is so as a whole."""
        ledger, entry, index = message_id.ledger_id(), message_id.entry_id(), message_id.batch_index()
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
                    position = (ledger, entry, index) if self._batch_index else (ledger, entry - 1, -1)
        for key in [key for key in self._batches if key <= whole]:
            del self._batches[key]
        waiting = self._waiting
        # -1 stands for the whole entry, so it is the greatest index there is.
        if waiting.cumulative is None or _order(position) > _order(waiting.cumulative):
            waiting.cumulative = position
        return whole

    # The connection's side.

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting.ids or self._indexes) or self._waiting.cumulative is not None

    @property
    def is_full(self) -> bool:
        return len(self._waiting.ids) + len(self._indexes) >= self._group_max or bool(self._waiting.waiters)

    def take(self) -> AckBatch | None:
        """What waits, to be sent now. One whose answer somebody awaits is kept until ``answered``."""
        if not self.is_waiting:
            return None
        taken, self._waiting = self._waiting, AckBatch()
        if self._indexes:
            taken.ids += [(*key, index) for key, indexes in self._indexes.items() for index in indexes]
            self._indexes.clear()
        if taken.waiters:
            self._unanswered.append(taken)
        return taken

    def answered(self, batch: AckBatch) -> list[Done]:
        """The broker has answered. Who waited for it: nobody when the consumer was closed meanwhile, since all of it is told again."""
        left = [unanswered for unanswered in self._unanswered if unanswered is not batch]
        was_waited_for = len(left) < len(self._unanswered)
        self._unanswered = left
        return batch.waiters if was_waited_for else []

    def again(self, batch: AckBatch) -> None:
        """The broker could not do it now: it is told again."""
        if any(unanswered is batch for unanswered in self._unanswered):
            self._unanswered = [unanswered for unanswered in self._unanswered if unanswered is not batch]
            self._waiting = _merged([batch, self._waiting])

    def disconnected(self) -> None:
        """What was sent and not answered waits again, before what came later. To acknowledge twice does no harm."""
        self._waiting = _merged([*self._unanswered, self._waiting])
        self._unanswered.clear()

    def end(self) -> list[Done]:
        """The consumer is closed: who still waits."""
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
    """All of them in one, which is a new one: a late answer to an old one must not speak for what joins it."""
    merged = AckBatch()
    for batch in batches:
        merged.ids.extend(batch.ids)
        merged.waiters.extend(batch.waiters)
        if batch.cumulative is not None and (merged.cumulative is None or _order(batch.cumulative) > _order(merged.cumulative)):
            merged.cumulative = batch.cumulative
    return merged


def _order(position: tuple[int, int, int]) -> tuple[int, int, float]:
    ledger, entry, index = position
    return ledger, entry, float("inf") if index < 0 else index
