"""A non-persistent topic at its owner: entries go to the subscriptions at once, and so does the
receipt to the producer.

Positions only count the entries since the topic was opened; nothing can be read at them. Everything
is in memory. It is lost with the broker, or when the topic was unused for a while.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from pulsarish.broker.clients.access_modes import Access
from pulsarish.broker.clients.commands import NO_EPOCH, OpenProducer, Subscribe
from pulsarish.broker.clients.consumer import Consumer, Outlet, connected_consumer
from pulsarish.broker.clients.entry_checks import check_metadata, read_entry, with_encryption
from pulsarish.broker.clients.interfaces import ServedSubscription, check_unused, find_subscription
from pulsarish.broker.clients.meters import Meter, TopicTraffic
from pulsarish.broker.clients.producer import Producer, PublishRequest
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.dispatchers.factory import chunk_of
from pulsarish.broker.dispatchers.reads import Ready
from pulsarish.broker.nonpersistent.captures import (
    NO_CAPTURES,
    CaptureQueue,
    CaptureReceipt,
    Captures,
)
from pulsarish.broker.nonpersistent.subscription import NonPersistentSubscription, not_kept
from pulsarish.broker.policies.store import Effective
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.broker.publishing.producers import Queued, TopicProducers
from pulsarish.model.errors import (
    ChecksumError,
    InvalidArgument,
    NotAllowedError,
    PulsarishError,
    ServiceNotReady,
    SubscriptionBusy,
    SubscriptionNotFound,
)
from pulsarish.model.message_filter import FILTER_PROPERTY
from pulsarish.model.policies import INACTIVE_TOPIC
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.seams import World
from pulsarish.wire.entry import key_hash, sticky_key

__all__ = ["NonPersistentTopic"]

_LEDGER: Final = 0
_NO_LIMIT: Final = 1 << 62


class _Receipts:
    """The receipts of a producer's entries that wait until rules have stored the entries."""

    __slots__ = ("count", "outcomes", "producer")

    def __init__(self, producer: Producer, queues: Sequence[CaptureQueue]) -> None:
        self.producer = producer
        self.count = sum([queue.rule.waits_for_storage for queue in queues])
        """How many rules each of them waits for."""
        self.outcomes: list[tuple[tuple[int, int], int]] = []

    def add(self, ledger_id: int, entry_id: int, sequence_id: int) -> None:
        self.producer.sent(1)
        self.outcomes.append(((ledger_id, entry_id), sequence_id))


