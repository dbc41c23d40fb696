"""Brokers that open a topic whose bundle is not theirs any more."""

from __future__ import annotations

from pulsarish.sim.workloads.stale_owner import run_stale_owner


def test_a_former_owner_takes_no_topic_over() -> None:
    for seed in range(10):
        run_stale_owner(seed)
