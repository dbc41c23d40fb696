"""Machines that are lost for good, one after the other: seeds of the workload, each judged by its
oracle.
"""

from __future__ import annotations

import logging

import pytest

from pulsarish.sim.mutants.repair import REPAIR_SCENARIOS
from pulsarish.sim.workloads.repair import run_repair


@pytest.mark.parametrize("scenario", sorted(REPAIR_SCENARIOS))
def test_lost_copies_are_mended(scenario: str) -> None:
    logging.disable(logging.CRITICAL)
    try:
        confirmed = sum(run_repair(seed, REPAIR_SCENARIOS[scenario]) for seed in range(3))
    finally:
        logging.disable(logging.NOTSET)
    assert confirmed > 300
