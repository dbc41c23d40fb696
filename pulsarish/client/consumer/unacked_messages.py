"""The core of what a program holds of one topic: acknowledged, refused, forgotten, or delivered for the last time.

It promises: an entry that the program neither acknowledges nor refuses comes again after the unacknowledged time-out (when there is one);
a refused one after its delay; one that was delivered ``redeliveries_max`` times again in vain goes to the dead letters instead.

No clock and no lock: the shell passes the time and holds the consumer's lock around every call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pulsarish.client.consumer.ack_tracker import AckTracker
from pulsarish.client.consumer.redelivery import EntryKey, NegativeAcks, UnackedTracker
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Entry, Message, batch_places

__all__ = ["DAMAGED_RETRY_MS", "UnackedMessages"]

DAMAGED_RETRY_MS = 1_000
"""A delivery that does not match its checksum is asked for again after this: it is neither handed out nor skipped."""


class UnackedMessages:
    """``redeliveries_max`` without a dead letter policy is ``None``; ``unacked_timeout_seconds`` 0: no time-out; ``acknowledged`` is not so
    for a reader, which holds nothing."""

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
        self._nacks = NegativeAcks(negative_delay_ms)
        self._damaged = NegativeAcks(damaged_delay_ms)
        self._unacked = UnackedTracker(unacked_timeout_seconds) if unacked_timeout_seconds else None
        self._redeliveries_max = redeliveries_max
        self._last_chances: dict[EntryKey, list[Message]] = {}  # delivered for the last time
        self._dead: dict[EntryKey, list[Message]] = {}  # for the dead letter topic
        self._chunks: dict[EntryKey, tuple[EntryKey, ...]] = {}  # of what is held, by the last chunk
        self._acknowledged = acknowledged

    def opened(self, entry: Entry, messages: list[Message], now: float) -> bool:
        """An entry was cut for the program. ``False``: it is not handed out, it is dead."""
        key = (entry.ledger_id, entry.entry_id)
        most = self._redeliveries_max
        if most is not None and entry.redelivery_count >= most:
            if entry.redelivery_count > most:
                self._dead[key] = messages
                return False
            self._last_chances[key] = messages
        self.acks.opened(entry.ledger_id, entry.entry_id, *batch_places(messages))
        if self._unacked is not None:
            self._unacked.add(key, now)
        if entry.chunks and self._acknowledged:
            self._chunks[key] = entry.chunks
        return True

    @property
    def is_timed(self) -> bool:
        """Whether what is handed out has a time-out to watch."""
        return self._unacked is not None

    def acknowledge(self, ids: Sequence[MessageId]) -> None:
        for message_id in ids:
            key = (message_id.ledger_id(), message_id.entry_id())
            # An id that was stored knows only the first chunk and the last.
            if self.acks.acknowledge(message_id, self._chunks.get(key) or message_id.chunks()):
                self._done_with(key)

    def acknowledge_cumulative(self, message_id: MessageId) -> None:
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
        """A negative acknowledgement."""
        key = (message_id.ledger_id(), message_id.entry_id())
        self._nacks.add(key, redelivery_count, now)
        if message_id.chunks():
            self._chunks.setdefault(key, message_id.chunks())
        if self._unacked is not None:
            self._unacked.remove(key)

    def damaged(self, key: EntryKey, now: float) -> None:
        """A delivery did not match its checksum."""
        self._damaged.add(key, 0, now)

    def not_buried(self, key: EntryKey, messages: list[Message], now: float) -> None:
        """The dead letter topic did not take it: again later."""
        self._nacks.add(key, 0, now)
        self._last_chances[key] = messages

    def next_due(self) -> float | None:
        dues = [self._nacks.next_due(), self._damaged.next_due(), self._unacked.next_due() if self._unacked is not None else None]
        return min((due for due in dues if due is not None), default=None)

    def take_due(self, now: float) -> list[EntryKey]:
        """Entries to ask the broker for again; those that had their last chance are dead now."""
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

    def forget(self) -> None:
        """What was delivered on a connection that is gone, or before a seek, comes again or is not wanted."""
        self.acks.forget_delivered()
        self._nacks.clear()
        self._damaged.clear()
        self._last_chances.clear()
        self._chunks.clear()
        if self._unacked is not None:
            self._unacked.clear()
