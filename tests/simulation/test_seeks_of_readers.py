"""A reader's seek whose place the client learns only when it has subscribed again."""

from __future__ import annotations

from typing import Any

import pytest

from pulsarish.client.connection.consume_stream import ConsumeStream
from pulsarish.client.message_id import MessageId
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"


@pytest.mark.parametrize("by_time", [True, False])
def test_a_reader_is_where_it_sought_to_though_it_subscribed_again_meanwhile(
    monkeypatch: pytest.MonkeyPatch, *, by_time: bool
) -> None:
    asked = ConsumeStream.last_message_id

    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        _ = await client.subscribe(TOPIC, "keep")
        producer = await client.create_producer(TOPIC)
        reader = await client.create_reader(TOPIC, MessageId.earliest)
        for number in range(3):
            _ = await producer.send(b"%d" % number)
            await brokered.world.clock.sleep(0.1)
        read = [await reader.read_next(1_000) for _ in range(3)]

        async def ask_and_wait(
            stream: ConsumeStream, consumer_id: int, timeout_seconds: float
        ) -> Any:
            answer = await asked(stream, consumer_id, timeout_seconds)
            monkeypatch.setattr(ConsumeStream, "last_message_id", asked)
            await brokered.administer("PUT", "persistent/public/default/t/unload")
            await brokered.until(lambda: not stream.has_consumer(consumer_id))
            await brokered.until(reader.is_connected)
            return answer

        monkeypatch.setattr(ConsumeStream, "last_message_id", ask_and_wait)
        await reader.seek(read[2].publish_timestamp() if by_time else MessageId.latest)
        _ = await producer.send(b"3")
        found = [(await reader.read_next(1_000)).data() for _ in range(2 if by_time else 1)]
        assert found == ([b"2", b"3"] if by_time else [b"3"])
        await reader.close()

    play_with_brokers(scenario)
