"""A seed that fails is cut down to few faults, and what is left fails again in the same way."""

from __future__ import annotations

from functools import partial

import pytest

from pulsarish.sim.cluster_mutants import CLUSTER_MUTANTS
from pulsarish.sim.minimise import minimise, try_seed

RUNS_MAX = 5


@pytest.mark.timeout(600)  # about ten seeds
def test_a_seed_that_a_mutant_breaks_is_told_with_a_few_of_its_faults() -> None:
    mutant = next(mutant for mutant in CLUSTER_MUTANTS if mutant.name == "draining_ignored")
    with mutant.patch():
        # Only a seed with more than a few faults can be cut down to a few.
        trials = ((seed, try_seed(seed)) for seed in range(mutant.seeds))
        seed, failed = next((seed, trial) for seed, trial in trials if trial.kinds and len(trial.faults) > RUNS_MAX)
        smallest = minimise(failed, partial(try_seed, seed), RUNS_MAX)
    assert 0 < len(smallest.faults) < len(failed.faults)
    assert set(smallest.faults) < set(failed.faults)
    assert smallest.kinds & failed.kinds
    assert f"faults: {len(smallest.faults)}\n" in smallest.story
    assert not try_seed(seed, smallest.faults).kinds, "it is the mutant that was found"
