"""The coverage rule against an oracle that enumerates what a writer could still confirm (rule 5:
counted for each write quorum).
"""

from itertools import combinations, product

import pytest

from pulsarish.ledger.coverage import Coverage, negatives_needed
from pulsarish.model.errors import InvalidArgument

QUORUMS = [(e, qw, qa) for e, qw, qa in product(range(1, 6), repeat=3) if e >= qw >= qa]


def _write_quorums(ensemble: int, write_quorum: int) -> list[set[int]]:
    return [
        {(entry + step) % ensemble for step in range(write_quorum)} for entry in range(ensemble)
    ]


def _subsets(of: set[int]) -> list[set[int]]:
    return [set(some) for count in range(len(of) + 1) for some in combinations(sorted(of), count)]


@pytest.mark.parametrize(("ensemble", "write_quorum", "ack_quorum"), QUORUMS)
def test_covered_exactly_when_no_writer_can_confirm_anything_more(
    ensemble: int, write_quorum: int, ack_quorum: int
) -> None:
    for heard in _subsets(set(range(ensemble))):
        # Members that were not heard may still answer a writer: can they alone make up an
        # acknowledgement quorum of some entry?
        could_confirm = any(
            len(answering) >= ack_quorum and not answering & heard
            for quorum in _write_quorums(ensemble, write_quorum)
            for answering in _subsets(quorum)
        )
        coverage = Coverage(ensemble, write_quorum, ack_quorum)
        for index in sorted(heard):
            coverage.hear(index)
        assert coverage.covered is not could_confirm, (ensemble, write_quorum, ack_quorum, heard)


@pytest.mark.parametrize(("ensemble", "write_quorum", "ack_quorum"), QUORUMS)
def test_negatives_needed_prove_that_an_entry_was_never_confirmed(
    ensemble: int, write_quorum: int, ack_quorum: int
) -> None:
    quorum = set(range(write_quorum))
    needed = negatives_needed(write_quorum, ack_quorum)
    # Enough: whoever else stored it, it is no acknowledgement quorum. One less is not enough.
    assert all(
        len(quorum - negative) < ack_quorum
        for negative in _subsets(quorum)
        if len(negative) == needed
    )
    assert any(
        len(quorum - negative) >= ack_quorum
        for negative in _subsets(quorum)
        if len(negative) == needed - 1
    )


def test_one_answer_may_be_enough_with_two_copies_of_two() -> None:
    coverage = Coverage(2, 2, 2)
    assert not coverage.covered
    coverage.hear(1)
    assert coverage.covered


def test_hearing_one_member_twice_counts_once() -> None:
    coverage = Coverage(3, 3, 2)
    coverage.hear(0)
    coverage.hear(0)
    assert not coverage.covered


@pytest.mark.parametrize("quorums", [(2, 3, 2), (3, 2, 3), (3, 3, 0)])
def test_quorums_that_break_rule_1_are_refused(quorums: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidArgument):
        Coverage(*quorums)
