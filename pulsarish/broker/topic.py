"""A loaded topic: its log, its producers and its subscriptions.

Publishing is one pass without waiting: check the entry once, judge it (deduplication), append it; the log confirms ranges in order, and
each range becomes receipts. Nothing here happens once for an entry that could happen once for a range.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, cast

from pulsarish.broker.commands import AccessMode, InitialPosition, OpenProducer, Receipts, SendFailed, Subscribe, SubscriptionType
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.consumer import Consumer, Outlet
from pulsarish.broker.dedup import Verdict
from pulsarish.broker.dedup_log import DEDUP_CURSOR, DedupLog, entry_marks
from pulsarish.broker.producer import Flight, PendingEntry, Producer, PublishRequest
from pulsarish.broker.rates import Meter
from pulsarish.broker.subscription import Subscription
from pulsarish.model.errors import (
    ChecksumError,
    ConsumerBusy,
    DeduplicationUncertain,
    InvalidArgument,
    MessageTooBig,
    ProducerBusy,
    ProducerFenced,
    PulsarishError,
    ServiceNotReady,
    SubscriptionBusy,
    SubscriptionNotFound,
    TooManyRequests,
    TopicFenced,
    TopicTerminated,
    UnsupportedFeature,
)
from pulsarish.model.position import EARLIEST, LATEST, Position
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import parse_metadata, verify_entry

if TYPE_CHECKING:
    from pulsarish.managed_ledger.cursor import Cursor
    from pulsarish.managed_ledger.managed_ledger import ManagedLedger

__all__ = ["ENTRY_ENVELOPE_BYTES", "Topic"]

_log = get_logger("broker.topic")

ENTRY_ENVELOPE_BYTES: Final = 10 << 10
"""What an entry's head and metadata may take beside the greatest message, as in Apache Pulsar."""


