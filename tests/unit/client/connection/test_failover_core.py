"""Which cluster a client uses, from what its checks found."""

from __future__ import annotations

import pytest

from pulsarish.client.connection.failover_core import FailoverCore


def rounds(core: FailoverCore, reached: list[set[int]]) -> list[int]:
    """Run one round for each set of clusters that answer. Returns the cluster in use after each."""
    used: list[int] = []
    for answering in reached:
        assert core.to_check[0] == core.current
        tried = core.on_checked(
            is_reached=core.current in answering, is_primary_reached=0 in answering
        )
        for each in tried:
            if each in answering:
                core.move(each)
                break
        core.check()
        used.append(core.current)
    return used


@pytest.mark.parametrize(
    ("failures_max", "successes_min", "reached", "used"),
    [
        (1, 1, [{0}, {1}, {1}, {0, 1}], [0, 1, 1, 0]),
        (2, 1, [{1}, {0, 1}, {1}, {1}, {1}], [0, 0, 0, 1, 1]),
        (1, 3, [{1}, {0, 1}, {1}, {0, 1}, {0, 1}, {0, 1}], [1, 1, 1, 1, 1, 0]),
        # The first that answers, in order; none answers: stay, and try again.
        (1, 1, [set(), {2}, {1}, {1, 2}], [0, 2, 1, 1]),
        # The primary one returns while the cluster in use is away.
        (1, 3, [{1}, {0}, {0}, {0}], [1, 1, 1, 0]),
        # A secondary one is left like any other.
        (2, 9, [{1}, {1}, {1}, {2}, {2}], [0, 1, 1, 1, 2]),
    ],
)
def test_the_cluster_in_use(
    failures_max: int, successes_min: int, reached: list[set[int]], used: list[int]
) -> None:
    core = FailoverCore(3, failures_max=failures_max, successes_min=successes_min)
    assert rounds(core, reached) == used
