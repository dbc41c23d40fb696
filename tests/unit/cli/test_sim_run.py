"""``pulsarish sim run``: what it prints, and its exit status, whatever became of the seeds."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import pulsarish.cli.sim
from pulsarish.cli.sim import sim
from pulsarish.sim.minimise import Trial


def test_a_failed_seed_is_told_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd_seeds_fail(seed: int, _faults: object) -> Trial:
        return Trial((), frozenset({"lost-write"} if seed % 2 else ()), f"seed {seed} lost a write" if seed % 2 else "", None)

    monkeypatch.setattr(pulsarish.cli.sim, "try_seed", odd_seeds_fail)
    done = CliRunner().invoke(sim, ["run", "--seeds", "6-9"])
    assert done.exit_code == 1
    assert (
        done.output.index("seed 7 lost a write") < done.output.index("sim replay 7 --minimise") < done.output.index("seed 9 lost a write")
    )
    assert "4 seeds, 2 failed" in done.output
    assert "2 of 4 seeds failed" in done.output


def test_side_by_side_they_reach_what_they_reach_one_after_another() -> None:
    one, two = (CliRunner().invoke(sim, ["run", "--seeds", "1-3", "--jobs", jobs]) for jobs in ("1", "2"))
    assert (one.exit_code, two.exit_code) == (0, 0), one.output + two.output
    assert one.output.splitlines()[1:] == two.output.splitlines()[1:]
    assert one.output.startswith("3 seeds, 0 failed")
