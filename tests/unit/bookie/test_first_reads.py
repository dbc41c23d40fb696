"""What a bookie remembers of first reads: against a plain set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pulsarish.bookie.first_reads import FirstReads

ranges = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 300), st.integers(1, 200)))


@given(ranges)
def test_it_says_what_a_set_says(script: list[tuple[int, int, int]]) -> None:
    seen: set[tuple[int, int]] = set()
    reads = FirstReads(1_000)
    for ledger_id, first, count in script:
        wanted = {(ledger_id, entry_id) for entry_id in range(first, first + count)}
        near = {(each, entry_id >> 6) for each, entry_id in wanted}
        assert reads.knows(ledger_id, first, first + count - 1) is bool(
            near & {(each, entry_id >> 6) for each, entry_id in seen}
        )
        assert reads.add(ledger_id, first, first + count - 1) is (2 * len(wanted & seen) > count)
        seen |= wanted


def test_it_remembers_what_was_read_or_asked_for_last() -> None:
    reads = FirstReads(2)
    reads.add(1, 0, 0)
    reads.add(2, 0, 0)
    assert reads.knows(1, 0, 0)
    reads.add(3, 0, 0)
    assert [reads.knows(ledger_id, 0, 0) for ledger_id in (1, 2, 3)] == [True, False, True]
    reads.add(4, 0, 1_000)
    assert len(reads) == 2


def test_entries_that_are_read_one_by_one_are_told_apart() -> None:
    reads = FirstReads(100)
    assert not any(reads.add(1, entry_id, entry_id) for entry_id in range(3_000))
    assert all(reads.add(1, entry_id, entry_id) for entry_id in range(3_000))
