"""The small models, looked at whole: nothing breaks with every safeguard, and each safeguard that
is removed brings its defect back.
"""

from __future__ import annotations

import pytest

from pulsarish.sim.models import ownership as ownership_model
from pulsarish.sim.models.explore import Exploration, TooManyStates, explore
from pulsarish.sim.models.ledger import Quorums, Rules
from pulsarish.sim.models.ledger_steps import Bounds, Explored, broken, new_ledger, steps

THREE = Quorums(3, 3, 2)
ALL_RULES = Rules()


def _ledgers(
    bounds: Bounds,
    *,
    bookies: int = 3,
    recoverers: int = 1,
    quorums: Quorums = THREE,
    rules: Rules = ALL_RULES,
) -> Exploration[Explored]:
    first = new_ledger(bookies=bookies, recoverers=recoverers, bounds=bounds, quorums=quorums)
    return explore(first, lambda explored: steps(explored, rules, bounds), broken)


def _chains(rules: ownership_model.Rules) -> Exploration[ownership_model.Chain]:
    first = ownership_model.new_chain(brokers=2, takeovers=3, ledgers=4, appends=3)
    return explore(first, lambda chain: ownership_model.steps(chain, rules), ownership_model.broken)


@pytest.mark.parametrize(
    ("bookies", "recoverers", "bounds"),
    [
        (3, 1, Bounds(2)),
        # with two entries each it is what `pulsarish sim model` looks at
        (3, 2, Bounds(1, ahead=True)),
        (4, 2, Bounds(1)),
        (4, 1, Bounds(1, changes=1)),
        (3, 1, Bounds(2, ahead=True)),
        (3, 1, Bounds(2, lacs=True)),
        (3, 1, Bounds(2, shown=True)),
        (3, 2, Bounds(1, shown=True)),
        (4, 1, Bounds(1, changes=1, shown=True)),
    ],
)
def test_no_way_through_the_ledger_protocol_loses_anything(
    bookies: int, recoverers: int, bounds: Bounds
) -> None:
    found = _ledgers(bounds, bookies=bookies, recoverers=recoverers)
    assert (found.broken, found.way) == ("", ())
    assert found.states > 500
    assert found.ends > 10


@pytest.mark.parametrize(
    ("quorums", "recoverers", "bounds"),
    [
        (Quorums(3, 2, 2), 2, Bounds(2)),  # Qw < E: no two entries lie on the same members
        (Quorums(3, 2, 1), 1, Bounds(2)),
        (Quorums(2, 2, 1), 1, Bounds(1, changes=1)),  # Qa = 1: every member must be heard
        (Quorums(3, 3, 1), 1, Bounds(2)),
        (Quorums(2, 2, 2), 1, Bounds(2, changes=1)),  # Qa = Qw: one negative is enough
        (Quorums(3, 3, 3), 1, Bounds(2)),
        (Quorums(3, 2, 2), 1, Bounds(2, shown=True)),
        (Quorums(2, 2, 1), 1, Bounds(1, changes=1, shown=True)),
    ],
)
def test_other_quorums_lose_nothing_either(
    quorums: Quorums, recoverers: int, bounds: Bounds
) -> None:
    found = _ledgers(bounds, recoverers=recoverers, quorums=quorums)
    assert (found.broken, found.way) == ("", ())
    assert found.ends > 10


@pytest.mark.parametrize(
    ("recoverers", "bounds"), [(1, Bounds(2, losses=1)), (2, Bounds(1, losses=1))]
)
def test_a_bookie_that_returns_with_nothing_does_no_harm_in_limbo(
    recoverers: int, bounds: Bounds
) -> None:
    """It says of what it lacks that this is unknown, and takes nothing from a writer."""
    found = _ledgers(bounds, recoverers=recoverers)
    assert (found.broken, found.way) == ("", ())
    without = _ledgers(bounds, recoverers=recoverers, rules=Rules(limbo=False))
    assert without.broken == "NoDivergence"
    assert "a bookie returns with nothing" in without.way


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
def test_a_safeguard_of_the_ledger_protocol_that_is_removed_is_missed(
    safeguard: str, invariant: str
) -> None:
    rules = Rules()._replace(**{safeguard: False})
    found = _ledgers(Bounds(2, changes=1), bookies=4, rules=rules)
    assert found.broken == invariant, found
    assert len(found.way) < 15


def test_what_a_bookie_shows_before_it_has_fenced_divides_writer_and_recoverer() -> None:
    found = _ledgers(Bounds(1, shown=True), rules=Rules(show_after_fence=False))
    assert found.broken == "NoDivergence"
    assert any(step.endswith("is shown too early") for step in found.way)


def test_a_change_that_recovery_shows_too_early_divides_two_recoverers() -> None:
    rules, bounds = Rules(keep_changes_local=False), Bounds(2)
    ledger = new_ledger(bookies=4, recoverers=1, bounds=bounds, quorums=THREE)
    stored = (
        "writer pushes 0",
        "a bookie stores 0",
        "a bookie stores 0",
        "writer pushes 1",
        "a bookie stores 1",
        "a bookie stores 1",
    )
    for wanted in (*stored, "writer confirms 0", "writer confirms 1"):
        ledger = next(after for name, after in steps(ledger, rules, bounds) if name == wanted)
    assert (
        explore(ledger, lambda state: steps(state, rules, bounds), broken).broken == "NoDivergence"
    )
    assert explore(ledger, lambda state: steps(state, ALL_RULES, bounds), broken).broken == ""


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
def test_a_safeguard_of_taking_over_that_is_removed_is_missed(
    safeguard: str, invariant: str
) -> None:
    found = _chains(ownership_model.Rules()._replace(**{safeguard: False}))
    assert found.broken == invariant, found
    assert found.way


def test_a_model_that_outgrows_its_bound_proves_nothing() -> None:
    with pytest.raises(TooManyStates):
        explore(0, lambda number: [("next", number + 1)], lambda _number: "", states_max=10)
