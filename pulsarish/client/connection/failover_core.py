"""The core of a client's failover between clusters: which one is used, from what checks found.

Pure: no clock and no I/O. The shell checks the clusters that ``to_check`` names, and reports.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["FailoverCore"]


class FailoverCore:
    """Clusters are numbers: 0 is the primary one, the others are tried in order.

    Args:
        clusters_count: of all clusters.
        failures_max: failed checks in a row after which a cluster is left.
        successes_min: checks in a row in which the primary one must answer before the return.
    """

    def __init__(self, clusters_count: int, *, failures_max: int, successes_min: int) -> None:
        assert clusters_count > 1
        self.current = 0
        self._clusters_count = clusters_count
        self._failures_max = failures_max
        self._successes_min = successes_min
        self._failures = 0
        self._successes = 0

    @property
    def to_check(self) -> Sequence[int]:
        """The clusters of one round of checks: the one in use, and the primary one."""
        return (0,) if self.current == 0 else (self.current, 0)

    def on_checked(self, *, is_reached: bool, is_primary_reached: bool) -> Sequence[int]:
        """Note a round, and return the clusters to try in order; none: stay.

        Args:
            is_reached: whether the cluster in use answers.
        """
        self._failures = 0 if is_reached else self._failures + 1
        self._successes = self._successes + 1 if is_primary_reached else 0
        if self.current != 0 and self._successes >= self._successes_min:
            return (0,)
        if self._failures < self._failures_max:
            return ()
        return [each for each in range(self._clusters_count) if each not in (0, self.current)]

    def move(self, cluster: int) -> None:
        """Note that another cluster is in use."""
        self.current = cluster
        self._failures = self._successes = 0

    def check(self) -> None:
        assert 0 <= self.current < self._clusters_count
        assert self._failures >= 0
        assert self._successes >= 0
