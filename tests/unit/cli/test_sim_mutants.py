"""``pulsarish sim mutants``: names, what it prints, and its exit status."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from pulsarish.cli.sim import sim
from pulsarish.sim.mutants.catalogue import MUTANTS
from pulsarish.sim.workloads.safeguard import Mutant, replacing


class _Toy:
    careful = True


def _check(_seed: int) -> None:
    assert _Toy.careful, "somebody was careless"


@pytest.fixture(autouse=True)
def _toys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, careful in (("careless", False), ("harmless", True)):
        patch = replacing(_Toy, "careful", lambda _was, careful=careful: careful)
        monkeypatch.setitem(
            MUTANTS, name, Mutant(name, "somebody is careful", (2, 3), patch, _check, seeds=3)
        )


def test_says_what_died_of_what() -> None:
    done = CliRunner().invoke(sim, ["mutants", "careless"])
    assert done.exit_code == 0, done.output
    for part in (
        "careless at seed 0",
        "rules 2 and 3: somebody is careful",
        "noticed: somebody was careless",
        "1 mutants killed",
    ):
        assert part in done.output


def test_a_survivor_is_named_and_fails() -> None:
    done = CliRunner().invoke(sim, ["mutants", "harmless", "careless"])
    assert done.exit_code == 1
    assert "SURVIVED  harmless" in done.output
    assert "1 of 2 mutants survived: harmless" in done.output


def test_a_name_that_nobody_has_is_refused_with_the_nearest() -> None:
    done = CliRunner().invoke(sim, ["mutants", "mark_by_maximun"])
    assert done.exit_code == 2
    assert "there is no mutant 'mark_by_maximun'; did you mean mark_by_maximum?" in " ".join(
        done.output.split()
    )
