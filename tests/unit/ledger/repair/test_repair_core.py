"""In which steps a ledger is repaired: tables, and a property against counting copies one by
one.
"""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.ledger.repair.repair_core import (
    MemberState,
    Part,
    Step,
    StepKind,
    held_count,
    held_entries,
    plan_repair,
    spans_of,
)
from pulsarish.metadata.records import UnderReplicated
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)

ABC = ("a", "b", "c")


def ledger(
    state: LedgerState = LedgerState.CLOSED,
    *,
    segments: tuple[Segment, ...] = (Segment(0, ABC),),
    last: int = 9,
) -> LedgerMetadata:
    purpose = LedgerPurpose(PurposeKind.TOPIC, "t")
    return LedgerMetadata(
        1, 3, 3, 2, purpose, segments, state, last if state is LedgerState.CLOSED else -1
    )


def states(**words: MemberState) -> dict[str, MemberState]:
    return {member: words.get(member, MemberState.THERE) for member in "abcdefgh"}


def plan(
    metadata: LedgerMetadata, *missing: str, whole: tuple[Part, ...] = (), **words: MemberState
) -> tuple[list[Step], str]:
    found = plan_repair(
        metadata, UnderReplicated(1, tuple(missing)), states(**words).__getitem__, whole
    )
    return list(found.steps), "; ".join(found.waits)


def test_a_lost_member_is_replaced_in_every_part_that_has_an_end() -> None:
    two = ledger(segments=(Segment(0, ABC), Segment(4, ("a", "b", "d"))))
    assert plan(two, a=MemberState.LOST) == (
        [Step(StepKind.REPLACE, Part(0, 3, 0, "a")), Step(StepKind.REPLACE, Part(4, 9, 0, "a"))],
        "",
    )
    assert plan(two, c=MemberState.LOST) == ([Step(StepKind.REPLACE, Part(0, 3, 2, "c"))], "")


def test_the_end_of_an_open_ledger_is_its_writers() -> None:
    two = ledger(LedgerState.OPEN, segments=(Segment(0, ABC), Segment(4, ("a", "b", "d"))))
    assert plan(two, c=MemberState.LOST) == ([Step(StepKind.REPLACE, Part(0, 3, 2, "c"))], "")
    assert plan(two, d=MemberState.LOST) == ([Step(StepKind.RECOVER)], "")
    steps, wait = plan(two, "d")
    assert steps == []
    assert "not closed" in wait


def test_one_that_is_there_is_filled_once() -> None:
    part = Part(0, 9, 1, "b")
    assert plan(ledger(), "b") == ([Step(StepKind.FILL, part)], "")
    assert plan(ledger(), "b", whole=(part,)) == ([], "")
    assert plan(ledger(), "x") == ([], "")


def test_one_that_is_away_is_waited_for() -> None:
    steps, wait = plan(ledger(), "b", b=MemberState.AWAY)
    assert steps == []
    assert "away" in wait
    # Nobody said that it lacks anything.
    assert plan(ledger(), b=MemberState.AWAY) == ([], "")


def test_a_closed_ledger_without_entries_still_names_nobody_lost() -> None:
    assert plan(ledger(last=-1), a=MemberState.LOST) == (
        [Step(StepKind.REPLACE, Part(0, -1, 0, "a"))],
        "",
    )


def test_a_ledger_below_its_policy_gets_another_copy_when_it_is_closed() -> None:
    few = LedgerMetadata(
        1,
        2,
        2,
        2,
        LedgerPurpose(PurposeKind.TOPIC, "t"),
        (Segment(0, ("a", "b")), Segment(5, ("a", "c"))),
        LedgerState.CLOSED,
        9,
        below_policy=True,
        requested_write_quorum=3,
    )
    assert plan(few) == ([Step(StepKind.ADD_COPY)], "")
    more = few.with_another_copy(("c", "b"))
    more.check()
    assert (more.write_quorum, more.below_policy) == (3, False)
    assert plan(more) == ([], "")
    assert [more.write_set(entry_id)[0] for entry_id in (0, 1, 2)] == ["a", "b", "c"]
    steps, wait = plan(msgspec.structs.replace(few, state=LedgerState.OPEN))
    assert steps == []
    assert "policy" in wait


