"""A seed that fails is cut down to few faults, and what is left fails again in the same way."""

from __future__ import annotations

from functools import partial

import pytest

from pulsarish.sim.mutants.catalogue import MUTANTS
from pulsarish.sim.mutants.cluster import unheard_answers
from pulsarish.sim.workloads.minimise import minimise, try_seed

RUNS_MAX = 5
# The runs of the first two are short.
SEEDS = (18, 28, *range(40))


@pytest.mark.timeout(600)  # about ten seeds
def test_a_seed_that_a_mutant_breaks_is_told_with_a_few_of_its_faults() -> None:
    mutant = MUTANTS["deduplication_forgets"]
    with mutant.patch():
        # One that does not fail by itself: it takes some of its faults.
        trials = ((seed, try_seed(seed, unheard_answers(seed))) for seed in SEEDS)
        failing = (
            (seed, trial) for seed, trial in trials if trial.kinds and not try_seed(seed, []).kinds
        )
        # One of which a few runs find fewer faults: some need nearly all of theirs.
        tried = (
            (seed, trial, minimise(trial, partial(try_seed, seed), RUNS_MAX))
            for seed, trial in failing
        )
        seed, failed, smallest = next(
            each for each in tried if len(each[2].faults) < len(each[1].faults)
        )
    assert 0 < len(smallest.faults) < len(failed.faults)
    assert set(smallest.faults) < set(failed.faults)
    assert smallest.kinds & failed.kinds
    assert f"faults: {len(smallest.faults)}\n" in smallest.story
    assert not try_seed(seed, smallest.faults).kinds, "it is the mutant that was found"
