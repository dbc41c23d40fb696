"""Spans of a client for OpenTelemetry, after its conventions for messaging, and the W3C trace
context that messages carry in their properties.

Nothing imports this module unless a program traces.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pulsarish.client.errors import InvalidType
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import OperationNotSupported
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.extras import install_command

try:
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        Link,
        Span,
        SpanKind,
        Status,
        StatusCode,
        get_current_span,
        set_span_in_context,
        use_span,
    )
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:
    raise OperationNotSupported(
        f"tracing needs the API of OpenTelemetry: {install_command('otel')}"
    ) from None

__all__ = ["Tracing", "trace_context"]

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_FIELD: Final = "traceparent"
_LINKS_MAX: Final = 128
"""Links of one span, which is also the limit of OpenTelemetry's SDK."""

Listener = Callable[[Any, Any], object]


def trace_context(message: Message) -> Context:
    """Return the context of OpenTelemetry in which a received message was sent; empty when its
    producer did not trace.

        with tracer.start_as_current_span("work", context=trace_context(message)):
            ...
    """
    return _PROPAGATOR.extract(message.properties(), context=Context())


class Tracing:
    """Makes the spans of one client.

    Args:
        wall_ms: the wall clock, in milliseconds.

    Raises ``InvalidType`` for what is not a ``TracerProvider``.
    """

    def __init__(self, tracer_provider: Any, wall_ms: Callable[[], int]) -> None:
        if not callable(getattr(tracer_provider, "get_tracer", None)):
            raise InvalidType(
                f"tracer_provider is of type {type(tracer_provider).__name__}: pass a "
                "TracerProvider, such as opentelemetry.trace.get_tracer_provider()"
            )
        self._tracer = tracer_provider.get_tracer("pulsarish")
        self._wall_ms = wall_ms

    def now_ns(self) -> int:
        """Return the wall clock as spans have it."""
        return self._wall_ms() * 1_000_000

    # -- producers

    def begin_send(
        self, topic: str, properties: Mapping[str, str] | None
    ) -> tuple[Span, Mapping[str, str] | None]:
        """Begin the span of a send, and return it with the properties that the message is to carry.

        A trace context that the program gave stays, and the span is linked to it.
        """
        links: list[Link] = []
        is_given = isinstance(properties, Mapping) and _FIELD in properties
        if is_given and properties is not None:
            links = _links([_PROPAGATOR.extract(properties, context=Context())])
        attributes = {**_destination(topic), **_operation("send", "send")}
        name = attributes["messaging.destination.name"]
        span = self._tracer.start_span(
            f"send {name}", kind=SpanKind.PRODUCER, attributes=attributes, links=links
        )
        if is_given or not (properties is None or isinstance(properties, Mapping)):
            return span, properties
        carried = dict(properties or {})
        _PROPAGATOR.inject(carried, context=set_span_in_context(span, Context()))
        return span, carried or None

    def end_send(self, span: Span, message_id: MessageId) -> None:
        span.set_attribute("messaging.message.id", _shown_id(message_id))
        if message_id.partition() >= 0:
            span.set_attribute("messaging.destination.partition.id", str(message_id.partition()))
        span.end()

    def fail(self, span: Span, error: BaseException | str) -> None:
        """End a span with an error, or with the name of one."""
        is_error = isinstance(error, BaseException)
        span.set_attribute("error.type", type(error).__name__ if is_error else str(error))
        span.set_status(Status(StatusCode.ERROR, str(error)))
        span.end()

    # -- consumers

    def received(
        self, messages: Sequence[Message], began_ns: int, of_consumer: Mapping[str, str]
    ) -> None:
        """Make the span of a call that returned these messages, if any.

        Args:
            began_ns: when the call began.
            of_consumer: attributes of the consumer.
        """
        if messages:
            self._start("receive", "receive", messages, of_consumer, start_time=began_ns).end()

    @contextmanager
    def settling(self, name: str, what: object, of_consumer: Mapping[str, str]) -> Iterator[None]:
        """Make the span of an acknowledgement. ``what``: messages or ids."""
        several = what if isinstance(what, Sequence) else [what]
        span = self._start(name, "settle", several, of_consumer)
        with use_span(
            span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        ):
            try:
                yield
            except BaseException as error:
                self.fail(span, error)
                raise
        span.end()

    def listener(self, listener: Listener, of_consumer: Mapping[str, str]) -> Listener:
        """Return a listener that runs in a span, which continues the trace of its message."""

        @functools.wraps(listener)
        def listen(consumer: Any, message: Message) -> object:
            with self._processing(message, of_consumer):
                return listener(consumer, message)

        return listen

    def awaited_listener(self, listener: Listener, of_consumer: Mapping[str, str]) -> Listener:
        """Return the same of a listener whose answer may have to be awaited."""

        @functools.wraps(listener)
        async def listen(consumer: Any, message: Message) -> object:
            with self._processing(message, of_consumer):
                answer = listener(consumer, message)
                return await answer if inspect.isawaitable(answer) else answer

        return listen

    @contextmanager
    def _processing(self, message: Message, of_consumer: Mapping[str, str]) -> Iterator[None]:
        span = self._start(
            "process",
            "process",
            [message],
            of_consumer,
            kind=SpanKind.CONSUMER,
            context=trace_context(message),
        )
        with use_span(
            span, end_on_exit=False, record_exception=True, set_status_on_exception=False
        ):
            try:
                yield
            except BaseException as error:
                self.fail(span, error)
                raise
        span.end()

    def _start(
        self,
        name: str,
        kind_of_operation: str,
        what: Sequence[object],
        of_consumer: Mapping[str, str],
        *,
        kind: SpanKind = SpanKind.CLIENT,
        context: Context | None = None,
        start_time: int | None = None,
    ) -> Span:
        """Start a span that is linked to the sends of these messages."""
        messages = [each for each in what if isinstance(each, Message)]
        attributes: dict[str, Any] = {**_operation(name, kind_of_operation), **of_consumer}
        if len(messages) == 1:
            attributes |= _destination(messages[0].topic_name())
            attributes["messaging.message.body.size"] = messages[0].size()
        if len(what) == 1:
            found = what[0].message_id() if isinstance(what[0], Message) else what[0]
            if isinstance(found, MessageId):
                attributes["messaging.message.id"] = _shown_id(found)
        else:
            attributes["messaging.batch.message_count"] = len(what)
        return self._tracer.start_span(
            f"{name} {attributes['messaging.destination.name']}",
            context=context,
            kind=kind,
            attributes=attributes,
            links=_links([trace_context(each) for each in messages[:_LINKS_MAX]]),
            start_time=start_time,
        )


def _links(contexts: Sequence[Context]) -> list[Link]:
    found = [get_current_span(context).get_span_context() for context in contexts]
    return [Link(each) for each in found if each.is_valid]


def _operation(name: str, kind: str) -> dict[str, str]:
    return {
        "messaging.system": "pulsar",
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }


@functools.lru_cache(maxsize=1024)
def _destination(topic: str) -> dict[str, str]:
    name = TopicName.parse(topic)
    found = {"messaging.destination.name": name.partitioned.full}
    if name.partition >= 0:
        found["messaging.destination.partition.id"] = str(name.partition)
    return found


def _shown_id(message_id: MessageId) -> str:
    """Return the id as ``pulsarish topics trace`` takes it."""
    index = f":{message_id.batch_index()}" if message_id.batch_index() >= 0 else ""
    return f"{message_id.ledger_id()}:{message_id.entry_id()}{index}"
