"""Failed sends that the program cannot see, because it gave no callback: counted, and written to
the log.
"""

from __future__ import annotations

from typing import Final

from pulsarish.client.connection.loop_bridge import LoopBridge
from pulsarish.client.connection.timers import Timers
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock

__all__ = ["SendFailures"]

_log = get_logger("client.producer")
_LOG_INTERVAL_SECONDS: Final = 1.0


class SendFailures:
    """Count the failed sends of one producer that had no callback.

    The first is logged at once, those after it together with their number, at most once in
    ``_LOG_INTERVAL_SECONDS``. ``add`` may be called from any thread; the rest belongs to the loop.
    """

    def __init__(self, topic: str, handoff: LoopBridge, alarms: Timers, clock: Clock) -> None:
        self._topic = topic
        self._handoff = handoff
        self._clock = clock
        self._lock = handoff.lock()
        self._count = 0
        self._logged = 0
        self._error: PulsarishError | None = None
        self._alarm = alarms.alarm(self.log_due)

    def add(self, error: PulsarishError) -> None:
        with self._lock:
            self._count += 1
            self._error = error
            is_first = self._count == 1
            is_next = self._count == self._logged + 1
        if is_first:
            self.log_due()
        elif is_next:
            self._handoff.post(self._arm)

    def _arm(self) -> None:
        self._alarm.set(self._clock.monotonic() + _LOG_INTERVAL_SECONDS)

    def log_due(self) -> None:
        """Log the failures that the log does not have yet."""
        with self._lock:
            count, new, error = self._count, self._count - self._logged, self._error
            self._logged = count
        if new:
            _log.warning(
                "sends without a callback failed: give send_async a callback to get each outcome",
                topic=self._topic,
                messages=new,
                messages_in_all=count,
                reason=error,
            )
