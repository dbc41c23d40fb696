"""Which scenarios ``pulsarish chaos run`` chooses, and that what is wished is judged before
anything runs.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

import pytest
from click.testing import CliRunner

from pulsarish.chaos.scenario import Scenario
from pulsarish.chaos.scenarios import SCENARIOS
from pulsarish.cli import chaos as commands
from pulsarish.cli.main import pulsarish

THEIRS = ("--url", "pulsarish://127.0.0.1:1", "--admin-url", "http://127.0.0.1:1")


class _Ran(Exception):
    """Instead of running it."""


def chosen(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[list[str], str]:
    """What would run first, if anything would, and what was said."""
    names: list[str] = []

    def note(scenario: Scenario, *_: object) -> None:
        names.append(scenario.name)
        raise _Ran

    monkeypatch.setattr(commands, "_run", note)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    done = CliRunner().invoke(pulsarish, ["chaos", "run", *words])
    return names, done.output


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ("no-fault", "cut-clients", "--dedup"),
            "cut-clients has deduplication off: leave --dedup out",
        ),
        (
            ("0", "isolate-broker-from-zk-dedup", "--no-dedup"),
            "has deduplication on: leave --no-dedup out",
        ),
        (("0", "1", "no-such"), "there is no scenario 'no-such'"),
        (("0", "isolate", "--quorums", "3-4-2"), "'3-4-2' is not E-QW-QA"),
        (("0", "killbroker"), "did you mean kill-broker"),
        (
            ("0", "1", *THEIRS),
            "kill-broker needs the hosts of the cluster; against --url there are no-fault,",
        ),
        (
            ("0", *THEIRS, "--quorums", "3-3-2", "--bookies", "5"),
            "--quorums and --bookies cannot be chosen for the cluster at --url",
        ),
        (
            ("0", *THEIRS, "--metadata", "zookeeper", "--secure", "--set", "broker.a=1"),
            "--metadata and --secure and --set cannot be chosen for the cluster at --url",
        ),
        (
            ("0", "--results", "/dev/null/results"),
            "/dev/null/results cannot be created: Not a directory",
        ),
    ],
)
def test_nothing_runs_when_one_of_them_cannot(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], reason: str
) -> None:
    names, said = chosen(monkeypatch, *words)
    assert names == []
    assert reason in said


@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        ((), {"slow-producer", "metadata-away-long", "zookeeper-ensemble", "soak"}),
        (
            ("--dedup",),
            {"slow-producer", "metadata-away-long", "zookeeper-ensemble", "soak", "cut-clients"},
        ),
        (
            ("--no-dedup",),
            {
                "slow-producer",
                "metadata-away-long",
                "zookeeper-ensemble",
                "soak",
                "cut-clients-dedup",
                "isolate-broker-from-zk-dedup",
                "rolling-restart-dedup",
            },
        ),
    ],
)
def test_all_are_those_that_are_possible(words: tuple[str, ...], left_out: set[str]) -> None:
    dedup = {(): None, ("--dedup",): True, ("--no-dedup",): False}[words]
    found = commands._find("all", in_hand=True, dedup=dedup)
    assert set(SCENARIOS) - {scenario.name for scenario in found} == left_out


def test_a_scenario_that_is_named_twice_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []

    def note(scenario: Scenario, *_: object) -> None:
        judged.append(scenario.name)

    monkeypatch.setattr(commands, "_options", note)
    chosen(monkeypatch, "1", "kill-broker", "0", "1")
    assert judged == ["kill-broker", "no-fault"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("was", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_terminal_that_goes_away_ends_the_cluster_unless_the_signal_is_ignored(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, was: signal.Handlers
) -> None:
    handled: dict[int, Callable[[int, FrameType | None], object]] = {}
    monkeypatch.setattr(signal, "getsignal", {number: was}.get)
    monkeypatch.setattr(commands, "_run", lambda *_: None)
    monkeypatch.setattr(signal, "signal", handled.__setitem__)
    CliRunner().invoke(pulsarish, ["chaos", "run", "0"])
    assert handled.get(number) == (signal.default_int_handler if was is signal.SIG_DFL else None)
