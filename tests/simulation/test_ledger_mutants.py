"""Safeguards of the ledger path taken away one at a time: the simulator must notice each within a bounded number of seeds."""

from __future__ import annotations

import logging

import pytest

from pulsarish.sim import ledger_mutants
from pulsarish.sim.mutants import MUTANTS, run_mutant

SEEDS_MAX = 60


@pytest.mark.parametrize("name", ledger_mutants.LEDGER_MUTANTS)
def test_the_mutant_dies(name: str) -> None:
    logging.disable(logging.CRITICAL)
    try:
        verdict = run_mutant(MUTANTS[name], range(SEEDS_MAX))
    finally:
        logging.disable(logging.NOTSET)
    assert verdict.killed_at is not None, f"{name} survived {SEEDS_MAX} seeds"
