"""The chain with lost ranges against a list of the positions that are there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pulsarish.managed_ledger.chain import Chain
from pulsarish.metadata.records import LostRange, TopicLedger
from pulsarish.model.ack_ranges import AckRanges
from pulsarish.model.position import Position

# Ledgers as the lists of their entries: True where the entry is there. The last ledger is open and
# whole.
LOGS = st.lists(st.lists(st.booleans(), min_size=1, max_size=8), min_size=1, max_size=4)


def made(log: list[list[bool]]) -> tuple[Chain, list[Position], list[Position]]:
    """The chain, the positions that are there, and those that are lost."""
    ledgers = [TopicLedger(10 * index, len(entries), 1, 1) for index, entries in enumerate(log)]
    there, gone, lost = [], [], []
    for index, entries in enumerate(log):
        for entry_id, is_there in enumerate(entries):
            (there if is_there else gone).append(Position(10 * index, entry_id))
            if not is_there:
                lost.append(LostRange(10 * index, entry_id, entry_id))
    chain = Chain([*ledgers, TopicLedger(1000)], lost)
    chain.grow(3, 3)
    there += [Position(1000, entry_id) for entry_id in range(3)]
    return chain, there, gone


@given(LOGS)
def test_the_way_through_the_log_is_exactly_what_is_there(log: list[list[bool]]) -> None:
    chain, there, gone = made(log)
    chain.check()
    found = []
    position = chain.next_position(Position(-1, -1))
    while chain.contains(position):
        found.append(position)
        position = chain.next_position(position)
    assert found == there
    assert [position for position in gone if chain.lost_at(position) is None] == []
    assert [position for position in there if chain.lost_at(position) is not None] == []
    for position in there:
        link = chain.find(position.ledger_id)
        assert link is not None
        until = chain.readable_until(position, link.entries - 1)
        run = [
            Position(position.ledger_id, entry_id)
            for entry_id in range(position.entry_id, until + 1)
        ]
        assert [each for each in run if each in gone] == []
        assert until == link.entries - 1 or Position(position.ledger_id, until + 1) in gone


@given(LOGS, st.data())
def test_counts_leave_out_what_is_lost_and_marks_run_over_it(
    log: list[list[bool]], data: st.DataObject
) -> None:
    chain, there, gone = made(log)
    everywhere = sorted([*there, *gone])
    low, high = sorted(data.draw(st.lists(st.sampled_from(everywhere), min_size=2, max_size=2)))
    assert chain.entries_between(low, high) == sum(low < position <= high for position in there)
    acks = AckRanges(Position(0, -1), chain.next_position)
    for position in data.draw(st.permutations(there)):
        acks.add(position)
        acks.check()
    assert acks.mark == there[-1]


@given(LOGS)
def test_what_is_trimmed_takes_its_lost_entries_along(log: list[list[bool]]) -> None:
    chain, there, _ = made(log)
    chain.drop_first(1)
    assert chain.entries_between(Position(-1, -1), there[-1]) == sum(
        position.ledger_id > 0 for position in there
    )
