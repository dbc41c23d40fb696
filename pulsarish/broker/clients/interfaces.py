"""What a client's session needs of a topic and a subscription, persistent or not, and checks that
both share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from pulsarish.model.errors import PulsarishError, SubscriptionBusy, SubscriptionNotFound
from pulsarish.model.position import Position
from pulsarish.model.subscription_type import SubscriptionType
from pulsarish.model.topic_name import TopicName

if TYPE_CHECKING:
    from pulsarish.broker.clients.commands import (
        Acknowledge,
        OpenProducer,
        Subscribe,
    )
    from pulsarish.broker.clients.consumer import Consumer, Outlet
    from pulsarish.broker.clients.meters import Meter, TopicTraffic
    from pulsarish.broker.clients.producer import Producer, PublishRequest
    from pulsarish.broker.policies.store import Effective
    from pulsarish.broker.policies.topic_limits import TopicLimits
    from pulsarish.broker.publishing.producers import Queued
    from pulsarish.runtime.containment import Scope

__all__ = ["ServedSubscription", "ServedTopic", "check_unused", "find_subscription"]


class ServedSubscription(Protocol):
    """A subscription as sessions use it."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> SubscriptionType: ...

    @property
    def out(self) -> Meter: ...

    @property
    def expired(self) -> Meter:
        """Expired entries."""
        ...

    @property
    def consumers(self) -> Sequence[Consumer]: ...

    @property
    def backlog(self) -> int:
        """Number of unacknowledged entries."""
        ...

    @property
    def mark_delete(self) -> Position:
        """The mark-delete position: everything up to it is acknowledged."""
        ...

    def flow(self, consumer: Consumer, permits: int) -> None: ...

    def wake(self) -> None:
        """Wake the dispatcher: an outlet has room again."""
        ...

    def acknowledge(self, consumer: Consumer, command: Acknowledge) -> None:
        """Acknowledge entries.

        A requested receipt goes to the consumer's outlet. Raises why it is not possible.
        """
        ...

    def redeliver(self, consumer: Consumer, positions: Sequence[Position], epoch: int = -1) -> None:
        """Redeliver the entries at ``positions``; without positions all that the consumer holds.

        Everything delivered from then on carries ``epoch``.
        """
        ...

    def extend_ack(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """Let the time in which the consumer has to acknowledge these entries begin again."""
        ...

    async def seek(
        self, position: Position | None, publish_time_ms: int, *, by: Consumer | None = None
    ) -> None:
        """Deliver from a position or a publish time on.

        Raises ``NotAllowedError``, ``InvalidPosition``.
        """
        ...

    async def last_message(self) -> tuple[Position, int]:
        """Return position and batch index (-1: not in a batch) of the last message.

        Raises ``NotAllowedError``.
        """
        ...


class ServedTopic(Protocol):
    """A topic as sessions use it."""

    @property
    def name(self) -> TopicName: ...

    @property
    def scope(self) -> Scope:
        """What ends when the topic fails."""
        ...

    @property
    def closed(self) -> PulsarishError | None:
        """Why the topic is closed; ``None`` while it is served."""
        ...

    @property
    def topic_limits(self) -> TopicLimits: ...

    @property
    def traffic(self) -> TopicTraffic: ...

    @property
    def producers(self) -> Mapping[str, Producer]:
        """Connected producers by name."""
        ...

    @property
    def subscriptions(self) -> Mapping[str, ServedSubscription]: ...

    @property
    def deduplication(self) -> bool: ...

    @property
    def kept_bytes(self) -> int:
        """Size of the stored messages in bytes, one replica counted."""
        ...

    def use(self, policies: Effective) -> None:
        """Apply new policies."""
        ...

    async def open_producer(
        self, command: OpenProducer, outlet: Outlet, address: str, queued: Queued
    ) -> tuple[Producer, int]:
        """Connect a producer. Return it and the last known sequence id of its name (-1: none)."""
        ...

    def remove_producer(self, producer: Producer) -> None: ...

    def publish(
        self, producer: Producer, entries: Sequence[memoryview], request: PublishRequest
    ) -> None:
        """Take entries of one producer, in order.

        Each gets an outcome through the producer's outlet.
        """
        ...

    @property
    def has_room(self) -> bool: ...

    async def wait_for_room(self) -> None: ...

    async def ensure_subscription(self, name: str) -> None: ...

    async def subscribe(
        self, command: Subscribe, outlet: Outlet, address: str
    ) -> tuple[ServedSubscription, Consumer]: ...

    async def unsubscribe(self, name: str, *, force: bool, by: Consumer | None = None) -> None: ...

    def remove_consumer(
        self, subscription: ServedSubscription, consumer: Consumer, *, comes_back: bool = False
    ) -> None: ...


_Found = TypeVar("_Found", bound=ServedSubscription)


def find_subscription(by_name: Mapping[str, _Found], name: str, topic: TopicName) -> _Found:
    """Return the subscription. Raises ``SubscriptionNotFound``."""
    found = by_name.get(name)
    if found is None:
        raise SubscriptionNotFound(
            f"topic {topic} has no subscription {name!r}; it has: {', '.join(by_name) or 'none'}"
        )
    return found


def check_unused(
    subscription: ServedSubscription, topic: TopicName, *, force: bool, by: Consumer | None
) -> None:
    """Check that a subscription may be deleted.

    Raises ``SubscriptionBusy`` when consumers other than ``by`` use it, unless ``force``.
    """
    others = [consumer for consumer in subscription.consumers if consumer is not by]
    if others and not force:
        raise SubscriptionBusy(
            f"subscription {subscription.name!r} of {topic} has {len(others)} other connected "
            "consumers; close them or use force"
        )
