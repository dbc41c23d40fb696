"""The debug log of one message's life."""

from __future__ import annotations

import asyncio
import logging

import pytest

from pulsarish.client.enums import InitialPosition
from tests.support.client_world import Cast, play

LOGGER = "pulsarish.client.message"


async def scenario(cast: Cast) -> None:
    client = cast.client()
    producer = await client.create_producer("t")
    consumer = await client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
    await asyncio.gather(producer.send(b"one"), producer.send(b"two"))
    first, second = [await consumer.receive(1_000) for _ in range(2)]
    await consumer.negative_acknowledge(second)
    await consumer.acknowledge([first, second])
    await consumer.close()


def test_each_step_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, LOGGER):
        play(scenario, seeds=1)
    records = [record for record in caplog.records if record.name == LOGGER]
    events = [record.msg for record in records]
    assert [event for event in events if event != "messages received"] == [
        "message queued",
        "message queued",
        "messages batched",
        "messages sent",
        "messages stored",
        "message handed out",
        "message handed out",
        "message refused",
        "message acknowledged",
    ]
    assert events.index("messages sent") < events.index("messages received")
    by_event = {record.msg: record.fields for record in records}
    assert by_event["message queued"]["sequence"] == 1
    batched = by_event["messages batched"]
    assert (batched["sequence"], batched["last_sequence"]) == (0, 1)
    place = by_event["messages stored"]["id"]
    assert by_event["messages received"]["id"] == place
    assert by_event["message handed out"]["sequence"] == 1
    assert by_event["message handed out"]["id"] == f"{place}:1"
    assert by_event["message acknowledged"]["id"] == place


def test_without_debugging_there_is_none(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, LOGGER):
        play(scenario, seeds=1)
    assert not [record for record in caplog.records if record.name == LOGGER]
