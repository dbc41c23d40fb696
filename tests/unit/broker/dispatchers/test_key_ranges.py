"""Which consumer has which hashes: the ring compared with the simplest rule, and declared
ranges.
"""

from __future__ import annotations

import base64
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.clients.outbox import Outbox
from pulsarish.broker.dispatchers.key_ranges import HashRange, HashRing, StickyRanges
from pulsarish.model.errors import ConsumerAssignError
from pulsarish.model.hashing import murmur3_32_hash
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import KEY_HASHES, key_hash, sticky_key

POINTS = 5


def made(name: str, order: int = 0, *ranges: HashRange) -> Consumer:
    return Consumer(
        order,
        name,
        Outbox(delivery_bytes_max=1, changed=lambda: None),
        order=order,
        hash_ranges=ranges,
    )


def dull_owner(members: list[tuple[str, int, Consumer]], wanted: int) -> Consumer | None:
    """Return the owner by the simplest rule: all points in one list; the first at or above, else
    the first of all.
    """
    points = sorted(
        (murmur3_32_hash(f"{name}/{number}/{index}".encode()) % KEY_HASHES, name, number)
        for name, number, _ in members
        for index in range(POINTS)
    )
    if not points:
        return None
    above = [point for point in points if point[0] >= wanted]
    _, name, number = (above or points)[0]
    return next(consumer for at, nth, consumer in members if (at, nth) == (name, number))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12),
    st.lists(st.integers(0, KEY_HASHES - 1), min_size=1),
)
def test_a_ring_is_its_points_in_order(steps: list[tuple[str, bool]], hashes: list[int]) -> None:
    ring = HashRing(POINTS)
    members: list[tuple[str, int, Consumer]] = []
    for order, (name, leaves) in enumerate(steps):
        if leaves and members:
            _, _, gone = members.pop(order % len(members))
            ring.remove(gone)
            continue
        number = 0
        while any((at, nth) == (name, number) for at, nth, _ in members):
            number += 1
        consumer = made(name, order)
        members.append((name, number, consumer))
        ring.add(consumer)
    for wanted in [*hashes, 0, KEY_HASHES - 1]:
        assert ring.owner(wanted) is dull_owner(members, wanted)
    told = {consumer.order: ring.ranges(consumer) for _, _, consumer in members}
    covered = sorted(each for ranges in told.values() for each in ranges)
    assert not members or sum(last - first + 1 for first, last in covered) == KEY_HASHES
    for order, ranges in told.items():
        for first, last in ranges:
            for at in (first, last):
                owner = ring.owner(at)
                assert owner is not None
                assert owner.order == order


def test_who_joins_takes_a_share_and_nothing_else_moves() -> None:
    ring = HashRing(100)
    consumers = [made(f"c{index}", index) for index in range(4)]
    for consumer in consumers[:3]:
        ring.add(consumer)
    before = [ring.owner(each) for each in range(KEY_HASHES)]
    ring.add(consumers[3])
    after = [ring.owner(each) for each in range(KEY_HASHES)]
    assert all(now in (was, consumers[3]) for was, now in zip(before, after, strict=True))
    shares = Counter(owner.name for owner in after if owner is not None)
    assert all(KEY_HASHES / 8 < share < KEY_HASHES / 2 for share in shares.values()), shares
    ring.remove(consumers[3])
    assert [ring.owner(each) for each in range(KEY_HASHES)] == before


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ([], "names no hash ranges"),
        ([(5, 4)], "first is not above the last"),
        ([(0, 65_536)], "0 to 65535"),
        ([(0, 5), (5, 9)], r"\[0, 5\] and \[5, 9\] of one consumer overlap"),
        ([(150, 160)], r"\[150, 160\] overlaps \[100, 199\] of the connected consumer 'first'"),
        ([(0, 100)], r"\[0, 100\] overlaps \[100, 199\]"),
        ([(0, 65_535)], r"\[0, 65535\] overlaps \[100, 199\]"),
    ],
)
def test_ranges_that_cannot_be_ones_own_are_refused_by_name(
    ranges: list[HashRange], words: str
) -> None:
    sticky = StickyRanges()
    sticky.add(made("first", 0, (100, 199), (300, 399)))
    with pytest.raises(ConsumerAssignError, match=words):
        sticky.add(made("second", 1, *ranges))


def test_what_nobody_declared_is_nobodys() -> None:
    sticky = StickyRanges()
    one, two = made("one", 0, (100, 199), (300, 399)), made("two", 1, (200, 200))
    sticky.add(one)
    sticky.add(two)
    found = {
        each: getattr(sticky.owner(each), "name", None)
        for each in (0, 99, 100, 199, 200, 201, 299, 300, 399, 400, 65_535)
    }
    assert [name for name in found.values() if name] == ["one", "one", "two", "one", "one"]
    assert {each for each, name in found.items() if name is None} == {0, 99, 201, 299, 400, 65_535}
    sticky.remove(one)
    assert (sticky.owner(150), sticky.owner(200), sticky.ranges(two)) == (None, two, [(200, 200)])
    sticky.add(made("three", 2, (0, 199)))


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"partition_key": "k"}, b"k"),
        ({"partition_key": "k", "ordering_key": b"o"}, b"o"),
        (
            {
                "partition_key": base64.b64encode(b"\x00\xff").decode(),
                "partition_key_b64_encoded": True,
            },
            b"\x00\xff",
        ),
        ({"partition_key": "no base 64!", "partition_key_b64_encoded": True}, b"no base 64!"),
        ({"partition_key": ""}, b""),
        ({}, b"p-7"),
        ({"chunk_id": 3, "uuid": "u"}, b"p-7"),
    ],
)
def test_the_key_of_an_entry(fields: dict[str, object], key: bytes) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=7, publish_time=1, **fields)  # type: ignore[arg-type]
    assert sticky_key(metadata) == key


def test_hashes_are_those_of_apache_pulsar_and_never_0() -> None:
    assert key_hash(b"hello") == 0x248BFA47 % 65_536
    assert key_hash(b"") == 1, "its hash is 0, which stands for none"
