"""Whole ledgers on real bookies under faults: seeds of the workload, each judged by its oracle."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from pulsarish.sim.mutants.ledgers import LEDGER_SCENARIOS
from pulsarish.sim.workloads.ledger_oracle import LedgerCounts
from pulsarish.sim.workloads.ledgers import LedgerSettings, run_ledgers

SEEDS = range(10)
SCENARIO_SEEDS = range(3)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """What the nodes warn of is the faults' doing."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def counts() -> LedgerCounts:
    return LedgerCounts()


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds_under_all_kinds_of_faults(seed: int, counts: LedgerCounts) -> None:
    counts.add(run_ledgers(seed))


def test_the_seeds_reached_what_they_are_to_test(counts: LedgerCounts) -> None:
    """A branch that no seed reaches is not tested."""
    if counts.ledgers == 0:
        pytest.skip("the seeds were not run")
    never = [
        name
        for name in (
            "closed_by_writer",
            "recovered",
            "recovered_entries",
            "undecided",
            "stopped_writers",
            "ensemble_changes",
            "deleted",
            "followed",
        )
        if getattr(counts, name) == 0
    ]
    assert never == []


@pytest.mark.parametrize("scenario", sorted(LEDGER_SCENARIOS))
@pytest.mark.parametrize("seed", SCENARIO_SEEDS)
def test_the_scenarios_of_the_mutants_pass_without_them(scenario: str, seed: int) -> None:
    assert run_ledgers(seed, LEDGER_SCENARIOS[scenario]).confirmed > 0


def test_with_nothing_wrong_nothing_is_refused() -> None:
    settings = LedgerSettings(
        bookies=3,
        kinds=(),
        endings=("close",),
        rivals=0,
        seconds=5.0,
        quorums=((3, 3, 2), (3, 2, 2)),
    )
    counts = run_ledgers(0, settings)
    assert counts.closed_by_writer == counts.ledgers > 0
    assert (counts.undecided, counts.stopped_writers, counts.ensemble_changes) == (0, 0, 0)
