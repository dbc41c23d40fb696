"""A loaded topic: its log, its producers and its subscriptions.

Publishing is one pass without waiting: check the entry once, judge it (deduplication), append it; the log confirms ranges in order, and
each range becomes receipts. Nothing here happens once for an entry that could happen once for a range.
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
from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.broker.subscriptions.subscriptions import TopicSubscriptions
from pulsarish.broker.topics.dedup import Deduplication
from pulsarish.broker.topics.dedup_log import DEDUP_CURSOR, BatchPartlyStored, DedupLog, entry_marks, is_new
from pulsarish.broker.topics.producers import Queued, TopicProducers
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
"""How long a topic that leaves waits for the outcome of what was published before its producers are sent on without it."""

_log = get_logger("broker.topic")


class Topic:
    """Made by the topic service, which sets ``log`` and awaits ``start`` before anybody else sees the topic.

    It is the listener of its log: ``appended``, ``append_failed`` and ``fenced`` are called in the loop, in order.
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
        """``died`` is called once when the topic stopped by itself and has to be loaded again."""
        self.name = name
        self.closed: PulsarishError | None = None
        self._held = False  # closed, and clients do not know it yet
        self.traffic = TopicTraffic(world.clock.monotonic())
        self.loaded_ms = world.clock.wall_ms()
        self.last_add_failure: tuple[PulsarishError, int] | None = None
        """Why entries came back without a place in the log, and when (wall clock)."""
        self.last_published_ms = 0
        """Since it was loaded."""
        self.policing = TopicLimits(name, config, world.clock, policies, self.traffic.came)
        self.duplicates = 0
        self.scope = Scope(ScopeKind.TOPIC, name.full, self.fail)
        self._world = world = contained(world, self.scope)
        self._config = config
        self._dedup: DedupLog | None = None
        self._producing = TopicProducers(self, world, config, self.policing)
        self._subscribing = TopicSubscriptions(self, world, config, self.policing)
        self._died = died
        self._compactions = compactions
        self._compaction: TopicCompaction | None = None

    @property
    def world(self) -> World:
        """For all that belongs to the topic: what fails there ends the topic on this broker, and it is loaded again."""
        return self._world

    def fail(self, error: BaseException) -> None:
        """A task of the topic has failed, so what is in memory of it may be wrong: give it up as if another broker had taken it."""
        self.log.abandon(TopicFenced(f"topic {self.name} failed here and is loaded again: {type(error).__name__}: {error}"))

    async def start(self) -> None:
        """Rebuild what the log says: subscriptions, and the marks of deduplication (rule 15), before anything is accepted."""
        names = self.log.cursor_names()
        if self.policing.policies[DEDUPLICATION]:
            dedup = await self.begin_dedup()
            await dedup.catch_up()
            self.use_dedup(dedup)
        elif DEDUP_CURSOR in names:
            # It would hold back trimming forever.
            await self.log.delete_cursor(DEDUP_CURSOR)
        for name in names:
            if name != DEDUP_CURSOR:
                await self._subscribing.restore(name)

    def use(self, policies: Effective) -> None:
        """Other policies hold from now on."""
        self.policing.use(policies)
        self.log.use(self.policing.log_options(), self.policing.retention())
        for subscription in self.subscriptions.values():
            subscription.policies_changed()
        if self._dedup is not None:
            self._dedup.snapshot_interval_seconds = policies[DEDUPLICATION_SNAPSHOT_INTERVAL]

    @property
    def compaction(self) -> TopicCompaction:
        """Made when it is first asked for: most topics are never compacted."""
        if self._compaction is None:
            self._compaction = TopicCompaction(
                self.name.full, self.log, self.policing.log_options, self._world, self._config, self._compactions
            )
            if self.closed is not None:
                self._compaction.stop()
        return self._compaction

    @property
    def was_compacted(self) -> bool:
        """Whether there is a view, or was a run since the topic was loaded."""
        return self.log.views.current is not None or (self._compaction is not None and self._compaction.was_used)

    @property
    def connected(self) -> bool:
        """Whether producers or consumers are."""
        return bool(self.producers) or any(subscription.consumers for subscription in self.subscriptions.values())

    async def note_used(self) -> None:
        """Whoever comes unsays that nobody uses the topic. Raises as ``ManagedLedger.note_inactive``, and why the topic is closed."""
        if self.log.inactive_since_ms:
            await self.log.note_inactive(0)
        self.check_open()

    def close_producers(self, error: PulsarishError, *, waiting: bool = False) -> None:
        """They are told why, with ``waiting`` also who waits for its turn; whether and when they may come again ``policing`` says."""
        self._producing.close_all(error, waiting=waiting)

    @property
    def producers(self) -> dict[str, Producer]:
        """By name."""
        return self._producing.by_name

    @property
    def flights(self) -> Flights:
        return self._producing.flights

    @property
    def waiting_producers(self) -> list[str]:
        """The names of those who wait to be alone on the topic, the next one first."""
        return self._producing.access.waiting_names

    @property
    def kept_bytes(self) -> int:
        """Of messages that were published."""
        return self.log.size_bytes

    # -- producers

    def check_publishable(self) -> None:
        """Raises why nothing can be published."""
        self.check_open()
        if self.log.terminated:
            raise TopicTerminated(f"topic {self.name} is terminated; nothing can be published to it")

    @property
    def producer_epoch(self) -> int:
        """Of the last exclusive producer; ``NO_EPOCH`` if there was none."""
        return self.log.producer_epoch

    async def set_producer_epoch(self, epoch: int) -> None:
        """Durable when this returns. Raises what the log raises."""
        await self.log.set_producer_epoch(epoch)

    @property
    def deduplication(self) -> bool:
        return self._dedup is not None

    @property
    def dedup_marks(self) -> Deduplication | None:
        """``None`` while deduplication is off."""
        return None if self._dedup is None else self._dedup.marks

    async def open_producer(self, command: OpenProducer, outlet: Outlet, address: str, queued: Queued) -> tuple[Producer, int]:
        """Connect a producer; answers it and the last sequence id of its name that is in the log (-1 without deduplication).

        ``queued`` is called if it has to wait for its turn. Raises as ``TopicProducers.open``.
        """
        producer = await self._producing.open(command, outlet, address, queued)
        return producer, self._last_sequence_id(producer.name)

    def _last_sequence_id(self, name: str) -> int:
        return -1 if self._dedup is None else self._dedup.marks.last_sequence_id(name)

    def remove_producer(self, producer: Producer) -> None:
        """The client closed it or is gone. What it sent before still gets its outcome, which nobody hears."""
        self._producing.remove(producer)

    async def begin_dedup(self) -> DedupLog:
        """Marks to be made complete by ``catch_up``. Raises what the log raises."""
        dedup = await DedupLog.begin(self.name.full, self.log, self._world, self._config)
        dedup.snapshot_interval_seconds = self.policing.policies[DEDUPLICATION_SNAPSHOT_INTERVAL]
        return dedup

    def use_dedup(self, dedup: DedupLog | None) -> None:
        """Judge what is published by these marks, complete as they are, or not at all any more."""
        if self._dedup is not None:
            self._dedup.stop()
        self._dedup = dedup

    # -- publishing

    def publish(self, producer: Producer, entries: Sequence[memoryview], request: PublishRequest) -> None:
        """Check, judge and append entries of one producer, in order. Each gets an outcome through the producer's outlet."""
        dedup = self.dedup_marks
        append = self.log.append
        policing = self.policing
        leaving = self.closed is not None
        first_mark = last_mark = 0
        messages_in = bytes_in = 0
        latest: MessageMetadata | None = None
        sizes = self.traffic.entry_sizes()
        size_counts, size_bounds = sizes.counts, sizes.bounds
        for view in entries:
            size_bytes = len(view)
            if producer.closed or leaving:
                # Closed by one of these entries, or soon to be; the client sends the rest again where the topic is next.
                request.resolve(1, size_bytes)
                continue
            sequence_id = -1
            try:
                entry, metadata = read_entry(view, policing)
                sequence_id = metadata.sequence_id
                check_metadata(metadata, policing)
                messages = metadata.num_messages_in_batch
                if dedup is not None:
                    if metadata.producer_name != producer.name:
                        raise InvalidArgument(
                            f"an entry of producer {producer.name!r} is signed {metadata.producer_name!r};"
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
                # If it were refused alone, later entries would be stored before it, and deduplication would drop its retry. A closed
                # producer makes the client open again and send everything without a receipt, in order.
                damaged = ServiceNotReady(f"an entry of producer {producer.name!r} arrived damaged, send it again: {error}")
                self._close_producer(producer, damaged)
                request.resolve(1, size_bytes)
                continue
            except (InvalidArgument, NotAllowed, DeduplicationUncertain) as error:
                producer.refuse(sequence_id, error)
                request.resolve(1, size_bytes)
                continue
            sequence_id = metadata.highest_sequence_id or sequence_id
            try:
                append(entry, PendingEntry(producer, request, sequence_id, messages, size_bytes, first_mark, last_mark))
            except PulsarishError as error:
                # Not appended, and nothing after it will be: the log does not serve.
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
        # Once for what came together: a producer that names clusters does so again and again.
        if latest is not None and latest.replicate_to and not producer.replication_ignored:
            producer.ignore_replication(self.name.full, latest.replicate_to, self._config.cluster_name)
        clock = self._world.clock
        now = clock.monotonic()
        sizes.total += bytes_in
        producer.last_published_ms = self.last_published_ms = clock.wall_ms()
        producer.came.add(messages_in, bytes_in, now)
        self.traffic.came.add(messages_in, bytes_in, now)
        self.policing.publish_rate.take(messages_in, bytes_in, now)

    @property
    def has_room(self) -> bool:
        """Whether the log's limits and the publish rate allow more; otherwise whoever published receives nothing for now."""
        return self.log.has_room and not self.policing.publish_wait_seconds()

    async def wait_for_room(self) -> None:
        """Until there is room, or nothing can be appended: then the next entries are answered with the reason."""
        while self.closed is None and not await self.policing.publish_rate_allows():
            continue
        try:
            await self.log.wait_for_room()
        except PulsarishError as error:
            _log.debug("no room and no log to append to", topic=self.name, reason=error)

    def _close_producer(self, producer: Producer, error: PulsarishError) -> None:
        producer.close(error if error.retryable else TopicFenced(f"topic {self.name} stopped: {error}"))
        self.remove_producer(producer)

    # -- what the log says

    def appended(self, ledger_id: int, first_entry: int, contexts: Sequence[object]) -> None:
        """Consecutive entries are confirmed: mark them, and turn each run of one producer's into one row of receipts."""
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

    def _confirmed(self, last: PendingEntry, ledger_id: int, first_entry: int, count: int, size_bytes: int, now: float) -> None:
        took_ms = (now - last.request.received) * 1000
        self.traffic.stored(count, size_bytes, took_ms, now)
        if took_ms >= self._config.slow_add_ms:
            _log.warning(
                "slow add", topic=self.name, ledger=ledger_id, entry=first_entry, producer=last.producer.name, took_ms=round(took_ms)
            )
        last.producer.confirmed(ledger_id, first_entry, count, last.sequence_id)
        last.request.resolve(count, size_bytes)
        self.flights.forget(last.producer, connected=last.producer.name in self.producers)

    def append_failed(self, contexts: Sequence[object], error: PulsarishError) -> None:
        """These are not in the log, or (before ``fenced``) only its recovery knows. Their producers are closed: they open again and send
        again, and by then it is known.
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
        """The log is not this broker's any more."""
        if self._dedup is not None:
            self._dedup.stop()
        if self.closed is not None and not self._held:
            return
        _log.warning("topic fenced", topic=self.name, reason=error)
        self.stop_serving(TopicFenced(f"topic {self.name} is served elsewhere or is being moved: {error}"))
        self._died(self)

    # -- subscriptions

    @property
    def subscriptions(self) -> dict[str, Subscription]:
        """By name."""
        return self._subscribing.by_name

    async def subscribe(self, command: Subscribe, outlet: Outlet, address: str) -> tuple[Subscription, Consumer]:
        """Connect a consumer, making its subscription if it is new.

        Raises the errors of ``TopicSubscriptions.subscribe`` and ``note_used``, ``NotAllowed`` for a compacted read that is impossible, or
        why the topic is closed.
        """
        self.check_open()
        check_compacted_read(command)
        await self.note_used()
        return await self._subscribing.subscribe(command, outlet, address)

    async def create_subscription(self, name: str, start: Position, *, properties: Mapping[str, str] | None = None) -> Subscription:
        """A new durable subscription that delivers from ``start`` on. Raises as ``TopicSubscriptions.create``."""
        return await self._subscribing.create(name, start, durable=True, properties=properties)

    def subscription(self, name: str) -> Subscription:
        """Raises ``SubscriptionNotFound``."""
        return self._subscribing.get(name)

    async def ensure_subscription(self, name: str) -> None:
        """Make a durable subscription from the beginning of the topic, unless it is there. Raises as ``create_subscription``."""
        if name not in self.subscriptions:
            await self.create_subscription(name, EARLIEST)

    async def unsubscribe(self, name: str, *, force: bool, by: Consumer | None = None) -> None:
        """Delete a subscription. Raises ``SubscriptionNotFound``, ``SubscriptionBusy`` when others use it and ``force`` is off."""
        await self._subscribing.delete(name, force=force, by=by)

    def remove_consumer(self, subscription: ServedSubscription, consumer: Consumer, *, comes_back: bool = False) -> None:
        """The client closed it or is gone. The cursor of a reader goes with it, after a while if it should come back."""
        assert isinstance(subscription, Subscription)
        self._subscribing.leave(subscription, consumer, comes_back=comes_back)

    async def terminate(self) -> Position:
        """Seal the topic for good; returns its last position."""
        self.check_open()
        last = await self.log.terminate()
        self.close_producers(TopicTerminated(f"topic {self.name} was terminated; nothing can be published to it any more"), waiting=True)
        for subscription in self.subscriptions.values():
            subscription.wake()
        return last

    async def truncate(self) -> None:
        """Acknowledge everything for every subscription and delete it, whatever retention says."""
        self.check_open()
        await self.compaction.forget()
        for subscription in list(self.subscriptions.values()):
            await subscription.skip(None)
        if not self.log.terminated:
            await self.log.roll()
        await self.log.trim(Retention())

    # -- the end

    def check_open(self) -> None:
        """Raises why nothing is served any more."""
        if self.closed is not None:
            raise self.closed

    def hold(self, error: PulsarishError) -> None:
        """Take nothing new for this reason, and tell no client before it is known how that ends; then call ``stop_serving``."""
        if self.closed is None:
            self.closed, self._held = error, True

    def stop_taking(self, error: PulsarishError) -> None:
        """From now on nothing is taken, and consumers are told to look the topic up again. Producers hear of it in ``close``: after the
        outcome of what is under way, so that they do not send again what will be stored."""
        if self.closed is None or self._held:
            self._held = False
            self.closed = error
            if self._compaction is not None:
                self._compaction.stop()
            for subscription in list(self.subscriptions.values()):
                subscription.close(error)

    def stop_serving(self, error: PulsarishError) -> None:
        """From now on nothing is taken; everybody connected is told to look the topic up again (or that it is gone)."""
        self.stop_taking(error)
        self.close_producers(error, waiting=True)

    def check_deletable(self, *, force: bool) -> None:
        """Raises ``SubscriptionBusy`` when producers or consumers are connected, unless ``force``."""
        consumers = sum(len(subscription.consumers) for subscription in self.subscriptions.values())
        if (self.producers or consumers) and not force:
            raise SubscriptionBusy(
                f"topic {self.name} has {len(self.producers)} producers and {consumers} consumers connected; close them or use force"
            )

    async def close(self, error: PulsarishError) -> None:
        """Stop serving and close the log: what is under way is confirmed and receipted, cursors are flushed."""
        self.stop_taking(error)
        with suppress(TimeoutError):  # bookies are lacking: whoever owns the topic next finds out what is stored
            async with self._world.clock.timeout(_OUTCOMES_SECONDS_MAX):
                await self.log.settle()
        self.close_producers(error, waiting=True)
        if self._dedup is not None:
            await self._dedup.close()
        await self.log.close()

    def check(self) -> None:
        """Assert the invariants of everything in the topic."""
        if self._dedup is not None:
            self._dedup.marks.check()
        self._producing.check()
        for subscription in self.subscriptions.values():
            subscription.check()
