"""A reader of entries whose broker takes back what has just come."""

from __future__ import annotations

import asyncio
from typing import Any

from pulsarish.client.consumer.entry_reader import EntryReader
from pulsarish.client.messages.entry_encoder import encode_head, producer_prefix
from pulsarish.client.messages.message import Entry
from pulsarish.model.errors import ServiceNotReady
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.clock import SystemClock
from pulsarish.wire._pb import broker_pb2 as pb

TOPIC = TopicName.parse("persistent://public/default/t")


HEAD = encode_head(
    producer_prefix("p"),
    sequence_id=0,
    publish_time_ms=0,
    payload=b"x",
    uncompressed_size=1,
    messages_count=0,
)
DATA = HEAD + b"x"


class Lookup:
    def next_owner(self, *_: object) -> str:
        return ""


class Parts:
    """What of a client a reader needs that is never opened."""

    clock = SystemClock()
    lookup = Lookup()


def test_what_was_lost_before_it_was_taken_is_waited_for_anew() -> None:
    async def scenario() -> None:
        parts: Any = Parts()
        reader = EntryReader(
            TOPIC, Position(1, 0), parts, window_bytes=1_000, subscription="entries-"
        )
        taking = asyncio.ensure_future(reader.take(10.0))
        await asyncio.sleep(0)
        # One message of the broker brings both, so nobody had a turn in between.
        reader.on_delivery([Entry(1, 0, 0, b"")])
        reader.on_closed_by_broker(ServiceNotReady("the topic moves"), pb.BrokerAddresses())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not taking.done()
        reader.on_delivery([again := Entry(1, 0, 0, DATA)])
        assert await taking == [again]

    asyncio.run(scenario())
