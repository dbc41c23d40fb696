"""The writer's decisions: scripts with their expected traces, and random histories beside a dumb
oracle that keeps sets.
"""

import random
from dataclasses import dataclass, field

import pytest

from pulsarish.ledger.writer_core import WriterCore
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, PurposeKind, Segment


def _metadata(ensemble: int = 3, write_quorum: int = 3, ack_quorum: int = 2) -> LedgerMetadata:
    members = tuple("ABCDEFGH"[:ensemble])
    purpose = LedgerPurpose(PurposeKind.DIAGNOSTIC, "test")
    return LedgerMetadata(7, ensemble, write_quorum, ack_quorum, purpose, (Segment(0, members),))


def _core(*quorums: int, pushed: int = 0) -> WriterCore:
    core = WriterCore(_metadata(*quorums))
    if pushed:
        core.push(pushed)
    return core


def test_confirmed_at_the_acknowledgement_quorum_in_order() -> None:
    core = _core(pushed=4)
    core.acked("A", 0, 3)
    assert core.confirm() == 0
    core.acked("B", 1, 3)
    assert core.confirm() == 0, "entry 0 has one copy, so nothing after it counts"
    core.acked("C", 0, 0)
    assert core.confirm() == 4
    assert (core.confirmed, core.pushed, core.window_count) == (3, 3, 0)
    core.check()


def test_one_member_twice_is_one_copy() -> None:
    core = _core(pushed=1)
    core.acked("A", 0, 0)
    core.acked("A", 0, 0)
    assert core.confirm() == 0


def test_a_stranger_does_not_count() -> None:
    core = _core(pushed=1)
    core.acked("A", 0, 0)
    core.acked("X", 0, 0)
    assert core.confirm() == 0


def test_striped_entries_count_only_on_their_write_set() -> None:
    core = _core(4, 2, 2, pushed=2)
    core.acked("A", 0, 1)  # holds entry 0, not entry 1
    core.acked("B", 0, 1)  # holds both
    assert core.confirm() == 1
    core.acked("D", 0, 1)  # holds neither
    assert core.confirm() == 0
    core.acked("C", 1, 1)
    assert core.confirm() == 1
    core.check()


def test_failure_stops_confirmations_until_the_change_is_stored() -> None:
    core = _core(pushed=3)
    core.acked("A", 0, 0)
    core.acked("B", 0, 0)
    assert core.confirm() == 1
    assert core.fail("C")
    assert not core.fail("C"), "once is enough"
    core.acked("A", 1, 2)
    core.acked("B", 1, 2)
    assert core.confirm() == 0, "a failure not yet dealt with"
    change = core.begin_change({2: "D"})
    assert change.planned.segments == (Segment(0, ("A", "B", "C")), Segment(1, ("A", "B", "D")))
    assert change.missing_members == ("C",), "entry 0 is confirmed and C never answered for it"
    assert core.confirm() == 0, "a change is out"
    assert core.change_stored(change.planned) == (2,)
    assert core.confirm() == 2
    core.check()


def test_the_replaced_member_is_uncounted_and_its_late_answer_ignored() -> None:
    core = _core(pushed=2)
    core.acked("C", 0, 1)
    core.fail("C")
    change = core.begin_change({2: "D"})
    core.change_stored(change.planned)
    core.acked("A", 0, 1)
    core.acked("C", 0, 1)
    assert core.confirm() == 0, "A alone: what C has does not count any more"
    assert [core.lacks(2, entry) for entry in (0, 1)] == [True, True]
    core.acked("D", 0, 1)
    assert core.confirm() == 2


def test_a_segment_without_confirmed_entries_is_replaced_not_followed() -> None:
    core = _core(pushed=1)
    core.fail("A")
    core.change_stored(core.begin_change({0: "D"}).planned)
    core.fail("B")
    change = core.begin_change({1: "E"})
    assert change.planned.segments == (Segment(0, ("D", "E", "C")),)


