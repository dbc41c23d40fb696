"""Which scenarios ``pulsarish chaos run`` chooses, and that what is wished is judged before anything runs."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from pulsarish.cli.chaos import commands
from pulsarish.cli.chaos.scenario import Scenario
from pulsarish.cli.chaos.scenarios import SCENARIOS
from pulsarish.cli.main import pulsarish


class _Ran(Exception):
    """Instead of running it."""


def chosen(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[list[str], str]:
    """What would run first, if anything would, and what was said."""
    names: list[str] = []

    def note(scenario: Scenario, *_: object) -> None:
        names.append(scenario.name)
        raise _Ran

    monkeypatch.setattr(commands, "_run", note)
    done = CliRunner().invoke(pulsarish, ["chaos", "run", *words])
    return names, done.output


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("no-fault", "cut-clients", "--dedup"), "cut-clients is with deduplication off: leave --dedup out"),
        (("0", "isolate-broker-from-zk-dedup", "--no-dedup"), "is with deduplication on: leave --no-dedup out"),
        (("0", "1", "no-such"), "there is no scenario 'no-such'"),
        (("0", "isolate", "--quorums", "3-4-2"), "'3-4-2' is not E-QW-QA"),
    ],
)
def test_nothing_runs_when_one_of_them_cannot(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], reason: str) -> None:
    names, said = chosen(monkeypatch, *words)
    assert names == []
    assert reason in said


@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        ((), {"slow-producer"}),
        (("--dedup",), {"slow-producer", "cut-clients"}),
        (("--no-dedup",), {"slow-producer", "cut-clients-dedup", "isolate-broker-from-zk-dedup"}),
    ],
)
def test_all_are_those_that_are_possible(words: tuple[str, ...], left_out: set[str]) -> None:
    dedup = {(): None, ("--dedup",): True, ("--no-dedup",): False}[words]
    found = commands._find("all", in_hand=True, dedup=dedup)
    assert set(SCENARIOS) - {scenario.name for scenario in found} == left_out
