"""``pulsarish sim run``: what it prints, and its exit status, whatever became of the seeds."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool

import pytest
from click.testing import CliRunner

import pulsarish.cli.sim
from pulsarish.cli.sim import sim
from pulsarish.sim.models.explore import Exploration, TooManyStates
from pulsarish.sim.workloads.minimise import Trial


def odd_seeds_fail(seed: int, _faults: object) -> Trial:
    return Trial(
        (),
        frozenset({"lost-write"} if seed % 2 else ()),
        f"seed {seed} lost a write" if seed % 2 else "fine",
        None,
    )


def test_a_failed_seed_is_told_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulsarish.cli.sim, "try_seed", odd_seeds_fail)
    done = CliRunner().invoke(sim, ["run", "--seeds", "6-9"])
    assert done.exit_code == 1
    assert (
        done.output.index("seed 7 lost a write")
        < done.output.index("sim replay 7 --minimise")
        < done.output.index("seed 9 lost a write")
    )
    assert "4 seeds, 2 failed" in done.output
    assert "2 of 4 seeds failed" in done.output


def test_what_a_process_hands_over_is_told_like_what_it_ran_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pulsarish.cli.sim, "try_seed", odd_seeds_fail)
    outcomes = [pickle.loads(pickle.dumps(pulsarish.cli.sim._outcome(seed))) for seed in (6, 7)]
    assert [(outcome.seed, outcome.failed, outcome.story) for outcome in outcomes] == [
        (6, False, ""),
        (7, True, "seed 7 lost a write"),
    ]


def test_a_process_that_dies_is_told_with_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(seeds: Iterable[int], _jobs: int) -> Iterator[object]:
        for seed in seeds:
            if seed == 8:
                raise BrokenProcessPool
            yield pulsarish.cli.sim._outcome(seed)

    monkeypatch.setattr(pulsarish.cli.sim, "try_seed", odd_seeds_fail)
    monkeypatch.setattr(pulsarish.cli.sim, "_outcomes", dies)
    done = CliRunner().invoke(sim, ["run", "--seeds", "6-20", "--jobs", "2"])
    assert done.exit_code == 1
    assert "sim run --seeds 8-20 --jobs 1" in done.output


@pytest.mark.parametrize("seeds", ["²", "1-²", "1-", "5-2", "", "-3"])
def test_what_is_no_range_of_seeds_is_refused(seeds: str) -> None:
    done = CliRunner().invoke(sim, ["run", f"--seeds={seeds}"])
    assert (done.exit_code, "Invalid value for '--seeds'" in done.output) == (2, True), done.output


def test_a_model_that_was_looked_at_is_told_before_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [Exploration(states=7, ends=2, broken="", way=())]

    def look(*_first: object, **_bound: object) -> Exploration[object]:
        if not found:
            raise TooManyStates("more than 10 states")
        return found.pop()

    monkeypatch.setattr(pulsarish.cli.sim, "explore", look)
    done = CliRunner().invoke(sim, ["model", "--states", "10"])
    assert done.exit_code == 1
    assert done.output.index(
        "ownership: 7 states, 2 ends, no invariant broken"
    ) < done.output.index("more than 10 states: nothing is proved")