@given(st.integers(1, 5), st.data())
def test_parts_together_are_all_copies_of_all_entries(size: int, data: st.DataObject) -> None:
    quorum = data.draw(st.integers(1, size))
    starts = sorted({0, *data.draw(st.lists(st.integers(1, 30), max_size=3))})
    members = tuple("abcdefgh"[:size])
    last = data.draw(st.integers(starts[-1], 40))
    purpose = LedgerPurpose(PurposeKind.TOPIC, "t")
    segments = tuple(Segment(start, members) for start in starts)
    metadata = LedgerMetadata(1, size, quorum, 1, purpose, segments, LedgerState.CLOSED, last)
    copies: list[tuple[int, str]] = []
    for index, segment in enumerate(segments):
        for place, member in enumerate(members):
            part = Part(segment.first_entry, metadata.last_entry_of(index), place, member)
            held = held_entries(metadata, part, part.first, part.last)
            assert [
                entry for first, end in spans_of(held) for entry in range(first, end + 1)
            ] == list(held)
            copies += [(entry_id, member) for entry_id in held]
    assert sorted(copies) == sorted(
        (entry_id, member)
        for entry_id in range(last + 1)
        for member in metadata.write_set(entry_id)
    )


def test_replacing_keeps_places_and_other_segments() -> None:
    two = ledger(segments=(Segment(0, ABC), Segment(4, ("d", "b", "a"))))
    now = two.with_replaced(4, "b", "e")
    assert now.segments == (Segment(0, ABC), Segment(4, ("d", "e", "a")))
    now.check()


def leaving(metadata: LedgerMetadata, member: str, state: MemberState) -> tuple[list[Step], str]:
    published = UnderReplicated(1, leaving_members=(member,))
    found = plan_repair(metadata, published, states(**{member: state}).__getitem__, ())
    return list(found.steps), "; ".join(found.waits)


def test_a_member_that_leaves_is_replaced_in_every_part_that_has_an_end() -> None:
    two = ledger(LedgerState.OPEN, segments=(Segment(0, ABC), Segment(4, ("a", "b", "d"))))
    part = Step(StepKind.REPLACE, Part(0, 3, 0, "a"))
    steps, wait = leaving(two, "a", MemberState.THERE)
    assert steps == [part]
    assert "a leaves it once its writer has closed it" in wait
    for state in (MemberState.AWAY, MemberState.LOST):
        assert leaving(two, "a", state) == ([part, Step(StepKind.RECOVER)], "")
    assert leaving(ledger(), "e", MemberState.LOST) == ([], "")


@given(
    size=st.integers(1, 5),
    quorum=st.integers(1, 5),
    starts=st.lists(st.integers(1, 30), unique=True, max_size=3),
    last=st.integers(-1, 40),
    is_open=st.booleans(),
)
def test_the_count_of_held_entries_is_that_of_the_write_sets(
    size: int, quorum: int, starts: list[int], last: int, is_open: bool
) -> None:
    members = tuple("abcde"[:size])
    firsts = [0, *sorted(start for start in starts if start <= last)]
    metadata = LedgerMetadata(
        1,
        size,
        min(size, quorum),
        1,
        LedgerPurpose(PurposeKind.TOPIC, "t"),
        tuple(Segment(first, members) for first in firsts),
        LedgerState.OPEN if is_open else LedgerState.CLOSED,
        -1 if is_open else last,
    )
    end = firsts[-1] - 1 if is_open else last
    for member in "abcdef":
        count = sum(member in metadata.write_set(entry_id) for entry_id in range(end + 1))
        assert held_count(metadata, member) == count
