"""A broker that traces makes spans for messages whose producers sampled them, and for no others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.topics.topic import Topic
from pulsarish.broker.topics.traced_topic import BrokerSpans, TracedTopic
from pulsarish.client.enums import CompressionType
from pulsarish.client.messages.entry_encoder import Extras, encode_batch
from pulsarish.model.errors import ConfigError
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire._pb.message_pb2 import KeyValue, MessageMetadata
from pulsarish.wire.entry import encode_entry
from pulsarish.wire.payload import compress
from tests.support.brokers import BrokerCluster, ConsumeClient, PublishClient, find

TOPIC = "persistent://public/default/t"
Scenario = Callable[[BrokerCluster, World, str, InMemorySpanExporter], Awaitable[None]]


class Broken:
    """A provider whose tracer fails."""

    def get_tracer(self, _name: str) -> Broken:
        return self

    def start_span(self, *_arguments: object, **_more: object) -> object:
        raise RuntimeError("no span")


def run(scenario: Scenario, provider: Any = None) -> None:
    sim = Simulation(5)
    cluster = BrokerCluster(sim)
    exporter = InMemorySpanExporter()
    if provider is None:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def main() -> None:
        await cluster.start()
        broker = cluster.brokers["broker0"]
        loader = broker._topics.loader
        spans = BrokerSpans(provider, "broker0", broker._world.clock)
        loader._make_topic = partial(TracedTopic, spans=spans)

        async def client(world: World) -> None:
            await scenario(cluster, world, await find(world, ["broker0"], TOPIC), exporter)

        await sim.node("client").run(client)

    sim.run(main, 600.0)


def context(number: int, *, sampled: bool = True) -> dict[str, str]:
    return {"traceparent": f"00-{number:032x}-{number:016x}-0{int(sampled)}"}


def single(properties: Mapping[str, str]) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.properties.extend(KeyValue(key=k, value=v) for k, v in properties.items())
    return encode_entry(metadata, b"x")


def batch(*messages: Mapping[str, str]) -> bytes:
    raw = encode_batch(
        [b"x"] * len(messages),
        range(len(messages)),
        {number: Extras(properties=each) for number, each in enumerate(messages) if each},
    )
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.num_messages_in_batch = len(messages)
    metadata.compression = CompressionType.ZLib.value
    metadata.uncompressed_size = len(raw)
    return encode_entry(metadata, compress(CompressionType.ZLib.value, raw))


async def published(world: World, address: str, *entries: bytes) -> list[tuple[int, int]]:
    publish = await PublishClient.connect(world, address)
    await publish.open(1, TOPIC)
    await publish.send([(1, each) for each in entries])
    found = await publish.wait(1, len(entries))
    return [each for each in found if isinstance(each, tuple)]


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def test_sampled_messages_have_spans_of_their_store_and_of_each_dispatch() -> None:
    async def scenario(
        cluster: BrokerCluster, world: World, address: str, exporter: InMemorySpanExporter
    ) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, "one", type=1, consumer_name="c")
        ids = await published(
            world, address, single({}), single(context(7)), single(context(8, sampled=False))
        )
        await consume.take(3)
        dispatched, stored = sorted(exporter.get_finished_spans(), key=lambda each: each.name)
        assert (stored.name, dispatched.name) == (f"store {TOPIC}", f"dispatch {TOPIC}")
        assert (parent_of(stored), parent_of(dispatched)) == (7, 7)
        message_id = f"{ids[1][0]}:{ids[1][1]}"
        expected = {
            "messaging.system": "pulsar",
            "messaging.operation.name": "store",
            "messaging.destination.name": TOPIC,
            "messaging.message.id": message_id,
            "pulsarish.broker": "broker0",
        }
        assert stored.attributes == expected
        assert dispatched.attributes == {
            **expected,
            "messaging.operation.name": "dispatch",
            "messaging.destination.subscription.name": "one",
            "messaging.client.id": "c",
            "pulsarish.redelivery_count": 0,
        }
        assert stored.start_time is not None
        exporter.clear()
        ledger, entry = ids[1]
        again = pb.Redeliver(consumer_id=1, ledgers=[ledger], entries=[entry])
        await consume.say(redeliver=[again])
        await consume.take(1)
        (dispatched,) = exporter.get_finished_spans()
        assert (dispatched.attributes or {})["pulsarish.redelivery_count"] == 1

    run(scenario)


def test_an_entry_has_one_span_that_is_linked_to_the_others_of_its_batch() -> None:
    async def scenario(
        cluster: BrokerCluster, world: World, address: str, exporter: InMemorySpanExporter
    ) -> None:
        await published(
            world,
            address,
            batch(context(4, sampled=False), context(3), {}, context(5), {"a": "b"}),
            batch({}, {"a": "b"}),
        )
        (stored,) = exporter.get_finished_spans()
        assert parent_of(stored) == 3
        assert [link.context.span_id for link in stored.links] == [5]

    run(scenario)


def acknowledged_in(exporter: InMemorySpanExporter) -> list[tuple[int, str]]:
    """The parent and the message id of each acknowledgement's span since the last call."""
    spans = [each for each in exporter.get_finished_spans() if each.name == f"acknowledge {TOPIC}"]
    exporter.clear()
    return [
        (parent_of(each), str((each.attributes or {})["messaging.message.id"])) for each in spans
    ]


