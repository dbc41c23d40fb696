"""The core of messages that a program received and has not acknowledged.

An entry that the program neither acknowledges nor refuses is redelivered after the acknowledgement
timeout, if there is one; a refused entry after its delay. One that was redelivered
``redeliveries_max`` times goes to the dead letter topic instead.

Acknowledgements of single messages are gathered, and noted together by ``settle``, before anything
that depends on them.

Pure: no clock, no lock. The shell passes the time and holds the consumer's lock around every call
but ``defer_acknowledgement``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from pulsarish.client.connection.ack_tracker import AckTracker
from pulsarish.client.consumer.redelivery import EntryKey, NegativeAcks, UnackedTracker
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Entry, Message, batch_places, entry_runs

__all__ = ["DAMAGED_RETRY_MS", "UnackedMessages"]

DAMAGED_RETRY_MS = 1_000
"""A delivery with a wrong checksum is requested again after this.

It is neither handed out nor skipped.
"""


class UnackedMessages:
    """The unacknowledged messages of one topic.

    Args:
        redeliveries_max: ``None`` without a dead letter policy.
        unacked_timeout_seconds: 0: no timeout.
        acknowledged: ``False`` for a reader, which acknowledges nothing.
    """

    def __init__(
        self,
        acks: AckTracker,
        *,
        negative_delay_ms: Callable[[int], int],
        unacked_timeout_seconds: float,
        redeliveries_max: int | None,
        acknowledged: bool = True,
        damaged_delay_ms: Callable[[int], int] = lambda _count: DAMAGED_RETRY_MS,
    ) -> None:
        self.acks = acks
        self._acknowledged_count = 0
        self.refused_count = 0
        self._nacks = NegativeAcks(negative_delay_ms)
        self._damaged = NegativeAcks(damaged_delay_ms)
        self._unacked = UnackedTracker(unacked_timeout_seconds) if unacked_timeout_seconds else None
        self._redeliveries_max = redeliveries_max
        self._last_chances: dict[EntryKey, list[Message]] = {}  # delivered for the last time
        self._dead: dict[EntryKey, list[Message]] = {}  # for the dead letter topic
        # chunks of messages, by the last chunk
        self._chunks: dict[EntryKey, tuple[EntryKey, ...]] = {}
        self._acknowledged = acknowledged
        self._deferred: deque[Message] = deque()

    def opened(self, entry: Entry, messages: list[Message], now: float) -> bool:
        """Note an opened entry.

        Returns ``False`` when it must not be handed out, because it goes to the dead letter topic.
        """
        if self._deferred:
            self.settle()
        key = (entry.ledger_id, entry.entry_id)
        most = self._redeliveries_max
        if most is not None and entry.redelivery_count >= most:
            if entry.redelivery_count > most:
                self._dead[key] = messages
                return False
            self._last_chances[key] = messages
        size, indexes = batch_places(messages)
        if size > 1:
            self.acks.opened(entry.ledger_id, entry.entry_id, size, indexes)
        if self._unacked is not None:
            self._unacked.add(key, now)
        if entry.chunks and self._acknowledged:
            self._chunks[key] = entry.chunks
        return True

    def on_sealed(self, key: EntryKey, now: float) -> None:
        """Note an entry that cannot be decrypted: it is requested again after the timeout, if there
        is one.
        """
        if self._unacked is not None and self._acknowledged:
            self._unacked.add(key, now)

    @property
    def acknowledged_count(self) -> int:
        """Messages that were acknowledged; a cumulative acknowledgement counts once."""
        return self._acknowledged_count + len(self._deferred)

    @property
    def is_timed(self) -> bool:
        """Whether messages that are handed out have a timeout."""
        return self._unacked is not None

    def defer_acknowledgement(self, message: Message) -> int:
        """Acknowledge a message when ``settle`` is called next; may be called without the lock.

        Returns the number of messages that wait for that.
        """
        self._deferred.append(message)
        return len(self._deferred)

    def settle(self) -> None:
        """Note the acknowledgements that were deferred."""
        if deferred := self._deferred:
            # Other threads may add to it meanwhile.
            self.acknowledge_messages([deferred.popleft() for _ in range(len(deferred))])

    def acknowledge_messages(self, messages: Iterable[Message]) -> None:
        for entry, indexes in entry_runs(messages):
            self._acknowledged_count += len(indexes)
            key = (entry.ledger_id, entry.entry_id)
            if self.acks.acknowledge_indexes(
                key, indexes, entry.messages_count, self._chunks.get(key) or entry.chunks
            ):
                self._done_with(key)

    def acknowledge(self, ids: Sequence[MessageId]) -> None:
        self._acknowledged_count += len(ids)
        for message_id in ids:
            key = (message_id.ledger_id(), message_id.entry_id())
            # A stored id knows only the first and the last chunk.
            if self.acks.acknowledge(message_id, self._chunks.get(key) or message_id.chunks()):
                self._done_with(key)

    def acknowledge_cumulative(self, message_id: MessageId) -> None:
        self.settle()
        self._acknowledged_count += 1
        last = self.acks.acknowledge_cumulative(message_id)
        for key in [key for key in self._chunks if key <= last]:
            del self._chunks[key]
        if self._unacked is not None:
            self._unacked.remove_up_to(last)

    def _done_with(self, key: EntryKey) -> None:
        self._nacks.remove(key)
        self._chunks.pop(key, None)
        if self._unacked is not None:
            self._unacked.remove(key)
        if self._last_chances:
            self._last_chances.pop(key, None)

    def refuse(self, message_id: MessageId, redelivery_count: int, now: float) -> None:
        """Note a negative acknowledgement."""
        self.settle()
        self.refused_count += 1
        key = (message_id.ledger_id(), message_id.entry_id())
        self._nacks.add(key, redelivery_count, now)
        if message_id.chunks():
            self._chunks.setdefault(key, message_id.chunks())
        if self._unacked is not None:
            self._unacked.remove(key)

    def extend(self, message_id: MessageId, now: float) -> Sequence[EntryKey]:
        """Let the time-out of a message begin again. Return its entries."""
        self.settle()
        key = (message_id.ledger_id(), message_id.entry_id())
        if self._unacked is not None:
            self._unacked.extend(key, now)
        return self._chunks.get(key) or message_id.chunks() or (key,)

    def on_damaged(self, key: EntryKey, now: float) -> None:
        """Note a delivery with a wrong checksum."""
        self._damaged.add(key, 0, now)

    def on_dead_letter_failed(self, key: EntryKey, messages: list[Message], now: float) -> None:
        """Retry later: the dead letter topic did not accept the entry."""
        self.settle()
        self._nacks.add(key, 0, now)
        self._last_chances[key] = messages

    def next_due(self) -> float | None:
        dues = [
            self._nacks.next_due(),
            self._damaged.next_due(),
            self._unacked.next_due() if self._unacked is not None else None,
        ]
        return min((due for due in dues if due is not None), default=None)

    def take_due(self, now: float) -> list[EntryKey]:
        """Return entries to request again.

        Those at their redelivery limit go to the dead letter topic after it.
        """
        self.settle()
        keys = [*self._nacks.take_due(now), *self._damaged.take_due(now)]
        if self._unacked is not None:
            keys += self._unacked.take_due(now)
        again: list[EntryKey] = []
        for key in keys:
            if (messages := self._last_chances.pop(key, None)) is not None:
                self._dead[key] = messages
            elif key not in self._dead:
                again += self._chunks.pop(key, (key,))
        return again

    def take_dead(self) -> dict[EntryKey, list[Message]]:
        dead, self._dead = self._dead, {}
        return dead

    def leave_cluster(self) -> None:
        """Drop everything, with what is to be copied to the dead letter topic."""
        self._deferred.clear()
        self._dead.clear()
        self.forget()

    def forget(self) -> None:
        """Drop everything: after a reconnection or a seek it is delivered again, or no longer
        wanted.
        """
        self.settle()
        self.acks.forget_delivered()
        self._nacks.clear()
        self._damaged.clear()
        self._last_chances.clear()
        self._chunks.clear()
        if self._unacked is not None:
            self._unacked.clear()
