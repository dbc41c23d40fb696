"""A client's connection, independent of any wire format: commands go in, answers and deliveries
come out of its outbox.

The gRPC protocol has a session for each stream. ``handle`` and ``publish`` never wait. Work that
has to wait (opening a topic, a seek) runs as a task that puts its answer into the outbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pulsarish.broker.clients.access_modes import Turn
from pulsarish.broker.clients.authorization import Gate, OnCreated, Resource
from pulsarish.broker.clients.commands import (
    Acknowledge,
    CloseConsumer,
    CloseProducer,
    Command,
    ConsumerClosed,
    ExtendAck,
    Flow,
    GetLastMessageId,
    GetOrCreateSchema,
    GetSchema,
    LastMessageId,
    OpenProducer,
    Outcome,
    ProducerOpened,
    Redeliver,
    SchemaFound,
    SchemaVersion,
    Seek,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.clients.interfaces import ServedSubscription, ServedTopic
from pulsarish.broker.clients.outbox import Outbox
from pulsarish.broker.clients.producer import Producer, PublishRequest
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.schemas.topic_schemas import TopicSchemas
from pulsarish.broker.topics.load_turns import LoadLine
from pulsarish.model.errors import (
    AlreadyClosed,
    AuthorizationError,
    ConsumerBusy,
    InvalidArgument,
    InvalidTopicName,
    ProducerBusy,
    PulsarishError,
    ServiceNotReady,
)
from pulsarish.model.schema import SchemaType, version_bytes
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Tasks
from pulsarish.security.identity import Identity

__all__ = ["Session", "TopicSource"]

_log = get_logger("broker.session")

_CLIENT_VERSION_CHARACTERS_MAX: Final = 128
_REQUESTS_MAX: Final = 1_000
"""Requests of one connection that run at the same time, without those that wait for their turn to
have a topic loaded.

