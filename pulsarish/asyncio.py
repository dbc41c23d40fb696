"""The awaitable twin of ``pulsarish``: the same names, for programs that run an event loop of their
own.

    async with pulsarish.asyncio.Client("pulsarish://127.0.0.1:6660") as client:
        producer = await client.create_producer("greetings")
        await producer.send(b"hello")

Clients of several event loops, each in its thread, and of ``pulsarish.Client`` may be used side by
side.
"""

from __future__ import annotations

from typing import Self, Unpack

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer as Consumer
from pulsarish.client.api.asyncio_consumer import AsyncReader as Reader
from pulsarish.client.api.asyncio_producer import AsyncProducer as Producer
from pulsarish.client.api.asyncio_worker import AsyncWorker as Worker
from pulsarish.client.api.service_source import ServiceSource, service_source
from pulsarish.client.api.table_view import AsyncTableView as TableView
from pulsarish.client.enums import (
    BatchingType,
    CompressionType,
    ConsumerCryptoFailureAction,
    ConsumerType,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.arguments import ClientArguments
from pulsarish.client.messages.encryption_context import EncryptionContext, EncryptionKey
from pulsarish.client.messages.message import Message
from pulsarish.client.messages.options import ClientOptions
from pulsarish.client.messages.signatures import taking
from pulsarish.model.errors import PulsarishError as PulsarException
from pulsarish.runtime.background import client_world
from pulsarish.runtime.client_loggers import use_logger
from pulsarish.runtime.crypto_key_reader import CryptoKeyReader
from pulsarish.runtime.profiles import profile_arguments

__all__ = [
    "BatchingType",
    "Client",
    "CompressionType",
    "Consumer",
    "ConsumerCryptoFailureAction",
    "ConsumerType",
    "CryptoKeyReader",
    "EncryptionContext",
    "EncryptionKey",
    "InitialPosition",
    "Message",
    "MessageId",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "PulsarException",
    "Reader",
    "RegexSubscriptionMode",
    "TableView",
    "Worker",
]


class Client(AsyncClient):
    """A connection to a cluster, made in a running event loop.

    Close it, or use it in ``async with``.
    """

    @taking(service_source, described_by=(ClientOptions,))
    def __init__(self, source: ServiceSource) -> None:
        """Check the arguments. It connects at first use.

        Raises ``InvalidConfiguration``, ``InvalidArgument``, ``OperationNotSupported``. It belongs
        to the process that made it: the child of a fork makes a client of its own, in an event
        loop of its own.
        """
        options = source.chosen
        if options.logger is not None:
            use_logger(options.logger)
        world = client_world()
        self._world = world
        super().__init__(
            source,
            clock=world.clock,
            random=world.random,
            tasks=world.tasks,
            connect=world.connections_of,
            release=world.release,
        )
        self._stats_report.use_interval(options.stats_interval_seconds)
        if options.tracer_provider is not None:
            # OpenTelemetry is imported by programs that trace only.
            from pulsarish.client.api.traced_asyncio import trace
            from pulsarish.client.api.tracing import Tracing

            trace(self, Tracing(options.tracer_provider, world.clock.wall_ms))
        if options.meter_provider is not None:
            from pulsarish.client.api.metering import export_metrics

            export_metrics(self, options.meter_provider)

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

    async def close(self) -> None:
        """Send what waits, close all producers and consumers, then the connections."""
        await super().close()
        await self._world.close()
