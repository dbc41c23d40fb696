"""Spans of a broker reach a collector as OpenTelemetry's protocol has them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanContext

from pulsarish.broker.clients.commands import Acknowledge
from pulsarish.broker.clients.consumer import Delivery
from pulsarish.broker.topics.traced_topic import (
    BrokerSpans,
    ExaminedEntries,
    KeptContexts,
    TracedTopic,
    _Kept,
    _sampled,
    otlp_provider,
)
from pulsarish.client.messages.entry_encoder import Extras, encode_batch
from pulsarish.model.errors import PulsarishError, ServiceNotReady
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.clock import SystemClock
from pulsarish.wire._pb.message_pb2 import KeyValue, MessageMetadata
from pulsarish.wire.entry import encode_entry

TRACE = f"{7:032x}"


@dataclass
class Collector:
    url: str
    bodies: list[bytes]


@pytest.fixture
def collector() -> Iterator[Collector]:
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Collector(f"http://127.0.0.1:{server.server_port}/v1/traces", bodies)
        server.shutdown()
        thread.join()


def test_a_collector_gets_the_spans_of_a_broker(collector: Collector) -> None:
    provider = otlp_provider(collector.url, "broker-1")
    spans = BrokerSpans(provider, "broker-1", SystemClock())
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.properties.append(KeyValue(key="traceparent", value=f"00-{TRACE}-{9:016x}-01"))
    entry = encode_entry(metadata, b"x")
    found = spans.sampled("t", memoryview(entry))
    spans.stored("t", Position(3, 4), found, SystemClock().monotonic())
    # This one was stored by another broker.
    spans.dispatched("t", "s", "c", [Delivery(Position(3, 5), entry, 1, 0, None)])
    spans.acknowledged("t", "s", "c", Acknowledge(1, [Position(3, 5)]), lambda _: True)
    provider.shutdown()
    (body,) = collector.bodies
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    named = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert (named["service.name"], named["service.instance.id"]) == ("pulsarish-broker", "broker-1")
    found = [span for scope in resource.scope_spans for span in scope.spans]
    assert [span.name for span in found] == ["store t", "dispatch t", "acknowledge t"]
    assert {(span.trace_id.hex(), span.parent_span_id.hex()) for span in found} == {
        (TRACE, f"{9:016x}")
    }
    assert found[0].start_time_unix_nano <= found[0].end_time_unix_nano


def test_what_was_added_first_is_forgotten_first() -> None:
    kept = KeptContexts(contexts_max=5)
    context = SpanContext(1, 2, is_remote=True)

    def add(subscription: str, entry_id: int, contexts: int) -> None:
        kept.add("t", subscription, Position(3, entry_id), _Kept(0.0, [context] * contexts))

    def entries(subscription: str, through: int = 99, *, cumulative: bool = True) -> list[int]:
        command = Acknowledge(1, [Position(3, through)], cumulative=cumulative)
        return [each.entry_id for each in kept.named_by("t", subscription, command)]

    add("a", 0, 1)
    add("a", 1, 2)
    add("b", 0, 2)
    assert (entries("a"), entries("b")) == ([0, 1], [0])
    add("a", 0, 1)  # it was delivered again
    add("b", 1, 1)
    assert (entries("a"), entries("b")) == ([0], [0, 1])
    assert entries("b", 0) == [0]
    assert entries("b", 1, cumulative=False) == [1]
    assert kept.take("t", "b", Position(3, 0)) is not None
    assert kept.take("t", "b", Position(3, 0)) is None
    add("b", 7, 6)  # more than all
    assert (entries("a"), entries("b"), kept._kept, kept._positions) == ([], [], {}, {})
    add("b", 8, 5)
    assert entries("b") == [8]


@pytest.mark.parametrize(
    ("traceparent", "is_sampled"),
    [
        (f"00-{TRACE}-{9:016x}-01", True),
        (f"00-{TRACE}-{9:016x}-03", True),
        (f"01-{TRACE}-{9:016x}-01-{'x' * 100}", True),  # a later version, with more behind
        (f"00-{TRACE}-{9:016x}-00", False),
        (f"00-{TRACE}-{0:016x}-01", False),
        ("", False),
    ],
)
@pytest.mark.parametrize("is_batch", [False, True])
def test_sampled_contexts_are_found(traceparent: str, is_sampled: bool, is_batch: bool) -> None:
    properties = {"a": "traceparent", "traceparent": traceparent, "z": "1"}
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    content = b"00-x-y-01"
    if is_batch:
        first = {"traceparent": f"00-{TRACE}-{8:016x}-00"}
        extras = {0: Extras(properties=first), 1: Extras(properties=properties)}
        content = encode_batch([content] * 3, range(3), extras)
        metadata.num_messages_in_batch = 3
    else:
        metadata.properties.extend(KeyValue(key=k, value=v) for k, v in properties.items())
    entry = encode_entry(metadata, content)
    for payload in (entry, memoryview(entry)):
        assert [each.span_id for each in _sampled(payload)] == [9] * is_sampled


def test_a_context_in_the_content_of_a_message_is_none() -> None:
    inner = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    inner.properties.append(KeyValue(key="traceparent", value=f"00-{TRACE}-{9:016x}-01"))
    content = encode_entry(inner, b"x")
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    assert list(_sampled(encode_entry(metadata, content))) == []
    metadata.num_messages_in_batch = 2
    first = {"traceparent": f"00-{TRACE}-{8:016x}-00"}
    for extras in ({}, {0: Extras(properties=first)}):
        batch = encode_batch([content] * 2, range(2), extras)
        assert list(_sampled(encode_entry(metadata, batch))) == []


def test_a_batch_whose_first_message_has_no_context_is_of_a_producer_that_does_not_trace() -> None:
    context = Extras(properties={"traceparent": f"00-{TRACE}-{9:016x}-01"})
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.num_messages_in_batch = 2
    for at, found in ((0, [9]), (1, [])):
        entry = encode_entry(metadata, encode_batch([b"x"] * 2, range(2), {at: context}))
        assert [each.span_id for each in _sampled(entry)] == found


def test_what_follows_what_was_examined_is_known() -> None:
    examined = ExaminedEntries()

    def unknown(ledger_id: int) -> list[int]:
        return [each for each in range(8) if examined.can_be_sampled(Position(ledger_id, each))]

    assert unknown(3) == [0, 1, 2, 3, 4, 5, 6, 7]
    examined.add(3, 2, 2, [3])
    examined.add(3, 4, 1, [])
    assert unknown(3) == [0, 1, 3, 5, 6, 7]
    # Entry 5 was not looked at.
    examined.add(3, 6, 1, [])
    assert unknown(3) == [0, 1, 2, 3, 4, 5, 7]
    examined.add(4, 0, 1, [])
    assert unknown(3) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert unknown(4) == [1, 2, 3, 4, 5, 6, 7]


def test_nothing_is_kept_of_an_entry_that_is_not_appended() -> None:
    class Log:
        error: PulsarishError | None = None

        def append(self, _payload: bytes, _context: object) -> None:
            if self.error is not None:
                raise self.error

    class Publishing:
        def append_failed(self, contexts: object, error: PulsarishError) -> None:
            pass

    topic, log = object.__new__(TracedTopic), Log()
    parts = {
        "name": TopicName.parse("t"),
        "log": log,
        "publishing": Publishing(),
        "_arrived": {},
        "_spans": BrokerSpans(TracerProvider(), "broker-1", SystemClock()),
    }
    for name, part in parts.items():
        setattr(topic, name, part)
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.properties.append(KeyValue(key="traceparent", value=f"00-{TRACE}-{9:016x}-01"))
    entry = encode_entry(metadata, b"x")
    topic.append(entry, "first")
    assert list(topic._arrived) == ["first"]
    log.error = ServiceNotReady("no ledger")
    with pytest.raises(ServiceNotReady):
        topic.append(entry, "second")
    assert list(topic._arrived) == ["first"]
    topic.append_failed(["zeroth", "first"], log.error)
    assert topic._arrived == {}