class Topic:
    """Made by the topic service, which sets ``log`` and awaits ``start`` before anybody else sees the topic.

    It is the listener of its log: ``appended``, ``append_failed`` and ``fenced`` are called in the loop, in order.
    """

    log: ManagedLedger

    def __init__(self, name: TopicName, world: World, config: BrokerConfig, died: Callable[[Topic], None]) -> None:
        """``died`` is called once when the topic stopped by itself and has to be loaded anew."""
        self.name = name
        self.producers: dict[str, Producer] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.closed: PulsarishError | None = None
        self.came = Meter(world.clock.monotonic())
        self.duplicates = 0
        self._world = world
        self._config = config
        self._dedup: DedupLog | None = None
        self._flights: dict[str, Flight] = {}
        self._died = died
        self._entry_bytes_max = config.max_message_size_bytes + ENTRY_ENVELOPE_BYTES

    async def start(self, *, deduplication: bool) -> None:
        """Rebuild what the log says: subscriptions, and the marks of deduplication (rule 15), before anything is accepted."""
        names = self.log.cursor_names()
        if deduplication:
            self._dedup = await DedupLog.open(self.name.full, self.log, self._world, self._config)
        elif DEDUP_CURSOR in names:
            # It would hold back trimming for ever.
            await self.log.delete_cursor(DEDUP_CURSOR)
        for name in names:
            if name != DEDUP_CURSOR:
                cursor = await self.log.open_cursor(name, initial=LATEST, durable=True, properties={})
                self.subscriptions[name] = self._subscription(name, cursor)

    def _subscription(self, name: str, cursor: Cursor) -> Subscription:
        return Subscription(name, self.name.full, self.name.partition, self.log, cursor, self._world, self._config)

    # -- producers

    @property
    def deduplication(self) -> bool:
        return self._dedup is not None

    async def open_producer(self, command: OpenProducer, outlet: Outlet, address: str) -> tuple[Producer, int]:
        """Connect a producer; answers it and the last sequence id of its name that is in the log (-1 without deduplication).

        Raises ``ProducerBusy`` (the name is connected and not older), ``ProducerFenced``, ``UnsupportedFeature``, ``TooManyRequests``,
        ``TopicTerminated``, ``ServiceNotReady`` when what the name sent before has no outcome in time, or why the topic is closed.
        """
        self._check_open()
        if self.log.terminated:
            raise TopicTerminated(f"topic {self.name} is terminated; nothing can be published to it")
        name = check_name("producer", command.name) if command.name else self._new_name()
        exclusive = self._check_access(command, name)
        older = self.producers.get(name)
        if older is not None:
            if older.outlet is outlet and older.producer_id == command.producer_id and older.epoch == command.epoch:
                return older, self._last_sequence_id(name)
            if command.epoch <= older.epoch:
                raise ProducerBusy(f"producer {name!r} is already connected to {self.name}; producer names must be unique on a topic")
            if older.outlet is not outlet or older.producer_id != command.producer_id:
                older.close(ProducerBusy(f"a newer connection of producer {name!r} has replaced this one"))
            self.remove_producer(older)
        elif len(self.producers) >= self._config.max_producers_per_topic:
            raise TooManyRequests(f"topic {self.name} has {len(self.producers)} producers, the limit max_producers_per_topic")
        flight = self._flights.get(name)
        if flight is None:
            flight = self._flights[name] = Flight()
        producer = Producer(
            command.producer_id, name, command.epoch, exclusive, outlet, flight, command.properties, address, self._world.clock.wall_ms()
        )
        # In place before the wait, so that a third one with this name is judged against it.
        self.producers[name] = producer
        if self._dedup is not None:
            self._dedup.marks.connect(name, producer.connected_ms)
        try:
            await self._landed(flight)
        except PulsarishError:
            self.remove_producer(producer)
            raise
        return producer, self._last_sequence_id(name)

    def _check_access(self, command: OpenProducer, name: str) -> bool:
        match command.access_mode:
            case AccessMode.SHARED:
                for other in self.producers.values():
                    if other.exclusive and other.name != name:
                        raise ProducerBusy(f"topic {self.name} has the exclusive producer {other.name!r}")
                return False
            case AccessMode.EXCLUSIVE:
                others = [other.name for other in self.producers.values() if other.name != name]
                if others:
                    raise ProducerFenced(f"topic {self.name} has {len(others)} producers already, {others[0]!r} among them")
                return True
            case _:
                mode = command.access_mode.name.lower()
                raise UnsupportedFeature(f"producer access mode {mode} is not supported yet; use shared or exclusive")

    async def _landed(self, flight: Flight) -> None:
        if not flight.count:
            return
        if flight.landed is None:
            flight.landed = asyncio.Event()
        try:
            async with self._world.clock.timeout(self._config.producer_open_wait_seconds):
                await flight.landed.wait()
        except TimeoutError:
            raise ServiceNotReady(
                f"topic {self.name} has {flight.count} entries of this producer whose outcome is not known yet; try again"
            ) from None
        self._check_open()

    def _last_sequence_id(self, name: str) -> int:
        return -1 if self._dedup is None else self._dedup.marks.last_sequence_id(name)

    def _new_name(self) -> str:
        return f"{self._config.cluster_name}-{self._world.random.getrandbits(64):016x}"

    def remove_producer(self, producer: Producer) -> None:
        """The client closed it or is gone. What it sent before still gets its outcome, which nobody hears."""
        producer.closed = True
        if self.producers.get(producer.name) is producer:
            del self.producers[producer.name]
            if self._dedup is not None:
                self._dedup.marks.disconnect(producer.name, self._world.clock.wall_ms())
            if not producer.flight.count and producer.flight.landed is None:
                self._flights.pop(producer.name, None)

    # -- publishing

    def publish(self, producer: Producer, entries: Sequence[memoryview], request: PublishRequest) -> None:
        """Check, judge and append entries of one producer, in order. Each gets an outcome through the producer's outlet."""
        dedup = None if self._dedup is None else self._dedup.marks
        append = self.log.append
        first_mark = last_mark = 0
        messages_in = bytes_in = 0
        for view in entries:
            size_bytes = len(view)
            if producer.closed:
                # Closed by one of these entries; the client sends the rest again where the topic is next.
                request.resolve(1, size_bytes)
                continue
            sequence_id = -1
            try:
                if size_bytes > self._entry_bytes_max:
                    raise MessageTooBig(
                        f"an entry of {size_bytes} bytes is above max_message_size_bytes {self._config.max_message_size_bytes};"
                        " send smaller messages or batches, or compress them"
                    )
                entry = bytes(view)
                verify_entry(entry)
                metadata = parse_metadata(entry)
                sequence_id = metadata.sequence_id
                messages = metadata.num_messages_in_batch
                if messages < 1:
                    raise InvalidArgument(f"an entry says that it holds {messages} messages; at least 1 is possible")
                if metadata.deliver_at_time:
                    raise UnsupportedFeature("delivery at a later time is not supported yet; send the message when it is due")
                if dedup is not None:
                    if metadata.producer_name != producer.name:
                        raise InvalidArgument(
                            f"an entry of producer {producer.name!r} is signed {metadata.producer_name!r};"
                            " with deduplication on they must be the same"
                        )
                    first_mark, last_mark = entry_marks(metadata)
                    if not self._is_new(dedup.push(producer.name, first_mark, last_mark), producer, metadata):
                        request.resolve(1, size_bytes)
                        continue
            except (InvalidArgument, UnsupportedFeature, ChecksumError, DeduplicationUncertain) as error:
                producer.decide(SendFailed(producer.producer_id, sequence_id, error))
                request.resolve(1, size_bytes)
                continue
            sequence_id = metadata.highest_sequence_id or sequence_id
            try:
                append(entry, PendingEntry(producer, request, sequence_id, messages, size_bytes, first_mark, last_mark))
            except PulsarishError as error:
                # Not appended, and nothing after it will be: the log does not serve.
                if dedup is not None:
                    dedup.failed(producer.name, first_mark)
                self._close_producer(producer, error)
                request.resolve(1, size_bytes)
                continue
            producer.sent(1)
            messages_in += messages
            bytes_in += size_bytes
        producer.messages_in += messages_in
        producer.bytes_in += bytes_in
        self.came.add(messages_in, bytes_in, self._world.clock.monotonic())

    @property
    def has_room(self) -> bool:
        """Whether what waits for confirmation is within the log's limits. Beyond them whoever published receives no more for now."""
        return self.log.has_room

    async def wait_for_room(self) -> None:
        """Until there is room, or nothing can be appended: then the next entries are answered with the reason."""
        try:
            await self.log.wait_for_room()
        except PulsarishError as error:
            _log.debug("no room and no log to append to", topic=self.name, reason=error)

    def _is_new(self, verdict: Verdict, producer: Producer, metadata: MessageMetadata) -> bool:
        """Raises for what is neither new nor a duplicate."""
        match verdict:
            case Verdict.NEW:
                return True
            case Verdict.DUPLICATE:
                self.duplicates += 1
                last = metadata.highest_sequence_id or metadata.sequence_id
                producer.decide(Receipts(producer.producer_id, 1, -1, -1, last))
                return False
            case Verdict.UNCERTAIN:
                raise DeduplicationUncertain(
                    f"sequence id {metadata.sequence_id} of {producer.name!r} is on its way to the log and not there yet; send it again"
                )
            case Verdict.PARTLY:
                raise InvalidArgument(
                    f"a batch of {producer.name!r} begins with sequence id {metadata.sequence_id}, which is in the log already, and"
                    f" ends with {metadata.highest_sequence_id}, which is not; with deduplication on a batch must be sent again as it was"
                )

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
        last = run[0]
        count = size_bytes = 0
        for pending in run:
            if pending.producer is not last.producer or pending.request is not last.request:
                self._confirmed(last, ledger_id, first_entry, count, size_bytes)
                first_entry += count
                count = size_bytes = 0
            last = pending
            count += 1
            size_bytes += pending.size_bytes
        self._confirmed(last, ledger_id, first_entry, count, size_bytes)
        for subscription in self.subscriptions.values():
            subscription.wake()

    def _confirmed(self, last: PendingEntry, ledger_id: int, first_entry: int, count: int, size_bytes: int) -> None:
        last.producer.confirmed(ledger_id, first_entry, count, last.sequence_id)
        last.request.resolve(count, size_bytes)
        self._forget_flight(last.producer)

    def _forget_flight(self, producer: Producer) -> None:
        if producer.closed and not producer.flight.count and producer.name not in self.producers:
            self._flights.pop(producer.name, None)

    def append_failed(self, contexts: Sequence[object], error: PulsarishError) -> None:
        """These are not in the log, or (before ``fenced``) only its recovery knows. Their producers are closed: they open anew and send
        again, and by then it is known.
        """
        for pending in cast("Sequence[PendingEntry]", contexts):
            producer = pending.producer
            if self._dedup is not None:
                self._dedup.marks.failed(producer.name, pending.first_mark)
            if not producer.closed:
                self._close_producer(producer, error)
            producer.lost(1)
            pending.request.resolve(1, pending.size_bytes)
            self._forget_flight(producer)

    def fenced(self, error: PulsarishError) -> None:
        """The log is not this broker's any more."""
        if self._dedup is not None:
            self._dedup.stop()
        if self.closed is not None:
            return
        _log.warning("topic fenced", topic=self.name, reason=error)
        self.stop_serving(TopicFenced(f"topic {self.name} is served elsewhere or is being moved: {error}"))
        self._died(self)

    # -- subscriptions

    async def subscribe(self, command: Subscribe, outlet: Outlet, address: str) -> tuple[Subscription, Consumer]:
        """Connect a consumer, making its subscription if it is new.

        Raises ``ConsumerBusy``, ``UnsupportedFeature``, ``InvalidTopicName`` (of the subscription), ``NotAllowed``, or why the topic is
        closed.
        """
        self._check_open()
        if command.read_compacted:
            raise UnsupportedFeature("reading the compacted view of a topic is not supported yet; read without read_compacted")
        if not command.durable and command.type is not SubscriptionType.EXCLUSIVE:
            raise UnsupportedFeature("a subscription that is not durable must be exclusive")
        subscription = self.subscriptions.get(command.subscription)
        if subscription is None:
            subscription = await self._new_subscription(command)
        elif subscription.cursor.durable != command.durable:
            kind = "durable" if subscription.cursor.durable else "a reader's"
            raise ConsumerBusy(f"subscription {command.subscription!r} exists and is {kind}; choose another name")
        consumer = Consumer(
            command.consumer_id,
            command.name or f"{self._world.random.getrandbits(40):010x}",
            outlet,
            command.priority_level,
            properties=command.properties,
            address=address,
            connected_ms=self._world.clock.wall_ms(),
        )
        subscription.add(consumer, command.type)
        return subscription, consumer

    async def _new_subscription(self, command: Subscribe) -> Subscription:
        start = LATEST if command.initial_position is InitialPosition.LATEST else EARLIEST
        if command.start is not None:
            start = command.start
        return await self.create_subscription(command.subscription, start, durable=command.durable)

    async def create_subscription(self, name: str, start: Position, *, durable: bool = True) -> Subscription:
        """A new subscription that delivers from ``start`` on. Raises ``AlreadyExists``, ``InvalidTopicName``, ``TooManyRequests``."""
        check_name("subscription", name)
        if name == DEDUP_CURSOR:
            raise InvalidArgument(f"the name {DEDUP_CURSOR} is the broker's own; choose another")
        if len(self.subscriptions) >= self._config.max_subscriptions_per_topic:
            raise TooManyRequests(f"topic {self.name} has {len(self.subscriptions)} subscriptions, the limit max_subscriptions_per_topic")
        cursor = await self.log.open_cursor(name, initial=start, durable=durable, properties={})
        self._check_open()
        # Two may have asked at once; the cursor is the same.
        subscription = self.subscriptions.get(name)
        if subscription is None:
            subscription = self.subscriptions[name] = self._subscription(name, cursor)
        return subscription

    def subscription(self, name: str) -> Subscription:
        """Raises ``SubscriptionNotFound``."""
        found = self.subscriptions.get(name)
        if found is None:
            there = ", ".join(self.subscriptions) or "none"
            raise SubscriptionNotFound(f"topic {self.name} has no subscription {name!r}; it has: {there}")
        return found

    async def unsubscribe(self, name: str, *, force: bool, by: Consumer | None = None) -> None:
        """Delete a subscription. Raises ``SubscriptionNotFound``, ``SubscriptionBusy`` when others use it and ``force`` is off."""
        subscription = self.subscription(name)
        others = [consumer for consumer in subscription.consumers if consumer is not by]
        if others and not force:
            raise SubscriptionBusy(
                f"subscription {name!r} of {self.name} has {len(others)} other connected consumers; close them or use force"
            )
        if by is not None:
            subscription.remove(by)
        # Out of the table first: whoever subscribes while it is being deleted, or after that has failed, opens the cursor anew.
        del self.subscriptions[name]
        subscription.close(SubscriptionNotFound(f"subscription {name!r} of {self.name} was deleted"))
        await self.log.delete_cursor(name)

    def remove_consumer(self, subscription: Subscription, consumer: Consumer) -> None:
        """The client closed it or is gone. The cursor of a reader goes with it."""
        subscription.remove(consumer)
        if not subscription.cursor.durable and not subscription.consumers and self.closed is None:
            _ = self._world.tasks.spawn(self._drop_reader(subscription), name=f"drop reader {self.name} {subscription.name}")

    async def _drop_reader(self, subscription: Subscription) -> None:
        if subscription.consumers or self.subscriptions.get(subscription.name) is not subscription:
            return
        del self.subscriptions[subscription.name]
        await self.log.delete_cursor(subscription.name)

    async def terminate(self) -> Position:
        """Seal the topic for good; returns its last position."""
        self._check_open()
        last = await self.log.terminate()
        for producer in list(self.producers.values()):
            producer.close(TopicTerminated(f"topic {self.name} was terminated; nothing can be published to it any more"))
            self.remove_producer(producer)
        for subscription in self.subscriptions.values():
            subscription.wake()
        return last

    # -- the end

    def _check_open(self) -> None:
        if self.closed is not None:
            raise self.closed

    def stop_serving(self, error: PulsarishError) -> None:
        """From now on nothing is taken; everybody connected is told to look the topic up again (or that it is gone)."""
        if self.closed is not None:
            return
        self.closed = error
        for producer in list(self.producers.values()):
            producer.close(error)
            self.remove_producer(producer)
        for subscription in list(self.subscriptions.values()):
            subscription.close(error)

    def check_deletable(self, *, force: bool) -> None:
        """Raises ``SubscriptionBusy`` when producers or consumers are connected, unless ``force``."""
        consumers = sum(len(subscription.consumers) for subscription in self.subscriptions.values())
        if (self.producers or consumers) and not force:
            raise SubscriptionBusy(
                f"topic {self.name} has {len(self.producers)} producers and {consumers} consumers connected; close them or use force"
            )

    async def close(self, error: PulsarishError) -> None:
        """Stop serving and close the log: what is under way is confirmed, cursors are flushed."""
        self.stop_serving(error)
        if self._dedup is not None:
            await self._dedup.close()
        await self.log.close()

    def check(self) -> None:
        """Assert the invariants of everything in the topic."""
        if self._dedup is not None:
            self._dedup.marks.check()
        for name, producer in self.producers.items():
            assert producer.name == name
            producer.check()
        for subscription in self.subscriptions.values():
            subscription.check()
