"""The search for orphans beside programs that make ledgers, name them late or never, and delete
them.
"""

from __future__ import annotations

from pulsarish.sim.workloads.orphans import run_orphans


def test_only_what_nothing_refers_to_goes_and_all_of_that() -> None:
    counts = run_orphans(5)
    assert counts.named > 0
    assert counts.left > 0
    assert counts.refused > 0
    assert counts.deleted >= counts.left
