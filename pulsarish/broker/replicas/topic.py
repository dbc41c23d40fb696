"""A read replica of a topic: another broker owns the topic, and readers are served here.

Each reader has a subscription in memory, as on the owner. There are no producers, no durable
subscriptions and no compacted reads; those need the owner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pulsarish.broker.clients.commands import OpenProducer, Subscribe
from pulsarish.broker.clients.consumer import Consumer, Outlet, connected_consumer
from pulsarish.broker.clients.interfaces import ServedSubscription
from pulsarish.broker.clients.meters import TopicTraffic
from pulsarish.broker.clients.producer import Producer, PublishRequest
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.store import Effective
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.broker.publishing.producers import Queued
from pulsarish.broker.subscriptions.delivery_pass import deliver_new
from pulsarish.broker.subscriptions.new_entries import NewEntries
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.broker.subscriptions.subscriptions import start_of
from pulsarish.managed_ledger.followed_log import FollowedLog
from pulsarish.model.errors import NotAllowedError, PulsarishError, ServiceNotReady
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.runtime.containment import Scope, ScopeKind, contained
from pulsarish.runtime.seams import World

__all__ = ["ReplicaTopic"]


class ReplicaTopic:
    """A ``ServedTopic``.

    ``start`` gives it its log; ``unused`` is called when no reader is left.
    """

    log: FollowedLog

    def __init__(
        self,
        name: TopicName,
        world: World,
        config: BrokerConfig,
        policies: Effective,
        *,
        unused: Callable[[ReplicaTopic], None],
    ) -> None:
        self.name = name
        self.closed: PulsarishError | None = None
        self.scope = Scope(ScopeKind.TOPIC, f"replica of {name}", self._fail)
        self.subscriptions: dict[str, Subscription] = {}
        self.traffic = TopicTraffic(world.clock.monotonic())
        self.topic_limits = TopicLimits(name, config, world.clock, policies, self.traffic.came)
        self._world = contained(world, self.scope)
        self._config = config
        self._unused = unused
        self._delivered: Position  # up to here the readers were served or woken
        self._delivers = False

    def start(self, log: FollowedLog) -> None:
        """Serve the log, and follow it."""
        self.log = log
        _ = self._world.tasks.spawn(self._follow(), name=f"follow {self.name}")

    async def _follow(self) -> None:
        await self.log.follow()
        assert self.log.ended is not None
        self.close(self.log.ended)

    def _fail(self, error: BaseException) -> None:
        self.close(
            ServiceNotReady(f"the replica of {self.name} failed here; subscribe again: {error!r}")
        )

    def grew(self) -> None:
        """Serve or wake the readers: the log has more entries, or its end."""
        if not self.subscriptions:
            return  # the first one begins with what there is
        if len(self.subscriptions) == 1 or self.log.ended is not None or self.log.terminated:
            self._wake_all()
        elif not self._delivers:
            self._delivers = True
            _ = self._world.tasks.spawn(self._deliver(), name=f"deliver {self.name}")

    def _wake_all(self) -> None:
        self._delivered = self.log.last_confirmed
        for subscription in self.subscriptions.values():
            subscription.wake()

    async def _deliver(self) -> None:
        """Read and decode once what the log has more, for all readers that wait for it."""
        try:
            while self.subscriptions:
                first = self.log.next_position(self._delivered)
                if first > self.log.last_confirmed:
                    return
                await self._deliver_from(first)
        finally:
            self._delivers = False

    async def _deliver_from(self, first: Position) -> None:
        try:
            entries = await self.log.read(
                first,
                max_entries=self._config.dispatcher_max_read_batch_size,
                max_bytes=self._config.dispatcher_max_read_size_bytes,
            )
        except PulsarishError:
            entries = []  # each reader finds the error, and tries again
        if not entries or entries[0].position != first:
            self._wake_all()
            return
        self._delivered = entries[-1].position
        # This looks again for what came meanwhile.
        new = NewEntries(self.log, entries, is_whole=True)
        clock = self._world.clock
        await clock.sleep(deliver_new(self.subscriptions.values(), first, lambda: new, clock))

    def trimmed(self, last: Position) -> None:
        """Note that the owner has trimmed the log up to ``last``."""
        for subscription in self.subscriptions.values():
            subscription.cursor.trimmed(last)

    def use(self, policies: Effective) -> None:
        """Apply new policies."""
        self.topic_limits.use(policies)
        for subscription in self.subscriptions.values():
            subscription.policies_changed()

    # -- readers

    async def subscribe(
        self, command: Subscribe, outlet: Outlet, address: str
    ) -> tuple[Subscription, Consumer]:
        """Connect a reader.

        Raises ``NotAllowedError`` for anything but a reader, ``InvalidPosition``, ``ConsumerBusy``,
        ``TooManyRequests``, the errors of the log when it searches for a time, or why the replica
        is closed.
        """
        if command.durable:
            raise NotAllowedError(
                f"a replica of {self.name} has no durable subscriptions: leave replica out"
            )
        if command.read_compacted:
            raise NotAllowedError(
                f"a replica of {self.name} has no compacted view: leave replica out, and the owner "
                "serves the view and then the log, or read_compacted, and the replica serves the "
                "whole log"
            )
        self.topic_limits.check_subscribe_rate(command, address)
        check_name("subscription", command.subscription)
        start = await self.log.landing(
            await start_of(self.log, command, self._world.clock.wall_ms())
        )
        if self.closed is not None:
            raise self.closed
        self.topic_limits.check_consumer(
            sum(len(each.consumers) for each in self.subscriptions.values()), command
        )
        if not self.subscriptions:
            self._delivered = self.log.last_confirmed
        subscription = self.subscriptions.get(command.subscription)
        if subscription is None:
            subscription = self.subscriptions[command.subscription] = Subscription(
                command.subscription,
                self.name.full,
                self.name.partition,
                self.log,
                self.log.cursor(command.subscription, start, self._config.managed_ledger),
                self._world,
                self._config,
                self.topic_limits,
                self.scope,
            )
        consumer = connected_consumer(command, outlet, address, self._world)
        try:
            subscription.add(consumer, command.type, command.key_shared)
        except PulsarishError:
            self._drop(subscription)
            raise
        return subscription, consumer

    def remove_consumer(
        self, subscription: ServedSubscription, consumer: Consumer, *, comes_back: bool = False
    ) -> None:
        """Remove a reader that its client closed or lost. One that comes back says where it was."""
        assert isinstance(subscription, Subscription)
        subscription.remove(consumer)
        self._drop(subscription)

    def _drop(self, subscription: Subscription) -> None:
        if not subscription.consumers:
            if self.subscriptions.get(subscription.name) is subscription:
                del self.subscriptions[subscription.name]
            if not self.subscriptions and self.closed is None:
                self._unused(self)

    def close(self, error: PulsarishError) -> None:
        """Stop following and serving. Readers that may retry find another broker."""
        if self.closed is None:
            self.closed = error
            self.topic_limits.close()
            self.log.stop(error)
            for subscription in list(self.subscriptions.values()):
                subscription.close(error)
            self.subscriptions.clear()

    # -- what only owners do

    producers: Final[dict[str, Producer]] = {}
    deduplication: Final = False
    has_room: Final = True

    @property
    def kept_bytes(self) -> int:
        return self.log.size_bytes

    def _owners(self, what: str) -> NotAllowedError:
        return NotAllowedError(
            f"{what} needs the owner of {self.name}, and this broker has a replica"
        )

    async def open_producer(
        self, command: OpenProducer, outlet: Outlet, address: str, queued: Queued
    ) -> tuple[Producer, int]:
        raise self._owners("a producer")

    def remove_producer(self, producer: Producer) -> None:
        raise self._owners("a producer")

    def publish(
        self, producer: Producer, entries: Sequence[memoryview], request: PublishRequest
    ) -> None:
        raise self._owners("publishing")

    async def wait_for_room(self) -> None:
        return

    async def ensure_subscription(self, name: str) -> None:
        raise self._owners("a durable subscription")

    async def unsubscribe(self, name: str, *, force: bool, by: Consumer | None = None) -> None:
        raise self._owners("unsubscribe")
