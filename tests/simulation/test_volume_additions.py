"""Volumes that are added to bookies that run and crash meanwhile."""

from __future__ import annotations

from pulsarish.sim.workloads.volume_additions import run_volume_additions

SEEDS = range(3)


def test_every_start_uses_an_added_volume_and_nothing_is_lost() -> None:
    assert sum(map(run_volume_additions, SEEDS)) > 0
