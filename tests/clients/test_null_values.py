"""Null values of ours and of Apache Pulsar's Python client: each reads the other's, and they delete
keys in table views and in the compacted view.
"""

from __future__ import annotations

import asyncio
import time
from types import ModuleType
from typing import Any

import pytest

import pulsarish
import pulsarish.asyncio
from tests.clients.programs import Site

pulsar = pytest.importorskip(
    "pulsar", reason="left out: Apache Pulsar's Python client (pulsar-client) is not installed"
)

PAIRS = [(pulsarish, pulsar), (pulsar, pulsarish)]
KEYS = ("a", "b", "c", "d")


def url_of(site: Site, module: ModuleType) -> str:
    return site.cluster.service_urls()["pulsarish" if module is pulsarish else "pulsar"]


def publish(producer: Any) -> None:
    """Of the keys a to d, b gets a null value, c empty content, and d a null value first."""
    producer.send_async(None, None, partition_key="d")
    for key in KEYS:
        producer.send_async(f"value of {key}".encode(), None, partition_key=key)
    producer.send_async(None, None, partition_key="b", properties={"n": "5"})
    producer.send_async(b"", None, partition_key="c")
    producer.flush()


@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize(("sender", "receiver"), PAIRS, ids=["from ours", "from theirs"])
def test_each_reads_null_values_of_the_other(
    sender: ModuleType, receiver: ModuleType, *, batching: bool, site: Site
) -> None:
    topic = f"null-{sender.__name__}-{batching}"
    with_sender = sender.Client(url_of(site, sender))
    publish(with_sender.create_producer(topic, batching_enabled=batching))
    client = receiver.Client(url_of(site, receiver))
    consumer = client.subscribe(topic, "s", initial_position=receiver.InitialPosition.Earliest)
    messages = [consumer.receive(20_000) for _ in range(7)]
    found = [(each.partition_key(), each.has_null_value(), each.data()) for each in messages]
    assert found == [
        ("d", True, b""),
        *((key, False, f"value of {key}".encode()) for key in KEYS),
        ("b", True, b""),
        ("c", False, b""),
    ]
    assert messages[5].properties() == {"n": "5"}
    for each in (with_sender, client):
        each.close()


@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
@pytest.mark.parametrize(("sender", "receiver"), PAIRS, ids=["from ours", "from theirs"])
def test_null_values_delete_keys_in_table_views_and_the_compacted_view(
    sender: ModuleType, receiver: ModuleType, *, batching: bool, site: Site
) -> None:
    topic = f"null-table-{sender.__name__}-{batching}"
    with_sender = sender.Client(url_of(site, sender))
    publish(with_sender.create_producer(topic, batching_enabled=batching))
    client = receiver.Client(url_of(site, receiver))
    expected = {"a": b"value of a", "d": b"value of d"}

    def table() -> dict[str, bytes]:
        view = client.create_table_view(topic)
        found: dict[str, bytes] = {}
        view.for_each(found.__setitem__)
        view.close()
        return found

    assert table() == expected
    site.admin.topics.compact(topic)
    while site.admin.topics.compaction_status(topic)["status"] == "RUNNING":
        time.sleep(0.05)
    assert site.admin.topics.compaction_status(topic)["status"] == "SUCCESS"
    assert table() == expected
    reader = client.create_reader(topic, receiver.MessageId.earliest, is_read_compacted=True)
    left = {}
    while reader.has_message_available():
        message = reader.read_next(20_000)
        left[message.partition_key()] = message.data()
    assert left == expected, "the keys b and c are gone, with their values of before"
    for each in (with_sender, client):
        each.close()


def test_the_awaitable_client_sends_and_gets_null_values(site: Site) -> None:
    async def both() -> None:
        async with pulsarish.asyncio.Client(url_of(site, pulsarish)) as client:
            producer = await client.create_producer("null-awaitable")
            await producer.send(None, partition_key="k")
            consumer = await client.subscribe(
                "null-awaitable", "s", initial_position=pulsarish.InitialPosition.Earliest
            )
            message = await consumer.receive(20_000)
            assert message.has_null_value()
            assert message.value() is None

    asyncio.run(both())
