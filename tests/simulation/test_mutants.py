"""Safeguards taken away one at a time: the simulator must notice each within the number of seeds
that the mutant states.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from pulsarish.sim.mutants.catalogue import MUTANTS
from pulsarish.sim.workloads.safeguard import run_mutant


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What the nodes warn of is the mutants' doing."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_dies(name: str) -> None:
    verdict = run_mutant(MUTANTS[name])
    assert verdict.killed_at is not None, f"{name} survived {MUTANTS[name].seeds} seeds"
