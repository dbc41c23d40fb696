"""Producers, consumers and readers of the blocking client that make spans.

They are classes of their own, so a client that does not trace pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pulsarish.client.api.blocking_consumer import Consumer, Reader
from pulsarish.client.api.blocking_producer import Producer
from pulsarish.client.api.receiving import attributes_of
from pulsarish.client.checks import check_callable
from pulsarish.client.consumer.multi_consumer import MultiConsumer
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.client.producer.partitioned_producer import PartitionedProducer
from pulsarish.client.producer.topic_producer import Waiter
from pulsarish.client.type_variables import Value_co, Value_contra
from pulsarish.model.errors import PulsarishError
from pulsarish.model.result import Result
from pulsarish.runtime.background import Background

if TYPE_CHECKING:
    from pulsarish.client.api.reader_checkpoint import ReaderCheckpoint
    from pulsarish.client.api.tracing import Tracing

__all__ = ["TracedConsumer", "TracedProducer", "TracedReader"]


class TracedProducer(Producer[Value_contra]):
    def __init__(
        self, publishing: PartitionedProducer, background: Background, tracing: Tracing
    ) -> None:
        super().__init__(publishing, background)
        self._tracing = tracing

    def send(
        self,
        content: Value_contra | None,
        properties: Mapping[str, str] | None = None,
        *beside: Any,
        **more: Any,
    ) -> MessageId:
        tracing = self._tracing
        span, properties = tracing.begin_send(self.topic(), properties)
        try:
            message_id = super().send(content, properties, *beside, **more)
        except BaseException as error:
            tracing.fail(span, error)
            raise
        tracing.end_send(span, message_id)
        return message_id

    def send_async(
        self,
        content: Value_contra | None,
        callback: Any,
        properties: Mapping[str, str] | None = None,
        *beside: Any,
        **more: Any,
    ) -> None:
        if callback is not None:
            check_callable("callback", callback, "a function (result, message_id), or None")
        tracing = self._tracing
        span, properties = tracing.begin_send(self.topic(), properties)

        def done(result: Result, message_id: MessageId) -> None:
            if result is Result.Ok:
                tracing.end_send(span, message_id)
            else:
                tracing.fail(span, result.name)
            callback(result, message_id)

        try:
            super().send_async(
                content,
                _Unheard(self, span) if callback is None else done,
                properties,
                *beside,
                **more,
            )
        except BaseException as error:
            tracing.fail(span, error)
            raise

    def end_unheard(self, span: Any, error: PulsarishError) -> None:
        """Count a failed send without a callback as an untraced producer does."""
        self._tracing.fail(span, error)
        self._publishing.children[0].send_failures.add(error)

    def end_stored(self, span: Any, message_id: MessageId) -> None:
        self._tracing.end_send(span, message_id)


class _Unheard(Waiter):
    """The end of a send without a callback."""

    __slots__ = ("_producer", "_span")

    def __init__(self, producer: TracedProducer, span: Any) -> None:
        self._producer = producer
        self._span = span

    def __call__(self, result: Result, message_id: MessageId) -> None:
        if result is Result.Ok:
            self._producer.end_stored(self._span, message_id)
        else:
            self.fail(PulsarishError(result.name))

    def fail(self, error: PulsarishError) -> None:
        self._producer.end_unheard(self._span, error)


class TracedConsumer(Consumer[Value_co]):
    def __init__(self, consuming: MultiConsumer, background: Background, tracing: Tracing) -> None:
        self._tracing = tracing
        self._of_consumer = attributes_of(consuming)
        options = consuming.options
        if options.message_listener is not None:
            options.message_listener = tracing.listener(options.message_listener, self._of_consumer)
        super().__init__(consuming, background)

    def receive(self, timeout_millis: int | None = None) -> Message[Value_co]:
        began_ns = self._tracing.now_ns()
        message = super().receive(timeout_millis)
        self._tracing.received([message], began_ns, self._of_consumer)
        return message

    def _collect(self, *limits: Any, **more: Any) -> list[Message[Value_co]]:
        began_ns = self._tracing.now_ns()
        messages = super()._collect(*limits, **more)
        self._tracing.received(messages, began_ns, self._of_consumer)
        return messages

    def __iter__(self) -> Iterator[Message[Value_co]]:
        return _traced(self._tracing, super().__iter__(), self._of_consumer)

    def acknowledge(self, message: Message | MessageId | Sequence[Message | MessageId]) -> None:
        with self._tracing.settling("ack", message, self._of_consumer):
            super().acknowledge(message)

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        with self._tracing.settling("ack_cumulative", message, self._of_consumer):
            super().acknowledge_cumulative(message)

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        with self._tracing.settling("nack", message, self._of_consumer):
            super().negative_acknowledge(message)


class TracedReader(Reader[Value_co]):
    def __init__(
        self,
        consuming: MultiConsumer,
        checkpoint: ReaderCheckpoint | None,
        background: Background,
        tracing: Tracing,
    ) -> None:
        self._tracing = tracing
        self._of_consumer = attributes_of(consuming)
        options = consuming.options
        if options.message_listener is not None:
            options.message_listener = tracing.listener(options.message_listener, self._of_consumer)
        super().__init__(consuming, checkpoint, background)

    def read_next(self, timeout_millis: int | None = None) -> Message[Value_co]:
        began_ns = self._tracing.now_ns()
        message = super().read_next(timeout_millis)
        self._tracing.received([message], began_ns, self._of_consumer)
        return message

    def _collect(self, *limits: Any, **more: Any) -> list[Message[Value_co]]:
        began_ns = self._tracing.now_ns()
        messages = super()._collect(*limits, **more)
        self._tracing.received(messages, began_ns, self._of_consumer)
        return messages

    def __iter__(self) -> Iterator[Message[Value_co]]:
        return _traced(self._tracing, super().__iter__(), self._of_consumer)


def _traced(
    tracing: Tracing, messages: Iterator[Message], of_consumer: Mapping[str, str]
) -> Iterator[Message[Value_co]]:
    began_ns = tracing.now_ns()
    for message in messages:
        tracing.received([message], began_ns, of_consumer)
        yield message
        began_ns = tracing.now_ns()
