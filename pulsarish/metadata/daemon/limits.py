"""The limits of what clients of ``pulsarish metadata`` hold: connections, parts of requests,
answers not received, and time.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

from pulsarish.runtime.metrics import Metrics
from pulsarish.runtime.peer_limits import ConnectionSlots, HeldBytes, PeerConnection
from pulsarish.runtime.seams import Clock

__all__ = ["ANSWER_MAX_BYTES", "Deadlines", "PeerLimits"]

ANSWER_MAX_BYTES: Final = 1 << 20
"""Bytes of answers that one connection has not received.

Above it its requests wait; the last answer may exceed it.
"""


class TimedConnection(PeerConnection, Protocol):
    """A connection that waits for its peer."""

    def abort_late(self) -> None:
        """Close the connection now: the peer's time has passed."""
        ...

    def contain(self, what: str, error: Exception) -> None:
        """Count and log an error that happened during work for the connection, and close it now."""
        ...


class Deadlines:
    """Connections that wait for their peer, each for the same time.

    Every call is O(1), plus the late connections.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.seconds = seconds
        self.late_count = 0
        """Connections whose time has passed since the start."""
        self._clock = clock
        # in this order, because all have the same time
        self._due: dict[TimedConnection, float] = {}

    @property
    def first(self) -> float:
        """When the first peer's time passes, by the clock; infinite when none is waited for."""
        return next(iter(self._due.values()), math.inf)

    def start(self, connection: TimedConnection) -> None:
        """Start the peer's whole time now."""
        self._due.pop(connection, None)
        self._due[connection] = self._clock.monotonic() + self.seconds

    def stop(self, connection: TimedConnection) -> None:
        self._due.pop(connection, None)

    def restart_all(self) -> None:
        """Start the time of all peers again: this process was held up, so what the peers sent may
        lie unread.
        """
        due = self._clock.monotonic() + self.seconds
        self._due = dict.fromkeys(self._due, due)

    def take_late(self) -> list[TimedConnection]:
        """Remove and return the connections whose time has passed."""
        now = self._clock.monotonic()
        late: list[TimedConnection] = []
        for connection, due in self._due.items():
            if due > now:
                break
            late.append(connection)
        for connection in late:
            del self._due[connection]
        self.late_count += len(late)
        return late


class PeerLimits:
    """The limits of all connections of the daemon."""

    def __init__(
        self, slots: ConnectionSlots, requests: HeldBytes, answers: HeldBytes, deadlines: Deadlines
    ) -> None:
        self.slots = slots
        self.requests = requests
        self.answers = answers
        self.deadlines = deadlines

    def register_metrics(self, metrics: Metrics) -> None:
        slots, requests, answers, deadlines = (
            self.slots,
            self.requests,
            self.answers,
            self.deadlines,
        )
        metrics.read(
            "pulsarish_connections_refused_total",
            "counter",
            "Connections refused, as too many were open.",
            lambda: slots.refused_count,
        )
        for limit, why, count in (
            (
                "slots",
                "before they had a session, to make room for others",
                lambda: slots.ended_count,
            ),
            (
                "held_requests",
                "to limit requests that are incomplete or unanswered",
                lambda: requests.ended_count,
            ),
            (
                "unsent",
                "because their clients did not receive answers",
                lambda: answers.ended_count,
            ),
            (
                "silence",
                "because their clients did not continue in time",
                lambda: deadlines.late_count,
            ),
        ):
            metrics.read(
                f"pulsarish_connections_ended_for_{limit}_total",
                "counter",
                f"Connections ended {why}.",
                count,
            )
        metrics.read(
            "pulsarish_held_request_bytes",
            "gauge",
            "Bytes of requests that are not answered.",
            lambda: requests.used_bytes,
        )
        metrics.read(
            "pulsarish_unsent_bytes",
            "gauge",
            "Bytes sent to clients that do not receive them.",
            lambda: answers.used_bytes,
        )

    def leave(self, connection: TimedConnection) -> None:
        """Note that the connection is closed. Requests that it sent before may still wait."""
        self.slots.leave(connection)
        self.answers.set(connection, 0)
        self.deadlines.stop(connection)
