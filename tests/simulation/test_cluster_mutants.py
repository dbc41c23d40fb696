"""Safeguards of the upper layers taken away one at a time: whole-cluster seeds must notice."""

from __future__ import annotations

import pytest

from pulsarish.sim.cluster_mutants import CLUSTER_MUTANTS
from pulsarish.sim.mutants import MUTANTS, run_mutant

SEEDS_MAX = 15


@pytest.mark.parametrize("name", CLUSTER_MUTANTS)
def test_the_mutant_dies(name: str) -> None:
    verdict = run_mutant(MUTANTS[name], range(SEEDS_MAX))
    assert verdict.killed_at is not None, f"{name} survived {SEEDS_MAX} seeds"