def test_failures_are_gathered_and_later_ones_wait_for_the_next_round() -> None:
    core = _core(pushed=2)
    core.fail("A")
    core.fail("B")
    assert core.failed == (0, 1)
    change = core.begin_change({0: "D", 1: "E"})
    assert change.planned.last_segment.members == ("D", "E", "C")
    core.fail("C")
    core.acked("C", 0, 1)
    assert core.failed == (), "one change at a time"
    core.change_stored(change.planned)
    assert core.failed == (2,)
    core.acked("D", 0, 1)
    core.acked("E", 0, 1)
    assert core.confirm() == 0, "nothing is confirmed between two rounds"
    core.change_stored(core.begin_change({2: "F"}).planned)
    assert core.confirm() == 2
    core.check()


def test_nothing_is_sent_to_a_place_while_it_changes_hands() -> None:
    core = _core(pushed=1)
    core.fail("C")
    assert [core.takes(index) for index in range(3)] == [True, True, False]
    change = core.begin_change({2: "D"})
    assert not core.takes(2)
    core.push(1)
    core.change_stored(change.planned)
    assert core.takes(2)
    assert [core.lacks(2, entry) for entry in (0, 1)] == [True, True]


def test_without_a_replacement_the_member_is_left_out_and_named() -> None:
    core = _core(pushed=1)
    core.fail("C")
    assert core.viable_without((2,))
    change = core.begin_change({})
    assert change.planned == core.metadata, "no new segment"
    assert change.missing_members == ("C",)
    core.change_stored(core.metadata)
    assert (core.missing, core.takes(2)) == ((2,), False)
    core.acked("A", 0, 0)
    core.acked("B", 0, 0)
    assert core.confirm() == 1
    assert core.missing_members_after_close() == ("C",)
    assert not core.viable_without((1,)), "two of three cannot be left out with Qa 2"


def test_a_member_that_was_left_out_comes_back_for_what_is_not_confirmed() -> None:
    core = _core(pushed=2)
    core.acked("C", 0, 0)
    core.fail("C")
    core.begin_change({})
    core.change_stored(core.metadata)
    core.acked("A", 0, 0)
    assert core.confirm() == 1, "what it has on disk counts, it is still a member"
    core.rejoin(2)
    assert core.takes(2)
    assert core.lacks(2, 1)
    assert core.missing_members_after_close() == ()
    core.check()


def test_a_place_left_out_is_filled_together_with_a_new_failure() -> None:
    core = _core(pushed=1)
    core.fail("C")
    core.begin_change({})
    core.change_stored(core.metadata)
    core.fail("B")
    change = core.begin_change({1: "D", 2: "E"})
    assert change.planned.last_segment.members == ("A", "D", "E")
    assert change.missing_members == ("C",), "B owed nothing that is confirmed"
    core.change_stored(change.planned)
    assert core.missing == ()


@pytest.mark.parametrize(
    ("quorums", "gone", "viable"),
    [
        ((3, 3, 2), (0,), True),
        ((3, 3, 2), (0, 1), False),
        ((5, 3, 2), (0, 3), False),
        ((6, 3, 2), (0, 3), True),
        ((3, 3, 1), (0, 2), True),
    ],
)
def test_viable_is_counted_for_each_write_quorum(
    quorums: tuple[int, int, int], gone: tuple[int, ...], viable: bool
) -> None:
    assert _core(*quorums).viable_without(gone) is viable


def test_an_earlier_segment_mended_by_somebody_else_is_kept() -> None:
    core = _core(pushed=2)
    for member in "AB":
        core.acked(member, 0, 0)
    core.confirm()
    core.fail("C")
    wished = core.begin_change({2: "D"}).planned
    mended = LedgerMetadata(
        7, 3, 3, 2, wished.purpose, (Segment(0, ("A", "B", "X")), wished.last_segment)
    )
    core.change_stored(mended)
    assert core.metadata == mended