Above it the broker reads nothing from the connection.
"""
_UNLOOKED_MAX: Final = 64
"""Producers or consumers of one connection among which closed ones are not looked for."""


class TopicSource(Protocol):
    """Where sessions get their topics and schemas."""

    @property
    def schemas(self) -> TopicSchemas: ...

    async def topic(
        self,
        name: str,
        *,
        create: bool = True,
        on_created: OnCreated | None = None,
        line: LoadLine | None = None,
    ) -> ServedTopic:
        """Return the topic, loaded.

        With ``create`` a missing topic is created if its policies allow it. ``on_created`` is
        called if this request has created it. ``line``: where it waits for its turn to be loaded.

        Raises ``NotOwner``, ``TopicNotFound``, ``InvalidTopicName``, ``TooManyRequests``,
        ``ServiceNotReady``.
        """
        ...

    async def replica(self, name: str) -> ServedTopic:
        """Return the topic for readers; another broker may own it.

        Raises ``TopicNotFound``, ``InvalidTopicName``, ``NotAllowedError``, ``TooManyRequests``.
        """
        ...


@dataclass(slots=True)
class _OpenProducer:
    topic: ServedTopic
    producer: Producer
    last_sequence_id: int
    schema_version: bytes

    @property
    def closed(self) -> bool:
        return self.producer.closed

    def answer(self, request_id: int) -> ProducerOpened:
        """Return what its client is told, as often as it asks."""
        producer = self.producer
        return ProducerOpened(
            request_id,
            producer.producer_id,
            None,
            producer.name,
            self.last_sequence_id,
            deduplication=self.topic.deduplication,
            schema_version=self.schema_version,
            topic_epoch=producer.topic_epoch,
            message_bytes_max=self.topic.topic_limits.message_bytes_max,
        )


@dataclass(slots=True)
class _OpenConsumer:
    topic: ServedTopic
    subscription: ServedSubscription
    consumer: Consumer

    @property
    def closed(self) -> bool:
        return self.consumer.closed


class _Opening:
    """An id whose producer or consumer is being opened.

    If it is closed meanwhile, it is dropped once it is open, and leaves the queue.
    """

    __slots__ = ("dropped", "turn")
    closed: Final = False

    def __init__(self) -> None:
        self.dropped = False
        self.turn: Turn | None = None

    def drop(self) -> None:
        self.dropped = True
        if self.turn is not None:
            self.turn.end(AlreadyClosed("the client has closed the producer"))


def _forget_closed(
    opened: dict[int, _OpenProducer | _Opening] | dict[int, _OpenConsumer | _Opening],
    looked_at: int,
    most: int,
) -> int:
    """Forget the producers or consumers that their topics have closed, when there are
    ``looked_at`` or ``most`` of all. Return at how many to look again.

    Clients come back with other ids, and a connection may outlive many topics.
    """
    if len(opened) < min(looked_at, most):
        return looked_at
    for number in [number for number, each in opened.items() if each.closed]:
        del opened[number]
    return max(_UNLOOKED_MAX, 2 * len(opened))


def _is_asked_again(command: OpenProducer, found: _OpenProducer) -> bool:
    """Return whether a client asks again for the producer that it has, because it waited too long
    for the answer.
    """
    producer = found.producer
    same_name = command.name in ("", producer.name) and command.epoch == producer.epoch
    return same_name and not producer.closed and _names(command.topic, found.topic)


def _why_in_use(command: Subscribe, found: _OpenConsumer | _Opening) -> PulsarishError | None:
    """Return why a consumer id cannot be used; ``None`` when the client asks again for the consumer
    that it has.

    A client asks again when it waited too long for the answer.
    """
    if isinstance(found, _Opening):
        return ServiceNotReady(
            f"consumer id {command.consumer_id} is being opened on this connection; ask again "
            "when it is open"
        )
    if command.subscription == found.subscription.name and _names(command.topic, found.topic):
        return None
    return InvalidArgument(
        f"consumer id {command.consumer_id} is in use on this connection, for subscription "
        f"{found.subscription.name!r}"
        f" of {found.topic.name}; close it, or take another id"
    )


def _names(given: str, topic: ServedTopic) -> bool:
    try:
        return TopicName.parse(given).full == topic.name.full
    except InvalidTopicName:
        return False


class Session:
    """Runs the commands of one client. ``close`` ends everything that the client opened.

    Opening a producer or consumer takes a permission. What works on an open one, by its id, needs
    no other: ``check_again`` closes it when the permission is gone.

    ``ends_with_seek``: after a seek its consumer is closed, before the answer, and the client
    subscribes again.
    """

    def __init__(
        self,
        *,
        topics: TopicSource,
        gate: Gate,
        identity: Identity,
        peer: str,
        tasks: Tasks,
        outbox: Outbox,
        config: BrokerConfig,
        ends_with_seek: bool = False,
    ) -> None:
        self.outbox = outbox
        self.closed = False
        self._topics = topics
        self._gate = gate
        self.identity = identity
        self._peer = peer
        self._tasks = tasks
        self._config = config
        self._ends_with_seek = ends_with_seek
        self._requests_open = 0
        self._few_requests = asyncio.Event()
        self._loads = LoadLine(self._look_at_requests)
        self._producers: dict[int, _OpenProducer | _Opening] = {}
        self._consumers: dict[int, _OpenConsumer | _Opening] = {}
        self._producers_looked_at = self._consumers_looked_at = _UNLOOKED_MAX
        self._full: dict[str, ServedTopic] = {}
        self._client_version = ""

    def note_client_version(self, said: str) -> None:
        """Keep the version that the client sent, for statistics.

        A version with a space is ignored, as in Apache Pulsar: clients that do not know their
        version send ``Pulsar Client``.
        """
        self._client_version = "" if " " in said else said[:_CLIENT_VERSION_CHARACTERS_MAX]

    def handle(self, command: Command) -> None:
        """Run a command. A refusal is an answer; nothing is raised."""
        if self.closed:
            return
        match command:
            case Flow():
                if (
                    entry := self._consumer(command.consumer_id)
                ) is not None and command.permits > 0:
                    entry.subscription.flow(entry.consumer, command.permits)
            case Acknowledge() | Redeliver() | ExtendAck():
                self._now(command)
            case OpenProducer():
                self._start_producer(command)
            case Subscribe():
                self._start_consumer(command)
            case CloseProducer():
                self._close_producer(command.producer_id)
                self.outbox.put(Outcome(command.request_id))
            case CloseConsumer():
                self._close_consumer(command.consumer_id)
                self.outbox.put(Outcome(command.request_id))
            case Unsubscribe() | Seek() | GetLastMessageId():
                self._spawn(self._later(command), f"{type(command).__name__} {self._peer}")
            case GetSchema() | GetOrCreateSchema():
                self._spawn(self._schema(command), f"{type(command).__name__} {self._peer}")

    def _spawn(
        self, work: Coroutine[object, object, None], name: str, opening: _Opening | None = None
    ) -> None:
        """Start a request that takes time.

        While too many are open, the broker reads nothing from the connection.
        """
        self._requests_open += 1
        _ = self._tasks.spawn(self._counted(work, opening), name=name)

    async def _counted(
        self, work: Coroutine[object, object, None], opening: _Opening | None
    ) -> None:
        try:
            await work
        finally:
            if opening is None or opening.turn is None:
                self._request_ended()

    def _request_ended(self) -> None:
        self._requests_open -= 1
        self._look_at_requests()

    def _look_at_requests(self) -> None:
        if not self._has_many_requests:
            self._few_requests.set()

    @property
    def _has_many_requests(self) -> bool:
        return self._requests_open - self._loads.waiting_count >= _REQUESTS_MAX

    # -- publishing

    def publish(
        self,
        producer_ids: Sequence[int],
        entries: Sequence[memoryview],
        request: PublishRequest,
        sends: Sequence[tuple[int, int]] | None = None,
    ) -> None:
        """Give entries to their producers' topics, in order for each producer.

        Entries of closed producers are dropped.

        Args:
            sends: the client's name of each entry, as in ``Sends``; without it clients count their
                outcomes.
        """
        start, count = 0, len(entries)
        while start < count:
            producer_id = producer_ids[start]
            end = start + 1
            while end < count and producer_ids[end] == producer_id:
                end += 1
            run = entries if end - start == count else entries[start:end]
            found = self._producers.get(producer_id)
            if type(found) is _OpenProducer and not found.producer.closed:
                topic = found.topic
                if sends is not None:
                    if found.producer.sends is None:
                        found.producer.sends = []
                    found.producer.sends.extend(sends[start:end])
                topic.publish(found.producer, run, request)
                if not topic.has_room:
                    self._full[topic.name.full] = topic
            else:
                request.resolve(len(run), sum([len(entry) for entry in run]))
            start = end

    @property
    def full(self) -> bool:
        """Whether a topic that the client published to has no room, or too many requests are
        open.
        """
        return bool(self._full) or self._has_many_requests

    async def wait_for_room(self) -> None:
        """Wait until all topics that the client published to have room, and few requests are open.

        Meanwhile nothing is read.
        """
        while self._full:
            await self._full.popitem()[1].wait_for_room()
        while self._has_many_requests:
            self._few_requests.clear()
            await self._few_requests.wait()

    # -- opening and closing

    def _start_producer(self, command: OpenProducer) -> None:
        found = self._producers.get(command.producer_id)
        if isinstance(found, _Opening):
            error = ServiceNotReady(
                f"producer id {command.producer_id} is being opened on this connection; ask again "
                "when it is open"
            )
            self.outbox.put(ProducerOpened(command.request_id, command.producer_id, error))
            return
        if found is not None and _is_asked_again(command, found):
            self.outbox.put(found.answer(command.request_id))
            return
        self._producers_looked_at = _forget_closed(
            self._producers,
            self._producers_looked_at,
            self._config.max_producers_per_connection,
        )
        if found is None and len(self._producers) >= self._config.max_producers_per_connection:
            limit = (
                f"this connection has {len(self._producers)} producers, the limit "
                "(max_producers_per_connection); close some"
            )
            self.outbox.put(
                ProducerOpened(command.request_id, command.producer_id, ProducerBusy(limit))
            )
            return
        opening = self._producers[command.producer_id] = _Opening()
        self._spawn(
            self._open_producer(command, opening, found), f"open producer {self._peer}", opening
        )

    async def _open_producer(
        self, command: OpenProducer, opening: _Opening, before: _OpenProducer | None
    ) -> None:
        try:
            await self._permit(command, command.topic, command.initial_subscription)
            topic = await self._topic(command.topic)
            schema_version = await self._topics.schemas.of_producer(
                topic, command.schema, self._on_schema(topic.name)
            )
            if command.initial_subscription:
                is_new = command.initial_subscription not in topic.subscriptions
                await topic.ensure_subscription(command.initial_subscription)
                if is_new:
                    self._note_change(Subscribe, topic.name, command.initial_subscription)
            producer, last_sequence_id = await topic.open_producer(
                command,
                self.outbox,
                self._peer,
                lambda turn, name: self._queued(command, opening, turn, name),
            )
            producer.client_version = self._client_version
            try:
                # Again: ``check_again`` does not see what is not open yet.
                await self._permit(command, command.topic, command.initial_subscription)
            except PulsarishError:
                topic.remove_producer(producer)
                raise
        except PulsarishError as error:
            if self._producers.get(command.producer_id) is opening:
                del self._producers[command.producer_id]
            self.outbox.put(ProducerOpened(command.request_id, command.producer_id, error))
            if before is not None:
                before.topic.remove_producer(before.producer)
            return
        if before is not None and before.producer is not producer:
            before.topic.remove_producer(before.producer)
        if self.closed or opening.dropped:
            topic.remove_producer(producer)
            return
        if producer.closed:
            # The topic stopped before this answer: a ProducerClosed must come after an opening.
            del self._producers[command.producer_id]
            reason = topic.closed or AlreadyClosed(
                f"producer {producer.name!r} was closed while it was opened"
            )
            self.outbox.put(ProducerOpened(command.request_id, command.producer_id, reason))
            return
        opened = _OpenProducer(topic, producer, last_sequence_id, schema_version)
        self._producers[command.producer_id] = opened
        self.outbox.put(opened.answer(command.request_id))

    async def _topic(self, name: str, *, create: bool = True) -> ServedTopic:
        """Return the topic, loaded, and record it if it had to be created.

        Raises as ``TopicSource.topic``.
        """
        on_created = self._gate.on_created("CreateTopic", self.identity, TopicName.parse(name))
        return await self._topics.topic(
            name, create=create, on_created=on_created, line=self._loads
        )

    def _on_schema(self, name: TopicName) -> OnCreated:
        return self._gate.on_created("CreateSchema", self.identity, name)

    async def _permit(self, command: Command, topic: str, subscription: str = "") -> None:
        """Check the permission for a command. Raises ``AuthorizationError``, ``InvalidTopicName``.

        A producer that creates a subscription needs the permission of a consumer, too.
        """
        if not self._gate.checks(self.identity):
            return
        name = TopicName.parse(topic)
        await self._gate.check(type(command).__name__, self.identity, Resource.of_topic(name))
        if subscription:
            resource = Resource.of_topic(name, subscription)
            await self._gate.check(Subscribe.__name__, self.identity, resource)

    def _queued(self, command: OpenProducer, opening: _Opening, turn: Turn, name: str) -> None:
        opening.turn = turn
        self._request_ended()  # it may wait for hours, so it counts only as a producer
        if self.closed or opening.dropped:
            opening.drop()
        else:
            self.outbox.put(
                ProducerOpened(command.request_id, command.producer_id, name=name, ready=False)
            )

    def _start_consumer(self, command: Subscribe) -> None:
        found = self._consumers.get(command.consumer_id)
        if found is not None and (isinstance(found, _Opening) or not found.consumer.closed):
            self.outbox.put(
                Subscribed(command.request_id, command.consumer_id, _why_in_use(command, found))
            )
            return
        self._consumers_looked_at = _forget_closed(
            self._consumers,
            self._consumers_looked_at,
            self._config.max_consumers_per_connection,
        )
        if found is None and len(self._consumers) >= self._config.max_consumers_per_connection:
            limit = (
                f"this connection has {len(self._consumers)} consumers, the limit "
                "(max_consumers_per_connection); close some"
            )
            self.outbox.put(
                Subscribed(command.request_id, command.consumer_id, ConsumerBusy(limit))
            )
            return
        opening = self._consumers[command.consumer_id] = _Opening()
        self._spawn(self._subscribe(command, opening), f"subscribe {self._peer}")

    async def _subscribe(self, command: Subscribe, opening: _Opening) -> None:
        try:
            await self._permit(command, command.topic, command.subscription)
            topic = await (
                self._topics.replica(command.topic)
                if command.replica
                else self._topic(command.topic, create=command.creates_topic)
            )
            await self._topics.schemas.of_consumer(
                topic, command.schema, self._on_schema(topic.name)
            )
            is_new = command.durable and command.subscription not in topic.subscriptions
            subscription, consumer = await topic.subscribe(command, self.outbox, self._peer)
            if is_new:
                self._note_change(Subscribe, topic.name, command.subscription)
            consumer.client_version = self._client_version
            try:
                await self._permit(command, command.topic, command.subscription)
            except PulsarishError:
                topic.remove_consumer(subscription, consumer)
                raise
            consumer.takes_any_schema = (
                command.schema is not None and command.schema.type is SchemaType.AUTO_CONSUME
            )
        except PulsarishError as error:
            if self._consumers.get(command.consumer_id) is opening:
                del self._consumers[command.consumer_id]
            self.outbox.put(Subscribed(command.request_id, command.consumer_id, error))
            return
        if self.closed or opening.dropped:
            topic.remove_consumer(subscription, consumer)
            return
        if command.replicates_state:
            consumer.replication_ignored = True
            _log.warning(
                "a consumer asks for a replicated subscription, which is not replicated: there is "
                "one cluster",
                topic=topic.name,
                subscription=subscription.name,
                peer=self._peer,
            )
        self._consumers[command.consumer_id] = _OpenConsumer(topic, subscription, consumer)
        self.outbox.put(Subscribed(command.request_id, command.consumer_id))

    def _close_producer(self, producer_id: int) -> None:
        found = self._producers.pop(producer_id, None)
        if isinstance(found, _Opening):
            found.drop()
        elif found is not None:
            found.topic.remove_producer(found.producer)

    def _close_consumer(self, consumer_id: int, *, comes_back: bool = False) -> None:
        found = self._consumers.pop(consumer_id, None)
        if isinstance(found, _Opening):
            found.dropped = True
        elif found is not None:
            found.topic.remove_consumer(found.subscription, found.consumer, comes_back=comes_back)

    def _consumer(self, consumer_id: int) -> _OpenConsumer | None:
        found = self._consumers.get(consumer_id)
        return found if type(found) is _OpenConsumer and not found.consumer.closed else None

    # -- commands of consumers

    def _now(self, command: Acknowledge | Redeliver | ExtendAck) -> None:
        found = self._consumer(command.consumer_id)
        try:
            if found is None:
                raise AlreadyClosed(
                    f"consumer {command.consumer_id} is not connected; subscribe again"
                )
            match command:
                case Acknowledge():
                    found.subscription.acknowledge(found.consumer, command)
                case Redeliver():
                    found.subscription.redeliver(found.consumer, command.positions, command.epoch)
                    if command.request_id:
                        self.outbox.put(Outcome(command.request_id))
                case ExtendAck():
                    found.subscription.extend_ack(found.consumer, command.positions)
        except PulsarishError as error:
            self._refuse(command, error)

    async def _later(self, command: Unsubscribe | Seek | GetLastMessageId) -> None:
        found = self._consumer(command.consumer_id)
        try:
            if found is None:
                raise AlreadyClosed(
                    f"consumer {command.consumer_id} is not connected; subscribe again"
                )
            match command:
                case Unsubscribe():
                    await found.topic.unsubscribe(
                        found.subscription.name, force=command.force, by=found.consumer
                    )
                    # the id may belong to another consumer by now
                    if self._consumers.get(command.consumer_id) is found:
                        del self._consumers[command.consumer_id]
                case Seek():
                    await found.subscription.seek(
                        command.position, command.publish_time_ms, by=found.consumer
                    )
                    if self._ends_with_seek and self._consumers.get(command.consumer_id) is found:
                        # A reader's cursor waits for the reader to return.
                        self._close_consumer(command.consumer_id, comes_back=True)
                        moved = ServiceNotReady(
                            f"consumer {command.consumer_id} ended with its seek; subscribe again"
                        )
                        self.outbox.put(ConsumerClosed(command.consumer_id, moved))
                case GetLastMessageId():
                    await self._last_message_id(command, found)
                    return
        except PulsarishError as error:
            self._refuse(command, error)
            self._note_done(command, found, error)
            if isinstance(command, Unsubscribe) and found is not None and found.consumer.closed:
                self._left_by_failure(command.consumer_id, found, error)
            return
        self._note_done(command, found)
        self.outbox.put(Outcome(command.request_id))

    def _note_done(
        self,
        command: Unsubscribe | Seek | GetLastMessageId,
        found: _OpenConsumer | None,
        error: PulsarishError | None = None,
    ) -> None:
        if found is not None and not isinstance(command, GetLastMessageId):
            self._note_change(type(command), found.topic.name, found.subscription.name, error)

    def _note_change(
        self,
        kind: type[Command],
        topic: TopicName,
        subscription: str = "",
        error: PulsarishError | None = None,
    ) -> None:
        resource = Resource.of_topic(topic, subscription)
        self._gate.note_change(kind.__name__, self.identity, resource, error)

    def _left_by_failure(
        self, consumer_id: int, found: _OpenConsumer, error: PulsarishError
    ) -> None:
        """Close a consumer whose unsubscribe failed after it was disconnected: its client would
        wait for messages forever.
        """
        if self._consumers.get(consumer_id) is found:
            del self._consumers[consumer_id]
            self.outbox.put(ConsumerClosed(consumer_id, error))

    async def _last_message_id(self, command: GetLastMessageId, found: _OpenConsumer) -> None:
        subscription = found.subscription
        last, batch_index = await subscription.last_message()
        self.outbox.put(
            LastMessageId(
                command.request_id,
                None,
                last,
                batch_index,
                subscription.mark_delete,
                found.topic.name.partition,
            )
        )

    async def _schema(self, command: GetSchema | GetOrCreateSchema) -> None:
        schemas = self._topics.schemas
        try:
            name = TopicName.parse(command.topic)
            await self._permit(command, command.topic)
            if isinstance(command, GetSchema):
                found = await schemas.get(name, command.version)
                self.outbox.put(
                    SchemaFound(
                        command.request_id, None, found.schema, version_bytes(found.version)
                    )
                )
            else:
                version = await schemas.get_or_create(name, command.schema, self._on_schema(name))
                self.outbox.put(SchemaVersion(command.request_id, None, version))
        except PulsarishError as error:
            self._refuse(command, error)

    def _refuse(self, command: Command, error: PulsarishError) -> None:
        match command:
            case OpenProducer():
                self.outbox.put(ProducerOpened(command.request_id, command.producer_id, error))
            case Subscribe():
                self.outbox.put(Subscribed(command.request_id, command.consumer_id, error))
            case GetLastMessageId():
                self.outbox.put(LastMessageId(command.request_id, error))
            case GetSchema():
                self.outbox.put(SchemaFound(command.request_id, error))
            case GetOrCreateSchema():
                self.outbox.put(SchemaVersion(command.request_id, error))
            case Flow() | Redeliver(request_id=0) | ExtendAck():
                _log.warning(
                    "command refused", command=type(command).__name__, peer=self._peer, reason=error
                )
            case Acknowledge(request_id=0):
                _log.warning("acknowledgement refused", peer=self._peer, reason=error)
            case _:
                self.outbox.put(Outcome(command.request_id, error))

    # -- for the connection

    async def check_again(self) -> None:
        """Close the producers and consumers whose permission is gone.

        Raises ``PulsarishError`` when grants of some cannot be read; the others are checked.
        """
        failed: PulsarishError | None = None
        for producer_id, found in list(self._producers.items()):
            if not isinstance(found, _OpenProducer) or found.producer.closed:
                continue
            refused = await self._refusal(OpenProducer, Resource.of_topic(found.topic.name))
            if self._producers.get(producer_id) is not found:
                continue  # it was closed meanwhile
            if isinstance(refused, AuthorizationError):
                found.producer.close(refused)
                self._close_producer(producer_id)
            else:
                failed = refused or failed
        for consumer_id, opened in list(self._consumers.items()):
            if not isinstance(opened, _OpenConsumer) or opened.consumer.closed:
                continue
            resource = Resource.of_topic(opened.topic.name, opened.subscription.name)
            refused = await self._refusal(Subscribe, resource)
            if self._consumers.get(consumer_id) is not opened:
                continue
            if isinstance(refused, AuthorizationError):
                self._close_consumer(consumer_id)
                self.outbox.put(ConsumerClosed(consumer_id, refused))
            else:
                failed = refused or failed
        if failed is not None:
            raise failed

    async def _refusal(
        self, kind: type[OpenProducer] | type[Subscribe], resource: Resource
    ) -> PulsarishError | None:
        try:
            await self._gate.check(kind.__name__, self.identity, resource)
        except PulsarishError as error:
            return error
        return None

    def room_again(self) -> None:
        """Wake the subscriptions: the outbox has room for deliveries again."""
        for found in self._consumers.values():
            if isinstance(found, _OpenConsumer) and not found.consumer.closed:
                found.subscription.wake()

    def consumer(self, consumer_id: int) -> tuple[ServedSubscription, Consumer] | None:
        """Return a connected consumer and its subscription, for statistics; ``None`` if it is not
        connected.
        """
        found = self._consumer(consumer_id)
        return None if found is None else (found.subscription, found.consumer)

    def close(self) -> None:
        """Drop everything that the client opened, because it is gone."""
        if self.closed:
            return
        self.closed = True
        self.outbox.close()
        self._loads.close()
        for close, opened in (
            (self._close_producer, list(self._producers.items())),
            (self._close_consumer, list(self._consumers.items())),
        ):
            for number, found in opened:
                try:
                    close(number)
                except Exception as error:  # noqa: BLE001
                    # An error of one topic: leave the others too.
                    scope = (
                        Scope(ScopeKind.TASK, self._peer)
                        if isinstance(found, _Opening)
                        else found.topic.scope
                    )
                    self._tasks.contain(f"{close.__name__} {number} {self._peer}", error, scope)
