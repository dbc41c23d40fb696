"""A connected consumer as dispatchers see it: permits, what it holds unacknowledged, and the outlet that leads to its client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pulsarish.broker.clients.commands import Answer, Subscribe
from pulsarish.broker.clients.meters import Meter
from pulsarish.model.position import Position

if TYPE_CHECKING:
    from pulsarish.runtime.seams import World

__all__ = ["Consumer", "Delivery", "Outlet", "connected_consumer"]


class Delivery(NamedTuple):
    """An entry on its way to a consumer."""

    position: Position
    payload: bytes | memoryview
    messages: int
    redelivery_count: int
    ack_set: bytes | None  # the messages of the batch still to be delivered; None: all
    epoch: int = -1
    """The consumer's when this was given to it: what carries an earlier one is dropped by the client, since it comes again."""


class Outlet(Protocol):
    """Where a session takes what is meant for its client. In memory: it never blocks and never calls back."""

    @property
    def has_room(self) -> bool:
        """Deliveries may be put in; bounded in bytes."""
        ...

    def put(self, answer: Answer) -> None: ...

    def deliver(self, consumer_id: int, deliveries: Sequence[Delivery]) -> None: ...

    def withdraw(self, consumer_id: int) -> int:
        """Take back what was not sent yet; answers how many messages that were."""
        ...


def _unheard(_consumer: Consumer, _messages: int, _size_bytes: int, _redelivered: int) -> None:
    """Nobody keeps statistics."""


@dataclass(slots=True)
class Consumer:
    """``permits`` may go below zero by one batch, since a batch is delivered whole. Times are of the wall clock, 0: never."""

    consumer_id: int
    name: str
    outlet: Outlet
    priority_level: int = 0
    order: int = 0  # in which consumers joined the subscription
    properties: Mapping[str, str] = field(default_factory=dict)
    hash_ranges: Sequence[tuple[int, int]] = ()  # key-shared with sticky ranges: the hashes of the keys that are its own
    address: str = ""
    connected_ms: int = 0
    client_version: str = ""
    epoch: int = -1
    permits: int = 0
    closed: bool = False  # by the broker or the client; its commands mean nothing any more
    takes_any_schema: bool = False  # it decodes by whatever schema the topic has
    replication_ignored: bool = False  # it asked for a replicated subscription
    ended: bool = False  # was told that a terminated topic has nothing more
    seeks: int = 0  # under way: what it acknowledges now is of before them
    blocked: bool = False  # too many unacknowledged messages
    unacked: int = 0  # messages; kept for shared and key-shared subscriptions only
    pending: dict[Position, int] = field(default_factory=dict)  # shared: entry delivered and not acknowledged -> its messages
    sent: Callable[[Consumer, int, int, int], None] = _unheard  # hears of each delivery: messages, bytes, messages delivered again
    out: Meter = field(default_factory=lambda: Meter(0.0))
    entries_out: int = 0
    redelivered: Meter = field(default_factory=lambda: Meter(0.0))  # of what was delivered the messages that were so before
    acked: Meter = field(default_factory=lambda: Meter(0.0))  # acknowledgements: one of a batch as a whole is one
    last_flow_ms: int = 0
    last_delivered_ms: int = 0
    last_acked_ms: int = 0

    @property
    def available(self) -> bool:
        return self.permits > 0 and not self.blocked and self.outlet.has_room

    def start_counting(self, now: float) -> None:
        """It is connected; ``now``: monotonic seconds."""
        self.out.started = self.redelivered.started = self.acked.started = now

    def send(self, deliveries: Sequence[Delivery]) -> None:
        """Hand entries to the client and take their permits."""
        messages = size_bytes = redelivered = 0
        for delivery in deliveries:
            messages += delivery.messages
            size_bytes += len(delivery.payload)
            if delivery.redelivery_count:
                redelivered += delivery.messages
        self.permits -= messages
        self.entries_out += len(deliveries)
        self.outlet.deliver(self.consumer_id, deliveries)
        self.sent(self, messages, size_bytes, redelivered)


def connected_consumer(command: Subscribe, outlet: Outlet, address: str, world: World) -> Consumer:
    """As who subscribes has asked for it; without a name it is given one."""
    return Consumer(
        command.consumer_id,
        command.name or f"{world.random.getrandbits(40):010x}",
        outlet,
        command.priority_level,
        properties=command.properties,
        hash_ranges=command.key_shared.ranges,
        epoch=command.epoch,
        address=address,
        connected_ms=world.clock.wall_ms(),
    )
