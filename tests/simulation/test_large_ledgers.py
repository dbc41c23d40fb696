"""Ledgers of thousands of entries under faults, with a machine that is lost: seeds, each judged by
its own program.
"""

from __future__ import annotations

import pytest

from pulsarish.sim.workloads.large_ledgers import ENTRIES, LargeCounts, run_large

SEEDS = (0, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_ledgers_of_thousands_of_entries_are_recovered_repaired_trimmed_and_compacted(
    seed: int,
) -> None:
    counts: LargeCounts = run_large(seed)
    assert counts.longest_entries > ENTRIES / 2
    assert counts.copies >= ENTRIES
    assert counts.recovered > 0
    assert counts.changes > 0
    assert counts.trimmed > 0
    assert counts.compactions > 0
