"""The stored forms of a cursor: with ranges, with sets, of earlier versions, and damaged."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.managed_ledger.cursors.cursor_state import (
    CursorImage,
    decode_entry,
    decode_image,
    encode_entry,
    encode_image,
    restore,
)
from pulsarish.model.ack_ranges import AckRanges
from pulsarish.model.errors import CorruptData
from pulsarish.model.position import Position

START = Position(1, -1)
MESSAGES = 10_000_000


def successor(position: Position) -> Position:
    return Position(position.ledger_id, position.entry_id + 1)


def alternate(messages: int) -> AckRanges:
    """Every second of so many messages is acknowledged, from the second one on."""
    acks = AckRanges(START, successor)
    chunks = messages // 1_024
    acks.add_stored_set(1, (tuple((128 * number, b"\xaa" * 128) for number in range(chunks)),))
    for entry in range(chunks * 1_024 + 1, messages, 2):
        acks.add(Position(1, entry))
    return acks


def known(acks: AckRanges) -> tuple[object, ...]:
    return (acks.mark, list(acks.ranges()), list(acks.batches()), acks.entry_count, acks.hole_count)


positions = st.builds(Position, st.integers(1, 4), st.integers(0, 3_000))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(positions, st.integers(1, 2_500)), max_size=12),
    st.lists(positions, max_size=4),
    st.sampled_from([0, 3, 1_000]),
)
def test_each_stored_form_brings_back_the_same(
    ranges: list[tuple[Position, int]], batches: list[Position], ranges_max: int
) -> None:
    acks = AckRanges(START, successor)
    for position, length in ranges:
        acks.add_range(position.ledger_id, position.entry_id, position.entry_id + length - 1)
    for position in batches:
        acks.set_remaining(position, 0b101)
    image = CursorImage.of(acks, {"a": 1}, ranges_max)
    assert bool(image.sets) == (acks.range_count > ranges_max)
    assert not (image.sets and image.ranges)
    stored = decode_image(encode_image(image))
    for images in ([stored], [stored, stored]):
        again, properties = restore(images, successor)
        again.check()
        assert known(again) == known(acks)
        assert properties == {"a": 1}


def test_ten_million_messages_with_every_second_acknowledged_take_few_megabytes() -> None:
    acks = alternate(MESSAGES)
    assert acks.hole_count == acks.entry_count == MESSAGES // 2
    assert acks.memory_bytes < 4_000_000
    body = encode_image(CursorImage.of(acks, {}, 1_000))
    assert len(body) < MESSAGES // 8 * 1.1
    again, _ = restore([decode_image(body)], successor)
    assert (again.mark, again.hole_count) == (START, MESSAGES // 2)
    assert again.contains(Position(1, MESSAGES - 1))
    assert not again.contains(Position(1, MESSAGES - 2))
    for entry in range(0, MESSAGES // 1_000, 2):
        again.add(Position(1, entry))
    assert again.mark == Position(1, MESSAGES // 1_000 - 1)
    # A check lists each hole: what is left near the end is enough for it.
    again.advance(Position(1, MESSAGES - 400_000))
    again.check()
    assert again.hole_count == again.entry_count == 400_000 // 2 - 1
    again.advance(Position(1, MESSAGES - 2))
    assert (again.mark, again.hole_count) == (Position(1, MESSAGES - 1), 0)


def test_a_restored_cursor_with_many_holes_is_whole() -> None:
    messages = MESSAGES // 40
    acks = alternate(messages)
    again, _ = restore([decode_image(encode_image(CursorImage.of(acks, {}, 1_000)))], successor)
    again.check()
    assert known(again) == known(acks)
    for entry in range(0, messages // 10, 2):
        again.add(Position(1, entry))
    again.check()
    assert again.mark == Position(1, messages // 10 - 1)


def test_a_long_run_behind_one_hole_costs_as_good_as_nothing() -> None:
    acks = AckRanges(START, successor)
    acks.add_range(1, 1, 1_000_000_000)
    image = CursorImage.of(acks, {}, 0)
    assert acks.memory_bytes < 5_000
    assert len(encode_image(image)) < 1_000
    assert known(restore([image], successor)[0]) == known(acks)


def test_an_image_of_an_earlier_version_is_read() -> None:
    body = msgspec.msgpack.encode([1, 4, [1, 6, 8, 2, 0, 0], [[1, 10, b"\5"]], {"a": 1}])
    acks, properties = restore([decode_image(body)], successor)
    assert acks.mark == Position(1, 4)
    assert list(acks.ranges()) == [(1, 6, 8), (2, 0, 0)]
    assert list(acks.batches()) == [(Position(1, 10), 5)]
    assert properties == {"a": 1}


def test_stored_sets_end_at_the_mark_and_at_batches_that_they_hold() -> None:
    """As ranges do: what is stored may be older than the mark beside it."""
    acks = AckRanges(Position(2, 3), successor)
    acks.set_remaining(Position(2, 10), 0b11)
    acks.add_stored_set(1, (((0, b"\xff"),),))
    assert known(acks) == (Position(2, 3), [], [(Position(2, 10), 3)], 0, 1)
    acks.add_stored_set(2, (((0, b"\x0a\x04"),),))
    acks.check()
    assert known(acks) == (Position(2, 3), [(2, 10, 10)], [], 1, 1)
    acks.add_stored_set(2, (((0, b"\x78"),),))
    acks.check()
    assert known(acks) == (Position(2, 6), [(2, 10, 10)], [], 1, 1)


def damaged(body: bytes) -> st.SearchStrategy[bytes]:
    return st.one_of(
        st.builds(
            lambda at, byte: body[:at] + bytes([byte]) + body[at + 1 :],
            st.integers(0, len(body) - 1),
            st.integers(0, 255),
        ),
        st.builds(lambda at: body[:at], st.integers(0, len(body) - 1)),
    )


def _images() -> list[bytes]:
    acks = AckRanges(START, successor)
    for first, last in ((2, 5_000), (6_000, 2_000_000), (2_000_007, 2_000_007)):
        acks.add_range(1, first, last)
    acks.add(Position(7, 3))
    acks.set_remaining(Position(7, 9), 0b110)
    return [encode_image(CursorImage.of(acks, {"a": 1}, ranges_max)) for ranges_max in (0, 100)]


@settings(max_examples=600, deadline=None)
@given(st.one_of([damaged(body) for body in _images()]))
def test_damaged_bytes_are_refused_or_are_another_image(body: bytes) -> None:
    try:
        acks, _ = restore([decode_image(body)], successor)
    except CorruptData:
        return
    acks.check()


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ([1, 4, [], [], {}, [[-1, [[[0, b"\1"]]]]]], "a set of ledger -1"),
        ([1, 4, [], [], {}, [[1, []]]], "has 0 levels"),
        ([1, 4, [], [], {}, [[1, [[[127, b"\1\1"]]]]]], "has 2 bytes at 127"),
        ([1, 4, [], [], {}, [[1, [[[0, 7]]]]]], "damaged"),
        ([1, 4, [1, 9, 8]], "upside down"),
    ],
)
def test_an_image_that_cannot_be_is_refused_by_name(image: list[object], why: str) -> None:
    with pytest.raises(CorruptData, match=why):
        restore([decode_image(msgspec.msgpack.encode(image))], successor)


@given(damaged(encode_entry(3, 12, _images()[0])))
def test_a_damaged_entry_of_a_cursor_ledger_is_refused_or_another_one(payload: bytes) -> None:
    try:
        entry = decode_entry(payload)
    except CorruptData:
        return
    assert isinstance(entry.body, bytes)
