"""The subscriptions of a topic: how they are created and deleted, and how consumers join and leave
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from pulsarish.broker.clients.commands import InitialPosition, Subscribe
from pulsarish.broker.clients.consumer import (
    Consumer,
    Outlet,
    WholeBatches,
    connected_consumer,
)
from pulsarish.broker.clients.entry_checks import publish_time
from pulsarish.broker.clients.interfaces import check_unused, find_subscription
from pulsarish.broker.compaction.compaction import VIEW_SUBSCRIPTION
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.topic_limits import TopicLimits, check_subscription_properties
from pulsarish.broker.publishing.dedup_log import DEDUP_CURSOR
from pulsarish.broker.subscriptions.delivery_pass import deliver_new
from pulsarish.broker.subscriptions.new_entries import NewEntries
from pulsarish.model.errors import (
    ConsumerBusy,
    InvalidArgument,
    PulsarishError,
    ServiceNotReady,
    SubscriptionNotFound,
    TopicFenced,
)
from pulsarish.model.position import EARLIEST, LATEST, Position
from pulsarish.model.topic_name import check_name
from pulsarish.runtime.containment import Scope, ScopeKind, contained
from pulsarish.runtime.seams import World

if TYPE_CHECKING:
    from pulsarish.broker.subscriptions.subscription import Subscription
    from pulsarish.broker.topics.topic import Topic
    from pulsarish.managed_ledger.cursors.cursor import Cursor
    from pulsarish.managed_ledger.readable_log import ReadableLog

__all__ = ["FAILS_AGAIN_SECONDS", "READER_RETURN_SECONDS", "TopicSubscriptions", "start_of"]

FAILS_AGAIN_SECONDS: Final = 60.0
"""A subscription that fails twice within this time ends its topic on this broker."""

_PAUSE_SECONDS_MIN: Final = 0.001

READER_RETURN_SECONDS: Final = 30.0
"""How long the cursor of a disconnected reader is kept, so that the reader can return, as clients
do after a seek.
"""


class TopicSubscriptions:
    """The subscriptions of one topic."""

    __slots__ = (
        "_config",
        "_failed_at",
        "_first_new",
        "_next_pass_at",
        "_topic",
        "_topic_limits",
        "_world",
        "by_name",
    )

    def __init__(
        self, topic: Topic, world: World, config: BrokerConfig, topic_limits: TopicLimits
    ) -> None:
        self.by_name: dict[str, Subscription] = {}
        self._failed_at: dict[str, float] = {}
        self._first_new: Position | None = None  # confirmed, and not delivered yet
        self._next_pass_at = 0.0  # monotonic seconds
        self._topic = topic
        self._world = world
        self._config = config
        self._topic_limits = topic_limits

    def appended(self, ledger_id: int, first_entry: int) -> None:
        """Deliver what the log confirms in this turn of the loop, from this entry on, and wake the
        subscriptions that are behind.

        A pass over many subscriptions takes long, and the next one begins only after a pause.
        """
        if self._first_new is not None or not self.by_name:
            return
        self._first_new = Position(ledger_id, first_entry)
        pause_seconds = self._next_pass_at - self._world.clock.monotonic()
        if pause_seconds < _PAUSE_SECONDS_MIN:
            asyncio.get_running_loop().call_soon(self._deliver_new_contained)
        else:
            _ = self._world.tasks.spawn(
                self._deliver_new_later(pause_seconds),
                name=f"deliver {self._topic.name}",
                scope=self._topic.scope,
            )

    async def _deliver_new_later(self, seconds: float) -> None:
        await self._world.clock.sleep(seconds)
        self._deliver_new()

    def _deliver_new_contained(self) -> None:
        try:
            self._deliver_new()
        except Exception as error:  # noqa: BLE001
            # Whatever it is: it ends this topic on this broker.
            topic = self._topic
            self._world.tasks.contain(f"deliver {topic.name}", error, topic.scope)

    def _deliver_new(self) -> None:
        first, self._first_new = self._first_new, None
        assert first is not None
        clock = self._world.clock
        pause_seconds = deliver_new(
            self.by_name.values(), first, partial(self._new_from, first), clock
        )
        self._next_pass_at = clock.monotonic() + pause_seconds

    def _new_from(self, first: Position) -> NewEntries:
        """Return the entries from ``first`` on, as far as one read may bring them and the tail
        cache has them.
        """
        log = self._topic.log
        entries = log.cached(
            first,
            max_entries=self._config.dispatcher_max_read_batch_size,
            max_bytes=self._config.dispatcher_max_read_size_bytes,
        )
        is_whole = bool(entries) and entries[-1].position == log.last_confirmed
        return NewEntries(log, entries, is_whole=is_whole)

    async def restore(self, name: str) -> None:
        """Restore a subscription whose cursor the log keeps. Raises the errors of the log."""
        cursor = await self._topic.log.open_cursor(name)
        self.by_name[name] = self._around(cursor)

    def _around(self, cursor: Cursor) -> Subscription:
        topic, name = self._topic, f"{self._topic.name} {cursor.name}"
        world = contained(
            self._world,
            Scope(ScopeKind.SUBSCRIPTION, name, lambda error: self._fail(subscription, error)),
        )
        # A cursor belongs to the topic's log. An error while it is changed concerns the whole
        # topic.
        cursor_scope = Scope(ScopeKind.SUBSCRIPTION, name, topic.fail)
        subscription = topic.make_subscription(
            cursor.name,
            topic.name.full,
            topic.name.partition,
            topic.log,
            cursor,
            world,
            self._config,
            self._topic_limits,
            cursor_scope,
        )
        return subscription

    def _fail(self, subscription: Subscription, error: BaseException) -> None:
        """Replace a subscription whose task failed by a new one with the same cursor.

        Its consumers subscribe again.

        If it fails again within a minute, the fault may lie in the topic's state in memory. Then
        the topic is loaded again.
        """
        name, now = subscription.name, self._world.clock.monotonic()
        if self._topic.closed is not None or self.by_name.get(name) is not subscription:
            return
        before, self._failed_at[name] = self._failed_at.get(name), now
        if before is not None and now - before < FAILS_AGAIN_SECONDS:
            self._topic.fail(error)
            return
        reopened = self.by_name[name] = self._around(subscription.cursor)
        try:
            subscription.close(
                ServiceNotReady(
                    f"subscription {name!r} of {self._topic.name} failed here; subscribe again: "
                    f"{error!r}"
                )
            )
        except Exception as failure:  # noqa: BLE001  # its dispatcher may be in any state
            self._topic.fail(failure)
            return
        self._drop_reader_later(reopened, READER_RETURN_SECONDS)

    async def subscribe(
        self, command: Subscribe, outlet: Outlet, address: str
    ) -> tuple[Subscription, Consumer]:
        """Connect a consumer. Create its subscription if it is new.

        Raises ``ConsumerBusy``, ``ConsumerAssignError``, ``NotAllowedError``, ``TooManyRequests``,
        the errors of ``create``, and those of the log when it searches for a time.
        """
        self._topic_limits.check_subscribe_rate(command, address)
        subscription = self.by_name.get(command.subscription)
        is_new = subscription is None
        if subscription is None:
            self._topic_limits.check_auto_subscription(command)
            subscription = await self._make(command)
        consumer = connected_consumer(command, outlet, address, self._world)
        try:
            # Check a new one too: another consumer may have created it in the meantime.
            if subscription.cursor.durable != command.durable:
                kind = "durable" if subscription.cursor.durable else "a reader's"
                raise ConsumerBusy(
                    f"subscription {command.subscription!r} exists and is {kind}; choose another "
                    "name"
                )
            self._topic_limits.check_consumer(
                sum(len(each.consumers) for each in self.by_name.values()), command
            )
            subscription.check_filter(command.subscription_properties)
            if subscription.filter is not None and not command.takes_parts:
                consumer.outlet = WholeBatches(consumer.outlet)
            subscription.choose_reads(command)
            subscription.add(consumer, command.type, command.key_shared)
        except PulsarishError:
            if is_new:
                self._drop_reader_later(subscription)
            raise
        return subscription, consumer

    async def _make(self, command: Subscribe) -> Subscription:
        start = await start_of(self._topic.log, command, self._world.clock.wall_ms())
        return await self.create(
            command.subscription,
            start,
            durable=command.durable,
            properties=command.subscription_properties,
        )

    async def create(
        self,
        name: str,
        start: Position,
        *,
        durable: bool,
        properties: Mapping[str, str] | None = None,
    ) -> Subscription:
        """Create a subscription that delivers from ``start`` on.

        Raises ``InvalidTopicName``, ``InvalidArgument`` for properties that are too large,
        ``TooManyRequests``, ``InvalidPosition`` for a start in a ledger that is not the topic's
        (rule 18), or why the topic is closed.
        """
        check_name("subscription", name)
        check_subscription_properties(properties or {})
        if name in (DEDUP_CURSOR, VIEW_SUBSCRIPTION):
            raise InvalidArgument(f"the name {name} is the broker's own; choose another")
        self._topic_limits.check_subscription(len(self.by_name))
        log = self._topic.log
        landing = await log.landing(start)
        cursor = await log.open_cursor(
            name, initial=landing, durable=durable, subscription_properties=properties
        )
        self._topic.check_open()
        # Two requests may run at once; both get the same cursor.
        subscription = self.by_name.get(name)
        if subscription is None:
            subscription = self.by_name[name] = self._around(cursor)
        return subscription

    def get(self, name: str) -> Subscription:
        """Return the subscription. Raises ``SubscriptionNotFound``."""
        return find_subscription(self.by_name, name, self._topic.name)

    async def delete(self, name: str, *, force: bool, by: Consumer | None) -> None:
        """Delete a subscription.

        Raises ``SubscriptionNotFound``, or ``SubscriptionBusy`` when consumers other than ``by``
        use it and ``force`` is off.
        """
        subscription = self.get(name)
        topic = self._topic
        check_unused(subscription, topic.name, force=force, by=by)
        if by is not None:
            subscription.remove(by)
        # Remove it from the table first: a consumer that subscribes during the deletion, or after
        # it has failed, opens the cursor again.
        del self.by_name[name]
        self._failed_at.pop(name, None)
        deleted = SubscriptionNotFound(f"subscription {name!r} of {topic.name} was deleted")
        subscription.close(deleted)
        await topic.log.delete_cursor(name)
        found = self.by_name.get(name)
        if found is not None and found.cursor is subscription.cursor:
            # A request opened it before: it got the cursor after the table was changed, and before
            # the cursor was deleted.
            del self.by_name[name]
            found.close(deleted)

    def leave(self, subscription: Subscription, consumer: Consumer, *, comes_back: bool) -> None:
        """Remove a consumer that its client closed or lost.

        A reader's cursor is deleted: later with ``comes_back``, else at once.
        """
        subscription.remove(consumer)
        self._drop_reader_later(subscription, READER_RETURN_SECONDS if comes_back else 0.0)

    def _drop_reader_later(self, subscription: Subscription, wait_seconds: float = 0.0) -> None:
        if (
            not subscription.cursor.durable
            and not subscription.consumers
            and self._topic.closed is None
        ):
            work = self._drop_reader(subscription, subscription.joined_count, wait_seconds)
            _ = self._world.tasks.spawn(
                work, name=f"drop reader {self._topic.name} {subscription.name}"
            )

    async def _drop_reader(
        self, subscription: Subscription, joined_count: int, wait_seconds: float
    ) -> None:
        if wait_seconds:
            await self._world.clock.sleep(wait_seconds)
        # If the reader has returned and left again in the meantime, another task waits for it.
        if (
            subscription.joined_count != joined_count
            or self.by_name.get(subscription.name) is not subscription
        ):
            return
        del self.by_name[subscription.name]
        self._failed_at.pop(subscription.name, None)
        with suppress(TopicFenced):  # the cursor was only in memory, and is gone with the log
            await self._topic.log.delete_cursor(subscription.name)


async def start_of(log: ReadableLog, command: Subscribe, now_ms: int) -> Position:
    """Return where a new subscription of this command starts.

    Raises the errors of the log when it searches for a time.
    """
    if command.start_rollback_seconds:
        since_ms = now_ms - command.start_rollback_seconds * 1000
        return await log.find_by_time(since_ms, publish_time) or LATEST
    if command.start is not None:
        return command.start
    return LATEST if command.initial_position is InitialPosition.LATEST else EARLIEST
