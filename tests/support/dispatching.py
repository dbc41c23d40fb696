"""What cores of dispatchers are tried with: a log in a list, outlets that remember, and the loop of
a subscription's task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from pulsarish.broker.clients.commands import ActiveChanged, Answer
from pulsarish.broker.clients.consumer import Consumer, Delivery
from pulsarish.broker.dispatchers.chunks import Chunk
from pulsarish.broker.dispatchers.factory import Dispatcher
from pulsarish.broker.dispatchers.multi_consumer import MultiConsumerDispatcher
from pulsarish.broker.dispatchers.reads import Read, ReadLimits, Ready
from pulsarish.managed_ledger.cursors.holes import Hole
from pulsarish.model.position import Position

__all__ = ["LIMITS", "Log", "Outlet", "ack", "at", "consumer", "drive", "forget"]

LIMITS = ReadLimits(
    entries_max=10, bytes_max=1 << 20, backoff_min_seconds=0.1, backoff_max_seconds=1.0
)


def at(entry: int) -> Position:
    return Position(1, entry)


@dataclass
class Outlet:
    has_room: bool = True
    answers: list[Answer] = field(default_factory=list)
    got: list[Delivery] = field(default_factory=list)
    unsent: int = 0
    heard: Callable[[int, Delivery], None] = lambda consumer_id, delivery: None

    def put(self, answer: Answer) -> None:
        self.answers.append(answer)

    def deliver(self, consumer_id: int, deliveries: Sequence[Delivery]) -> None:
        self.got.extend(deliveries)
        for delivery in deliveries:
            self.heard(consumer_id, delivery)

    def withdraw(self, consumer_id: int) -> int:
        unsent, self.unsent = self.unsent, 0
        return unsent

    def doubt(self) -> None:
        pass

    @property
    def entries(self) -> list[int]:
        return [delivery.position.entry_id for delivery in self.got]

    def active(self) -> list[bool]:
        return [answer.active for answer in self.answers if isinstance(answer, ActiveChanged)]


@dataclass
class Log:
    """A topic of ``count`` entries with ``messages`` each, and its cursor."""

    count: int
    messages: int = 1
    acked: set[int] = field(default_factory=set)
    key_hash: Callable[[int], int] = lambda entry: 0
    due_ms: Callable[[int], int] = lambda entry: 0
    chunk: Callable[[int], Chunk | None] = lambda entry: None
    expires_ms: Callable[[int], int] = lambda entry: 0
    payload: Callable[[int], bytes] = lambda entry: b"x"
    now_ms: int = 0
    lost: set[int] = field(default_factory=set)
    """Entries that are not there any more."""

    def read_from(self) -> Position:
        entry = 0
        while entry in self.acked:
            entry += 1
        return at(entry)

    def acknowledged(self, position: Position) -> bool:
        return position.entry_id in self.acked

    def holes(self, first: Position, last: Position) -> Iterator[Hole]:
        for entry in range(max(first.entry_id, 0), last.entry_id + 1):
            if entry not in self.acked | self.lost:
                yield Hole(1, entry, entry)

    def entries_between(self, low: Position, high: Position) -> int:
        return max(0, high.entry_id - low.entry_id)

    @property
    def end(self) -> Position:
        return at(self.count - 1)

    def read(self, read: Read) -> list[Ready]:
        last = min(self.count, read.start.entry_id + read.entries_max)
        there = [entry for entry in range(read.start.entry_id, last) if entry not in self.lost]
        return [
            Ready(
                at(entry),
                self.payload(entry),
                self.messages,
                None,
                self.key_hash(entry),
                self._due(entry),
                self.chunk(entry),
                self.expires_ms(entry),
            )
            for entry in there
        ]

    def _due(self, entry: int) -> int:
        return self.due_ms(entry) if self.due_ms(entry) > self.now_ms else 0


def consumer(
    order: int, *, permits: int = 0, name: str = "", level: int = 0
) -> tuple[Consumer, Outlet]:
    outlet = Outlet()
    made = Consumer(order, name or f"c{order}", outlet, level, order=order)
    made.permits = permits
    return made, outlet


def drive(dispatcher: Dispatcher, log: Log, *, blocked: bool = False) -> int:
    """What the subscription's task does, until there is nothing to do; how many reads it took."""
    reads = 0
    dispatcher.deliver()
    while (read := dispatcher.plan(log.end, blocked=blocked)) is not None:
        dispatcher.reads.succeeded(read, log.read(read), log.end)
        dispatcher.deliver()
        dispatcher.check()
        reads += 1
    return reads


def forget(who: Consumer, dispatcher: MultiConsumerDispatcher, *positions: Position) -> None:
    """What a defect could do: no consumer holds these entries, and nothing delivers them."""
    for position in positions:
        dispatcher._forget(who, position)


def ack(dispatcher: Dispatcher, log: Log, who: Consumer, *entries: int) -> None:
    log.acked.update(entries)
    dispatcher.acknowledged(who, [at(entry) for entry in entries])
