"""A loaded topic: its log, its producers and its subscriptions.

Publishing is one pass without waiting: check the entry once, check it for duplicates, append it.
The log confirms ranges in order, and the topic turns each range into receipts. Work that can be
done once for a range is not done once for each entry.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

from pulsarish.broker.clients.commands import OpenProducer, Subscribe
from pulsarish.broker.clients.consumer import Consumer, Outlet
from pulsarish.broker.clients.entry_checks import check_metadata, read_entry
from pulsarish.broker.clients.interfaces import ServedSubscription
from pulsarish.broker.clients.meters import TopicTraffic
from pulsarish.broker.clients.producer import Flights, PendingEntry, Producer, PublishRequest
from pulsarish.broker.compaction.admission import check_compacted_read
from pulsarish.broker.compaction.compaction import CompactionGate, TopicCompaction
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.store import Effective
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.broker.publishing.dedup import Deduplication
from pulsarish.broker.publishing.dedup_log import (
    DEDUP_CURSOR,
    BatchPartlyStored,
    DedupLog,
    entry_marks,
    is_new,
)
from pulsarish.broker.publishing.producers import Queued, TopicProducers
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.broker.subscriptions.subscriptions import TopicSubscriptions
from pulsarish.managed_ledger.options import Retention
from pulsarish.model.errors import (
    ChecksumError,
    DeduplicationUncertain,
    InvalidArgument,
    NotAllowed,
    PulsarishError,
    ServiceNotReady,
    SubscriptionBusy,
    TopicFenced,
    TopicTerminated,
)
from pulsarish.model.policies import DEDUPLICATION, DEDUPLICATION_SNAPSHOT_INTERVAL
from pulsarish.model.position import EARLIEST, Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.containment import Scope, ScopeKind, contained
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

if TYPE_CHECKING:
    from pulsarish.managed_ledger.managed_ledger import ManagedLedger
    from pulsarish.wire._pb.message_pb2 import MessageMetadata

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
        self._is_notice_due = False  # closed, but clients have not been informed yet
        self.traffic = TopicTraffic(world.clock.monotonic())
        self.loaded_ms = world.clock.wall_ms()
        self.last_add_failure: tuple[PulsarishError, int] | None = None
        """The last error of an append and when it happened (wall clock, ms); ``None`` if no append
        has failed.
        """
        self.last_published_ms = 0
        """When the last entry was published since the topic was loaded (wall clock); 0: none
        was.
        """
        self.topic_limits = TopicLimits(name, config, world.clock, policies, self.traffic.came)
        self.duplicates = 0
        self.scope = Scope(ScopeKind.TOPIC, name.full, self.fail)
        self._world = world = contained(world, self.scope)
        self._config = config
        self._dedup: DedupLog | None = None
        self._producing = TopicProducers(self, world, config, self.topic_limits)
        self._subscribing = TopicSubscriptions(self, world, config, self.topic_limits)
        self._died = died
        self._compactions = compactions
        self._compaction: TopicCompaction | None = None

    @property
    def world(self) -> World:
        """The clock, tasks and random numbers for everything that belongs to the topic.

        An error in one of its tasks ends the topic on this broker. It is then loaded again.
        """
        return self._world

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
            dedup = await self.begin_dedup()
            await dedup.catch_up()
            self.use_dedup(dedup)
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
        if self._dedup is not None:
            self._dedup.snapshot_interval_seconds = policies[DEDUPLICATION_SNAPSHOT_INTERVAL]

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
    def connected(self) -> bool:
        """Whether a producer or a consumer is connected."""
        return bool(self.producers) or any(
            subscription.consumers for subscription in self.subscriptions.values()
        )

    async def note_used(self) -> None:
        """Record that the topic is in use again.

        Raises the errors of ``ManagedLedger.note_inactive``, or why the topic is closed.
        """
        if self.log.inactive_since_ms:
            await self.log.note_inactive(0)
        self.check_open()

    def close_producers(self, error: PulsarishError, *, waiting: bool = False) -> None:
        """Close all producers with ``error``; with ``waiting`` also those that wait for exclusive
        access.

        ``topic_limits`` decides whether and when they may connect again.
        """
        self._producing.close_all(error, waiting=waiting)

    @property
    def producers(self) -> dict[str, Producer]:
        """Connected producers by name."""
        return self._producing.by_name

    @property
    def flights(self) -> Flights:
        return self._producing.flights

    @property
    def waiting_producers(self) -> list[str]:
        """Names of the producers that wait for exclusive access, the next one first."""
        return self._producing.access.waiting_names

    @property
    def kept_bytes(self) -> int:
        """Size of the stored messages in bytes, one replica counted."""
        return self.log.size_bytes

    # -- producers

    def check_publishable(self) -> None:
        """Raise the error that prevents publishing, if there is one."""
        self.check_open()
        if self.log.terminated:
            raise TopicTerminated(
                f"topic {self.name} is terminated; nothing can be published to it"
            )

    @property
    def producer_epoch(self) -> int:
        """Epoch of the last exclusive producer; ``NO_EPOCH`` if there was none."""
        return self.log.producer_epoch

    async def set_producer_epoch(self, epoch: int) -> None:
        """Store the epoch. It is durable on return. Raises the errors of the log."""
        await self.log.set_producer_epoch(epoch)

    @property
    def deduplication(self) -> bool:
        return self._dedup is not None

    @property
    def dedup_marks(self) -> Deduplication | None:
        """The deduplication marks; ``None`` while deduplication is off."""
        return None if self._dedup is None else self._dedup.marks

    async def open_producer(
        self, command: OpenProducer, outlet: Outlet, address: str, queued: Queued
    ) -> tuple[Producer, int]:
        """Connect a producer.

        Return it and the last sequence id of its name that is in the log (-1 without
        deduplication).

        ``queued`` is called if the producer has to wait for exclusive access. Raises the errors of
        ``TopicProducers.open``.
        """
        producer = await self._producing.open(command, outlet, address, queued)
        return producer, self._last_sequence_id(producer.name)

    def _last_sequence_id(self, name: str) -> int:
        return -1 if self._dedup is None else self._dedup.marks.last_sequence_id(name)

    def remove_producer(self, producer: Producer) -> None:
        """Remove a producer that its client closed or lost.

        Its entries in flight still get an outcome, but no receipt is sent.
        """
        self._producing.remove(producer)

    async def begin_dedup(self) -> DedupLog:
        """Start deduplication marks; ``catch_up`` completes them. Raises the errors of the log."""
        dedup = await DedupLog.begin(self.name.full, self.log, self._world, self._config)
        dedup.snapshot_interval_seconds = self.topic_limits.policies[
            DEDUPLICATION_SNAPSHOT_INTERVAL
        ]
        return dedup

    def use_dedup(self, dedup: DedupLog | None) -> None:
        """Check published entries against these marks, which must be complete.

        ``None``: switch deduplication off.
        """
        if self._dedup is not None:
            self._dedup.stop()
        self._dedup = dedup

    # -- publishing

    def publish(
        self, producer: Producer, entries: Sequence[memoryview], request: PublishRequest
    ) -> None:
        """Check and append entries of one producer, in order.

        Each entry gets an outcome through the producer's outlet.
        """
        dedup = self.dedup_marks
        append = self.log.append
        topic_limits = self.topic_limits
        leaving = self.closed is not None
        first_mark = last_mark = 0
        messages_in = bytes_in = 0
        latest: MessageMetadata | None = None
        sizes = self.traffic.entry_sizes()
        size_counts, size_bounds = sizes.counts, sizes.bounds
        for view in entries:
            size_bytes = len(view)
            if producer.closed or leaving:
                # One of these entries closed the producer, or the topic is closing. The client
                # sends the rest again to the next owner.
                request.resolve(1, size_bytes)
                continue
            sequence_id = -1
            try:
                entry, metadata = read_entry(view, topic_limits)
                sequence_id = metadata.sequence_id
                check_metadata(metadata, topic_limits)
                messages = metadata.num_messages_in_batch
                if dedup is not None:
                    if metadata.producer_name != producer.name:
                        raise InvalidArgument(
                            f"an entry of producer {producer.name!r} is signed "
                            f"{metadata.producer_name!r};"
                            " with deduplication on they must be the same"
                        )
                    first_mark, last_mark = entry_marks(metadata)
                    if not is_new(dedup.push(producer.name, first_mark, last_mark), metadata):
                        self.duplicates += 1
                        last = metadata.highest_sequence_id or metadata.sequence_id
                        producer.acknowledge(-1, -1, last)
                        request.resolve(1, size_bytes)
                        continue
            except BatchPartlyStored as error:
                producer.close(error)
                self.remove_producer(producer)
                request.resolve(1, size_bytes)
                continue
            except ChecksumError as error:
                # Do not refuse this entry alone: later entries would be stored before it, and
                # deduplication would drop its retry. When the producer is closed, the client opens
                # it again and sends everything without a receipt again, in order.
                damaged = ServiceNotReady(
                    f"an entry of producer {producer.name!r} arrived damaged, send it again: "
                    f"{error}"
                )
                self._close_producer(producer, damaged)
                request.resolve(1, size_bytes)
                continue
            except (InvalidArgument, NotAllowed, DeduplicationUncertain) as error:
                producer.refuse(sequence_id, error)
                request.resolve(1, size_bytes)
                continue
            sequence_id = metadata.highest_sequence_id or sequence_id
            try:
                append(
                    entry,
                    PendingEntry(
                        producer, request, sequence_id, messages, size_bytes, first_mark, last_mark
                    ),
                )
            except PulsarishError as error:
                # The entry was not appended, and no later one will be: the log does not accept
                # appends.
                self.last_add_failure = (error, self._world.clock.wall_ms())
                if dedup is not None:
                    dedup.failed(producer.name, first_mark)
                self._close_producer(producer, error)
                request.resolve(1, size_bytes)
                continue
            producer.sent(1)
            messages_in += messages
            bytes_in += size_bytes
            size_counts[bisect_left(size_bounds, size_bytes)] += 1
            latest = metadata
        # Once for each request: a producer that names clusters names them in every entry.
        if latest is not None and latest.replicate_to and not producer.replication_ignored:
            producer.ignore_replication(
                self.name.full, latest.replicate_to, self._config.cluster_name
            )
        clock = self._world.clock
        now = clock.monotonic()
        sizes.total += bytes_in
        producer.last_published_ms = self.last_published_ms = clock.wall_ms()
        producer.came.add(messages_in, bytes_in, now)
        self.traffic.came.add(messages_in, bytes_in, now)
        self.topic_limits.publish_rate.take(messages_in, bytes_in, now)

    @property
    def has_room(self) -> bool:
        """Whether the log's limits and the publish rate allow more entries.

        While not, the broker reads nothing more from the publisher.
        """
        return self.log.has_room and not self.topic_limits.publish_wait_seconds()

    async def wait_for_room(self) -> None:
        """Wait until there is room, or until nothing can be appended.

        In the second case the next entries are answered with the reason.
        """
        while self.closed is None and not await self.topic_limits.publish_rate_allows():
            continue
        try:
            await self.log.wait_for_room()
        except PulsarishError as error:
            _log.debug("no room and no log to append to", topic=self.name, reason=error)

    def _close_producer(self, producer: Producer, error: PulsarishError) -> None:
        producer.close(
            error if error.retryable else TopicFenced(f"topic {self.name} stopped: {error}")
        )
        self.remove_producer(producer)

    # -- callbacks of the log

    def appended(self, ledger_id: int, first_entry: int, contexts: Sequence[object]) -> None:
        """Handle consecutive entries that the log confirmed: move their marks, and send each
        producer one row of receipts per run.
        """
        run = cast("Sequence[PendingEntry]", contexts)
        dedup = self._dedup
        if dedup is not None:
            persisted = dedup.marks.persisted
            for pending in run:
                persisted(pending.producer.name, pending.last_mark)
            dedup.confirmed(Position(ledger_id, first_entry + len(run) - 1), len(run))
        now = self._world.clock.monotonic()
        last = run[0]
        count = size_bytes = 0
        for pending in run:
            if pending.producer is not last.producer or pending.request is not last.request:
                self._confirmed(last, ledger_id, first_entry, count, size_bytes, now)
                first_entry += count
                count = size_bytes = 0
            last = pending
            count += 1
            size_bytes += pending.size_bytes
        self._confirmed(last, ledger_id, first_entry, count, size_bytes, now)
        for subscription in self.subscriptions.values():
            subscription.wake()

    def _confirmed(
        self,
        last: PendingEntry,
        ledger_id: int,
        first_entry: int,
        count: int,
        size_bytes: int,
        now: float,
    ) -> None:
        took_ms = (now - last.request.received) * 1000
        self.traffic.stored(count, size_bytes, took_ms, now)
        if took_ms >= self._config.slow_add_ms:
            _log.warning(
                "slow add",
                topic=self.name,
                ledger=ledger_id,
                entry=first_entry,
                producer=last.producer.name,
                took_ms=round(took_ms),
            )
        last.producer.confirmed(ledger_id, first_entry, count, last.sequence_id)
        last.request.resolve(count, size_bytes)
        self.flights.forget(last.producer, connected=last.producer.name in self.producers)

    def append_failed(self, contexts: Sequence[object], error: PulsarishError) -> None:
        """Close the producers of entries that the log could not append.

        The entries are not in the log, or (before ``fenced``) only the log's recovery can tell.
        Their producers open again and send them again; by then it is known.
        """
        self.last_add_failure = (error, self._world.clock.wall_ms())
        for pending in cast("Sequence[PendingEntry]", contexts):
            producer = pending.producer
            if self._dedup is not None:
                self._dedup.marks.failed(producer.name, pending.first_mark)
            if not producer.closed:
                self._close_producer(producer, error)
            producer.lost(1)
            pending.request.resolve(1, pending.size_bytes)
            self.flights.forget(producer, connected=producer.name in self.producers)

    def fenced(self, error: PulsarishError) -> None:
        """Stop serving, because this broker no longer owns the log."""
        if self._dedup is not None:
            self._dedup.stop()
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

        Raises the errors of ``TopicSubscriptions.subscribe`` and ``note_used``, ``NotAllowed`` for
        a compacted read that is impossible, or why the topic is closed.
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
        self.close_producers(
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
        await self.log.trim(Retention())

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
            if self._compaction is not None:
                self._compaction.stop()
            for subscription in list(self.subscriptions.values()):
                subscription.close(error)

    def stop_serving(self, error: PulsarishError) -> None:
        """Refuse new work, and close all producers and consumers with ``error``, so that they look
        the topic up again.
        """
        self.stop_taking(error)
        self.close_producers(error, waiting=True)

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
        self.close_producers(error, waiting=True)
        if self._dedup is not None:
            await self._dedup.close()
        await self.log.close()

    def check(self) -> None:
        """Assert the invariants of the topic, its producers and its subscriptions."""
        if self._dedup is not None:
            self._dedup.marks.check()
        self._producing.check()
        for subscription in self.subscriptions.values():
            subscription.check()