class NonPersistentTopic:
    """A non-persistent topic that this broker serves.

    ``failed`` is called with an error after which the topic must not be served as it is.
    ``queues_of`` returns the queues of ``captures`` that capture the topic under given policies.
    """

    def __init__(
        self,
        name: TopicName,
        world: World,
        config: BrokerConfig,
        policies: Effective,
        *,
        failed: Callable[[BaseException], None],
        captures: Captures | None = None,
        queues_of: Callable[[Effective], Sequence[CaptureQueue]] = lambda _: NO_CAPTURES,
    ) -> None:
        self.name = name
        self.scope = Scope(ScopeKind.TOPIC, name.full, failed)
        self.closed: PulsarishError | None = None
        self._has_left = False
        self.subscriptions: dict[str, NonPersistentSubscription] = {}
        now = world.clock.monotonic()
        self.traffic = TopicTraffic(now)
        self.dropped = Meter(now)
        """Messages of all producers that were dropped because their connection had too many in
        flight.
        """
        self.loaded_ms = world.clock.wall_ms()
        self.topic_limits = TopicLimits(name, config, world.clock, policies, self.traffic.came)
        self.entries_added = 0
        self.producer_epoch = NO_EPOCH
        self._world = world
        self._config = config
        self._producing = TopicProducers(self, world, config, self.topic_limits)
        self._captures = captures
        self._queues_of = queues_of
        self._queues = queues_of(policies)
        self._unused_since_ms = self.loaded_ms

    def use(self, policies: Effective) -> None:
        """Apply new policies."""
        self.topic_limits.use(policies)
        self._queues = self._queues_of(policies)
        for subscription in self.subscriptions.values():
            subscription.policies_changed()

    @property
    def producers(self) -> dict[str, Producer]:
        """Connected producers by name."""
        return self._producing.by_name

    @property
    def access(self) -> Access:
        return self._producing.access

    @property
    def connected(self) -> bool:
        """Whether a producer or a consumer is connected."""
        return bool(self.producers) or any(
            subscription.consumers for subscription in self.subscriptions.values()
        )

    def is_abandoned(self, now_ms: int) -> bool:
        """Return whether the topic was unused for as long as the policy of inactive topics says.

        A subscription alone stores nothing. So it is dropped with the topic, whether inactive
        topics are deleted or not: no client misses it.
        """
        if self.connected:
            self._unused_since_ms = now_ms
        return (
            now_ms - self._unused_since_ms
            >= self.topic_limits.policies[INACTIVE_TOPIC].seconds * 1000
        )

    # -- for ``TopicProducers``

    deduplication: Final = False
    dedup_marks: Final = None
    kept_bytes: Final = 0

    def check_publishable(self) -> None:
        """Raise the error that closed the topic, if it is closed."""
        if self.closed is not None:
            raise self.closed

    async def note_used(self) -> None:
        self.check_publishable()

    async def set_producer_epoch(self, epoch: int) -> None:
        self.producer_epoch = epoch

    async def open_producer(
        self, command: OpenProducer, outlet: Outlet, address: str, queued: Queued
    ) -> tuple[Producer, int]:
        """Connect a producer.

        Return it and the last sequence id of its name that a rule has stored with deduplication
        (-1: none). A client that begins again after it loses nothing to deduplication.

        Raises the errors of ``TopicProducers.open``, and those of the rules that do not drop.
        """
        producer = await self._producing.open(command, outlet, address, queued)
        if not self._queues or not command.name:
            return producer, -1
        try:
            return producer, await self._last_captured(producer.name)
        except PulsarishError:
            self.remove_producer(producer)
            raise

    async def _last_captured(self, producer: str) -> int:
        last = -1
        for queue in self._queues:
            try:
                last = max(last, await queue.last_sequence_id(self.name, producer))
            except PulsarishError as error:
                if queue.rule.when_full == "pause":
                    raise ServiceNotReady(f"topic {self.name}: {error}") from None
        return last

    def remove_producer(self, producer: Producer) -> None:
        """Remove a producer that its client closed or lost."""
        self._producing.remove(producer)
        self._unused_since_ms = self._world.clock.wall_ms()

    # -- publishing

    def publish(
        self, producer: Producer, entries: Sequence[memoryview], request: PublishRequest
    ) -> None:
        """Check entries of one producer and deliver them, in order.

        Each gets an outcome through the producer's outlet.

        Entries above the number that a connection may have in flight are dropped: their receipts
        have ledger -1. There is no such number where a rule captures the topic.
        """
        came: list[Ready] = []
        acknowledge = producer.acknowledge
        at_once_max = self._config.max_concurrent_non_persistent_message_per_connection
        receipts = None
        if queues := self._queues:
            receipts, at_once_max = _Receipts(producer, queues), _NO_LIMIT
            if receipts.count:
                acknowledge = receipts.add
        messages_in = bytes_in = 0
        hashes_keys = any(subscription.hashes_keys for subscription in self.subscriptions.values())
        sizes = self.traffic.entry_sizes()
        check = with_encryption(
            check_metadata, self.topic_limits, is_of_broker=producer.is_of_broker
        )
        for view in entries:
            size_bytes = len(view)
            if producer.closed or self.closed is not None:
                request.resolve(1, size_bytes)
                continue
            sequence_id = -1
            try:
                entry, metadata = read_entry(view, self.topic_limits)
                sequence_id = metadata.sequence_id
                check(metadata, self.topic_limits)
            except (InvalidArgument, NotAllowedError, ChecksumError) as error:
                producer.refuse(sequence_id, error)
                request.resolve(1, size_bytes)
                continue
            messages = metadata.num_messages_in_batch
            sequence_id = metadata.highest_sequence_id or sequence_id
            if request.take_unkept(at_once_max):
                position = Position(_LEDGER, self.entries_added)
                self.entries_added += 1
                of_key = key_hash(sticky_key(metadata)) if hashes_keys else 0
                came.append(
                    Ready(position, entry, messages, None, of_key, chunk=chunk_of(metadata))
                )
                acknowledge(position.ledger_id, position.entry_id, sequence_id)
                sizes.counts[bisect_left(sizes.bounds, size_bytes)] += 1
                sizes.total += size_bytes
            else:
                producer.acknowledge(-1, -1, sequence_id)
                self._drop(producer, messages)
            messages_in += messages
            bytes_in += size_bytes
            request.resolve(1, size_bytes)
        now = self._world.clock.monotonic()
        producer.last_published_ms = self._world.clock.wall_ms()
        producer.came.add(messages_in, bytes_in, now)
        self.traffic.came.add(messages_in, bytes_in, now)
        self.topic_limits.published(messages_in, bytes_in, now)
        if came:
            for subscription in self.subscriptions.values():
                subscription.push(came)
            if receipts is not None:
                self._capture(came, receipts)

    def _capture(self, came: Sequence[Ready], receipts: _Receipts) -> None:
        """Have captured entries stored. ``receipts``: one for each entry if any rule waits."""
        answers = [
            CaptureReceipt(self._producing, receipts.producer, entry, sequence_id, receipts.count)
            for entry, sequence_id in receipts.outcomes
        ]
        for queue in self._queues:
            waits = queue.rule.waits_for_storage
            for index, ready in enumerate(came):
                queue.put(self.name, bytes(ready.payload), answers[index] if waits else None)

    def _drop(self, producer: Producer, messages: int) -> None:
        now = self._world.clock.monotonic()
        self.dropped.add(messages, 0, now)
        if producer.dropped is None:
            producer.dropped = Meter(now)
        producer.dropped.add(messages, 0, now)

    @property
    def has_room(self) -> bool:
        """Whether the publish rate allows more entries, and those who capture them take more."""
        return not self.topic_limits.publish_wait_seconds() and (
            not self._queues or self._capture_has_room
        )

    @property
    def _capture_has_room(self) -> bool:
        return all(queue.has_room for queue in self._queues)

    async def wait_for_room(self) -> None:
        while self.closed is None and not await self.topic_limits.publish_rate_allows():
            continue
        while self.closed is None and not self._capture_has_room:
            assert self._captures is not None
            await self._captures.wait_for_change()

    # -- subscriptions

    async def subscribe(
        self, command: Subscribe, outlet: Outlet, address: str
    ) -> tuple[NonPersistentSubscription, Consumer]:
        """Connect a consumer.

        Create its subscription if it is new. It gets messages from now on, whatever start it asks
        for.

        Raises ``ConsumerBusy``, ``ConsumerAssignError``, ``InvalidTopicName`` (of the
        subscription), ``NotAllowedError``, ``TooManyRequests``, or why the topic is closed.
        """
        self.check_publishable()
        if command.read_compacted:
            raise not_kept(self.name, "it cannot be read compacted")
        if FILTER_PROPERTY in command.subscription_properties:
            raise not_kept(self.name, "its subscriptions have no filters")
        self.topic_limits.check_subscribe_rate(command, address)
        self.topic_limits.check_consumer(
            sum(len(each.consumers) for each in self.subscriptions.values()), command
        )
        subscription = self.subscriptions.get(command.subscription)
        if subscription is None:
            self.topic_limits.check_auto_subscription(command)
            # The consumer that creates it decides whether it stays without consumers. Consumers
            # that ask otherwise may still join.
            subscription = self.create_subscription(command.subscription, durable=command.durable)
        consumer = connected_consumer(command, outlet, address, self._world)
        subscription.add(consumer, command.type, command.key_shared)
        return subscription, consumer

    def create_subscription(self, name: str, *, durable: bool = True) -> NonPersistentSubscription:
        """Create a subscription. Raises ``InvalidTopicName``, ``TooManyRequests``."""
        check_name("subscription", name)
        self.topic_limits.check_subscription(len(self.subscriptions))
        found = self.subscriptions[name] = NonPersistentSubscription(
            name,
            self.name,
            durable=durable,
            next_position=Position(_LEDGER, self.entries_added),
            config=self._config,
            clock=self._world.clock,
            topic_limits=self.topic_limits,
        )
        return found

    async def ensure_subscription(self, name: str) -> None:
        """Create a subscription unless it exists. Raises the errors of ``create_subscription``."""
        if name not in self.subscriptions:
            self.create_subscription(name)

    async def unsubscribe(self, name: str, *, force: bool, by: Consumer | None = None) -> None:
        """Delete a subscription.

        Raises ``SubscriptionNotFound``, or ``SubscriptionBusy`` when other consumers use it and
        ``force`` is off.
        """
        subscription = find_subscription(self.subscriptions, name, self.name)
        check_unused(subscription, self.name, force=force, by=by)
        if by is not None:
            subscription.remove(by)
        del self.subscriptions[name]
        subscription.close(
            SubscriptionNotFound(f"subscription {name!r} of {self.name} was deleted")
        )

    def remove_consumer(
        self, subscription: ServedSubscription, consumer: Consumer, *, comes_back: bool = False
    ) -> None:
        """Remove a consumer that its client closed or lost.

        A reader's subscription is removed too.
        """
        assert isinstance(subscription, NonPersistentSubscription)
        subscription.remove(consumer)
        if (
            not subscription.durable
            and not subscription.consumers
            and self.subscriptions.get(subscription.name) is subscription
        ):
            del self.subscriptions[subscription.name]
        self._unused_since_ms = self._world.clock.wall_ms()

    # -- the end

    def check_deletable(self, *, force: bool) -> None:
        """Raise ``SubscriptionBusy`` when producers or consumers are connected, unless
        ``force``.
        """
        if self.connected and not force:
            raise SubscriptionBusy(
                f"topic {self.name} has producers or consumers connected; close them or use force"
            )

    def stop_taking(self, error: PulsarishError) -> None:
        """Take no more messages. ``close`` tells the clients, once captured ones are stored."""
        if self.closed is None:
            self.closed = error
            if self._captures is not None:
                self._captures.wake()

    def close(self, error: PulsarishError) -> None:
        """Stop serving, and close all producers and consumers with ``error``, so that they look the
        topic up again.
        """
        if not self._has_left:
            self._has_left = True
            self.stop_taking(error)
            self.topic_limits.close()
            for subscription in self.subscriptions.values():
                subscription.close(error)
            self._producing.close_all(error, waiting=True)

    def check(self) -> None:
        """Assert the invariants of the topic, its producers and its subscriptions."""
        self._producing.check()
        for subscription in self.subscriptions.values():
            subscription.check()
