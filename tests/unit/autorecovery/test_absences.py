"""Who counts as lost, as a table of times."""

from __future__ import annotations

from pulsarish.autorecovery.absent_bookies import AbsentBookies
from pulsarish.ledger.repair.repair_core import MemberState

AWAY, LOST, THERE = MemberState.AWAY, MemberState.LOST, MemberState.THERE


def seen(*members: str, share: float = 0.5) -> AbsentBookies:
    absences = AbsentBookies(10.0, share)
    absences.observe(members, 0.0)
    return absences


def test_lost_after_the_grace_time_and_not_before() -> None:
    absences = seen("a", "b", "c")
    absences.observe(["a", "b"], 5.0)
    assert [absences.state_of("c", now) for now in (5.0, 14.9, 15.0)] == [AWAY, AWAY, LOST]
    assert absences.lost(15.0) == ["c"]
    absences.check()


def test_one_that_comes_back_begins_anew() -> None:
    absences = seen("a", "b", "c")
    absences.observe(["a", "b"], 5.0)
    absences.observe(["a", "b", "c"], 14.0)
    assert absences.state_of("c", 20.0) is THERE
    absences.observe(["a", "b"], 21.0)
    assert absences.lost(30.9) == []
    assert absences.lost(31.0) == ["c"]


def test_an_instance_that_only_a_ledger_names_counts_from_when_it_was_noticed() -> None:
    absences = seen("a~2", "b", "c")
    assert absences.state_of("a~1", 100.0) is AWAY
    assert absences.state_of("a~1", 109.0) is AWAY
    assert absences.state_of("a~1", 110.0) is LOST
    assert absences.state_of("a~2", 110.0) is THERE


def test_all_absences_count_from_the_return_of_the_metadata() -> None:
    absences = seen("a", "b", "c")
    absences.observe(["a", "b"], 0.0)
    absences.metadata_away()
    assert absences.lost(50.0) == []
    absences.metadata_back(60.0)
    assert absences.lost(69.9) == []
    assert absences.lost(70.0) == ["c"]


def test_nobody_is_lost_when_too_many_are_gone_but_who_was_given_up() -> None:
    absences = seen("a", "b", "c", "d", "e")
    absences.observe(["a", "b"], 0.0)
    assert absences.too_many(20.0)
    assert absences.gone(20.0) == ["c", "d", "e"]
    assert absences.lost(20.0) == []
    absences.give_up(["e"])
    # Of the four that are left or missed two are gone, which is no more than half.
    assert absences.lost(20.0) == ["c", "d", "e"]


def test_a_bookie_that_was_given_up_is_lost_at_once_unless_it_is_there() -> None:
    absences = seen("a", "b", "c")
    absences.give_up(["c"])
    assert absences.state_of("c", 1.0) is THERE
    absences.observe(["a", "b"], 2.0)
    assert absences.state_of("c", 2.0) is LOST
    absences.metadata_away()
    assert absences.state_of("c", 3.0) is AWAY


def test_what_nobody_names_any_more_is_not_missed() -> None:
    absences = seen("a", "b", "c")
    absences.observe(["a"], 0.0)
    absences.forget(["a", "b"])
    assert absences.gone(20.0) == ["b"]
