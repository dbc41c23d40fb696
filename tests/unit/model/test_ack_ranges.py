"""Ack ranges against a dumb oracle: sets of positions and of indexes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.model.ack_ranges import AckRanges
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.position import Position

# Three closed ledgers and an open one at the end.
LEDGERS = [(1, 5), (4, 1), (6, 7), (9, 6)]
ENTRIES = [Position(ledger, entry) for ledger, count in LEDGERS for entry in range(count)]
BATCH = 3


def successor(position: Position) -> Position:
    for index, (ledger, count) in enumerate(LEDGERS):
        if position.ledger_id < ledger:
            return Position(ledger, 0)
        if position.ledger_id == ledger and (
            position.entry_id + 1 < count or index == len(LEDGERS) - 1
        ):
            return Position(ledger, position.entry_id + 1)
    raise AssertionError(position)


class Oracle:
    """Everything at or below the mark is done; what is above is in a set."""

    def __init__(self) -> None:
        self.done: set[Position] = set()
        self.indexes: dict[Position, set[int]] = {}

    def add(self, position: Position) -> None:
        self.done.add(position)
        self.indexes.pop(position, None)

    def add_indexes(self, position: Position, indexes: list[int]) -> None:
        if position in self.done:
            return
        left = self.indexes.setdefault(position, set(range(BATCH)))
        left -= set(indexes)
        if not left:
            self.add(position)

    def mark(self) -> int:
        count = 0
        while count < len(ENTRIES) and ENTRIES[count] in self.done:
            count += 1
        return count


def compare(acks: AckRanges, oracle: Oracle) -> None:
    acks.check()
    count = oracle.mark()
    assert acks.mark == (ENTRIES[count - 1] if count else Position(1, -1))
    for position in ENTRIES:
        assert acks.contains(position) == (position in oracle.done), position
        left = oracle.indexes.get(position)
        bits = None if left is None or len(left) == BATCH else sum(1 << index for index in left)
        assert acks.remaining(position) == bits
    assert acks.entry_count == len(oracle.done) - count
    listed = [
        Position(ledger, entry)
        for ledger, first, last in acks.ranges()
        for entry in range(first, last + 1)
    ]
    assert listed == sorted(oracle.done)[count:]
    assert acks.highest == (listed[-1] if listed else acks.mark)


positions = st.sampled_from(ENTRIES)
steps = st.one_of(
    st.tuples(st.just("add"), positions),
    st.tuples(st.just("range"), positions, st.integers(1, 6)),
    st.tuples(st.just("advance"), positions),
    st.tuples(st.just("indexes"), positions, st.lists(st.integers(0, BATCH - 1), max_size=2)),
    st.tuples(st.just("reset"), positions),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(steps, max_size=40))
def test_any_script_agrees_with_sets(script: list[tuple[object, ...]]) -> None:
    acks = AckRanges(Position(1, -1), successor)
    oracle = Oracle()
    for step in script:
        position = step[1]
        assert isinstance(position, Position)
        match step[0]:
            case "add":
                assert acks.add(position) == (position not in oracle.done)
                oracle.add(position)
            case "range":
                count = dict(LEDGERS)[position.ledger_id]
                last = min(position.entry_id + int(step[2]) - 1, count - 1)  # type: ignore[call-overload]
                wanted = {
                    Position(position.ledger_id, entry)
                    for entry in range(position.entry_id, last + 1)
                }
                assert acks.add_range(position.ledger_id, position.entry_id, last) == len(
                    wanted - oracle.done
                )
                for found in wanted:
                    oracle.add(found)
            case "advance":
                moved = acks.mark < position
                assert acks.advance(position) == moved
                for found in ENTRIES[: ENTRIES.index(position) + 1]:
                    oracle.add(found)
            case "indexes":
                indexes = step[2]
                assert isinstance(indexes, list)
                acks.add_indexes(position, BATCH, indexes)
                oracle.add_indexes(position, indexes)
            case "reset":
                oracle.done = set(ENTRIES[: ENTRIES.index(position) + 1])
                oracle.indexes.clear()
                acks.reset(position)
        compare(acks, oracle)


def test_acknowledging_in_order_keeps_nothing() -> None:
    acks = AckRanges(Position(1, -1), successor)
    for position in ENTRIES:
        assert acks.add(position)
        assert acks.hole_count == 0
    assert acks.mark == ENTRIES[-1]


def test_a_stored_set_never_brings_an_index_back() -> None:
    acks = AckRanges(Position(1, -1), successor)
    acks.set_remaining(Position(1, 2), 0b011)
    acks.set_remaining(Position(1, 2), 0b110)
    assert acks.remaining(Position(1, 2)) == 0b010
    acks.set_remaining(Position(1, 2), 0b001)
    assert acks.contains(Position(1, 2))


@pytest.mark.parametrize(("size", "indexes"), [(3, [3]), (3, [-1]), (0, [])])
def test_indexes_outside_the_batch_are_refused(size: int, indexes: list[int]) -> None:
    acks = AckRanges(Position(1, -1), successor)
    with pytest.raises(InvalidArgument):
        acks.add_indexes(Position(1, 0), size, indexes)
    assert acks.hole_count == 0


def test_a_batch_of_a_trimmed_ledger_goes_with_the_mark() -> None:
    """What is stored of a cursor is applied in its order to the log as it is now. The ledger of a
    batch may be trimmed since; the mark then runs over the batch (seed 980002565).
    """
    acks = AckRanges(Position(6, 2), lambda position: Position(9, 0))  # ledger 6 is trimmed
    acks.set_remaining(Position(6, 3), 0b10)
    acks.add_range(9, 0, 0)
    acks.check()
    assert (acks.mark, acks.hole_count, acks.batch_bits) == (Position(9, 0), 0, 0)