def test_a_sampled_message_has_a_span_when_it_is_acknowledged() -> None:
    async def scenario(
        cluster: BrokerCluster, world: World, address: str, exporter: InMemorySpanExporter
    ) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, "one", type=1, consumer_name="c")
        ids = await published(world, address, single({}), single(context(7)))
        await consume.take(2)
        exporter.clear()
        await world.clock.sleep(2.5)
        await consume.ack(1, ids)
        (span,) = exporter.get_finished_spans()
        attributes = dict(span.attributes or {})
        assert (span.name, parent_of(span)) == (f"acknowledge {TOPIC}", 7)
        waited_ms = attributes.pop("pulsarish.unacknowledged_ms")
        assert isinstance(waited_ms, int)
        assert waited_ms >= 2_500
        assert attributes == {
            "messaging.system": "pulsar",
            "messaging.operation.name": "acknowledge",
            "messaging.destination.name": TOPIC,
            "messaging.message.id": f"{ids[1][0]}:{ids[1][1]}",
            "messaging.destination.subscription.name": "one",
            "messaging.client.id": "c",
            "pulsarish.broker": "broker0",
        }
        exporter.clear()
        await consume.ack(1, ids)
        assert exporter.get_finished_spans() == ()

    run(scenario)


def test_a_cumulative_acknowledgement_has_a_span_for_each_entry_up_to_it() -> None:
    async def scenario(
        cluster: BrokerCluster, world: World, address: str, exporter: InMemorySpanExporter
    ) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, "one")
        ids = await published(world, address, *(single(context(each)) for each in (3, 4, 5, 6)))
        await consume.take(4)
        await consume.ack(1, [ids[2]], cumulative=True)
        names = [f"{ledger}:{entry}" for ledger, entry in ids]
        assert acknowledged_in(exporter) == [*zip((3, 4, 5), names, strict=False)]
        await consume.ack(1, [ids[3]], cumulative=True)
        assert acknowledged_in(exporter) == [(6, names[3])]

    run(scenario)


def test_a_batch_has_the_span_with_the_acknowledgement_of_its_last_message() -> None:
    async def scenario(
        cluster: BrokerCluster, world: World, address: str, exporter: InMemorySpanExporter
    ) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, "one", type=1)
        ids = await published(
            world, address, batch(context(2, sampled=False), context(3), context(4))
        )
        await consume.take(1)
        for index in (1, 0):
            await consume.ack(1, ids, batch_indexes=[index])
        assert acknowledged_in(exporter) == []
        await consume.ack(1, ids, batch_indexes=[2])
        assert acknowledged_in(exporter) == [(3, f"{ids[0][0]}:{ids[0][1]}")]

    run(scenario)


def test_a_span_that_cannot_be_made_stops_no_message() -> None:
    async def scenario(
        cluster: BrokerCluster, world: World, address: str, _exporter: InMemorySpanExporter
    ) -> None:
        consume = await ConsumeClient.connect(world, address)
        await consume.subscribe(1, TOPIC, "one")
        ids = await published(world, address, single(context(7)), single(context(8)))
        assert [each.entry for each in await consume.take(2)] == [0, 1]
        await consume.ack(1, ids)

    run(scenario, Broken())


def test_a_broker_without_an_endpoint_has_plain_topics() -> None:
    sim = Simulation(6)
    cluster = BrokerCluster(sim)

    async def main() -> None:
        await cluster.start()
        assert cluster.brokers["broker0"]._topics.loader._make_topic is Topic

    sim.run(main, 60.0)


def test_an_endpoint_is_a_url() -> None:
    config = BrokerConfig(broker_id="b", metadata_url="memory:", tracing_endpoint="collector:4318")
    with pytest.raises(ConfigError, match="tracing_endpoint = 'collector:4318' must be a URL"):
        config.validate()
