"""What our own client can request when it subscribes, over whole brokers and bookies in virtual
time.
"""

from __future__ import annotations

import pytest

from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.topic_name import TopicName
from pulsarish.sim.world.nodes import SimClock
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = "persistent://public/default/t"


def test_properties_of_a_subscription_are_those_of_who_made_it() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        first = await client.subscribe(TOPIC, "s", subscription_properties={"team": "billing"})
        await first.close()
        await client.subscribe(TOPIC, "s", subscription_properties={"team": "other"})
        stats = await brokered.stats(TOPIC)
        assert stats["subscriptions"]["s"]["subscriptionProperties"] == {"team": "billing"}

    play_with_brokers(scenario)


def test_a_reader_starts_with_what_was_published_so_long_ago_and_once_only() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        # A subscription keeps the messages.
        await client.subscribe(TOPIC, "s")
        producer = await client.create_producer(TOPIC)
        for number in range(10):
            await producer.send(b"%d" % number)
            await brokered.world.clock.sleep(10.0)
        # The client sets publish times; the broker's wall clock agrees here.
        broker = brokered.node("broker0").world
        assert broker is not None
        assert isinstance(broker.clock, SimClock)
        broker.clock.wall_offset_ms += brokered.world.clock.wall_ms() - broker.clock.wall_ms()
        for start in (MessageId.earliest, MessageId.latest):
            reader = await client.create_reader(
                TOPIC, start, start_message_from_rollback_seconds=35
            )
            assert [(await reader.read_next(timeout_millis=5_000)).data() for _ in range(3)] == [
                b"7",
                b"8",
                b"9",
            ]
            assert not await reader.has_message_available()
            await reader.close()
        reader = await client.create_reader(
            TOPIC, MessageId.earliest, start_message_from_rollback_seconds=1_000
        )
        assert (await reader.read_next(timeout_millis=5_000)).data() == b"0"
        await brokered.administer(
            "PUT", "persistent/public/default/t/unload", owner=TopicName.parse(TOPIC)
        )
        assert (await reader.read_next(timeout_millis=60_000)).data() == b"1"
        with pytest.raises(InvalidArgument, match="earliest or MessageId"):
            await client.create_reader(
                TOPIC, MessageId(-1, 1, 1), start_message_from_rollback_seconds=5
            )

    play_with_brokers(scenario)
