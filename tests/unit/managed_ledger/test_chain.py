"""The arithmetic of positions against a list of all of them, and the core of appending step by
step.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.chain_core import ChainCore, Phase, RollLimits
from pulsarish.metadata.records import TopicLedger
from pulsarish.model.errors import CorruptData
from pulsarish.model.position import EARLIEST, LATEST, Position

chains = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), max_size=6)


@settings(max_examples=200, deadline=None)
@given(chains, st.integers(0, 3), st.booleans())
def test_positions_count_as_in_a_list(
    gaps: list[tuple[int, int]], dropped: int, opened: bool
) -> None:
    ledger_id, links = 0, []
    for gap, entries in gaps:
        ledger_id += gap
        links.append(TopicLedger(ledger_id, entries, 10 * entries, 1))
    chain = Chain(links)
    if opened:
        chain.open_ledger(ledger_id + 2)
        chain.grow(3, 30)
        links.append(TopicLedger(ledger_id + 2, 3))
    gone = chain.drop_first(min(dropped, len(gaps)))
    assert gone == [link.ledger_id for link in links[: len(gone)]]
    links = links[len(gone) :]
    chain.check()
    every = [Position(link.ledger_id, entry) for link in links for entry in range(link.entries)]
    around = [
        EARLIEST,
        LATEST,
        *(Position(ledger, entry) for ledger in range(ledger_id + 4) for entry in range(-1, 6)),
    ]
    for position in around:
        assert chain.contains(position) == (position in every)
        above = [found for found in every if found > position]
        if above:
            assert chain.next_position(position) == above[0]
        else:
            assert chain.next_position(position) > position or position == LATEST
        for low in (EARLIEST, Position(3, 1), Position(5, -1)):
            assert chain.entries_between(low, position) == len(
                [found for found in every if low < found <= position]
            )
    start = chain.ordinal(EARLIEST)
    assert [chain.position_at(start + index) for index in range(len(every))] == every
    assert chain.entries == len(every)
    if every:
        assert chain.last_position() == every[-1]


LIMITS = RollLimits(entries_max=3, bytes_max=100, age_min=10.0, age_max=60.0)


def core_with(entries: int, size: int = 1) -> ChainCore:
    chain = Chain([])
    chain.open_ledger(5)
    core = ChainCore(chain, opened_at=0.0)
    for number in range(entries):
        push(core, bytes(size), number)
    return core


def push(core: ChainCore, payload: bytes, context: object) -> None:
    assert core.accept(payload, context)
    core.note_pushed(core.next_entry, len(payload))
    core.check()


@pytest.mark.parametrize(
    ("entries", "size", "now", "due"),
    [
        (0, 1, 1_000.0, False),  # an empty ledger is never replaced
        (2, 1, 59.9, False),
        (2, 1, 60.0, True),
        (3, 1, 9.9, False),  # full, too young
        (3, 1, 10.0, True),
        (2, 50, 10.0, True),
    ],
)
def test_when_a_ledger_is_full(entries: int, size: int, now: float, due: bool) -> None:
    assert core_with(entries, size).roll_due(now, LIMITS) == due


def test_what_arrives_while_the_ledger_is_replaced_waits_and_follows() -> None:
    core = core_with(3)
    core.drain()
    assert not core.accept(b"x", 3)
    confirmed = core.confirm(2)
    assert confirmed is not None
    assert confirmed.contexts == [0, 1, 2]
    assert core.drained
    core.swing(9, 1, 1.0)
    assert list(core.unpushed()) == [b"x"]
    core.note_pushed(0, 1)
    core.check()
    assert core.confirm(0) == (9, 0, [b"x"], [3])
    assert core.confirm(0) is None, "hearing the same again confirms nothing"


@pytest.mark.parametrize("kept", range(5))
def test_recovery_confirms_what_the_ledger_holds_and_the_rest_is_sent_again(kept: int) -> None:
    core = core_with(4)
    core.writer_stopped()
    assert not core.accept(b"x", 4)
    confirmed, foreign = core.recovered(kept - 1, [b"\0"] * kept)
    assert foreign == 0
    assert (None if confirmed is None else confirmed.contexts) == (list(range(kept)) or None)
    core.swing(9, 1, 1.0)
    assert len(list(core.unpushed())) == 5 - kept
    assert [link.ledger_id for link in core.chain.links] == ([5, 9] if kept else [9])


def test_a_ledger_that_lost_what_was_confirmed_is_corrupt() -> None:
    core = core_with(4)
    core.confirm(2)
    core.writer_stopped()
    with pytest.raises(CorruptData):
        core.recovered(1, [])


def test_entries_of_another_peer_are_not_taken_for_ours() -> None:
    core = core_with(4)
    core.writer_stopped()
    confirmed, foreign = core.recovered(5, [b"\0", b"forged", b"\0", b"\0", b"more", b"more"])
    assert confirmed is not None
    assert confirmed.contexts == [0]
    assert foreign == 5
    core.swing(9, 1, 1.0)
    assert len(list(core.unpushed())) == 3, "ours go to the next ledger, in their order"
    assert core.chain.links[0].entries == 6
    core.note_pushed(0, 1)
    assert core.confirm(0) == (9, 0, [b"\0"], [1])


def test_stopping_gives_every_waiting_context_once() -> None:
    core = core_with(2)
    core.drain()
    core.accept(b"x", 2)
    core.confirm(0)
    assert core.stop() == [1, 2]
    assert core.stop() == []
    assert core.phase is Phase.STOPPED
    core.check()


def test_a_ledger_knows_the_latest_time_that_its_entries_name() -> None:
    core = core_with(2)
    chain = core.chain
    assert not chain.has_own_times(5, 5)
    for time_ms in (70, 90, 80):
        chain.note_own_time(time_ms)
    assert chain.has_own_times(5, 5)
    core.drain()
    core.confirm(1)
    core.swing(9, 1, 1.0)
    assert [link.own_times_ms for link in chain.links] == [90, 0]
    assert [chain.has_own_times(*ends) for ends in ((5, 9), (9, 9), (4, 9), (10, 10))] == [
        True,
        False,
        True,
        True,
    ], "a ledger that is not of the chain may have any"
    assert [each.own_times_ms for each in Chain(chain.record()).links] == [90, -1]


def test_what_waits_for_the_next_ledger_is_known_there() -> None:
    core = core_with(2)
    core.drain()
    core.chain.note_own_time(90)
    assert not core.accept(b"x", 2)
    core.confirm(1)
    core.swing(9, 1, 1.0)
    assert core.chain.links[-1].own_times_ms == 90


def test_of_entries_of_another_peer_no_times_are_known() -> None:
    core = core_with(1)
    core.writer_stopped()
    core.recovered(0, [b"forged"])
    core.chain.note_own_time(90)
    assert core.chain.links[-1].own_times_ms == -1
