"""A connected consumer as dispatchers see it: permits, unacknowledged entries, and the outlet to
its client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pulsarish.broker.clients.commands import Answer, Subscribe
from pulsarish.broker.clients.meters import Meter
from pulsarish.model.position import Position

if TYPE_CHECKING:
    from pulsarish.runtime.seams import World

__all__ = ["Consumer", "Delivery", "Outlet", "WholeBatches", "connected_consumer"]


class Delivery(NamedTuple):
    """An entry to be sent to a consumer."""

    position: Position
    payload: bytes | memoryview
    messages: int
    redelivery_count: int
    ack_set: bytes | None  # messages of the batch still to be delivered; None: all
    epoch: int = -1
    """The consumer's epoch at the time of delivery.

    The client drops deliveries of an earlier epoch: they are redelivered.
    """


class Outlet(Protocol):
    """Where a session puts what its client is to get.

    In memory: it never blocks and never calls back.
    """

    @property
    def has_room(self) -> bool:
        """Whether deliveries may be put in; limited in bytes."""
        ...

    def put(self, answer: Answer) -> None: ...

    def deliver(self, consumer_id: int, deliveries: Sequence[Delivery]) -> None: ...

    def withdraw(self, consumer_id: int) -> int:
        """Withdraw the deliveries that were not sent yet. Return how many messages these were."""
        ...

    def doubt(self) -> None:
        """Find out soon whether the client still lives, and end its connection if not."""
        ...


class WholeBatches:
    """The ``Outlet`` of a client that would not acknowledge a batch of which it got a part: it gets
    each batch whole.
    """

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self.put = outlet.put
        self.withdraw = outlet.withdraw
        self.doubt = outlet.doubt

    @property
    def has_room(self) -> bool:
        return self._outlet.has_room

    def deliver(self, consumer_id: int, deliveries: Sequence[Delivery]) -> None:
        self._outlet.deliver(consumer_id, [each._replace(ack_set=None) for each in deliveries])


def _uncounted(_consumer: Consumer, _messages: int, _size_bytes: int, _redelivered: int) -> None:
    """Ignore deliveries: no statistics are kept."""


@dataclass(slots=True)
class Consumer:
    """A connected consumer.

    ``permits`` may go below zero by one batch, because a batch is delivered whole. Times are wall
    clock, 0: never.
    """

    consumer_id: int
    name: str
    outlet: Outlet
    priority_level: int = 0
    order: int = 0  # join order in the subscription
    properties: Mapping[str, str] = field(default_factory=dict)
    # key-shared with sticky ranges: the key hashes it declared
    hash_ranges: Sequence[tuple[int, int]] = ()
    address: str = ""
    connected_ms: int = 0
    client_version: str = ""
    epoch: int = -1
    permits: int = 0
    closed: bool = False  # by the broker or the client; its commands are ignored from then on
    takes_any_schema: bool = False  # it decodes with any schema of the topic
    replication_ignored: bool = False  # it asked for a replicated subscription
    ended: bool = False  # was informed that a terminated topic has no more messages
    seeks: int = 0  # seeks in progress: its acknowledgements now belong to the time before them
    blocked: bool = False  # too many unacknowledged messages
    unacked: int = 0  # messages; kept for shared and key-shared subscriptions only
    # shared: delivered, unacknowledged entry -> its messages
    pending: dict[Position, int] = field(default_factory=dict)
    # those of them of which some messages are acknowledged -> how many
    partly: dict[Position, int] = field(default_factory=dict)
    # called for each delivery: messages, bytes, redelivered messages
    sent: Callable[[Consumer, int, int, int], None] = _uncounted
    out: Meter = field(default_factory=lambda: Meter(0.0))
    entries_out: int = 0
    redelivered: Meter = field(default_factory=lambda: Meter(0.0))  # redelivered messages
    # acknowledgements: one for a whole batch counts once
    acked: Meter = field(default_factory=lambda: Meter(0.0))
    last_flow_ms: int = 0
    last_delivered_ms: int = 0
    last_acked_ms: int = 0

    @property
    def available(self) -> bool:
        return self.permits > 0 and not self.blocked and self.outlet.has_room

    def start_counting(self, now: float) -> None:
        """Start the meters when it is connected. ``now``: monotonic seconds."""
        self.out.started = self.redelivered.started = self.acked.started = now

    def send(self, deliveries: Sequence[Delivery]) -> None:
        """Send entries to the client and use up permits for them."""
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
    """Return the consumer that a client asked for. A consumer without a name gets one."""
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
