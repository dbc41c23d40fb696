"""Whether a member's list of what it holds has all that it should hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.ledger.repair.copy_probe import are_in_spans
from pulsarish.ledger.repair.repair_core import spans_of

IDS = st.lists(st.integers(0, 40), unique=True).map(sorted)


@pytest.mark.parametrize(
    ("wanted", "spans", "there"),
    [
        ([], [], True),
        ([0], [], False),
        (range(10), [(0, 9)], True),
        (range(10), [(0, 4), (5, 9)], True),
        (range(10), [(0, 4), (6, 9)], False),
        (range(10), [(1, 9)], False),
        (range(10), [(0, 8)], False),
        ([2, 3, 5, 6], [(0, 6)], True),
        ([0, 1, 3, 4], [(0, 1), (3, 4)], True),
    ],
)
def test_all_that_is_wanted_must_lie_in_the_spans(
    wanted: list[int], spans: list[tuple[int, int]], there: bool
) -> None:
    assert are_in_spans(wanted, spans) is there


@given(IDS, IDS)
def test_it_says_what_sets_say(wanted: list[int], held: list[int]) -> None:
    assert are_in_spans(wanted, spans_of(held)) == (
        not [entry_id for entry_id in wanted if entry_id not in held]
    )
