"""Which copies move to emptier bookies: tables, and a property of all plans."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.ledger.repair.moves_core import Balance, Move, add_held_bytes, part_to_move
from pulsarish.ledger.repair.repair_core import Part
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)

PURPOSE = LedgerPurpose(PurposeKind.TOPIC, "t")


def ledger(
    ledger_id: int,
    *segments: tuple[int, str],
    last: int = 9,
    size: int = 1_000,
    write_quorum: int | None = None,
    state: LedgerState = LedgerState.CLOSED,
) -> LedgerMetadata:
    parts = tuple(Segment(first, tuple(members)) for first, members in segments)
    count = len(parts[0].members)
    quorum = write_quorum or count
    return LedgerMetadata(ledger_id, count, quorum, quorum, PURPOSE, parts, state, last, size)


def anywhere(_metadata: LedgerMetadata, _index: int, _place: int, _target: str) -> bool:
    return True


def test_what_bookies_hold_is_the_share_of_their_entries_in_closed_ledgers() -> None:
    held = dict.fromkeys("abcd", 0)
    add_held_bytes(held, ledger(1, (0, "ab"), (4, "ac")))
    add_held_bytes(held, ledger(2, (0, "abd"), write_quorum=2, last=2, size=300))
    add_held_bytes(held, ledger(3, (0, "ax")))
    add_held_bytes(held, ledger(4, (0, "ab"), last=-1, size=0))
    add_held_bytes(held, ledger(5, (0, "ab"), state=LedgerState.OPEN))
    assert held == {"a": 2_200, "b": 600, "c": 600, "d": 200}


def test_the_fullest_gives_to_the_emptiest_that_is_no_member_and_may_take() -> None:
    held = {"a": 9_000, "b": 8_000, "c": 500, "d": 700}
    balance = Balance(held, "abcd", 0.1)
    one = ledger(7, (0, "ba"))
    assert balance.choose(one, anywhere) == Move(7, 0, "a", "c", 1_000)
    assert balance.choose(ledger(7, (0, "ac")), anywhere) == Move(7, 0, "a", "d", 1_000)

    def not_c(_metadata: LedgerMetadata, index: int, place: int, target: str) -> bool:
        assert (index, place in (0, 1)) == (0, True)
        return target != "c"

    assert balance.choose(one, not_c) == Move(7, 0, "a", "d", 1_000)
    assert balance.choose(ledger(7, (0, "cd")), anywhere) is None
    assert balance.choose(ledger(7, (0, "ab"), state=LedgerState.OPEN), anywhere) is None


def test_a_move_that_would_only_turn_the_two_around_is_not_made() -> None:
    balance = Balance({"a": 1_000, "b": 0}, "ab", 0.1)
    assert balance.choose(ledger(1, (0, "a"), size=1_000), anywhere) is None
    assert balance.choose(ledger(1, (0, "a"), size=999), anywhere) is not None


def test_bookies_within_the_tolerance_are_even() -> None:
    assert Balance({"a": 104, "b": 100, "c": 96}, "abc", 0.1).is_even()
    assert not Balance({"a": 106, "b": 100, "c": 94}, "abc", 0.1).is_even()
    assert Balance({}, "", 0.1).is_even()
    assert Balance({"a": 5}, "a", 0.1).is_even()


def test_a_read_only_bookie_gives_when_it_is_full_and_else_does_not_count() -> None:
    full = Balance({"a": 100, "b": 100, "r": 400}, "ab", 0.1)
    assert full.average == 200
    assert full.choose(ledger(1, (0, "r"), size=10), anywhere) == Move(1, 0, "r", "a", 10)
    drained = Balance({"a": 150, "b": 50, "r": 0}, "ab", 0.1)
    assert drained.average == 100
    assert drained.choose(ledger(1, (0, "a"), size=10), anywhere) == Move(1, 0, "a", "b", 10)


def test_what_a_move_takes_is_the_part_of_the_segment_if_it_is_still_so() -> None:
    one = ledger(1, (0, "ab"), (4, "ac"))
    assert part_to_move(one, Move(1, 4, "c", "d")) == Part(4, 9, 1, "c")
    assert part_to_move(one, Move(1, 0, "b", "d")) == Part(0, 3, 1, "b")
    assert part_to_move(one, Move(1, 4, "b", "d")) is None
    assert part_to_move(one, Move(1, 4, "c", "a")) is None
    assert part_to_move(one, Move(1, 5, "c", "d")) is None
    assert part_to_move(ledger(1, (0, "ab"), state=LedgerState.OPEN), Move(1, 0, "a", "d")) is None


@given(st.integers(0, 1_000_000), st.integers(3, 7), st.integers(1, 60))
def test_a_plan_ends_and_makes_bookies_more_even(seed: int, bookies: int, count: int) -> None:
    rng = random.Random(seed)
    names = [f"b{number}" for number in range(bookies)]
    old = names[: rng.randint(2, bookies)]
    ledgers = []
    for ledger_id in range(count):
        size, quorum = rng.choice(((2, 2), (2, 1)))
        members = tuple(rng.sample(old, size))
        ledgers.append(
            LedgerMetadata(
                ledger_id,
                size,
                quorum,
                quorum,
                PURPOSE,
                (Segment(0, members), Segment(5, tuple(rng.sample(old, size)))),
                LedgerState.CLOSED,
                9,
                rng.randrange(2_000),
            )
        )
    held = dict.fromkeys(names, 0)
    for each in ledgers:
        add_held_bytes(held, each)
    writable = rng.sample(names, rng.randint(1, bookies))
    balance = Balance(held, writable, 0.1)
    total, spread = sum(held.values()), sum(size * size for size in held.values())
    moves = 0
    while True:
        before = moves
        for place in range(count):
            while move := balance.choose(ledgers[place], anywhere):
                assert move.target in writable
                assert part_to_move(ledgers[place], move) is not None
                balance.moved(move)
                ledgers[place] = ledgers[place].with_replaced(
                    move.first_entry, move.member, move.target
                )
                ledgers[place].check()
                now = sum(size * size for size in balance.held.values())
                assert now < spread
                spread, moves = now, moves + 1
        if moves == before:
            break
    assert sum(balance.held.values()) == total
    again = dict.fromkeys(names, 0)
    for each in ledgers:
        add_held_bytes(again, each)
    assert again == balance.held


@pytest.mark.parametrize("old", [3, 4])
def test_two_new_bookies_get_their_share(old: int) -> None:
    rng, names = random.Random(7), [f"b{number}" for number in range(old + 2)]
    ledgers = [
        LedgerMetadata(
            number,
            3,
            3,
            2,
            PURPOSE,
            (Segment(0, tuple(rng.sample(names[:old], 3))),),
            LedgerState.CLOSED,
            9,
            1_000,
        )
        for number in range(100)
    ]
    held = dict.fromkeys(names, 0)
    for each in ledgers:
        add_held_bytes(held, each)
    balance = Balance(held, names, 0.1)
    for each in ledgers:
        now = each
        while move := balance.choose(now, anywhere):
            balance.moved(move)
            now = now.with_replaced(move.first_entry, move.member, move.target)
    assert balance.is_even()
    assert max(balance.held.values()) - min(balance.held.values()) <= 0.1 * balance.average
