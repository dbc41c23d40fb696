"""Topics that are deleted and created again by one broker, while commits of the former ones
wait.
"""

from __future__ import annotations

from pulsarish.sim.workloads.renewed_topic import RenewedCounts, run_renewed


def test_commits_for_a_former_topic_spare_the_next_one() -> None:
    runs = [run_renewed(seed) for seed in range(20)]
    assert sum(counts.late for counts in runs) > 20
    assert all(counts == RenewedCounts(12, counts.late, counts.confirmed) for counts in runs)
