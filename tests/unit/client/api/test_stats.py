"""What producers, consumers and clients count, in values, in Prometheus's text and in the log."""

from __future__ import annotations

import asyncio
import logging

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.parser import text_string_to_metric_families

import pulsarish
from pulsarish.client.api.metering import export_metrics
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.client.stats import ClientStats, ConsumerStats, LatencyStats, ProducerStats
from tests.support.client_world import Cast, play


def test_every_message_is_counted() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", max_pending_messages=10)
        consumer = await client.subscribe(
            "t", "s", ConsumerType.Shared, initial_position=InitialPosition.Earliest
        )
        assert producer.stats().messages_sent == consumer.stats().messages_received == 0
        waiting = [producer.send_soon(b"0123456789") for _ in range(10)]
        assert producer.stats().messages_pending == 10
        await asyncio.gather(*waiting)
        sent = producer.stats()
        assert (sent.messages_sent, sent.messages_failed, sent.messages_pending) == (10, 0, 0)
        assert sent.bytes_sent > 100
        assert sent.send_latency.count == 10
        assert 0 < sent.send_latency.mean < 5

        first = await consumer.receive(1_000)
        received = consumer.stats()
        assert (received.messages_received, received.messages_queued) == (1, 9)
        await consumer.acknowledge(first)
        second = await consumer.receive(1_000)
        await consumer.negative_acknowledge(second)
        await consumer.acknowledge([await consumer.receive(1_000) for _ in range(2)])
        received = consumer.stats()
        assert received.messages_received == 4
        assert received.messages_acknowledged == 3
        assert received.messages_refused == 1
        assert received.messages_redelivered == 0
        assert received.bytes_received > 100
        while consumer.stats().messages_redelivered == 0:
            await consumer.receive(100_000)

        stats = client.stats()
        assert stats.producers == (producer.stats(),)
        assert stats.consumers == (consumer.stats(),)
        await producer.close()
        assert client.stats().producers == ()

    play(scenario)


def test_what_fails_is_counted_as_failed() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t", send_timeout_millis=500)
        for broker in cast.brokers:
            cast.sim.nodes[broker.address.partition(":")[0]].crash()
        with pytest.raises(pulsarish.Timeout):
            await producer.send(b"x")
        stats = producer.stats()
        assert (stats.messages_sent, stats.messages_failed, stats.messages_pending) == (0, 1, 0)

    play(scenario, seeds=1)


def test_a_seek_and_a_close_count_nothing_as_received() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t")
        reader = await client.create_reader("t", MessageId.earliest)
        await asyncio.gather(*(producer.send(b"%d" % number) for number in range(10)))
        await reader.read_next(1_000)
        await reader.seek(MessageId.earliest)
        assert reader.stats().messages_received == 1
        for _ in range(10):
            await reader.read_next(1_000)
        stats = reader.stats()
        assert (stats.messages_received, stats.messages_queued) == (11, 0)
        assert stats.subscription_name == ""

    play(scenario)


LATENCY = LatencyStats((0.1, 1.0), (3, 1, 0), 0.9)
PRODUCER = ProducerStats("t", "p", 4, 100, 1, 2, LATENCY)
CONSUMER = ConsumerStats("t", 's"', "c", 4, 100, 1, 3, 1, 5)


def test_quantiles_are_upper_bounds() -> None:
    assert [LATENCY.quantile(share) for share in (0.5, 0.75, 0.99)] == [0.1, 0.1, 1.0]
    assert LATENCY.mean == pytest.approx(0.225)
    assert LatencyStats((0.1,), (0, 0), 0.0).quantile(0.5) == 0.0
    assert LatencyStats((0.1,), (0, 1), 5.0).quantile(0.5) == float("inf")


def test_the_text_is_prometheus() -> None:
    stats = ClientStats((PRODUCER, PRODUCER), (CONSUMER,))
    families = {
        family.name: family for family in text_string_to_metric_families(stats.to_prometheus())
    }
    sent = families["pulsarish_client_messages_sent"].samples
    assert [(sample.labels, sample.value) for sample in sent] == [
        ({"topic": "t", "producer_name": "p"}, 8)
    ], "one series for producers of the same name"
    (queued,) = families["pulsarish_client_messages_queued"].samples
    assert queued.labels == {"topic": "t", "subscription": 's"', "consumer_name": "c"}
    assert queued.value == 5
    latency = families["pulsarish_client_send_latency_seconds"]
    assert latency.type == "histogram"
    assert {each.labels.get("le"): each.value for each in latency.samples if "le" in each.labels}[
        "+Inf"
    ] == 8


def test_opentelemetry_reads_the_counts() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])

    async def scenario(cast: Cast) -> None:
        client = cast.client()
        export_metrics(client, provider)
        producer = await client.create_producer("t", "shop")
        await client.subscribe("t", "s")
        await asyncio.gather(producer.send(b"x"), producer.send(b"y"))
        data = reader.get_metrics_data()
        assert data is not None
        points = {
            metric.name: list(metric.data.data_points)
            for metric in data.resource_metrics[0].scope_metrics[0].metrics
        }
        (sent,) = points["pulsarish.client.messages_sent"]
        assert sent.value == 2
        assert sent.attributes == {
            "messaging.system": "pulsar",
            "messaging.destination.name": "persistent://public/default/t",
            "messaging.client.id": "shop",
        }
        assert points["pulsarish.client.send_time"][0].value > 0
        assert (
            points["pulsarish.client.messages_queued"][0].attributes[
                "messaging.destination.subscription.name"
            ]
            == "s"
        )

    play(scenario, seeds=1)
    provider.shutdown()


def test_the_log_says_what_was_counted_in_each_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        client._stats_report.use_interval(10)
        producer = await client.create_producer("t")
        for count in (1, 2):
            for _ in range(count):
                await producer.send(b"x")
            await cast.world.clock.sleep(10)
        await producer.close()
        await cast.world.clock.sleep(30)

    with caplog.at_level(logging.INFO, "pulsarish.client.stats"):
        play(scenario, seeds=1)
    written = [
        record.fields["messages_sent"]
        for record in caplog.records
        if record.msg == "producer statistics"
    ]
    assert written == [1, 2]
