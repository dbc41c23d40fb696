"""The blocking API: ``Client`` with the names, arguments and meanings of Apache Pulsar's Python
client.

All clients of a process share one loop thread. The program's threads fill batches and take messages
themselves, under one short lock; they wake the loop once for a batch, not for each message.
Callbacks run in the loop's thread, many at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, Unpack

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.blocking_consumer import Consumer, Reader
from pulsarish.client.api.blocking_producer import Producer
from pulsarish.client.api.service_source import ServiceSource, service_source
from pulsarish.client.api.table_view import TableView
from pulsarish.client.api.traced_blocking import TracedConsumer, TracedProducer, TracedReader
from pulsarish.client.api.worker import MakesWorkers
from pulsarish.client.messages.arguments import (
    ClientArguments,
    reader_options,
)
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.options import ClientOptions, ProducerOptions
from pulsarish.client.messages.signatures import taking
from pulsarish.client.producer.partitioned_producer import PartitionedProducer
from pulsarish.client.schemas.schema import Schema
from pulsarish.client.service_info import ServiceInfo
from pulsarish.client.stats import ClientStats
from pulsarish.client.type_variables import Chosen
from pulsarish.model.errors import ForkedProcess, PulsarishError
from pulsarish.runtime.background import Background, background
from pulsarish.runtime.client_loggers import use_logger
from pulsarish.runtime.profiles import profile_arguments

if TYPE_CHECKING:
    from pulsarish.client.api.tracing import Tracing

__all__ = ["Client"]


class Client(MakesWorkers):
    """A client of a cluster. Close it, or use it in ``with``."""

    @taking(service_source, described_by=(ClientOptions,))
    def __init__(self, source: ServiceSource) -> None:
        """Check the arguments. It connects at first use.

        Raises ``InvalidConfiguration``, ``InvalidArgument`` or ``OperationNotSupported``. After a
        fork it works in the parent only. In the child it raises ``ForkedProcess``; make a new
        client there.
        """
        options = source.chosen
        if options.logger is not None:
            use_logger(options.logger)
        self._background = loop = background()
        self._refusal: PulsarishError | None = None
        loop.add_user(self)
        self._source = source

        async def make() -> AsyncClient:
            return AsyncClient(
                source,
                clock=loop.world.clock,
                random=loop.world.random,
                tasks=loop.world.tasks,
                connect=loop.world.connections_of,
                release=loop.world.release,
                handoff=loop,
            )

        self._client = loop.run(make())
        self._client._stats_report.use_interval(options.stats_interval_seconds)
        # In this thread, as what it calls of the program may wait.
        try:
            source.begin(self._client._on_service_info_update)
        except BaseException:
            self.shutdown()
            raise
        self._tracing: Tracing | None = None
        if options.tracer_provider is not None:
            # OpenTelemetry is imported by programs that trace only.
            from pulsarish.client.api.tracing import Tracing

            self._tracing = Tracing(options.tracer_provider, loop.world.clock.wall_ms)
        if options.meter_provider is not None:
            from pulsarish.client.api.metering import export_metrics

            export_metrics(self._client, options.meter_provider)

    @classmethod
    def from_profile(cls, name: str | None = None, **options: Unpack[ClientArguments]) -> Self:
        """Return a client of a profile, which ``pulsarish profiles`` manages.

        Args:
            name: ``None``: the one that ``PULSARISH_PROFILE`` names, or the one in use.
            options: more arguments of the client.

        Raises ``NotFound`` when there is none, ``ConfigError`` for a file that others can read.
        """
        url, found = profile_arguments(name, admin=False)
        return cls(url, **{**found, **options})

    def _on_fork(self, error: ForkedProcess) -> None:
        self._refusal = error

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    @taking(ProducerOptions)
    def create_producer(self, options: ProducerOptions[Chosen]) -> Producer[Chosen]:
        """Return a producer on a topic. The arguments are Apache Pulsar's.

        Raises ``InvalidArgument``, ``OperationNotSupported``, ``ProducerBusy``, ``Timeout`` or
        another refusal of the broker.
        """
        self._check()
        publishing = self._background.run(self._client._open_publishing(options))
        if self._tracing is not None:
            return TracedProducer(publishing, self._background, self._tracing)
        return Producer(publishing, self._background)

    def _open_publishing(
        self, options: ProducerOptions[Any], *, first_epoch: int
    ) -> tuple[PartitionedProducer, Background]:
        """Open for other APIs than ``Producer``; ``first_epoch``: see ``TopicProducer``.

        Raises the errors of ``create_producer``.
        """
        self._check()
        return self._background.run(
            self._client._open_publishing(options, first_epoch=first_epoch)
        ), self._background

    @taking(ConsumerOptions)
    def subscribe(self, options: ConsumerOptions[Chosen]) -> Consumer[Chosen]:
        """Return a consumer; creates the subscription if needed.

        ``topic``: a name, a list of names, or a compiled pattern or ``Wildcard`` for all topics of
        a namespace that match, also those that come later.

        Raises ``ConsumerBusy`` and the errors above.
        """
        self._check()
        consuming = self._background.run(self._client._open_consuming(options))
        if self._tracing is not None:
            return TracedConsumer(consuming, self._background, self._tracing)
        return Consumer(consuming, self._background)

    @taking(reader_options, described_by=(ConsumerOptions,))
    def create_reader(self, options: ConsumerOptions[Chosen]) -> Reader[Chosen]:
        """Return a reader that starts after a message, or at ``MessageId.earliest`` or ``latest``.

        The message itself is read only with ``start_message_id_inclusive``.

        With ``checkpoint_topic`` and ``reader_name`` it starts after the message that
        ``Reader.checkpoint`` stored last, if there is one. Raises ``ProducerBusy`` while another
        such reader is open.
        """
        self._check()
        consuming, checkpoint = self._background.run(self._client._open_reading(options))
        if self._tracing is not None:
            return TracedReader(consuming, checkpoint, self._background, self._tracing)
        return Reader(consuming, checkpoint, self._background)

    def create_table_view(
        self, topic: str, subscription_name: str | None = None, schema: Schema[Chosen] | None = None
    ) -> TableView[Chosen]:
        """Return a table of the latest value of each key of a topic.

        It is complete for what the topic holds now.
        """
        self._check()
        return TableView(
            self._background.run(self._client.create_table_view(topic, subscription_name, schema)),
            self._background,
        )

    def get_topic_partitions(self, topic: str) -> list[str]:
        """Return the full names of a topic's partitions, or of the topic itself when it has
        none.
        """
        self._check()
        return self._background.run(self._client.get_topic_partitions(topic))

    def get_service_info(self) -> ServiceInfo:
        """Return where the client's cluster is, as it was given last."""
        return self._source.current

    def stats(self) -> ClientStats:
        """Return what the open producers, consumers and readers have counted."""
        self._check()
        return self._client.stats()

    def close(self) -> None:
        """Send what waits, close all producers, consumers and readers, then the connections.

        Does nothing when closed already.
        """
        self._check()

        async def end() -> None:
            try:
                await self._client.close()
            finally:
                await self._client.release()

        try:
            self._background.run(end())
        finally:
            self._source.close()

    def shutdown(self) -> None:
        """Close everything now; pending messages fail."""
        self._check()

        async def end() -> None:
            self._client.shutdown()
            await self._client.release()

        self._background.run(end())
        self._source.close()

    def __repr__(self) -> str:
        return repr(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The child of a fork that leaves its parent's block has nothing to close.
        if self._refusal is None:
            self.close()
