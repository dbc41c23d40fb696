"""The small models, looked at whole: nothing breaks with every safeguard, and each safeguard that is removed brings its defect back."""

from __future__ import annotations

import pytest

from pulsarish.sim import ledger_model, ownership_model
from pulsarish.sim.explore import Exploration, TooManyStates, explore


def _ledgers(rules: ledger_model.Rules, *, bookies: int, entries: int, recoverers: int, changes: int) -> Exploration[ledger_model.Ledger]:
    first = ledger_model.new_ledger(bookies=bookies, entries=entries, recoverers=recoverers, changes=changes)
    return explore(first, lambda ledger: ledger_model.steps(ledger, rules), ledger_model.broken)


def _chains(rules: ownership_model.Rules) -> Exploration[ownership_model.Chain]:
    first = ownership_model.new_chain(brokers=2, takeovers=3, ledgers=4, appends=3)
    return explore(first, lambda chain: ownership_model.steps(chain, rules), ownership_model.broken)


@pytest.mark.parametrize(
    ("bookies", "entries", "recoverers", "changes"),
    [(3, 2, 1, 0), (3, 2, 2, 0), (4, 1, 2, 0), (4, 1, 1, 1)],
)
def test_no_way_through_the_ledger_protocol_loses_anything(bookies: int, entries: int, recoverers: int, changes: int) -> None:
    found = _ledgers(ledger_model.Rules(), bookies=bookies, entries=entries, recoverers=recoverers, changes=changes)
    assert (found.broken, found.way) == ("", ())
    assert found.states > 500
    assert found.ends > 10


@pytest.mark.parametrize(
    ("safeguard", "invariant"),
    [
        ("fence_recovery_reads", "NoDivergence"),
        ("start_in_last_segment", "SegmentsInOrder"),
        ("count_only_members", "AllCommittedEntriesReachAckQuorum"),
        ("wait_for_change", "AllCommittedEntriesReachAckQuorum"),
        ("enough_negatives", "NoDivergence"),
    ],
)
def test_a_safeguard_of_the_ledger_protocol_that_is_removed_is_missed(safeguard: str, invariant: str) -> None:
    rules = ledger_model.Rules()._replace(**{safeguard: False})
    found = _ledgers(rules, bookies=4, entries=2, recoverers=1, changes=1)
    assert found.broken == invariant, found
    assert len(found.way) < 15


def test_a_change_that_recovery_shows_too_early_divides_two_recoverers() -> None:
    rules = ledger_model.Rules(keep_changes_local=False)
    ledger = ledger_model.new_ledger(bookies=4, entries=2, recoverers=1, changes=0)
    stored = ("writer pushes 0", "a bookie stores 0", "a bookie stores 0", "writer pushes 1", "a bookie stores 1", "a bookie stores 1")
    for wished in (*stored, "writer confirms 0", "writer confirms 1"):
        ledger = next(after for name, after in ledger_model.steps(ledger, rules) if name == wished)
    assert explore(ledger, lambda state: ledger_model.steps(state, rules), ledger_model.broken).broken == "NoDivergence"
    kept = ledger_model.Rules()
    assert explore(ledger, lambda state: ledger_model.steps(state, kept), ledger_model.broken).broken == ""


def test_no_way_of_taking_over_breaks_the_chain() -> None:
    found = _chains(ownership_model.Rules())
    assert (found.broken, found.way) == ("", ())
    assert found.states > 1_000


@pytest.mark.parametrize(
    ("safeguard", "invariant"),
    [
        ("recover_last", "OnlyOneLedgerOpenAtATime"),
        ("swing_by_version", "AllNonEmptyLedgersInLedgerList"),
        ("serve_after_swing", "AllNonEmptyLedgersInLedgerList"),
    ],
)
def test_a_safeguard_of_taking_over_that_is_removed_is_missed(safeguard: str, invariant: str) -> None:
    found = _chains(ownership_model.Rules()._replace(**{safeguard: False}))
    assert found.broken == invariant, found
    assert found.way


def test_a_model_that_outgrows_its_bound_proves_nothing() -> None:
    with pytest.raises(TooManyStates):
        explore(0, lambda number: [("next", number + 1)], lambda _number: "", states_max=10)
