"""Reduce the faults of a failing seed: drop those without which the same kind of failure still
happens.

    trial = try_seed(17)
    if trial.kinds:
        print(minimise(trial, partial(try_seed, 17)).story)

What is left is seldom the cause alone, because a dropped fault also changes the order of everything
after it. But a story with two faults is read sooner than one with thirty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pulsarish.sim.workloads.cluster import run_seed
from pulsarish.sim.workloads.result import Result, tell_faults
from pulsarish.sim.world.faults import Fault

__all__ = ["RUNS_MAX", "Trial", "minimise", "try_seed"]

RUNS_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a seed, however it ended."""

    faults: tuple[Fault, ...]
    kinds: frozenset[str]
    """Names of the failures; empty when there was none."""
    story: str
    result: Result | None
    """``None`` when the run itself raised."""


def try_seed(seed: int, faults: Sequence[Fault] | None = None) -> Trial:
    """Run a seed. If it raises, it has failed."""
    planned: list[Fault] = []
    try:
        result = run_seed(seed, faults=faults, planned=planned.extend)
    except Exception as error:  # noqa: BLE001 - whatever a node raised is what this seed found
        cause = error.__cause__
        said = [
            f"seed {seed}: {type(error).__name__}: {error}",
            *([f"  caused by {cause!r}"] if cause is not None else []),
        ]
        story = "\n".join([*said, *getattr(error, "__notes__", []), *tell_faults(planned)])
        kind = (
            f"{type(error).__name__} {type(cause).__name__}"
            if cause is not None
            else type(error).__name__
        )
        return Trial(tuple(planned), frozenset((kind,)), story, None)
    kinds = frozenset(anomaly.name for anomaly in result.anomalies)
    return Trial(tuple(planned), kinds, result.story(), result)


def minimise(
    failed: Trial, again: Callable[[Sequence[Fault]], Trial], runs_max: int = RUNS_MAX
) -> Trial:
    """Drop faults in halves, then in smaller and smaller parts, while one of ``failed.kinds``
    stays.

    Args:
        again: runs the same seed with these faults.
        runs_max: after this number of runs the smallest failure so far is returned.
    """
    smallest, runs = failed, 0
    part = max(1, len(failed.faults))  # all of them first: the failure may need none
    at, dropped = 0, False
    while runs < runs_max and smallest.faults:
        fewer = [*smallest.faults[:at], *smallest.faults[at + part :]]
        trial = again(fewer)
        runs += 1
        if trial.kinds & failed.kinds:
            smallest, dropped = trial, True
        else:
            at += part
        if at < len(smallest.faults):
            continue
        if part == 1 and not dropped:
            break  # each of them is needed
        part, at, dropped = max(1, part // 2), 0, False
    return smallest
