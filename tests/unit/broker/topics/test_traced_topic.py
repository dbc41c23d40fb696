"""Spans of a broker reach a collector as OpenTelemetry's protocol has them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.trace import SpanContext

from pulsarish.broker.clients.commands import Acknowledge
from pulsarish.broker.clients.consumer import Delivery
from pulsarish.broker.topics.traced_topic import (
    BrokerSpans,
    UnacknowledgedContexts,
    _Dispatched,
    otlp_provider,
)
from pulsarish.model.position import Position
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
    spans.stored("t", Position(3, 4), memoryview(entry), SystemClock().monotonic())
    spans.dispatched("t", "s", "c", [Delivery(Position(3, 4), entry, 1, 0, None)])
    spans.acknowledged("t", "s", "c", Acknowledge(1, [Position(3, 4)]), lambda _: True)
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


def test_what_was_dispatched_first_is_forgotten_first() -> None:
    kept = UnacknowledgedContexts(contexts_max=5)
    context = SpanContext(1, 2, is_remote=True)

    def add(subscription: str, entry_id: int, contexts: int) -> None:
        kept.add("t", subscription, Position(3, entry_id), _Dispatched(0.0, [context] * contexts))

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
