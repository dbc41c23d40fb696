"""A connected producer as its topic sees it, and the state of an entry from its arrival to its
outcome.

Outcomes leave in the send order of each producer. The log confirms in order. An outcome that is
decided at once (a duplicate, a refusal) waits until all earlier entries of the producer have their
outcome.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsarish.broker.clients.commands import (
    NO_EPOCH,
    NO_INSTANCE,
    AccessMode,
    ProducerClosed,
    Receipts,
    SendFailed,
    Sends,
)
from pulsarish.broker.clients.consumer import Outlet
from pulsarish.broker.clients.meters import Meter
from pulsarish.model.errors import PulsarishError, ServiceNotReady
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock

__all__ = ["Flight", "Flights", "PendingEntry", "Producer", "PublishRequest"]


_log = get_logger("broker.producer")

_STAYS_HERE: Final = "__local__"
"""What a client names instead of clusters when its messages must not be replicated."""
# Shared by all producers with nothing waiting, which are most of them. It can hold nothing.
_NONE_WAITING: Final[deque[tuple[int, Receipts | SendFailed]]] = deque(maxlen=0)


class PublishRequest:
    """The entries of one message of a client, until each has its outcome.

    Args:
        resolved: called with the bytes of entries that have their outcome.
        received: when the message came, in monotonic seconds.
    """

    __slots__ = ("_resolved", "_unkept", "left_bytes", "left_entries", "received")

    def __init__(
        self,
        entries: int,
        size_bytes: int,
        resolved: Callable[[PublishRequest, int], None],
        received: float,
    ) -> None:
        self.received = received
        self.left_entries = entries
        self.left_bytes = size_bytes
        self._resolved = resolved
        self._unkept = 0

    def take_unkept(self, at_once_max: int) -> bool:
        """Count one more entry for a non-persistent topic.

        Return ``False`` when ``at_once_max`` entries of the connection are in flight already.
        Entries that a client sends together are in flight together.
        """
        self._unkept += 1
        return self._unkept <= at_once_max

    def resolve(self, entries: int, size_bytes: int) -> None:
        self.left_entries -= entries
        self.left_bytes -= size_bytes
        assert self.left_entries >= 0
        self._resolved(self, size_bytes)


@dataclass(slots=True)
class Flight:
    """The entries of one producer name that the log has not confirmed yet.

    The next producer of that name waits until there are none. Then, with deduplication on, an entry
    that it sends again is either known to be a duplicate or known to be missing.
    """

    count: int = 0
    landed: asyncio.Event | None = None

    def done(self, count: int) -> None:
        self.count -= count
        assert self.count >= 0
        if not self.count and self.landed is not None:
            self.landed.set()
            self.landed = None


class Flights:
    """The flights of one topic, by producer name.

    A name is forgotten once no producer has it and none of its entries is in flight.
    """

    __slots__ = (
        "_by_name",
        "_clock",
        "_topic",
        "_wait_seconds",
    )

    def __init__(self, topic: str, clock: Clock, wait_seconds: float) -> None:
        self._topic = topic
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._by_name: dict[str, Flight] = {}

    def of(self, name: str) -> Flight:
        flight = self._by_name.get(name)
        if flight is None:
            flight = self._by_name[name] = Flight()
        return flight

    async def landed(self, flight: Flight) -> None:
        """Wait until the log has confirmed or failed all entries.

        Raises ``ServiceNotReady`` when that takes too long.
        """
        if not flight.count:
            return
        if flight.landed is None:
            flight.landed = asyncio.Event()
        try:
            async with self._clock.timeout(self._wait_seconds):
                await flight.landed.wait()
        except TimeoutError:
            raise ServiceNotReady(
                f"topic {self._topic} has {flight.count} entries of this producer whose outcome "
                "is not known yet; try again"
            ) from None

    async def landed_of(self, name: str) -> None:
        """Wait for the flight of a producer name, if there is one. Raises the errors of
        ``landed``.
        """
        flight = self._by_name.get(name)
        if flight is not None:
            await self.landed(flight)

    async def all_landed(self) -> None:
        """Wait for all flights that exist now. Raises the errors of ``landed``."""
        for flight in list(self._by_name.values()):
            await self.landed(flight)

    def forget(self, producer: Producer, *, connected: bool) -> None:
        """Forget a producer's flight if nothing needs it.

        ``connected``: a producer with that name is connected.
        """
        if (
            producer.closed
            and not connected
            and not producer.flight.count
            and producer.flight.landed is None
        ):
            self._by_name.pop(producer.name, None)


class PendingEntry:
    """The context that the topic gives the log with an entry."""

    __slots__ = (
        "first_mark",
        "last_mark",
        "messages",
        "producer",
        "request",
        "sequence_id",
        "size_bytes",
    )

    def __init__(
        self,
        producer: Producer,
        request: PublishRequest,
        sequence_id: int,
        messages: int,
        size_bytes: int,
        first_mark: int,
        last_mark: int,
    ) -> None:
        self.producer = producer
        self.request = request
        self.sequence_id = sequence_id
        self.messages = messages
        self.size_bytes = size_bytes
        self.first_mark = first_mark
        self.last_mark = last_mark


@dataclass(slots=True)
class Producer:
    """A connected producer.

    ``pushed`` and ``landed`` count entries given to the log and entries with an outcome from it.
    """

    producer_id: int
    name: str
    epoch: int
    access_mode: AccessMode
    outlet: Outlet
    flight: Flight
    properties: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    connected_ms: int = 0
    client_version: str = ""
    topic_epoch: int = NO_EPOCH
    instance: int | None = NO_INSTANCE  # see ``OpenProducer``
    is_of_broker: bool = False
    closed: bool = False
    ended: PulsarishError | None = None  # why the broker closed it
    replication_ignored: bool = False  # it named clusters that its messages should be replicated to
    pushed: int = 0
    landed: int = 0
    came: Meter = field(default_factory=lambda: Meter(0.0))
    last_published_ms: int = 0
    dropped: Meter | None = None  # messages that a non-persistent topic dropped
    sends: Sends | None = None  # the client's names for entries that wait for an outcome
    # Decided at once, and due when ``landed`` reaches the number: (number, outcome).
    _waiting: deque[tuple[int, Receipts | SendFailed]] = field(
        default_factory=lambda: _NONE_WAITING
    )

    def ignore_replication(self, topic: str, clusters: Sequence[str], own: str) -> None:
        """Log once that messages name other clusters, because there is no replication.

        Messages that name only this cluster are fine.
        """
        others = [each for each in clusters if each not in (_STAYS_HERE, own)]
        if others and not self.replication_ignored:
            self.replication_ignored = True
            _log.warning(
                "messages name other clusters and are not replicated: there is one cluster",
                topic=topic,
                producer=self.name,
                clusters=",".join(others),
            )

    @property
    def exclusive(self) -> bool:
        return self.access_mode is not AccessMode.SHARED

    def sent(self, count: int) -> None:
        """Count ``count`` entries that were given to the log."""
        self.pushed += count
        self.flight.count += count

    def confirmed(self, ledger_id: int, first_entry: int, count: int, sequence_id: int) -> None:
        """Send receipts for the next ``count`` entries, which are consecutive in the log.

        ``sequence_id`` is that of the last one.
        """
        while self._waiting and self._waiting[0][0] < self.landed + count:
            # A waiting outcome lies between two of these entries. Only the last entry's sequence id
            # is known here, so the earlier row is sent without the cross-check that a client may
            # make.
            before = self._waiting[0][0] - self.landed
            if before:
                self._row(ledger_id, first_entry, before, -1)
                first_entry += before
                count -= before
                self._land(before)
            self._release()
        self._row(ledger_id, first_entry, count, sequence_id)
        self._land(count)
        self._release()

    def refuse_next(self, sequence_id: int, error: PulsarishError) -> None:
        """Refuse the next entry that has no outcome, which was counted by ``sent``."""
        self._put(SendFailed(self.producer_id, sequence_id, error, self.sends))
        self._land(1)
        self._release()

    def lost(self, count: int) -> None:
        """Count ``count`` entries with an unknown outcome.

        The producer is being closed because of them.
        """
        self._land(count)

    def acknowledge(self, ledger_id: int, entry_id: int, sequence_id: int) -> None:
        """Send, in order, the receipt of an entry that never goes to the log.

        Ledger -1: it was stored before, or is not stored.
        """
        self._decide(Receipts(self.producer_id, 1, ledger_id, entry_id, sequence_id, self.sends))

    def refuse(self, sequence_id: int, error: PulsarishError) -> None:
        """Refuse an entry, in order. ``sequence_id``: -1 when it could not be read."""
        self._decide(SendFailed(self.producer_id, sequence_id, error, self.sends))

    def _decide(self, outcome: Receipts | SendFailed) -> None:
        if self.landed == self.pushed and not self._waiting:
            self._put(outcome)
        else:
            if self._waiting is _NONE_WAITING:
                self._waiting = deque()
            self._waiting.append((self.pushed, outcome))

    def close(self, error: PulsarishError) -> None:
        """Close the producer and inform the client. The producer gets no more answers."""
        if not self.closed:
            self.closed = True
            self.ended = error
            self._waiting.clear()
            self.outlet.put(ProducerClosed(self.producer_id, error))

    def _land(self, count: int) -> None:
        self.landed += count
        self.flight.done(count)

    def _release(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.landed:
            self._put(self._waiting.popleft()[1])

    def _row(self, ledger_id: int, first_entry: int, count: int, sequence_id: int) -> None:
        self._put(
            Receipts(self.producer_id, count, ledger_id, first_entry, sequence_id, self.sends)
        )

    def _put(self, outcome: Receipts | SendFailed) -> None:
        if not self.closed:
            self.outlet.put(outcome)

    def check(self) -> None:
        assert 0 <= self.landed <= self.pushed
        assert all(self.landed < number or number <= self.pushed for number, _ in self._waiting)
