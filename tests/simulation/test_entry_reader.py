"""Entries of a topic as they were published, read through whole brokers and bookies in virtual
time.
"""

from __future__ import annotations

import asyncio

from pulsarish.client.messages.message import open_entry
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName
from tests.support.brokered import Brokered, play_with_brokers

TOPIC = TopicName.parse("persistent://public/default/t")
START = Position(0, 0)
CONTENTS = [b"%03d" % number * 50 for number in range(300)]


async def taken(
    reader: object, count: int, found: list[tuple[int, int]], contents: list[bytes]
) -> int:
    """Take until there are so many messages; the greatest number of bytes that came at once."""
    greatest = 0
    while len(contents) < count:
        entries = await reader.take(60.0)  # type: ignore[attr-defined]
        assert entries, "nothing came"
        greatest = max(greatest, sum(len(entry.data) for entry in entries))
        for entry in entries:
            found.append((entry.ledger_id, entry.entry_id))
            _, messages = open_entry(entry, TOPIC.full, -1, lambda _metadata: lambda data: data)
            contents += [message.data() for message in messages]
    return greatest


def test_it_goes_on_behind_what_was_taken_when_the_owner_dies() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        _ = await client.subscribe(TOPIC.full, "keep")
        producer = await client.create_producer(TOPIC.full, batching_enabled=False)
        for each in CONTENTS[:200]:
            await producer.send(each)
        reader = await client._read_entries(TOPIC, START, window_bytes=2_000)
        found: list[tuple[int, int]] = []
        contents: list[bytes] = []
        _ = await taken(reader, 100, found, contents)
        owner = next(
            name
            for name, broker in brokered.cluster.brokers.items()
            if TOPIC.full in broker._topics.loaded
        )
        brokered.node(owner).crash()
        for each in CONTENTS[200:]:
            await producer.send(each)
        _ = await taken(reader, len(CONTENTS), found, contents)
        await reader.close()
        assert contents == CONTENTS
        assert found == sorted(set(found))

    play_with_brokers(scenario, brokers=2)


def test_what_waits_is_about_the_window_and_a_batch() -> None:
    async def scenario(brokered: Brokered) -> None:
        client = brokered.client()
        _ = await client.subscribe(TOPIC.full, "keep")
        producer = await client.create_producer(TOPIC.full, batching_max_messages=10)
        _ = await asyncio.gather(*[producer.send_soon(each) for each in CONTENTS])
        reader = await client._read_entries(TOPIC, START, window_bytes=6_000)
        contents: list[bytes] = []
        greatest = 0
        while len(contents) < len(CONTENTS):
            await brokered.world.clock.sleep(5.0)  # all that may come has come
            greatest = max(greatest, await taken(reader, len(contents) + 1, [], contents))
        await reader.close()
        assert contents == CONTENTS
        assert greatest < 6_000 + 2 * 10 * 200

    play_with_brokers(scenario)
