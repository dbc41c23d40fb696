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
"""After this long another turn begins without an answer to this one, so that what waits does not
stop the others.
"""
_UNANSWERED_MAX: Final = 1_000
"""Turns without an answer, however long they take: a broker that has much to load answers as fast
as it can, and more requests would only wait there.
"""


class OpeningTurns:
    """The turns of one client, in the order in which they were asked for."""

    def __init__(self, clock: Clock, alarms: Timers) -> None:
        self.clock = clock
        self.alarms = alarms
        self.free = asyncio.Semaphore(_AT_ONCE_MAX)
        self.answers = asyncio.Semaphore(_UNANSWERED_MAX)

    async def take(self, *, waits: bool = False) -> Turn:
        """Wait for a turn. End it when the request has its answer.

        ``waits``: the answer may take hours, so it does not count as one without an answer.
        """
        if not waits:
            await self.answers.acquire()
        try:
            await self.free.acquire()
        except BaseException:
            if not waits:
                self.answers.release()
            raise
        return Turn(self, waits=waits)


class Turn:
    __slots__ = ("_alarm", "_has_ended", "_turns", "_waits")

    def __init__(self, turns: OpeningTurns, *, waits: bool) -> None:
        self._has_ended = False
        self._turns = turns
        self._waits = waits
        self._alarm = turns.alarms.alarm(self._late)
        self._alarm.set(turns.clock.monotonic() + _TURN_SECONDS)

    def _late(self) -> None:
        self._turns.free.release()

    def end(self) -> None:
        """Let the next one begin. Does nothing the second time."""
        if not self._has_ended:
            self._has_ended = True
            if self._alarm.due is not None:
                self._alarm.cancel()
                self._turns.free.release()
            if not self._waits:
                self._turns.answers.release()
