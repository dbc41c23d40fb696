"""Rival owners of a topic on real ledgers and bookies under faults, and the proof that the oracle
would notice.
"""

from __future__ import annotations

import pytest

from pulsarish.sim.mutants.topic_log import LOG_SCENARIOS
from pulsarish.sim.workloads.topic_log import LogCounts, LogSettings, run_log


def test_nothing_is_lost_doubled_or_skipped() -> None:
    reached = LogCounts()
    for seed in range(10):
        reached.add(run_log(seed))
    undecided = LogSettings(seconds=5.0, kinds=("slow_node",), rival_chance=0.2, dies_chance=0.5)
    for seed in range(4):
        reached.add(run_log(seed, undecided))
    for name in reached.__slots__:
        assert getattr(reached, name) > 0, f"no seed reached {name}: {reached}"


def test_with_one_of_three_bookies_dead_for_good_everything_goes_on() -> None:
    """Publishing, roll-over, take-over and cursors' ledgers need no more than Qa members (rule
    3).
    """
    settings = LogSettings(dead_bookies=1, kinds=("slow_node", "pause"), node_writes_max=0)
    reached = LogCounts()
    for seed in range(4):
        reached.add(run_log(seed, settings))
    assert reached.confirmed > 200
    assert reached.acknowledged > 100
    assert reached.ledgers > 8


@pytest.mark.parametrize("scenario", sorted(LOG_SCENARIOS))
def test_the_scenarios_of_mutants_pass_without_them(scenario: str) -> None:
    for seed in range(4):
        run_log(seed, LOG_SCENARIOS[scenario])
