"""Producers, consumers and readers of the asyncio client that make spans.

They are classes of their own, so a client that does not trace pays nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncConsumer, AsyncReader
from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.api.receiving import attributes_of
from pulsarish.client.connection.context import ClientContext
from pulsarish.client.consumer.multi_consumer import MultiConsumer
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.client.producer.partitioned_producer import PartitionedProducer
from pulsarish.client.type_variables import Value_co, Value_contra

if TYPE_CHECKING:
    from pulsarish.client.api.reader_checkpoint import ReaderCheckpoint
    from pulsarish.client.api.tracing import Tracing

__all__ = ["TracedAsyncConsumer", "TracedAsyncProducer", "TracedAsyncReader", "trace"]


def trace(client: AsyncClient, tracing: Tracing) -> None:
    """Have what the client opens from now on make spans."""
    client._make_producer = partial(TracedAsyncProducer, tracing=tracing)
    client._make_consumer = partial(TracedAsyncConsumer, tracing=tracing)
    client._make_reader = partial(TracedAsyncReader, tracing=tracing)


class TracedAsyncProducer(AsyncProducer[Value_contra]):
    def __init__(self, publishing: PartitionedProducer, tracing: Tracing) -> None:
        super().__init__(publishing)
        self._tracing = tracing

    async def send(
        self,
        content: Value_contra | None,
        properties: Mapping[str, str] | None = None,
        *beside: Any,
        **more: Any,
    ) -> MessageId:
        tracing = self._tracing
        span, properties = tracing.begin_send(self.topic(), properties)
        try:
            message_id = await super().send(content, properties, *beside, **more)
        except BaseException as error:
            tracing.fail(span, error)
            raise
        tracing.end_send(span, message_id)
        return message_id

    def send_soon(
        self, content: Value_contra | None, *, sequence_id: int | None = None, **extras: Any
    ) -> asyncio.Future[MessageId]:
        tracing = self._tracing
        span, properties = tracing.begin_send(self.topic(), extras.pop("properties", None))
        if properties is not None:
            extras["properties"] = properties
        try:
            sent = super().send_soon(content, sequence_id=sequence_id, **extras)
        except BaseException as error:
            tracing.fail(span, error)
            raise

        def done(future: asyncio.Future[MessageId]) -> None:
            if future.cancelled():
                tracing.fail(span, asyncio.CancelledError())
            elif (error := future.exception()) is not None:
                tracing.fail(span, error)
            else:
                tracing.end_send(span, future.result())

        sent.add_done_callback(done)
        return sent


class TracedAsyncConsumer(AsyncConsumer[Value_co]):
    def __init__(self, consuming: MultiConsumer, parts: ClientContext, tracing: Tracing) -> None:
        self._tracing = tracing
        self._of_consumer = attributes_of(consuming)
        options = consuming.options
        if options.message_listener is not None:
            options.message_listener = tracing.awaited_listener(
                options.message_listener, self._of_consumer
            )
        super().__init__(consuming, parts)

    async def receive(self, timeout_millis: int | None = None) -> Message[Value_co]:
        began_ns = self._tracing.now_ns()
        message = await super().receive(timeout_millis)
        self._tracing.received([message], began_ns, self._of_consumer)
        return message

    async def _collect(self, *limits: Any, **more: Any) -> list[Message[Value_co]]:
        began_ns = self._tracing.now_ns()
        messages = await super()._collect(*limits, **more)
        self._tracing.received(messages, began_ns, self._of_consumer)
        return messages

    def __aiter__(self) -> AsyncIterator[Message[Value_co]]:
        return _traced(self._tracing, super().__aiter__(), self._of_consumer)

    async def acknowledge(
        self, message: Message | MessageId | Sequence[Message | MessageId]
    ) -> None:
        with self._tracing.settling("ack", message, self._of_consumer):
            await super().acknowledge(message)

    async def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        with self._tracing.settling("ack_cumulative", message, self._of_consumer):
            await super().acknowledge_cumulative(message)

    async def negative_acknowledge(self, message: Message | MessageId) -> None:
        with self._tracing.settling("nack", message, self._of_consumer):
            await super().negative_acknowledge(message)


class TracedAsyncReader(AsyncReader[Value_co]):
    def __init__(
        self,
        consuming: MultiConsumer,
        checkpoint: ReaderCheckpoint | None,
        parts: ClientContext,
        tracing: Tracing,
    ) -> None:
        self._tracing = tracing
        self._of_consumer = attributes_of(consuming)
        options = consuming.options
        if options.message_listener is not None:
            options.message_listener = tracing.awaited_listener(
                options.message_listener, self._of_consumer
            )
        super().__init__(consuming, checkpoint, parts)

    async def read_next(self, timeout_millis: int | None = None) -> Message[Value_co]:
        began_ns = self._tracing.now_ns()
        message = await super().read_next(timeout_millis)
        self._tracing.received([message], began_ns, self._of_consumer)
        return message

    async def _collect(self, *limits: Any, **more: Any) -> list[Message[Value_co]]:
        began_ns = self._tracing.now_ns()
        messages = await super()._collect(*limits, **more)
        self._tracing.received(messages, began_ns, self._of_consumer)
        return messages

    def __aiter__(self) -> AsyncIterator[Message[Value_co]]:
        return _traced(self._tracing, super().__aiter__(), self._of_consumer)


async def _traced(
    tracing: Tracing, messages: AsyncIterator[Message], of_consumer: Mapping[str, str]
) -> AsyncIterator[Message[Value_co]]:
    began_ns = tracing.now_ns()
    async for message in messages:
        tracing.received([message], began_ns, of_consumer)
        yield message
        began_ns = tracing.now_ns()
