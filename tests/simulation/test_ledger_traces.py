"""Traces of real runs are steps of the ledger model, and those of mutated programs are not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from pulsarish.ledger import recovery_core
from pulsarish.ledger.writer_core import WriterCore
from pulsarish.sim.models.ledger_hooks import tracing
from pulsarish.sim.models.ledger_trace import LedgerTrace
from pulsarish.sim.mutants.ledgers import LEDGER_MUTANTS, LEDGER_SCENARIOS
from pulsarish.sim.workloads.cluster import run_seed
from pulsarish.sim.workloads.ledgers import LedgerSettings, run_ledgers
from pulsarish.sim.workloads.safeguard import Patch, replacing

MUTANT_SEEDS = range(4)
LIVENESS = (
    "room_not_announced",
    "change_goes_on_after_the_end",
    "late_replica_taken_for_negative",
)
"""Mutants that do nothing which the protocol forbids: they do nothing at all, or raise before they
do.
"""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def traced(seed: int, settings: LedgerSettings | None) -> LedgerTrace:
    with tracing() as trace:
        run_ledgers(seed, settings)
    trace.check()
    return trace


@pytest.mark.parametrize("seed", range(3))
def test_what_ledgers_do_under_all_kinds_of_faults_is_allowed_by_the_model(seed: int) -> None:
    trace = traced(seed, None)
    assert trace.ledgers > 1
    assert trace.total_steps() > 1_000


@pytest.mark.parametrize("scenario", ["changes", "links", "metadata", "pairs", "power", "stripes"])
def test_so_it_is_in_the_scenarios_of_the_mutants(scenario: str) -> None:
    assert traced(0, LEDGER_SCENARIOS[scenario]).total_steps() > 500


@pytest.mark.parametrize("seed", [1, 3])
def test_so_it_is_in_whole_clusters(seed: int) -> None:
    """Brokers write, take over and trim; auto-recovery repairs; operators delete."""
    with tracing() as trace:
        run_seed(seed)
    trace.check()
    assert trace.total_steps() > 1_000


def found_in(patch: Patch, scenario: str, *, seeds: range = MUTANT_SEEDS) -> str:
    """The first step of a mutated program that the model does not allow, whatever else came of
    it.
    """
    for seed in seeds:
        # What the oracle of the workload makes of it is another matter.
        with patch(), tracing() as trace, suppress(Exception):
            run_ledgers(seed, LEDGER_SCENARIOS[scenario])
        if trace.problems:
            return trace.problems[0]
    return ""


@pytest.mark.parametrize(
    "mutant",
    [mutant for mutant in LEDGER_MUTANTS if mutant.name not in LIVENESS],
    ids=lambda mutant: mutant.name,
)
def test_a_safeguard_that_is_taken_from_the_program_shows_in_its_trace(mutant: Any) -> None:
    for seed in MUTANT_SEEDS:
        with mutant.patch(), tracing() as trace, suppress(Exception):
            mutant.check(seed)
        if trace.problems:
            return
    raise AssertionError(f"no trace of {mutant.name} differs from the model")


def _confirm_below_the_quorum(was: Any) -> object:
    def confirm(core: WriterCore) -> int:
        if core.metadata.ack_quorum == 1:
            return int(was(core))
        metadata = core.metadata
        core.metadata = replace(metadata, ack_quorum=metadata.ack_quorum - 1)
        try:
            return int(was(core))
        finally:
            core.metadata = metadata

    return confirm


def test_a_confirmation_below_the_acknowledgement_quorum_shows() -> None:
    problem = found_in(replacing(WriterCore, "confirm", _confirm_below_the_quorum), "links")
    assert "confirms" in problem or "counts copies" in problem


def test_a_close_before_enough_negatives_shows() -> None:
    problem = found_in(
        replacing(recovery_core, "negatives_needed", lambda _was: lambda _write, _ack: 1), "links"
    )
    assert "may not close" in problem
