"""The asyncio API: ``AsyncClient`` and what it opens.

Everything runs in the event loop in which the client was made.

Names, arguments and meanings are those of ``pulsar.asyncio`` where it has them. The client gets its
clock, random numbers, tasks and connections as arguments, so it also runs in the simulator;
``pulsarish.asyncio`` provides them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, Self, Unpack

from pulsarish.client.api.asyncio_consumer import AsyncConsumer, AsyncReader
from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.api.asyncio_worker import MakesAsyncWorkers
from pulsarish.client.api.cluster_failover import ClusterFailover
from pulsarish.client.api.reader_checkpoint import (
    ReaderCheckpoint,
    checkpoint_key,
    position_in,
)
from pulsarish.client.api.service_source import Service, ServiceSource, checked_info
from pulsarish.client.api.stats_report import StatsReport, stats_of
from pulsarish.client.api.table_view import AsyncTableView
from pulsarish.client.checks import check_text
from pulsarish.client.connection.broker_stream import StreamLimits
from pulsarish.client.connection.cluster_of import is_of_other_cluster
from pulsarish.client.connection.consume_stream import ConsumeStream
from pulsarish.client.connection.context import ClientContext, retrying
from pulsarish.client.connection.loop_bridge import InLoop, LoopBridge
from pulsarish.client.connection.opening_turns import OpeningTurns
from pulsarish.client.connection.publish_stream import PublishStream
from pulsarish.client.connection.service_link import Connect, Release, ServiceLink
from pulsarish.client.connection.stream_pool import StreamPool
from pulsarish.client.connection.timers import Timers
from pulsarish.client.consumer.entry_reader import EntryReader
from pulsarish.client.consumer.multi_consumer import MultiConsumer
from pulsarish.client.consumer.pattern_consumer import PatternConsumer
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.arguments import (
    ClientArguments,
    asyncio_consumer_options,
    asyncio_reader_options,
    reader_options,
)
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.options import (
    ClientOptions,
    ProducerOptions,
    check_schema,
    topics_of,
)
from pulsarish.client.messages.signatures import taking
from pulsarish.client.producer.partitioned_producer import PartitionedProducer
from pulsarish.client.producer.topic_producer import OnReturn
from pulsarish.client.schemas.schema import Schema
from pulsarish.client.service_info import ServiceInfo
from pulsarish.client.stats import ClientStats
from pulsarish.client.type_variables import Chosen
from pulsarish.model.errors import AlreadyClosed, InvalidArgument, ProducerBusy, PulsarishError
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.seams import ClientConnections, Clock, Tasks

__all__ = ["AsyncClient"]

_log = get_logger("client")

_OPEN_LOOKED_AT: Final = 64
"""From this many producers and consumers on, closed ones are searched for and removed."""


def _callback_failed(error: BaseException) -> None:
    _log.error("a callback or listener of the program raised", exception=error)


async def _keep_open(_connections: ClientConnections) -> None:
    """Leave connections to the caller of the client, who closes them."""


class AsyncClient(MakesAsyncWorkers):
    """A client of a cluster. Close it, or use it in ``async with``."""

    def __init__(
        self,
        service: Service | ServiceSource,
        *,
        clock: Clock,
        random: random.Random,
        tasks: Tasks,
        connect: Connect,
        release: Release | None = None,
        handoff: LoopBridge | None = None,
        stream_limits: StreamLimits | None = None,
        **options: Unpack[ClientArguments],
    ) -> None:
        """``options``: the arguments of ``ClientOptions``.

        Args:
            service_url: or all options.
            connect: returns connections of this security.
            release: closes connections that ``connect`` returned and that are not used any more.

        Raises ``InvalidConfiguration``, ``InvalidArgument`` or ``OperationNotSupported``.
        """
        self._source = (
            service if isinstance(service, ServiceSource) else ServiceSource(service, options)
        )
        # The blocking client begins and closes it in the threads of the program.
        self._own_source = self._source if handoff is None else None
        chosen = self._source.chosen
        limits = stream_limits or StreamLimits()
        # After one failure, because a program waits for its first producer.
        book = AddressBook(chosen.transport, failures_max=1)
        self._link = link = ServiceLink(
            chosen, book, connect=connect, release=release or _keep_open, clock=clock, tasks=tasks
        )
        alarms = Timers(clock, tasks)
        self._parts = ClientContext(
            clock=clock,
            random=random,
            tasks=tasks,
            alarms=alarms,
            turns=OpeningTurns(clock, alarms),
            handoff=handoff or InLoop(),
            lookup=link.lookup,
            publish=StreamPool(
                PublishStream,
                "broker.publish",
                connections=link.connections,
                clock=clock,
                tasks=tasks,
                limits=limits,
                book=book,
            ),
            consume=StreamPool(
                ConsumeStream,
                "broker.consume",
                connections=link.connections,
                clock=clock,
                tasks=tasks,
                limits=limits,
                book=book,
            ),
            operation_timeout_seconds=chosen.operation_timeout_seconds,
            callback_failed=_callback_failed,
            cluster=self._source.current.service_url if self._source.may_change else "",
        )
        self._loop = asyncio.get_running_loop()
        # Replaced by ``traced_asyncio.trace``.
        self._make_producer: Callable[[PartitionedProducer], AsyncProducer] = AsyncProducer
        self._make_consumer: Callable[[MultiConsumer, ClientContext], AsyncConsumer] = AsyncConsumer
        self._make_reader: Callable[
            [MultiConsumer, ReaderCheckpoint | None, ClientContext], AsyncReader
        ] = AsyncReader
        self._closed = False
        # By a running number, so that they are closed in the order of creation.
        self._open: dict[int, PartitionedProducer | MultiConsumer] = {}
        self._open_looked_at = _OPEN_LOOKED_AT
        self._made_count = 0
        self._stats_report = StatsReport(alarms, clock, self._open)
        self._failover: ClusterFailover | None = None
        if self._source.failover is not None:
            self._failover = ClusterFailover(
                self._source.failover,
                self._source.options_of,
                self._on_service_info_update,
                connect=connect,
                release=release or _keep_open,
                clock=clock,
                tasks=tasks,
            )
            _ = tasks.spawn(self._failover.run(), name="client failover")
        if self._own_source is not None:
            try:
                self._own_source.begin(self._on_service_info_update)
            except BaseException:
                self.shutdown()
                _ = tasks.spawn(self.release(), name="close connections")
                raise

    def get_service_info(self) -> ServiceInfo:
        """Return where the client's cluster is, as it was given last."""
        return self._source.current

    def _on_service_info_update(self, info: ServiceInfo) -> None:
        """Go to another cluster, with all producers, consumers and readers; called in any thread.

        Does nothing once the client is closed. Raises ``InvalidArgument`` for what is no
        ``ServiceInfo``, or one whose options do not fit.
        """
        chosen = self._source.options_of(checked_info(info))
        if self._closed:
            _log.warning("the client is closed and goes to no other cluster", url=info.service_url)
            return
        self._source.current = info
        try:
            self._loop.call_soon_threadsafe(self._use, info, chosen)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _use(self, info: ServiceInfo, chosen: ClientOptions) -> None:
        if self._closed or info is not self._source.current:
            return
        try:
            end_former = self._link.switch(chosen)
        except PulsarishError as error:
            _log.error("the client stays where it is", url=info.service_url, reason=error)
            return
        _log.info("client uses a cluster", url=info.service_url)
        self._parts.cluster = info.service_url
        for pool in (self._parts.publish, self._parts.consume):
            pool.abandon(f"the client goes to {info.service_url}")
        end_former()

    def _check_open(self) -> None:
        if self._closed:
            raise AlreadyClosed("the client was closed: make another one")

    # Shared with the blocking API.

    async def _open_publishing(
        self,
        options: ProducerOptions[Any],
        *,
        first_epoch: int = 0,
        on_return: OnReturn | None = None,
    ) -> PartitionedProducer:
        self._check_open()
        publishing = await PartitionedProducer.open(
            options, self._parts, first_epoch=first_epoch, on_return=on_return
        )
        self._keep(publishing)
        return publishing

    async def _open_consuming(self, options: ConsumerOptions[Any]) -> MultiConsumer:
        self._check_open()
        kind = MultiConsumer if options.filter is None else PatternConsumer
        consuming = await kind.open(options, self._parts)
        self._keep(consuming)
        return consuming

    async def _open_reading(
        self, options: ConsumerOptions[Any]
    ) -> tuple[MultiConsumer, ReaderCheckpoint | None]:
        start = options.start
        if start is not None and is_of_other_cluster(start.topic_name(), self._parts.cluster):
            raise InvalidArgument(
                f"the client has left the cluster of start_message_id {start}: begin at "
                "MessageId.earliest or MessageId.latest, and seek to a time"
            )
        options.subscription_name += f"{self._parts.random.getrandbits(40):010x}"
        if not options.checkpoint_topic:
            return await self._open_consuming(options), None
        checkpoint = await self._open_checkpoint(options)
        try:
            if checkpoint.position is not None:
                options.continue_after(checkpoint.position)
            return await self._open_consuming(options), checkpoint
        except BaseException:
            await checkpoint.close()
            raise

    async def _open_checkpoint(self, options: ConsumerOptions[Any]) -> ReaderCheckpoint:
        """Open the checkpoint of a reader with these options, and read what it has stored.

        Reads the whole topic of checkpoints, or its compacted view and the rest.

        Raises ``ProducerBusy`` while another reader of this name is open, ``InvalidArgument`` for
        a partitioned topic and for a value that is no ``MessageId``, or another refusal.
        """
        topic, key = options.checkpoint_topic, checkpoint_key(options)
        if await self.get_topic_partitions(topic) != [topic]:
            raise InvalidArgument(
                f"checkpoint_topic {topic} has partitions: pass a topic without partitions"
            )
        # The producer first: from then on no other reader of this name stores a position.
        name = f"checkpoint of {key}"
        checkpoint = ReaderCheckpoint(key, lambda: self._stored_position(topic, key))
        try:
            publishing = await self._open_publishing(
                ProducerOptions(topic, name, batching_enabled=True),
                on_return=checkpoint.check,
            )
        except ProducerBusy as error:
            if name not in str(error):
                raise  # the topic takes no other producer at all
            raise ProducerBusy(
                f"a reader named {options.consumer_name!r} of {options.topics[0]} is open already, "
                "or the connection of one that died is not known to be gone: close it, wait, or "
                "pass another reader_name"
            ) from None
        try:
            await checkpoint.open(self._make_producer(publishing))
        except BaseException:
            await publishing.close()
            raise
        return checkpoint

    async def _stored_position(self, topic: str, key: str) -> MessageId | None:
        newest = b""
        reader = await self.create_reader(topic, MessageId.earliest, is_read_compacted=True)
        try:
            while await reader.has_message_available():
                message = await reader.read_next()
                if message.partition_key() == key:
                    newest = message.data()
        finally:
            await reader.close()
        return position_in(newest, key, topic)

    def _keep(self, made: PartitionedProducer | MultiConsumer) -> None:
        if self._closed:
            made.shutdown(AlreadyClosed("the client was closed"))
            self._check_open()
        # Remove what was closed directly, so that a client that opens and closes for years does not
        # grow. Only when the number has doubled: looking at thousands for each new one would be
        # slow.
        if len(self._open) >= self._open_looked_at:
            for number in [number for number, kept in self._open.items() if kept.is_closed]:
                del self._open[number]
            self._open_looked_at = max(_OPEN_LOOKED_AT, 2 * len(self._open))
        self._made_count += 1
        self._open[self._made_count] = made
        self._stats_report.start()

    # Public methods.

    @taking(ProducerOptions, on_unless={"batching_enabled": "chunking_enabled"})
    async def create_producer(self, options: ProducerOptions[Chosen]) -> AsyncProducer[Chosen]:
        """Return a producer. The arguments are Apache Pulsar's. Batching is on, as in its asyncio
        API, unless ``chunking_enabled`` is.

        Raises ``InvalidArgument``, ``OperationNotSupported``, ``ProducerBusy``, ``Timeout`` or
        another refusal of the broker.
        """
        return self._make_producer(await self._open_publishing(options))

    @taking(asyncio_consumer_options, described_by=(ConsumerOptions,))
    async def subscribe(self, options: ConsumerOptions[Chosen]) -> AsyncConsumer[Chosen]:
        """Return a consumer; creates the subscription if needed.

        ``topic``: a name, a list of names, or a compiled pattern or ``Wildcard`` for all topics of
        a namespace that match, also those that come later.

        Raises ``ConsumerBusy`` and the errors of ``create_producer``.
        """
        return self._make_consumer(await self._open_consuming(options), self._parts)

    @taking(asyncio_reader_options, described_by=(reader_options, ConsumerOptions))
    async def create_reader(self, options: ConsumerOptions[Chosen]) -> AsyncReader[Chosen]:
        """Return a reader that starts after a message, or at it with
        ``start_message_id_inclusive``.

        With ``checkpoint_topic`` and ``reader_name`` it starts after the message that
        ``AsyncReader.checkpoint`` stored last, if there is one. Raises ``ProducerBusy`` while
        another such reader is open.
        """
        return self._make_reader(*await self._open_reading(options), self._parts)

    async def _read_entries(
        self,
        topic: TopicName,
        first: Position,
        *,
        window_bytes: int,
        subscription_role_prefix: str = "",
    ) -> EntryReader:
        """Return a reader of the entries, as they were published, of a partition or a topic without
        partitions, starting at ``first``.

        Args:
            window_bytes: about how much may be on the wire or wait.
            subscription_role_prefix: what the name of its subscription begins with, for namespaces
                that demand the role there; empty: nothing.

        The caller closes the reader. Raises the broker's refusal, or ``Timeout``.
        """
        self._check_open()
        start = f"{subscription_role_prefix}-" if subscription_role_prefix else ""
        reader = EntryReader(
            topic, first, self._parts, window_bytes=window_bytes, subscription=f"{start}entries-"
        )
        try:
            await reader.open()
        except BaseException:
            await reader.close()
            raise
        return reader

    async def create_table_view(
        self, topic: str, subscription_name: str | None = None, schema: Schema[Chosen] | None = None
    ) -> AsyncTableView[Chosen]:
        """Return a table of the latest value of each key.

        It is complete for what the topic holds now.

        ``subscription_name`` is the prefix of the names of its readers.
        """
        if subscription_name is not None:
            check_text("subscription_name", subscription_name)
        chosen = check_schema(schema)
        names = await self.get_topic_partitions(topic)
        readers: list[AsyncReader] = []
        try:
            for name in names:
                reader = await self.create_reader(
                    name,
                    MessageId.earliest,
                    schema=chosen,
                    subscription_role_prefix=subscription_name,
                    is_read_compacted=True,
                )
                readers.append(reader)
            view = AsyncTableView(topic, subscription_name, readers, self._parts)
            await view._fill()
        except BaseException:
            for reader in readers:
                reader._consuming.shutdown(AlreadyClosed("the table view was not opened"))
            raise
        return view

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """Return the full names of a topic's partitions, or of the topic itself when it has
        none.
        """
        self._check_open()
        (name,) = topics_of(check_text("topic", topic))
        count = await retrying(
            self._parts, f"lookup of {name}", lambda: self._parts.lookup.partitions(name.full)
        )
        return [name.with_partition(index).full for index in range(count)] if count else [name.full]

    def stats(self) -> ClientStats:
        """Return what the open producers, consumers and readers have counted."""
        return stats_of(self._open.values())

    async def release(self) -> None:
        """Close the connections, after ``close`` or ``shutdown``."""
        await self._link.close()

    async def close(self) -> None:
        """Send what waits, close all producers and consumers, then the connections."""
        if self._closed:
            return
        self._closed = True
        made = list(self._open.values())
        try:
            await asyncio.gather(*(one.close() for one in made))
        finally:
            self._end()

    def shutdown(self) -> None:
        """Close everything now; pending messages fail."""
        self._closed = True
        self._end()

    def __repr__(self) -> str:
        return f"Client({self._source.current.service_url}, {'closed' if self._closed else 'open'})"

    def _end(self) -> None:
        self._stats_report.stop()
        if self._failover is not None:
            self._failover.stop()
        if self._own_source is not None:
            self._own_source.close()
        error = AlreadyClosed("the client was closed")
        for one in self._open.values():
            one.shutdown(error)
        self._open.clear()
        self._parts.publish.close()
        self._parts.consume.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
