"""Publishing to one topic: from the entries of its producers to their receipts.

Publishing is one pass without waiting: check the entry once, check it for duplicates, append it.
The log confirms ranges in order, and each range becomes receipts. Work that can be done once for a
range is not done once for each entry.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from pulsarish.broker.clients.commands import OpenProducer
from pulsarish.broker.clients.consumer import Outlet
from pulsarish.broker.clients.entry_checks import (
    check_metadata,
    check_prioritised,
    read_entry,
    with_encryption,
)
from pulsarish.broker.clients.meters import TopicTraffic
from pulsarish.broker.clients.producer import Flights, PendingEntry, Producer, PublishRequest
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.broker.publishing.dedup import Deduplication
from pulsarish.broker.publishing.dedup_log import BatchPartlyStored, DedupLog, entry_marks, is_new
from pulsarish.broker.publishing.producers import Queued, TopicProducers
from pulsarish.model.errors import (
    ChecksumError,
    DeduplicationUncertain,
    InvalidArgument,
    NotAllowedError,
    PulsarishError,
    ServiceNotReady,
    TopicFenced,
    TopicTerminated,
)
from pulsarish.model.policies import DEDUPLICATION_SNAPSHOT_INTERVAL
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

if TYPE_CHECKING:
    from pulsarish.managed_ledger.managed_ledger import ManagedLedger
    from pulsarish.wire._pb.message_pb2 import MessageMetadata

__all__ = ["TopicPublishing"]

_log = get_logger("broker.topic")


class _Topic(Protocol):
    """The topic that is published to."""

    @property
    def name(self) -> TopicName: ...

    @property
    def log(self) -> ManagedLedger: ...

    @property
    def append(self) -> Callable[[bytes, object], None]: ...

    @property
    def closed(self) -> PulsarishError | None: ...

    def check_open(self) -> None: ...

    async def note_used(self) -> None: ...


class TopicPublishing:
    """The producers of a stored topic, its deduplication, and their entries on the way to the log.

    The topic passes on what its log reports: ``appended`` and ``append_failed``.
    """

    __slots__ = (
        "_config",
        "_dedup",
        "_producers",
        "_topic",
        "_topic_limits",
        "_traffic",
        "_world",
        "duplicates",
        "last_add_failure",
        "last_published_ms",
    )

    def __init__(
        self,
        topic: _Topic,
        world: World,
        config: BrokerConfig,
        topic_limits: TopicLimits,
        traffic: TopicTraffic,
    ) -> None:
        self.last_add_failure: tuple[PulsarishError, int] | None = None
        """The last error of an append and when it happened (wall clock, ms); ``None`` if no append
        has failed.
        """
        self.last_published_ms = 0
        """When the last entry was published since the topic was loaded (wall clock); 0: none
        was.
        """
        self.duplicates = 0
        self._topic = topic
        self._world = world
        self._config = config
        self._topic_limits = topic_limits
        self._traffic = traffic
        self._dedup: DedupLog | None = None
        self._producers = TopicProducers(self, world, config, topic_limits)

    # -- producers

    @property
    def name(self) -> TopicName:
        """The topic's name."""
        return self._topic.name

    @property
    def producers(self) -> dict[str, Producer]:
        """Connected producers by name."""
        return self._producers.by_name

    @property
    def flights(self) -> Flights:
        return self._producers.flights

    @property
    def waiting_producers(self) -> list[str]:
        """Names of the producers that wait for exclusive access, the next one first."""
        return self._producers.access.waiting_names

    @property
    def producer_epoch(self) -> int:
        """Epoch of the last exclusive producer; ``NO_EPOCH`` if there was none."""
        return self._topic.log.attributes.producer_epoch

    async def set_producer_epoch(self, epoch: int) -> None:
        """Store the epoch. It is durable on return. Raises the errors of the log."""
        await self._topic.log.attributes.set_producer_epoch(epoch)

    def check_publishable(self) -> None:
        """Raise the error that prevents publishing, if there is one."""
        self._topic.check_open()
        if self._topic.log.terminated:
            raise TopicTerminated(
                f"topic {self.name} is terminated; nothing can be published to it"
            )

    async def note_used(self) -> None:
        """Record that the topic is in use. Raises why nothing can be published."""
        await self._topic.note_used()

    async def open_producer(
        self, command: OpenProducer, outlet: Outlet, address: str, queued: Queued
    ) -> tuple[Producer, int]:
        """Connect a producer.

        Return it and the last sequence id of its name that is in the log (-1 without
        deduplication).

        ``queued`` is called if the producer has to wait for exclusive access. Raises the errors of
        ``TopicProducers.open``.
        """
        producer = await self._producers.open(command, outlet, address, queued)
        marks = self.dedup_marks
        return producer, -1 if marks is None else marks.last_sequence_id(producer.name)

    def remove_producer(self, producer: Producer) -> None:
        """Remove a producer that its client closed or lost.

        Its entries in flight still get an outcome, but no receipt is sent.
        """
        self._producers.remove(producer)

    def close_producers(self, error: PulsarishError, *, waiting: bool = False) -> None:
        """Close all producers with ``error``; with ``waiting`` also those that wait for exclusive
        access.

        ``topic_limits`` decides whether and when they may connect again.
        """
        self._producers.close_all(error, waiting=waiting)

    def _close_producer(self, producer: Producer, error: PulsarishError) -> None:
        producer.close(
            error if error.retryable else TopicFenced(f"topic {self.name} stopped: {error}")
        )
        self.remove_producer(producer)

    # -- deduplication

    @property
    def deduplication(self) -> bool:
        return self._dedup is not None

    @property
    def dedup_marks(self) -> Deduplication | None:
        """The deduplication marks; ``None`` while deduplication is off."""
        return None if self._dedup is None else self._dedup.marks

    async def begin_dedup(self) -> DedupLog:
        """Start deduplication marks; ``catch_up`` completes them. Raises the errors of the log."""
        dedup = await DedupLog.begin(self.name.full, self._topic.log, self._world, self._config)
        dedup.snapshot_interval_seconds = self._topic_limits.policies[
            DEDUPLICATION_SNAPSHOT_INTERVAL
        ]
        return dedup

    def use_dedup(self, dedup: DedupLog | None) -> None:
        """Check published entries against these marks, which must be complete.

        ``None``: switch deduplication off.
        """
        self.stop_dedup()
        self._dedup = dedup

    def policies_changed(self) -> None:
        """Apply the policies of ``topic_limits``."""
        if self._dedup is not None:
            self._dedup.snapshot_interval_seconds = self._topic_limits.policies[
                DEDUPLICATION_SNAPSHOT_INTERVAL
            ]

    def stop_dedup(self) -> None:
        """Take no more snapshots of the marks: this broker may not own the log any more."""
        if self._dedup is not None:
            self._dedup.stop()

    async def close_dedup(self) -> None:
        """Store the marks, so that the next owner has less to read."""
        if self._dedup is not None:
            await self._dedup.close()

    # -- publishing

    def publish(
        self, producer: Producer, entries: Sequence[memoryview], request: PublishRequest
    ) -> None:
        """Check and append entries of one producer, in order.

        Each entry gets an outcome through the producer's outlet.
        """
        dedup = self.dedup_marks
        append = self._topic.append
        topic_limits = self._topic_limits
        check = with_encryption(
            check_prioritised if topic_limits.has_priorities else check_metadata,
            topic_limits,
            is_of_broker=producer.is_of_broker,
        )
        leaving = self._topic.closed is not None
        first_mark = last_mark = 0
        messages_in = bytes_in = 0
        latest: MessageMetadata | None = None
        sizes = self._traffic.entry_sizes()
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
                own_time_ms = check(metadata, topic_limits)
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
            except (InvalidArgument, NotAllowedError, DeduplicationUncertain) as error:
                producer.refuse(sequence_id, error)
                request.resolve(1, size_bytes)
                continue
            sequence_id = metadata.highest_sequence_id or sequence_id
            try:
                if own_time_ms:
                    self._topic.log.note_own_time(own_time_ms)
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
        self._traffic.came.add(messages_in, bytes_in, now)
        self._topic_limits.published(messages_in, bytes_in, now)

    @property
    def has_room(self) -> bool:
        """Whether the log's limits and the publish rates allow more entries.

        While not, the broker reads nothing more from the publisher.
        """
        return self._topic.log.has_room and not self._topic_limits.publish_wait_seconds()

    async def wait_for_room(self) -> None:
        """Wait until there is room, or until nothing can be appended.

        In the second case the next entries are answered with the reason.
        """
        while self._topic.closed is None and not await self._topic_limits.publish_rate_allows():
            continue
        try:
            await self._topic.log.wait_for_room()
        except PulsarishError as error:
            _log.debug("no room and no log to append to", topic=self.name, reason=error)

    # -- what the log reports

    def appended(self, ledger_id: int, first_entry: int, contexts: Sequence[object]) -> None:
        """Handle consecutive entries that the log confirmed: move their marks, and send each
        producer one row of receipts per run.
        """
        run = cast("Sequence[PendingEntry]", contexts)
        self._topic.log.messages.add(first_entry, [pending.messages for pending in run])
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
        self._traffic.stored(count, size_bytes, took_ms, now)
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
        self._producers.flights.forget(
            last.producer, connected=last.producer.name in self.producers
        )

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
            self._producers.flights.forget(producer, connected=producer.name in self.producers)

    def check(self) -> None:
        """Assert the invariants of the producers and the marks."""
        if self._dedup is not None:
            self._dedup.marks.check()
        self._producers.check()
