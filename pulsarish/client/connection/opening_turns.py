"""How many producers and consumers of a client are being opened at a time.

When a broker goes, all that were connected to it open again. More at a time than brokers take would
only be refused, and the requests would wait in front of the messages of those that are open again.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pulsarish.client.connection.timers import Timers
from pulsarish.runtime.seams import Clock

__all__ = ["OpeningTurns", "Turn"]

_AT_ONCE_MAX: Final = 256
_TURN_SECONDS: Final = 1.0
"""After this long a turn ends without an answer, so that what waits does not stop the others."""


class OpeningTurns:
    """The turns of one client, in the order in which they were asked for."""

    def __init__(self, clock: Clock, alarms: Timers) -> None:
        self.clock = clock
        self.alarms = alarms
        self.free = asyncio.Semaphore(_AT_ONCE_MAX)

    async def take(self) -> Turn:
        """Wait for a turn. End it when the request has its answer."""
        await self.free.acquire()
        return Turn(self)


class Turn:
    __slots__ = ("_alarm", "_has_ended", "_turns")

    def __init__(self, turns: OpeningTurns) -> None:
        self._has_ended = False
        self._turns = turns
        self._alarm = turns.alarms.alarm(self.end)
        self._alarm.set(turns.clock.monotonic() + _TURN_SECONDS)

    def end(self) -> None:
        """Let the next one begin. Does nothing the second time."""
        if not self._has_ended:
            self._has_ended = True
            self._alarm.cancel()
            self._turns.free.release()
