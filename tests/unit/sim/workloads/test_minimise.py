"""Failing seeds are cut down to the faults that it takes."""

from __future__ import annotations

from collections.abc import Sequence

from pulsarish.sim.workloads.minimise import Trial, minimise
from pulsarish.sim.world.faults import Fault

ALL = tuple(
    Fault(float(number), "crash", f"node{number}", "peer", 1.0, 0.5) for number in range(20)
)


def failing_with(*needed: int) -> tuple[Trial, list[int]]:
    """What is left where the failure takes these faults, and the sizes that were tried."""
    tried: list[int] = []

    def again(faults: Sequence[Fault]) -> Trial:
        tried.append(len(faults))
        kinds = (
            frozenset(("lost-write",))
            if all(ALL[number] in faults for number in needed)
            else frozenset(("another",))
        )
        return Trial(tuple(faults), kinds, "", None)

    return minimise(Trial(ALL, frozenset(("lost-write", "unseen")), "", None), again), tried


def test_only_the_faults_that_it_takes_are_left() -> None:
    for needed in ((), (0,), (19,), (3, 4), (2, 9, 17)):
        smallest, tried = failing_with(*needed)
        assert smallest.faults == tuple(ALL[number] for number in needed)
        assert len(tried) < 60


def test_without_any_fault_it_takes_one_run() -> None:
    assert failing_with()[1] == [0]


def test_runs_are_bounded() -> None:
    tried: list[int] = []

    def again(faults: Sequence[Fault]) -> Trial:
        tried.append(len(faults))
        return Trial(tuple(faults), frozenset(), "", None)

    whole = Trial(ALL, frozenset(("unseen",)), "", None)
    assert minimise(whole, again, 7) is whole
    assert len(tried) == 7
