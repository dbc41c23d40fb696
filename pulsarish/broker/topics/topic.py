"""A loaded topic: its log, publishing to it, its subscriptions, and how it begins and ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pulsarish.broker.clients.commands import OpenProducer, Subscribe
from pulsarish.broker.clients.consumer import Consumer, Outlet
from pulsarish.broker.clients.interfaces import ServedSubscription
from pulsarish.broker.clients.meters import TopicTraffic
from pulsarish.broker.clients.producer import Flights, Producer, PublishRequest
from pulsarish.broker.compaction.admission import check_compacted_read
from pulsarish.broker.compaction.compaction import CompactionGate, TopicCompaction
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.store import Effective
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.broker.publishing.dedup_log import DEDUP_CURSOR
from pulsarish.broker.publishing.producers import Queued
from pulsarish.broker.publishing.topic_publishing import TopicPublishing
from pulsarish.broker.subscriptions.message_expiry import MessageExpiry
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.broker.subscriptions.subscriptions import TopicSubscriptions
from pulsarish.managed_ledger.options import Retention
from pulsarish.model.errors import (
    PulsarishError,
    SubscriptionBusy,
    TopicFenced,
    TopicTerminated,
)
from pulsarish.model.policies import DEDUPLICATION
from pulsarish.model.position import EARLIEST, Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.containment import Scope, ScopeKind, contained
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

if TYPE_CHECKING:
    from pulsarish.broker.topics.topic_schedules import OwnedSchedules
    from pulsarish.managed_ledger.managed_ledger import ManagedLedger

__all__ = ["Topic"]

_OUTCOMES_SECONDS_MAX: Final = 3.0
"""How long a closing topic waits for the outcome of published entries before it closes its
producers.
"""

_log = get_logger("broker.topic")


class Topic:
    """A topic that this broker serves.

    ``LoadedTopics`` creates it, sets ``log`` and awaits ``start`` before clients can use it. The
    topic is the listener of its log: the log calls ``appended``, ``append_failed`` and ``fenced``
    in the event loop, in order.
    """

    __slots__ = (
        "_compaction",
        "_compactions",
        "_config",
        "_died",
        "_is_notice_due",
        "_message_expiry",
        "_subscribing",
        "_world",
        "closed",
        "loaded_ms",
        "log",
        "name",
        "publishing",
        "schedules",
        "scope",
        "topic_limits",
        "traffic",
    )

    log: ManagedLedger

    def __init__(
        self,
        name: TopicName,
        world: World,
        config: BrokerConfig,
        policies: Effective,
        died: Callable[[Topic], None],
        compactions: CompactionGate,
    ) -> None:
        """Create a topic without a log.

        ``died`` is called once when the topic stops by itself and must be loaded again.
        """
        self.name = name
        self.closed: PulsarishError | None = None
        self.schedules: OwnedSchedules | None = None
        """Set by ``LoadedTopics.schedules`` once they are needed."""
        self._is_notice_due = False  # closed, but clients have not been informed yet
        self.traffic = TopicTraffic(world.clock.monotonic())
        self.loaded_ms = world.clock.wall_ms()
        self.topic_limits = TopicLimits(name, config, world.clock, policies, self.traffic.came)
        self.scope = Scope(ScopeKind.TOPIC, name.full, self.fail)
        self._world = world = contained(world, self.scope)
        self._config = config
        self.publishing = TopicPublishing(self, world, config, self.topic_limits, self.traffic)
        self._subscribing = TopicSubscriptions(self, world, config, self.topic_limits)
        self._died = died
        self._compactions = compactions
        self._compaction: TopicCompaction | None = None
        self._message_expiry: MessageExpiry | None = None

    @property
    def world(self) -> World:
        """The clock, tasks and random numbers for everything that belongs to the topic.

        An error in one of its tasks ends the topic on this broker. It is then loaded again.
        """
        return self._world

    def make_subscription(self, *parts: Any) -> Subscription:
        """Return a subscription of this topic, of the class that suits it."""
        return Subscription(*parts)

    def fail(self, error: BaseException) -> None:
        """Give the topic up after one of its tasks failed, as if another broker had fenced it: its
        state in memory may be wrong.
        """
        self.log.abandon(
            TopicFenced(
                f"topic {self.name} failed here and is loaded again: {type(error).__name__}: "
                f"{error}"
            )
        )

    async def start(self) -> None:
        """Restore subscriptions and deduplication marks from the log (rule 15).

        Await this before the topic accepts anything.
        """
        names = self.log.cursor_names()
        if self.topic_limits.policies[DEDUPLICATION]:
            dedup = await self.publishing.begin_dedup()
            await dedup.catch_up()
            self.publishing.use_dedup(dedup)
        elif DEDUP_CURSOR in names:
            # The cursor of deduplication would hold back trimming forever.
            await self.log.delete_cursor(DEDUP_CURSOR)
        for name in names:
            if name != DEDUP_CURSOR:
                await self._subscribing.restore(name)

    def use(self, policies: Effective) -> None:
        """Apply new policies."""
        self.topic_limits.use(policies)
        self.log.use(self.topic_limits.log_options(), self.topic_limits.retention())
        for subscription in self.subscriptions.values():
            subscription.policies_changed()
        self.publishing.policies_changed()

    @property
    def compaction(self) -> TopicCompaction:
        """The compaction of the topic.

        Created on first use, because most topics are never compacted.
        """
        if self._compaction is None:
            self._compaction = TopicCompaction(
                self.name.full,
                self.log,
                self.topic_limits.log_options,
                self._world,
                self._config,
                self._compactions,
            )
            if self.closed is not None:
                self._compaction.stop()
        return self._compaction

    @property
    def was_compacted(self) -> bool:
        """Whether a compacted view exists, or compaction has run since the topic was loaded."""
        return self.log.views.current is not None or (
            self._compaction is not None and self._compaction.was_used
        )

    @property
    def message_expiry(self) -> MessageExpiry:
        """The expiry of the topic's messages."""
        if self._message_expiry is None:
            self._message_expiry = MessageExpiry(self.log)
        return self._message_expiry

    @property
    def connected(self) -> bool:
        """Whether a producer or a consumer is connected."""
        return bool(self.producers) or any(
            subscription.consumers for subscription in self.subscriptions.values()
        )

    async def note_used(self) -> None:
        """Record that the topic is in use again.

        Raises the errors of ``TopicAttributes.note_inactive``, or why the topic is closed.
        """
        if self.log.attributes.inactive_since_ms:
            await self.log.attributes.note_inactive(0)
        self.check_open()

    @property
    def kept_bytes(self) -> int:
        """Size of the stored messages in bytes, one replica counted."""
        return self.log.size_bytes

    # -- publishing

    @property
    def producers(self) -> dict[str, Producer]:
        """Connected producers by name."""
        return self.publishing.producers

    @property
    def flights(self) -> Flights:
        """Entries in flight, by the names of their producers."""
        return self.publishing.flights

    @property
    def deduplication(self) -> bool:
        return self.publishing.deduplication

    async def open_producer(
        self, command: OpenProducer, outlet: Outlet, address: str, queued: Queued
    ) -> tuple[Producer, int]:
        """Connect a producer. See ``TopicPublishing.open_producer``."""
        return await self.publishing.open_producer(command, outlet, address, queued)

    def remove_producer(self, producer: Producer) -> None:
        """Remove a producer that its client closed or lost."""
        self.publishing.remove_producer(producer)

    def publish(
        self, producer: Producer, entries: Sequence[memoryview], request: PublishRequest
    ) -> None:
        """Check and append entries of one producer, in order.

        Each entry gets an outcome through the producer's outlet.
        """
        self.publishing.publish(producer, entries, request)

    @property
    def has_room(self) -> bool:
        """Whether the log's limits and the publish rate allow more entries.

        While not, the broker reads nothing more from the publisher.
        """
        return self.publishing.has_room

    async def wait_for_room(self) -> None:
        """Wait until there is room, or until nothing can be appended."""
        await self.publishing.wait_for_room()

    # -- callbacks of the log

    @property
    def append(self) -> Callable[[bytes, object], None]:
        """What appends an entry of a producer, as ``ManagedLedger.append`` does."""
        return self.log.append

    def appended(self, ledger_id: int, first_entry: int, contexts: Sequence[object]) -> None:
        """Handle consecutive entries that the log confirmed."""
        self.publishing.appended(ledger_id, first_entry, contexts)
        self._subscribing.appended(ledger_id, first_entry)

    def append_failed(self, contexts: Sequence[object], error: PulsarishError) -> None:
        """Handle entries that the log could not append."""
        self.publishing.append_failed(contexts, error)

    def fenced(self, error: PulsarishError) -> None:
        """Stop serving, because this broker no longer owns the log."""
        self.publishing.stop_dedup()
        if self.closed is not None and not self._is_notice_due:
            return
        _log.warning("topic fenced", topic=self.name, reason=error)
        self.stop_serving(
            TopicFenced(f"topic {self.name} is served elsewhere or is being moved: {error}")
        )
        self._died(self)

    # -- subscriptions

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        """Subscriptions by name."""
        return self._subscribing.by_name

    async def subscribe(
        self, command: Subscribe, outlet: Outlet, address: str
    ) -> tuple[Subscription, Consumer]:
        """Connect a consumer. Create its subscription if it is new.

        Raises the errors of ``TopicSubscriptions.subscribe`` and ``note_used``, ``NotAllowedError``
        for a compacted read that is impossible, or why the topic is closed.
        """
        self.check_open()
        check_compacted_read(command)
        await self.note_used()
        return await self._subscribing.subscribe(command, outlet, address)

    async def create_subscription(
        self, name: str, start: Position, *, properties: Mapping[str, str] | None = None
    ) -> Subscription:
        """Create a durable subscription that delivers from ``start`` on.

        Raises the errors of ``TopicSubscriptions.create``.
        """
        return await self._subscribing.create(name, start, durable=True, properties=properties)

    def subscription(self, name: str) -> Subscription:
        """Return the subscription. Raises ``SubscriptionNotFound``."""
        return self._subscribing.get(name)

    async def ensure_subscription(self, name: str) -> None:
        """Create a durable subscription at the start of the topic, unless it exists.

        Raises the errors of ``create_subscription``.
        """
        if name not in self.subscriptions:
            await self.create_subscription(name, EARLIEST)

    async def unsubscribe(self, name: str, *, force: bool, by: Consumer | None = None) -> None:
        """Delete a subscription.

        Raises ``SubscriptionNotFound``, or ``SubscriptionBusy`` when other consumers use it and
        ``force`` is off.
        """
        await self._subscribing.delete(name, force=force, by=by)

    def remove_consumer(
        self, subscription: ServedSubscription, consumer: Consumer, *, comes_back: bool = False
    ) -> None:
        """Remove a consumer that its client closed or lost.

        A reader's cursor is deleted too: later with ``comes_back``, else at once.
        """
        assert isinstance(subscription, Subscription)
        self._subscribing.leave(subscription, consumer, comes_back=comes_back)

    async def terminate(self) -> Position:
        """Seal the topic for good. Return its last position."""
        self.check_open()
        last = await self.log.terminate()
        self.publishing.close_producers(
            TopicTerminated(
                f"topic {self.name} was terminated; nothing can be published to it any more"
            ),
            waiting=True,
        )
        for subscription in self.subscriptions.values():
            subscription.wake()
        return last

    async def truncate(self) -> None:
        """Acknowledge all messages on every subscription and delete them, whatever retention
        says.
        """
        self.check_open()
        await self.compaction.forget()
        for subscription in list(self.subscriptions.values()):
            await subscription.skip(None)
        if not self.log.terminated:
            await self.log.roll()
        await self.log.trimmer.trim(Retention())

    # -- the end

    def check_open(self) -> None:
        """Raise the error that closed the topic, if it is closed."""
        if self.closed is not None:
            raise self.closed

    def hold(self, error: PulsarishError) -> None:
        """Refuse new work because of ``error``, but do not inform clients yet.

        Call ``stop_serving`` when the result is known.
        """
        if self.closed is None:
            self.closed, self._is_notice_due = error, True

    def stop_taking(self, error: PulsarishError) -> None:
        """Refuse new work, and ask consumers to look the topic up again.

        Producers are closed later, in ``close``, after the outcome of their entries in flight. So
        they do not send again what will be stored.
        """
        if self.closed is None or self._is_notice_due:
            self._is_notice_due = False
            self.closed = error
            self.topic_limits.close()
            if self._compaction is not None:
                self._compaction.stop()
            for subscription in list(self.subscriptions.values()):
                subscription.close(error)

    def stop_serving(self, error: PulsarishError) -> None:
        """Refuse new work, and close all producers and consumers with ``error``, so that they look
        the topic up again.
        """
        self.stop_taking(error)
        self.publishing.close_producers(error, waiting=True)

    def check_deletable(self, *, force: bool) -> None:
        """Raise ``SubscriptionBusy`` when producers or consumers are connected, unless
        ``force``.
        """
        consumers = sum(len(subscription.consumers) for subscription in self.subscriptions.values())
        if (self.producers or consumers) and not force:
            raise SubscriptionBusy(
                f"topic {self.name} has {len(self.producers)} producers and {consumers} consumers "
                "connected; close them or use force"
            )

    async def close(self, error: PulsarishError) -> None:
        """Stop serving and close the log: entries in flight are confirmed and receipted, cursors
        are flushed.
        """
        self.stop_taking(error)
        # bookies do not answer: the next owner finds out what is stored
        with suppress(TimeoutError):
            async with self._world.clock.timeout(_OUTCOMES_SECONDS_MAX):
                await self.log.settle()
        self.publishing.close_producers(error, waiting=True)
        await self.publishing.close_dedup()
        await self.log.close()

    def check(self) -> None:
        """Assert the invariants of the topic, its producers and its subscriptions."""
        self.publishing.check()
        for subscription in self.subscriptions.values():
            subscription.check()
