"""A subscription of a loaded topic: its cursor, its connected consumers and their commands.

``dispatch_loop.py`` reads for them.

Acknowledgements go to the cursor at once. A receipt is sent when the cursor is durable; one write
serves all waiting receipts (rule 16). The dispatcher retries a read that fails. Consumers wait
meanwhile, and the topic's statistics show the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, cast

from pulsarish.broker.clients.ack_targets import Named, check_acknowledgement, named_by, names_parts
from pulsarish.broker.clients.activity import SubscriptionActivity
from pulsarish.broker.clients.commands import (
    Acknowledge,
    ConsumerClosed,
    KeySharedPolicy,
    Subscribe,
)
from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.clients.entry_checks import publish_time
from pulsarish.broker.clients.meters import Meter
from pulsarish.broker.compaction.reads import CompactedReads
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.dispatchers.dispatcher import Dispatcher
from pulsarish.broker.dispatchers.factory import make_dispatcher
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.broker.subscriptions.ack_receipts import AckReceipts
from pulsarish.broker.subscriptions.dispatch_loop import DispatchLoop
from pulsarish.broker.subscriptions.filtering import FilterCounts, SubscriptionFilter
from pulsarish.broker.subscriptions.read_source import LogReads, ReadSource
from pulsarish.model.errors import (
    AlreadyClosed,
    ConsumerBusy,
    InvalidArgument,
    InvalidPosition,
    NotAllowedError,
    PulsarishError,
    ServiceNotReady,
)
from pulsarish.model.message_filter import FILTER_PROPERTY, parse_filter
from pulsarish.model.policies import (
    MAX_CONSUMERS_PER_SUBSCRIPTION,
    MAX_UNACKED_MESSAGES_PER_CONSUMER,
    MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION,
    MESSAGE_PRIORITY_WINDOW,
)
from pulsarish.model.position import LATEST, Position
from pulsarish.model.subscription_type import SubscriptionType
from pulsarish.runtime.containment import Scope
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World
from pulsarish.wire.entry import parse_metadata

if TYPE_CHECKING:
    from pulsarish.managed_ledger.cursors.cursor import Cursor
    from pulsarish.managed_ledger.log_reader import LogEntry
    from pulsarish.managed_ledger.managed_ledger import ManagedLedger
    from pulsarish.managed_ledger.readable_log import ReadableLog

__all__ = ["Subscription"]

_log = get_logger("broker.subscription")


class Subscription:
    """A subscription of a loaded topic. The topic creates it around an open cursor."""

    def __init__(
        self,
        name: str,
        topic: str,
        partition: int,
        log: ReadableLog,
        cursor: Cursor,
        world: World,
        config: BrokerConfig,
        topic_limits: TopicLimits,
        cursor_scope: Scope,
    ) -> None:
        """``cursor_scope``: what ends when a task that changes the cursor fails."""
        self.name = name
        self.topic = topic
        self.cursor = cursor
        self.type = SubscriptionType.EXCLUSIVE
        self.closed: PulsarishError | None = None
        now = world.clock.monotonic()
        self.out = Meter(now)
        self.redelivered = Meter(now)
        self.acked = Meter(now)
        self.expired = Meter(now)  # entries
        self.oldest: tuple[Position, int] | None = None
        """The oldest unacknowledged entry that was read, and its publish time; see
        ``oldest_known``.
        """
        self.reading_oldest = False
        self.marks = SubscriptionActivity(cursor.mark_delete, unused_since_ms=world.clock.wall_ms())
        self._partition = partition
        self.log = log
        self._world = world
        self._config = config
        self.topic_limits = topic_limits
        self.source: ReadSource = LogReads(log, cursor)
        """What the consumers read: the plain log, or compacted."""
        self._dispatcher: Dispatcher = self._make_dispatcher(self.type, KeySharedPolicy())
        self._wake = asyncio.Event()
        self.dispatch_loop = DispatchLoop(
            self, self._wake, log, world, config, topic_limits, cursor_scope
        )
        self._joined = 0
        self._seeks = 0
        self._cursor_scope = cursor_scope
        self._receipts = AckReceipts(topic, name, cursor, world.tasks, cursor_scope)
        self.filter: SubscriptionFilter | None = None
        """Which messages its consumers get; ``None``: all."""
        self.filter_counts = FilterCounts()
        self._filter_error = ""
        self._use_filter()

    def _make_dispatcher(self, kind: SubscriptionType, key_shared: KeySharedPolicy) -> Dispatcher:
        policies = self.topic_limits.policies
        dispatcher = make_dispatcher(
            kind,
            key_shared,
            partition=self._partition,
            read_from=self._read_from,
            acknowledged=self._is_acknowledged,
            config=self._config,
            policies=policies,
        )
        dispatcher.prioritise(policies[MESSAGE_PRIORITY_WINDOW], self._new_end)
        return dispatcher

    def _new_end(self) -> Position | None:
        return None if self.cursor.blocked else self.source.end()

    def policies_changed(self) -> None:
        """Apply the changed policies."""
        policies = self.topic_limits.policies
        self.dispatch_loop.policies_changed()
        self._dispatcher.limit(
            consumers_max=policies[MAX_CONSUMERS_PER_SUBSCRIPTION],
            unacked_max_consumer=policies[MAX_UNACKED_MESSAGES_PER_CONSUMER],
            unacked_max_subscription=policies[MAX_UNACKED_MESSAGES_PER_SUBSCRIPTION],
        )
        self._dispatcher.prioritise(policies[MESSAGE_PRIORITY_WINDOW], self._new_end)
        self._wake.set()

    def _read_from(self) -> Position:
        return self.source.read_from()

    def _is_acknowledged(self, position: Position) -> bool:
        return self.source.is_acknowledged(position)

    def choose_reads(self, command: Subscribe) -> None:
        """Read compacted or not, as the new consumer asks.

        Raises ``ConsumerBusy`` when connected consumers do the opposite.
        """
        if command.read_compacted == self.source.is_compacted:
            return
        if self.consumers:
            with_or_without = "without" if command.read_compacted else "with"
            raise ConsumerBusy(
                f"subscription {self.name!r} is in use {with_or_without} read_compacted; its "
                "consumers must leave before"
            )
        self.source = (
            CompactedReads.begin(cast("ManagedLedger", self.log), self.cursor, command)
            if command.read_compacted
            else LogReads(self.log, self.cursor)
        )

    # -- the filter

    def _use_filter(self) -> None:
        """Take the filter from the subscription's properties."""
        text = self.cursor.subscription_properties.get(FILTER_PROPERTY)
        self._filter_error = ""
        self.filter = None
        if text is not None:
            try:
                self.filter = SubscriptionFilter(self, parse_filter(text), self._world.clock)
            except InvalidArgument as error:
                self._filter_error = str(error)

    def check_filter(self, properties: Mapping[str, str]) -> None:
        """Check that a consumer may subscribe with these subscription properties.

        Raises ``NotAllowedError`` when they have another filter than the subscription, or the
        subscription has one that cannot be read here.
        """
        if self._filter_error:
            raise NotAllowedError(
                f"the filter of subscription {self.name!r} cannot be used: {self._filter_error}; "
                "set another, or remove it"
            )
        wanted = properties.get(FILTER_PROPERTY)
        found = self.cursor.subscription_properties.get(FILTER_PROPERTY)
        if wanted is not None and wanted != found:
            has = "no filter" if found is None else f"the filter {found!r}"
            raise NotAllowedError(
                f"subscription {self.name!r} has {has}, and the consumer asks for {wanted!r}; "
                "subscribe with the same or without one, or have it changed (pulsarish "
                "subscriptions set-filter)"
            )

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the subscription's properties, durably, and use the filter in them.

        When the filter changes, all consumers have to subscribe again. Raises the errors of
        ``Cursor.set_subscription_properties``.
        """
        before = self.cursor.subscription_properties.get(FILTER_PROPERTY)
        try:
            await self.cursor.set_subscription_properties(properties)
        finally:
            if self.cursor.subscription_properties.get(FILTER_PROPERTY) != before:
                self._use_filter()
                self.close_consumers(
                    ServiceNotReady(
                        f"the filter of subscription {self.name!r} was changed; subscribe again"
                    )
                )

    # -- consumers

    @property
    def consumers(self) -> Sequence[Consumer]:
        return self._dispatcher.consumers

    @property
    def joined_count(self) -> int:
        """Number of consumers that have connected since the topic was loaded."""
        return self._joined

    def add(
        self, consumer: Consumer, kind: SubscriptionType, key_shared: KeySharedPolicy | None = None
    ) -> None:
        """Connect a consumer.

        Raises ``ConsumerBusy``, ``ConsumerAssignError``, or why the subscription is closed.
        """
        if self.closed is not None:
            raise self.closed
        policy = key_shared or KeySharedPolicy()
        if kind is not self.type or not self._dispatcher.takes(policy):
            if self.consumers:
                shown = (
                    f" ({self._dispatcher.shown_policy})" if self._dispatcher.shown_policy else ""
                )
                raise ConsumerBusy(
                    f"subscription {self.name!r} is in use with type "
                    f"{self.type.name.lower()}{shown}; its consumers must"
                    f" leave before it can be used otherwise, now with type {kind.name.lower()}"
                )
            self._dispatcher = self._make_dispatcher(kind, policy)
            self.type = kind
            self.dispatch_loop.type_changed()
        elif not self.consumers:
            # No consumer was connected: acknowledgements and seeks may have moved the cursor since.
            # Redelivery counts are kept.
            self._dispatcher.reads.rewind(self.source.read_from())
        consumer.sent = self._sent
        consumer.start_counting(self._world.clock.monotonic())
        consumer.order = self._joined
        self._joined += 1
        self._dispatcher.add(consumer)
        self.dispatch_loop.hand_over_later()
        self.marks.unused_since_ms = 0
        self.dispatch_loop.start()
        self._wake.set()

    def remove(self, consumer: Consumer) -> None:
        """Disconnect a consumer. Its unacknowledged messages go to other consumers."""
        if consumer.closed:
            return
        consumer.closed = True
        consumer.outlet.withdraw(consumer.consumer_id)
        self._dispatcher.remove(consumer)
        self.dispatch_loop.hand_over_later()
        if not self.consumers:
            self.marks.unused_since_ms = self._world.clock.wall_ms()
        self._wake.set()

    def close_consumers(self, error: PulsarishError, *, but: Consumer | None = None) -> None:
        """Disconnect consumers, except ``but``, with ``error``.

        The error says whether they may subscribe again.
        """
        for consumer in [consumer for consumer in self.consumers if consumer is not but]:
            self.remove(consumer)
            consumer.outlet.put(ConsumerClosed(consumer.consumer_id, error))

    def close(self, error: PulsarishError) -> None:
        """Close the subscription on this broker for good."""
        self.closed = error
        self.dispatch_loop.close()
        self.close_consumers(error)
        self._wake.set()

    # -- commands of consumers

    def flow(self, consumer: Consumer, permits: int) -> None:
        """Add permits: the consumer may get this many more messages."""
        if not consumer.closed:
            consumer.permits += permits
            consumer.last_flow_ms = self.marks.last_flow_ms = self._world.clock.wall_ms()
            self._wake.set()

    def wake(self) -> None:
        """Wake the dispatch loop: the log has grown, or an outlet has room again."""
        self._wake.set()

    def redeliver(self, consumer: Consumer, positions: Sequence[Position], epoch: int = -1) -> None:
        """Redeliver the entries at ``positions``; without positions all that the consumer holds.

        Everything delivered from then on carries ``epoch``. Raises ``InvalidPosition``.
        """
        for position in positions:
            self._check_position(position)
        if not consumer.closed:
            consumer.epoch = max(consumer.epoch, epoch)
            self._dispatcher.redeliver(consumer, positions)
            self._wake.set()

    def extend_ack(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """Let the time of ``unackedRedelivery`` begin again for entries that the consumer holds."""
        self._dispatcher.extend_ack(consumer, positions, self._world.clock.monotonic())

    def _check_position(self, position: Position) -> None:
        # Rule 18. An entry at or below the mark-delete position may have been trimmed, and is not
        # delivered again anyway.
        if position > self.cursor.mark_delete and not self.source.contains(position):
            raise InvalidPosition(f"position {position} is not in topic {self.topic}")

    def acknowledge(self, consumer: Consumer, command: Acknowledge) -> None:
        """Acknowledge entries.

        A requested receipt goes to the consumer's outlet once they are durable.

        Raises ``InvalidPosition``, ``NotAllowedError`` (cumulative on shared), ``InvalidArgument``,
        or why the subscription is closed.
        """
        if self.closed is not None:
            raise self.closed
        check_acknowledgement(command, self.type, self.name)
        positions = command.positions
        if positions and max(positions) > self.source.end():
            _ = self._world.tasks.spawn(
                self._refuse_beyond(consumer, command), name=f"judge {self.topic} {self.name}"
            )
            return
        consumer.last_acked_ms = self.marks.last_acked_ms = self._world.clock.wall_ms()
        now = self._world.clock.monotonic()
        consumer.acked.add(len(positions), 0, now)
        self.acked.add(len(positions), 0, now)
        if consumer.seeks:
            # The consumer sent this before it knew that the seek had ended. The seek delivers these
            # messages again.
            self._receipts.wish(consumer, command.request_id)
            return
        if names_parts(command):
            # Only the entry's own metadata says how many messages it has. The rest is decided after
            # that, the receipt too.
            work = self._acknowledge_parts(consumer, command, self._seeks)
            _ = self._world.tasks.spawn(
                work, name=f"acknowledge {self.topic} {self.name}", scope=self._cursor_scope
            )
            return
        self._acknowledge_whole(consumer, positions, cumulative=command.cumulative)
        self._receipts.wish(consumer, command.request_id)

    async def _refuse_beyond(self, consumer: Consumer, command: Acknowledge) -> None:
        self._receipts.refuse(
            consumer, command.request_id, await self.log.why_beyond(max(command.positions))
        )

    def _acknowledge_whole(
        self, consumer: Consumer, positions: Sequence[Position], *, cumulative: bool
    ) -> None:
        waits_for_acks = self.dispatch_loop.waits_for_acks
        if cumulative:
            through: Position | None = positions[0]
            if positions[0].entry_id < 0:
                # A part of the first batch of a ledger is acknowledged: so is everything before
                # that ledger.
                self._check_position(Position(positions[0].ledger_id, 0))
                through = self.log.position_before(Position(positions[0].ledger_id, 0))
            if through is not None:
                self._acknowledge_through(through)
        else:
            self.source.acknowledge(positions)
            self._dispatcher.acknowledged(consumer, positions)
        self._cursor_moved()
        if waits_for_acks:
            self._wake.set()

    def _acknowledge_through(self, position: Position) -> None:
        self.source.acknowledge_through(position)
        self._dispatcher.acknowledged_through(position)
        self.dispatch_loop.skipped()

    async def _acknowledge_parts(
        self, consumer: Consumer, command: Acknowledge, seeks: int
    ) -> None:
        """Acknowledge single messages of batches.

        ``seeks``: number of seeks when the command arrived.
        """
        try:
            named = await named_by(command, partial(self._batch_size, consumer))
            if seeks != self._seeks:
                # A later seek has overtaken this command: it delivers again what was acknowledged
                # before it.
                named = Named()
            for position in named.parts:
                self._check_position(position)
            for position, indexes in named.parts.items():
                if (
                    command.cumulative
                    and (before := self.log.position_before(position)) is not None
                ):
                    self._acknowledge_through(before)
                if self.source.acknowledge_part(position, named.sizes[position], indexes):
                    self._dispatcher.acknowledged(consumer, [position])
                else:
                    self._note_part(consumer, position)
            if named.whole:
                self._acknowledge_whole(consumer, named.whole, cumulative=False)
            self._cursor_moved()
        except PulsarishError as error:
            self._receipts.refuse(consumer, command.request_id, error)
            return
        self._wake.set()
        self._receipts.wish(consumer, command.request_id)

    def _note_part(self, consumer: Consumer | None, position: Position) -> None:
        """Have the dispatcher count only the rest of a partly acknowledged batch."""
        left = self.cursor.ack_set(position)
        if left is not None:
            self._dispatcher.partly_acknowledged(consumer, position, left.bit_count())

    async def _batch_size(self, consumer: Consumer, position: Position) -> int:
        """Return how many messages an entry holds; 0 if it no longer exists, and then acknowledging
        it changes nothing.
        """
        held = consumer.pending.get(position)
        return await self.source.batch_size(position) if held is None else held

    # -- moving the cursor

    async def seek(
        self, position: Position | None, publish_time_ms: int, *, by: Consumer | None = None
    ) -> None:
        """Deliver from a position (inclusive), or from the first entry published at or after a
        time.

        Other consumers must subscribe again. A position beyond the end means the end; a trimmed one
        means the first entry kept. Raises ``InvalidPosition`` for a ledger that is not the topic's
        (rule 18), and ``AlreadyClosed``, before anything has changed, when the consumer that asks
        is no longer connected.
        """
        if position is None:
            position = await self.source.find_by_time(publish_time_ms, publish_time) or LATEST
        else:
            position = await self.log.landing(position)
        if self.closed is not None:
            raise self.closed
        if by is not None and by.closed:
            # Consumers that are connected now may have sought since.
            raise AlreadyClosed(f"consumer {by.consumer_id} is not connected; subscribe again")
        self.close_consumers(
            ServiceNotReady(f"subscription {self.name!r} was moved by a seek; subscribe again"),
            but=by,
        )
        self._seeks += 1
        self.marks.seek_began(self._world.clock.wall_ms())
        if by is not None:
            by.seeks += 1
        self.cursor.move(position)
        # Reset now: entries read at the old place and then acknowledged would move the cursor back
        # there.
        self._start_over(position)
        try:
            await self.cursor.flush()
        finally:
            self.marks.seek_ended()
            if by is not None:
                by.seeks -= 1
            # The client has dropped what it received during the seek. Reset also when the flush
            # failed: in memory the cursor has moved.
            self._start_over(position)
            self._wake.set()

    def _start_over(self, position: Position) -> None:
        """Reset the readers after the cursor was moved to ``position``."""
        self.source.moved(position)
        self._cursor_moved()
        self._dispatcher.reset()

    async def skip(self, messages: int | None) -> None:
        """Acknowledge the next ``messages`` unacknowledged messages durably; ``None``: all of
        them.
        """
        end: Position | None = None
        if messages is None:
            end = self.log.last_confirmed
        else:
            for entry in await self.unacknowledged(messages):
                size = parse_metadata(entry.payload).num_messages_in_batch
                left = self.cursor.ack_set(entry.position)
                indexes = [index for index in range(size) if left is None or left >> index & 1]
                if len(indexes) > messages:
                    # Skip a part of a batch: its other messages stay.
                    self.cursor.acknowledge_batch(entry.position, size, indexes[:messages])
                    self._note_part(None, entry.position)
                    break
                messages -= len(indexes)
                end = entry.position
                if not messages:
                    break
        if end is not None and end.entry_id >= 0:
            self._acknowledge_through(end)
        self._cursor_moved()
        await self.cursor.flush()
        self._wake.set()

    @property
    def seek_count(self) -> int:
        """Number of seeks since the topic was loaded."""
        return self._seeks

    @property
    def has_many_holes(self) -> bool:
        """Whether the cursor is half way to the limit of holes at which dispatch stops."""
        limit = self.topic_limits.log_options().max_unacked_ranges_to_persist
        return self.cursor.hole_count > limit // 2

    async def expire(self, before_ms: int) -> None:
        """Acknowledge durably what was published before a time."""
        first = await self.log.find_by_time(before_ms, publish_time)
        last = self.log.last_confirmed if first is None else self.log.position_before(first)
        if last is not None and last.entry_id >= 0:
            await self.expire_through(last)

    async def expire_through(self, last: Position) -> None:
        """Acknowledge durably everything up to and including ``last``: its time is over."""
        backlog = self.cursor.backlog()
        try:
            await self.skip_through(last)
        finally:
            self.marks.last_expire_ms = self._world.clock.wall_ms()
            self.expired.add(
                max(0, backlog - self.cursor.backlog()), 0, self._world.clock.monotonic()
            )

    def acknowledge_expired(self, positions: Sequence[Position]) -> None:
        """Acknowledge entries whose time is over, in memory. No consumer gets them any more."""
        count = self.acknowledge_undelivered(positions)
        self.expired.add(count, 0, self._world.clock.monotonic())

    def acknowledge_undelivered(self, positions: Sequence[Position]) -> int:
        """Acknowledge entries, in memory, so that no consumer gets them any more.

        Returns how many were not acknowledged before.
        """
        positions = [
            position
            for position in positions
            if self.source.contains(position) and not self.source.is_acknowledged(position)
        ]
        self.source.acknowledge(positions)
        self._dispatcher.expired(positions)
        self._cursor_moved()
        self._wake.set()
        return len(positions)

    async def oldest_publish_ms(self) -> int | None:
        """Return the publish time of the oldest unacknowledged entry; ``None`` when there is no
        backlog. Reads each entry once.
        """
        known = self.oldest_known()
        if known is None and self.cursor.backlog():
            entries = await self.log.read(self.cursor.read_from, max_entries=1, max_bytes=1)
            known = self.oldest = (
                (entries[0].position, publish_time(entries[0])) if entries else None
            )
        return None if known is None else known[1]

    async def skip_through(self, last: Position) -> None:
        """Acknowledge everything up to and including ``last``, durably.

        Raises ``InvalidPosition``.
        """
        self._check_position(last)
        if last > self.cursor.mark_delete:
            self._acknowledge_through(last)
            self._cursor_moved()
            await self.cursor.flush()
            self._wake.set()

    async def unacknowledged(self, count: int) -> list[LogEntry]:
        """Return the first ``count`` unacknowledged entries."""
        found: list[LogEntry] = []
        start, seeks = self.cursor.read_from, self._seeks
        while len(found) < count and start <= self.log.last_confirmed:
            entries = await self.log.read(
                start,
                max_entries=self._config.dispatcher_max_read_batch_size,
                max_bytes=self._config.dispatcher_max_read_size_bytes,
            )
            if seeks != self._seeks:
                # A seek moved the cursor in the meantime: other entries are the first now.
                found, start, seeks = [], self.cursor.read_from, self._seeks
                continue
            if not entries:
                break
            found.extend(
                entry for entry in entries if not self.cursor.is_acknowledged(entry.position)
            )
            last = entries[-1].position
            start = Position(last.ledger_id, last.entry_id + 1)
        return found[:count]

    # -- for statistics and the watchdog of progress

    @property
    def dispatcher(self) -> Dispatcher:
        return self._dispatcher

    @property
    def unacked(self) -> int:
        """Number of delivered, unacknowledged messages; 0 for exclusive and failover
        subscriptions.
        """
        return self._dispatcher.unacked()

    @property
    def backlog(self) -> int:
        """Number of unacknowledged entries."""
        return self.cursor.backlog()

    @property
    def mark_delete(self) -> Position:
        """The mark-delete position: everything up to it is acknowledged."""
        return self.cursor.mark_delete

    async def last_message(self) -> tuple[Position, int]:
        """Return position and batch index of the last message for its consumers.

        The index is -1 for a message without a batch. Entry -1: there is no message.
        """
        return await self.source.last()

    def oldest_known(self) -> tuple[Position, int] | None:
        """Return the oldest unacknowledged entry and its publish time, if it was read since it
        became the oldest.
        """
        return (
            self.oldest
            if self.oldest is not None
            and self.oldest[0] == self.cursor.read_from
            and self.cursor.backlog()
            else None
        )

    def _sent(self, consumer: Consumer, messages: int, size_bytes: int, redelivered: int) -> None:
        now = self._world.clock.monotonic()
        consumer.last_delivered_ms = self.marks.last_consumed_ms = self._world.clock.wall_ms()
        consumer.out.add(messages, size_bytes, now)
        self.out.add(messages, size_bytes, now)
        if redelivered:
            consumer.redelivered.add(redelivered, 0, now)
            self.redelivered.add(redelivered, 0, now)

    def _cursor_moved(self) -> None:
        self.marks.cursor_moved(self.cursor, self._world.clock.wall_ms())

    def check(self) -> None:
        self._dispatcher.check()