def test_late_copies_settle_what_a_member_owes() -> None:
    core = _core(pushed=3)
    core.acked("A", 0, 2)
    core.acked("B", 0, 2)
    assert core.confirm() == 3
    assert core.outstanding(2)
    assert core.missing_members() == ("C",)
    core.acked("C", 0, 1)
    assert core.outstanding(2)
    core.acked("C", 2, 2)
    assert not core.outstanding(2)
    assert core.missing_members() == ()


# Random histories.


@dataclass
class _Oracle:
    """What is true, kept entry by entry: which members of the stored ensemble have it."""

    quorums: tuple[int, int, int]
    members: list[str]
    has: list[set[str]] = field(default_factory=list)
    confirmed: int = -1
    blocked: bool = False

    def write_set(self, entry: int) -> list[str]:
        ensemble, write_quorum, _ = self.quorums
        return [self.members[(entry + step) % ensemble] for step in range(write_quorum)]

    def confirm(self) -> int:
        before = self.confirmed
        while not self.blocked and self.confirmed + 1 < len(self.has):
            entry = self.confirmed + 1
            if len(self.has[entry] & set(self.write_set(entry))) < self.quorums[2]:
                break
            self.confirmed += 1
        return self.confirmed - before


@pytest.mark.parametrize("seed", range(60))
def test_random_histories_agree_with_the_oracle(seed: int) -> None:
    rng = random.Random(seed)
    quorums = rng.choice(
        [(1, 1, 1), (3, 3, 2), (3, 3, 3), (3, 2, 2), (4, 3, 2), (5, 3, 2), (5, 5, 3), (5, 2, 1)]
    )
    core = WriterCore(_metadata(*quorums))
    oracle = _Oracle(quorums, list(core.members))
    fresh = iter(f"n{number}" for number in range(1_000))
    change = None
    failed: list[str] = []
    for _ in range(400):
        match rng.choice(["push", "ack", "ack", "ack", "fail", "change", "store", "late"]):
            case "push":
                count = rng.randrange(1, 6)
                assert core.push(count) == len(oracle.has)
                oracle.has += [set() for _ in range(count)]
            case "ack" if oracle.has:
                member = rng.choice(oracle.members)
                first = rng.randrange(max(0, oracle.confirmed - 2), len(oracle.has))
                last = min(len(oracle.has) - 1, first + rng.randrange(4))
                core.acked(member, first, last)
                for entry in range(first, last + 1):
                    if member in oracle.write_set(entry) and entry > oracle.confirmed:
                        oracle.has[entry].add(member)
            case "late":
                core.acked("Z", 0, max(0, len(oracle.has) - 1))
            case "fail" if len(failed) < quorums[0] - 1:
                member = rng.choice(oracle.members)
                changing = change is not None and member not in change.planned.last_segment.members
                assert core.fail(member) is (member not in failed and not changing)
                if member not in failed and not changing:
                    failed.append(member)
                    oracle.blocked = True
            case "change" if change is None and failed:
                places = {oracle.members.index(member): next(fresh) for member in failed}
                change = core.begin_change(places)
                assert change.planned.last_segment.first_entry == oracle.confirmed + 1
                failed = []
            case "store" if change is not None:
                core.change_stored(change.planned)
                now = list(change.planned.last_segment.members)
                for entry in range(oracle.confirmed + 1, len(oracle.has)):
                    oracle.has[entry] &= set(now)
                oracle.members = now
                change = None
                oracle.blocked = bool(failed)
        assert core.confirm() == oracle.confirm()
        assert core.confirmed == oracle.confirmed
        for entry in range(oracle.confirmed + 1, len(oracle.has)):
            for index, member in enumerate(oracle.members):
                assert core.lacks(index, entry) is (
                    member in oracle.write_set(entry) and member not in oracle.has[entry]
                )
        core.check()
