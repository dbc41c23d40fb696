"""The state of this process's metadata session, since when it holds, and how often it changed."""

from __future__ import annotations

from collections.abc import Mapping

from pulsarish.runtime.metrics import Metrics
from pulsarish.runtime.seams import SessionState, World
from pulsarish.runtime.tasks import export_contained

__all__ = ["SessionWatch"]


class SessionWatch:
    """Listen to the session from the moment it is made."""

    def __init__(self, world: World) -> None:
        self.since_ms = world.clock.wall_ms()
        """When the session came into its state, by the wall clock."""
        self.changes = dict.fromkeys((state.value for state in SessionState), 0)
        """How often the session came into each state."""
        self._world = world
        world.metadata.listen(self._changed)

    @property
    def state(self) -> SessionState:
        return self._world.metadata.state

    def _changed(self, state: SessionState) -> None:
        self.since_ms = self._world.clock.wall_ms()
        self.changes[state.value] += 1

    def export(self, metrics: Metrics) -> None:
        """Register the metrics of the session, and of contained errors of this process."""
        export_contained(metrics, self._world.tasks)
        metrics.read_each(
            "pulsarish_metadata_session_state",
            "gauge",
            "1 for the present state of the metadata session.",
            "state",
            self._states,
        )
        metrics.read_each(
            "pulsarish_metadata_session_changes_total",
            "counter",
            "How often the metadata session entered a state.",
            "state",
            lambda: self.changes,
        )

    def _states(self) -> Mapping[str, float]:
        return {state.value: int(state is self.state) for state in SessionState}
