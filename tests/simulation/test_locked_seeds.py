"""Clusters that ask for credentials: rights end within their bounds, also under faults."""

from __future__ import annotations

import pytest

from pulsarish.sim.programs.optional_programs import EXTRAS, extras_of
from pulsarish.sim.workloads.cluster import run_seed


def test_rights_end_and_valid_clients_are_served() -> None:
    result = run_seed(0, faults=(), extras=("brief", "locked"))
    assert not result.anomalies, result.story()
    assert result.counts.rights_ended == 5
    assert result.counts.guests_refused > 10
    assert result.counts.ok > 10


@pytest.mark.parametrize(
    "seed",
    [
        4,
        13,  # short tokens end while it is looked which consumer gets a key
        1004,  # a topic was loaded while its broker was not registered any more
    ],
)
def test_a_locked_cluster_under_faults(seed: int) -> None:
    assert "locked" in extras_of(seed)
    result = run_seed(seed)
    assert not result.anomalies, result.story()


def test_one_seed_in_four_is_locked() -> None:
    locked = [seed for seed in range(400) if is_locked(seed)]
    assert 70 <= len(locked) <= 130


def is_locked(seed: int) -> bool:
    drawn = extras_of(seed, EXTRAS)
    return "locked" in drawn and "hostile" not in drawn
