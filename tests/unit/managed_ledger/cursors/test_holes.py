"""The holes of a cursor against the list of its entries."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.cursors.holes import count_holes, holes_between
from pulsarish.metadata.records import LostRange, TopicLedger
from pulsarish.model.ack_ranges import AckRanges
from pulsarish.model.position import Position

SIZES = {3: 5, 4: 0, 7: 8, 9: 4}
"""Entries by ledger; the last one is open."""
ALL = [Position(ledger, entry) for ledger, size in SIZES.items() for entry in range(size)]

positions = st.sampled_from(ALL)


@settings(max_examples=300, deadline=None)
@given(
    acked=st.sets(positions),
    lost=st.sampled_from([(), (LostRange(7, 2, 3),), (LostRange(3, 4, 4), LostRange(7, 0, 1))]),
    first=positions,
    last=positions,
)
def test_holes_are_the_runs_of_what_is_not_acknowledged(
    acked: set[Position], lost: tuple[LostRange, ...], first: Position, last: Position
) -> None:
    ledgers = [TopicLedger(ledger, size, size, 1) for ledger, size in SIZES.items() if ledger != 9]
    chain = Chain(ledgers, lost)
    chain.open_ledger(9)
    chain.grow(SIZES[9], SIZES[9])
    acks = AckRanges(Position(3, -1), chain.next_position)
    for position in sorted(acked, key=lambda each: (each.entry_id, each.ledger_id)):
        acks.add(position)
    left = [each for each in ALL if chain.lost_at(each) is None and not acks.contains(each)]

    between = list(holes_between(acks, chain, first, last))
    listed = [
        Position(hole.ledger_id, entry)
        for hole in between
        for entry in range(hole.first_entry, hole.last_entry + 1)
    ]
    assert listed == [each for each in left if first <= each <= last]
    for one, two in pairwise(between):
        assert one.ledger_id < two.ledger_id or one.last_entry + 1 < two.first_entry

    below = holes_between(acks, chain, ALL[0], acks.highest)
    assert count_holes(acks, chain) == sum(1 for _ in below)
