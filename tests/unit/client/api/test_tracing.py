"""What a client traces: the spans of OpenTelemetry's conventions, and the context that messages
carry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.traced_asyncio import trace
from pulsarish.client.api.tracing import Tracing, trace_context
from pulsarish.client.enums import ConsumerType
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import InvalidArgument, ProducerQueueIsFull, Timeout, TopicTerminated
from tests.support.client_world import Cast, play

TOPIC = "persistent://public/default/t"


class Spans:
    """A client that traces, and its spans."""

    def __init__(self, cast: Cast, **options: Any) -> None:
        self.provider = TracerProvider(**options)
        self.exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.client: AsyncClient = cast.client()
        trace(self.client, Tracing(self.provider, cast.world.clock.wall_ms))

    def take(self, *names: str) -> list[ReadableSpan]:
        """The spans that ended since the last call, in the order of their ends."""
        found = self._ended()
        assert [span.name.split()[0] for span in found] == list(names)
        return found

    def take_by_name(self, *names: str) -> list[ReadableSpan]:
        """The same, sorted by name."""
        found = sorted(self._ended(), key=lambda span: span.name)
        assert [span.name.split()[0] for span in found] == list(names)
        return found

    def _ended(self) -> list[ReadableSpan]:
        found = list(self.exporter.get_finished_spans())
        self.exporter.clear()
        return found


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    found = {
        key.removeprefix("messaging."): value for key, value in (span.attributes or {}).items()
    }
    assert found.pop("system") == "pulsar"
    return found


def shown(message: Message) -> str:
    found = message.message_id()
    index = f":{found.batch_index()}" if found.batch_index() >= 0 else ""
    return f"{found.ledger_id()}:{found.entry_id()}{index}"


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def test_a_message_carries_the_context_of_its_send_to_the_consumer() -> None:
    async def scenario(cast: Cast) -> None:
        spans = Spans(cast)
        producer = await spans.client.create_producer("t")
        consumer = await spans.client.subscribe("t", "s", consumer_name="c")
        with spans.provider.get_tracer("program").start_as_current_span("request") as request:
            await producer.send(b"hello", {"a": "b"})
        sent, _ = spans.take("send", "request")
        assert (sent.name, sent.kind) == (f"send {TOPIC}", SpanKind.PRODUCER)
        assert sent.parent is not None
        assert sent.parent.span_id == request.get_span_context().span_id
        message = await consumer.receive()
        assert sent.context is not None
        assert sent.context.trace_flags.sampled
        flags = f"{sent.context.trace_flags:02x}"
        carried = f"00-{sent.context.trace_id:032x}-{sent.context.span_id:016x}-{flags}"
        assert message.properties() == {"a": "b", "traceparent": carried}
        assert attributes(sent) == {
            "operation.name": "send",
            "operation.type": "send",
            "destination.name": TOPIC,
            "message.id": shown(message),
        }
        (received,) = spans.take("receive")
        assert (received.name, received.kind) == (f"receive {TOPIC}", SpanKind.CLIENT)
        of_consumer = {
            "destination.name": TOPIC,
            "destination.subscription.name": "s",
            "client.id": "c",
        }
        assert attributes(received) == {
            "operation.name": "receive",
            "operation.type": "receive",
            **of_consumer,
            "message.id": shown(message),
            "message.body.size": 5,
        }
        assert linked(received) == [sent.context.span_id]
        assert get_current_span(
            trace_context(message)
        ).get_span_context() == sent.context.__class__(
            sent.context.trace_id, sent.context.span_id, True, sent.context.trace_flags
        )
        await consumer.acknowledge(message)
        await consumer.acknowledge_cumulative(message.message_id())
        ack, cumulative = spans.take("ack", "ack_cumulative")
        assert (linked(ack), linked(cumulative)) == ([sent.context.span_id], [])
        assert attributes(ack)["operation.type"] == "settle"
        assert attributes(cumulative)["message.id"] == shown(message)

    play(scenario, seeds=1)


def test_a_batch_has_one_span_with_a_link_to_each_send() -> None:
    async def scenario(cast: Cast) -> None:
        spans = Spans(cast)
        producer = await spans.client.create_producer("t")
        consumer = await spans.client.subscribe("t", "s", consumer_type=ConsumerType.Shared)
        for future in [producer.send_soon(b"%d" % number) for number in range(3)]:
            await future
        await cast.sleep(0.01)
        sent = spans.take("send", "send", "send")
        messages = await consumer.batch_receive()
        assert len(messages) == 3
        (received,) = spans.take("receive")
        assert sorted(linked(received)) == sorted(span_id(span) for span in sent)
        assert attributes(received)["batch.message_count"] == 3
        assert "message.id" not in attributes(received)
        await consumer.acknowledge(messages[:2])
        await consumer.negative_acknowledge(messages[2])
        ack, nack = spans.take("ack", "nack")
        assert attributes(ack)["batch.message_count"] == 2
        assert attributes(nack)["message.id"] == shown(messages[2])

    play(scenario, seeds=1)


def test_a_context_that_the_program_gave_stays_and_is_linked() -> None:
    async def scenario(cast: Cast) -> None:
        spans = Spans(cast)
        producer = await spans.client.create_producer("t")
        reader = await spans.client.create_reader("t", MessageId.earliest)
        given = f"00-{7:032x}-{9:016x}-01"
        await producer.send(b"x", {"traceparent": given, "tracestate": "a=b"})
        message = await reader.read_next()
        assert message.properties() == {"traceparent": given, "tracestate": "a=b"}
        sent, received = spans.take("send", "receive")
        assert (linked(sent), linked(received)) == ([9], [9])
        assert "destination.subscription.name" not in attributes(received)

    play(scenario, seeds=1)


def test_what_is_not_sampled_carries_its_context_and_makes_no_span() -> None:
    async def scenario(cast: Cast) -> None:
        spans = Spans(cast, sampler=ALWAYS_OFF)
        producer = await spans.client.create_producer("t")
        reader = await spans.client.create_reader("t", MessageId.earliest)
        await producer.send(b"x")
        message = await reader.read_next()
        flags = int(message.properties()["traceparent"].rpartition("-")[2], 16)
        assert not flags & 1
        assert spans.take() == []

    play(scenario, seeds=1)


def test_a_listener_runs_in_a_span_that_continues_the_trace() -> None:
    async def scenario(cast: Cast) -> None:
        spans = Spans(cast)
        heard: list[int] = []

        async def listen(_consumer: object, message: Message) -> None:
            heard.append(get_current_span().get_span_context().span_id)
            if message.data() == b"bad":
                raise ValueError("bad")

        producer = await spans.client.create_producer("t")
        await spans.client.subscribe("t", "s", message_listener=listen)
        await producer.send(b"good")
        await cast.sleep(1)
        good, sent = spans.take_by_name("process", "send")
        assert (good.name, good.kind) == (f"process {TOPIC}", SpanKind.CONSUMER)
        assert good.parent is not None
        assert (good.parent.span_id, linked(good)) == (span_id(sent), [span_id(sent)])
        await producer.send(b"bad")
        await cast.sleep(1)
        bad, _ = spans.take_by_name("process", "send")
        assert heard == [span_id(good), span_id(bad)]
        assert (bad.status.status_code, good.status.status_code) == (
            StatusCode.ERROR,
            StatusCode.UNSET,
        )
        assert attributes(bad)["message.body.size"] == 3

    play(scenario, seeds=1)


def test_failures_end_their_spans_with_the_error() -> None:
    async def scenario(cast: Cast) -> None:
        spans = Spans(cast)
        producer = await spans.client.create_producer("t", max_pending_messages=1)
        cast.broker.refuse_entries = [TopicTerminated("it is terminated")]
        with pytest.raises(TopicTerminated):
            await producer.send(b"x")
        (sent,) = spans.take("send")
        assert (sent.attributes or {})["error.type"] == "TopicTerminated"
        assert (sent.status.status_code, sent.status.description) == (
            StatusCode.ERROR,
            "it is terminated",
        )
        other = await spans.client.create_producer("u", max_pending_messages=1)
        cast.broker.hold_receipts = True
        waits = other.send_soon(b"x")
        with pytest.raises(ProducerQueueIsFull):
            other.send_soon(b"y")
        (full,) = spans.take("send")
        assert (full.attributes or {})["error.type"] == "ProducerQueueIsFull"
        consumer = await spans.client.subscribe("v", "s")
        with pytest.raises(Timeout):
            await consumer.receive(10)
        with pytest.raises(InvalidArgument):
            await consumer.acknowledge("no message")  # type: ignore[arg-type]
        (ack,) = spans.take("ack")
        assert (ack.attributes or {})["error.type"] == "InvalidType"
        cast.broker.hold_receipts = False
        cast.broker.break_streams()
        await waits
        await cast.sleep(0)  # its span ends in the same turn, before or after this
        spans.take("send")

    play(scenario, seeds=1)


def test_iterating_traces_each_message() -> None:
    async def scenario(cast: Cast) -> None:
        spans = Spans(cast)
        producer = await spans.client.create_producer("t")
        consumer = await spans.client.subscribe("t", "s")
        for number in range(3):
            await producer.send(b"%d" % number)
        spans.take("send", "send", "send")
        found = []
        async for message in consumer:
            found.append(message.data())
            if len(found) == 3:
                break
        spans.take("receive", "receive", "receive")

    play(scenario, seeds=1)


def test_another_thing_than_a_provider_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="pass a TracerProvider"):
        Tracing(object(), lambda: 0)
