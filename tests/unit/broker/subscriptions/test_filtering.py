"""The filter of a subscription on entries in memory: what it acknowledges, and when it lets the
event loop go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from pulsarish.broker.dispatchers.chunks import Chunk
from pulsarish.broker.dispatchers.reads import Read, Ready
from pulsarish.broker.subscriptions import filtering
from pulsarish.broker.subscriptions.filtering import FilterCounts, SubscriptionFilter
from pulsarish.model.message_filter import parse_filter
from pulsarish.model.position import Position
from pulsarish.wire._pb import message_pb2 as pb
from pulsarish.wire.entry import encode_entry, parse_metadata
from pulsarish.wire.payload import compress


class Subscription:
    """A subscription, its cursor, its source, its dispatcher and a clock."""

    def __init__(self, text: str, *, is_compacted: bool = False, deliveries: int = 1) -> None:
        self.gone: list[Position] = []
        self.acknowledged: set[Position] = set()
        self.parts: dict[Position, int] = {}
        self.filter_counts = FilterCounts()
        self.is_seeking = False
        self.is_compacted = is_compacted
        self.sleeps = 0
        self._deliveries = deliveries
        self.cursor = self.source = self.reads = self
        self.filter = SubscriptionFilter(cast("Any", self), parse_filter(text), cast("Any", self))

    def is_current(self, _read: object) -> bool:
        return not self.is_seeking

    def contains(self, _position: Position) -> bool:
        return True

    def is_acknowledged(self, position: Position) -> bool:
        return position in self.acknowledged

    def redelivery_count(self, _position: Position) -> int:
        return self._deliveries - 1

    def acknowledge_undelivered(self, positions: Sequence[Position]) -> None:
        self.gone.extend(positions)

    def acknowledge_part(self, position: Position, size: int, indexes: Sequence[int]) -> bool:
        left = self.parts.get(position, (1 << size) - 1)
        self.parts[position] = left & ~sum(1 << index for index in indexes)
        return False

    def ack_set(self, position: Position) -> int | None:
        return self.parts.get(position)

    async def sleep(self, _seconds: float) -> None:
        self.sleeps += 1

    def sort_out(self, *entries: Ready, again: int | None = None) -> tuple[list[Ready], int, int]:
        wanted = () if again is None else (Position(1, again),)
        read = Read(Position(1, 0), 10, 0, wanted)
        return asyncio.run(self.filter.sort_out(cast("Any", self), read, entries))


def ready(entry_id: int, payload: bytes, **fields: Any) -> Ready:
    messages = parse_metadata(payload).num_messages_in_batch
    return Ready(Position(1, entry_id), payload, messages, fields.pop("ack_set", None), **fields)


def single(region: str, **fields: Any) -> bytes:
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, **fields)
    metadata.properties.add(key="region", value=region)
    return encode_entry(metadata, b"x")


def batch(*regions: str, compression: int = pb.NONE, damaged: bool = False, **fields: Any) -> bytes:
    content = b""
    for region in regions:
        message = pb.SingleMessageMetadata(payload_size=1, compacted_out=region == "removed")
        message.properties.add(key="region", value=region)
        encoded = message.SerializeToString()
        content += len(encoded).to_bytes(4, "big") + encoded + b"x"
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=0,
        publish_time=1,
        num_messages_in_batch=len(regions),
        compression=compression,
        uncompressed_size=len(content),
        **fields,
    )
    packed = compress(compression, content)
    return encode_entry(metadata, packed[:-1] if damaged else packed)


def test_entries_that_do_not_match_are_acknowledged_one_by_one() -> None:
    subscription = Subscription("region = 'eu'")
    entries = [ready(number, single(region)) for number, region in enumerate(("us", "eu", "us"))]
    left, messages, size_bytes = subscription.sort_out(*entries)
    assert subscription.gone == [Position(1, 0), Position(1, 2)]
    assert (left, messages, size_bytes) == (entries, 1, len(entries[1].payload))
    counts = subscription.filter_counts
    assert (counts.processed, counts.accepted, counts.rejected) == (3, 1, 2)


@pytest.mark.parametrize("compression", [pb.NONE, pb.LZ4, pb.ZLIB, pb.ZSTD, pb.SNAPPY])
def test_of_a_batch_the_messages_that_do_not_match_are_acknowledged(compression: int) -> None:
    subscription = Subscription("region = 'eu'")
    some = ready(0, batch("us", "eu", "us", compression=compression))
    none = ready(1, batch("us", "us", compression=compression))
    left, messages, _ = subscription.sort_out(some, none)
    assert subscription.gone == [none.position]
    assert subscription.parts == {some.position: 0b010}
    assert (left[0].ack_set, left[1], messages) == (b"\x02", none, 3)
    assert subscription.filter_counts.rejected == 4


def test_of_a_batch_only_what_is_left_is_judged() -> None:
    subscription = Subscription("region = 'eu'")
    partly = ready(0, batch("eu", "us", "us"), ack_set=b"\x06")
    left, _, _ = subscription.sort_out(partly)
    assert subscription.gone == [partly.position]
    assert left == [partly]
    assert subscription.filter_counts.processed == 2


@pytest.mark.parametrize(
    "entry",
    [
        batch("us", "us", encryption_keys=[pb.EncryptionKeys(key="k", value=b"v")]),
        batch("us", "us", damaged=True),
        batch("us", "us", compression=pb.ZSTD, damaged=True),
    ],
)
def test_a_batch_that_cannot_be_read_is_delivered_whole(entry: bytes) -> None:
    subscription = Subscription("region = 'eu'")
    left, messages, _ = subscription.sort_out(one := ready(0, entry))
    assert (left, messages) == ([one], 2)
    assert not subscription.gone
    assert not subscription.parts
    assert subscription.filter_counts.accepted == 2


def test_what_a_read_brings_beside_what_it_is_for_is_not_judged() -> None:
    subscription = Subscription("region = 'eu'")
    entries = [ready(number, single(region)) for number, region in enumerate(("us", "eu", "eu"))]
    subscription.acknowledged = {Position(1, 0)}
    left, messages, _ = subscription.sort_out(*entries)
    assert (left, messages, subscription.gone) == (entries, 2, [])
    left, messages, _ = subscription.sort_out(*entries, again=1)
    assert (left, messages, subscription.gone) == (entries, 1, [])
    counts = subscription.filter_counts
    assert (counts.accepted, counts.rejected) == (3, 0)


def test_an_encrypted_message_is_judged_by_its_metadata() -> None:
    subscription = Subscription("region = 'eu'")
    keys = [pb.EncryptionKeys(key="k", value=b"v")]
    subscription.sort_out(ready(0, single("us", encryption_keys=keys)))
    assert subscription.gone == [Position(1, 0)]


def test_of_a_compacted_batch_nothing_is_acknowledged_unless_it_goes_whole() -> None:
    subscription = Subscription("region = 'eu'", is_compacted=True)
    some = ready(0, batch("us", "eu", "removed"))
    none = ready(1, batch("us", "removed"))
    left, messages, _ = subscription.sort_out(some, none)
    assert (left, messages) == ([some, none], 3)
    assert subscription.gone == [none.position]
    assert not subscription.parts


def test_a_large_batch_is_delivered_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filtering, "_PARTS_MAX", 2)
    subscription = Subscription("region = 'eu'")
    left, messages, _ = subscription.sort_out(one := ready(0, batch("us", "eu", "us")))
    assert (left, messages) == ([one], 3)
    assert subscription.filter_counts.rejected == 0


def test_chunks_are_judged_alike_however_often_one_was_delivered() -> None:
    subscription = Subscription("__deliveryCount = 1", deliveries=3)
    chunk = ready(0, single("eu"), chunk=Chunk(("p", "u"), False))
    subscription.sort_out(chunk, ready(1, single("eu")))
    assert subscription.gone == [Position(1, 1)]


def test_the_event_loop_gets_its_turn() -> None:
    subscription = Subscription("region = 'eu'")
    subscription.sort_out(*[ready(0, batch(*["us"] * 1_000))] * 5)
    assert subscription.sleeps == 4
    for _ in range(10):
        subscription.sort_out(ready(0, single("us")))
    assert subscription.sleeps == 5


def test_nothing_is_acknowledged_by_a_filter_that_was_replaced_meanwhile() -> None:
    subscription = Subscription("region = 'eu'")
    replaced, subscription.filter = subscription.filter, cast("Any", None)
    entries = [ready(0, single("us"))]
    left, messages, _ = asyncio.run(
        replaced.sort_out(cast("Any", subscription), Read(Position(1, 0), 10, 0, ()), entries)
    )
    assert (left, messages, subscription.gone) == (entries, 0, [])


def test_nothing_is_acknowledged_when_a_seek_came_meanwhile() -> None:
    subscription = Subscription("__deliveryCount < 3", deliveries=3)
    subscription.is_seeking = True
    left, messages, _ = subscription.sort_out(one := ready(0, batch("us", "us")))
    assert (left, messages, subscription.gone, subscription.parts) == ([one], 0, [], {})
