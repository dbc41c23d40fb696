"""Metadata that are lost without a backup, and made again from what bookies know."""

from __future__ import annotations

from pulsarish.sim.workloads.lost_metadata import RebuildCounts, run_lost_metadata


def test_confirmed_entries_are_there_after_a_rebuild_or_are_kept() -> None:
    total = RebuildCounts()
    for seed in range(6, 18):
        total.add(run_lost_metadata(seed))
    assert total.ledgers > 0
    assert total.changed_ensembles > 0
    assert total.unrecorded > 0
    assert 0 < total.subscriptions < 12
