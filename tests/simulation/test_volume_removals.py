"""Volumes that are drained and removed while bookies crash."""

from __future__ import annotations

from pulsarish.sim.workloads.volume_removals import run_volume_removals

SEEDS = range(4)


def test_no_copy_and_no_fence_goes_with_a_removed_volume() -> None:
    assert sum(map(run_volume_removals, SEEDS)) > 0
