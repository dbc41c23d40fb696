"""The turns of topics that are to be loaded.

When a broker has died, all its topics come to another one at once. If it began all of them, it
would do the same step for each in turn, and the first one would be ready when nearly all are. So
few are under way at a time, which is enough for all that two cores can do. A topic that waits for
something, as for bookies that do not answer, lets others begin.

The loads of a client wait in its own line, in the order in which it asked for them. The clients
take turns, so that one with thousands of topics does not hold up one with a single topic.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol

from pulsarish.model.errors import PulsarishError, ServiceNotReady, TooManyRequests
from pulsarish.runtime.seams import Clock, Tasks

__all__ = ["AT_ONCE_MAX", "LATE_SECONDS", "LoadLine", "LoadTurns", "WaitingLoad"]

AT_ONCE_MAX: Final = 64
"""Turns at a time, of those that began within the last ``LATE_SECONDS``."""
LATE_SECONDS: Final = 1.0


class WaitingLoad(Protocol):
    """A load as the turns know it. It may be a key."""

    lines: list[LoadLine]
    """The lines in which it waits, one for each client that wants it; none once it began."""

    def begin(self, turn: int) -> None:
        """Begin now. The turn must be ended with its number."""
        ...

    def give_up(self, error: PulsarishError) -> None:
        """End without having begun: it is in no line any more."""
        ...


class LoadLine:
    """The loads that wait for one client, or for this broker itself.

    ``on_joined`` is called when one more waits.
    """

    __slots__ = ("is_closed", "loads", "on_joined", "turns")

    def __init__(self, on_joined: Callable[[], None] = lambda: None) -> None:
        self.loads: OrderedDict[WaitingLoad, None] = OrderedDict()
        self.turns: LoadTurns | None = None
        self.on_joined = on_joined
        self.is_closed = False

    @property
    def waiting_count(self) -> int:
        return len(self.loads)

    def close(self) -> None:
        """Give up what waits for this client only, because the client is gone."""
        self.is_closed = True
        if self.turns is not None:
            self.turns.leave(self)


class LoadTurns:
    """Turns of one broker."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self._clock = clock
        self._tasks = tasks
        # The lines in which loads wait, in the order of their next turns.
        self._lines: OrderedDict[LoadLine, None] = OrderedDict()
        self._begun: dict[int, float] = {}  # turns that are not late, in the order of their begin
        self._number = 0
        self._is_watching = False
        self.waiting_count = 0
        """Places in all lines. A load that several clients want has one in the line of each."""
        self.begun_count = 0
        """Turns that have not ended."""

    def wait(self, load: WaitingLoad, line: LoadLine, places_max: int) -> None:
        """Put a load that has not begun into a client's line, and begin it when its turn comes.

        Does nothing if it is in that line already.

        Args:
            places_max: loads that may have begun or wait. Above it a place is taken from the client
                with most of them: its newest load is given up with ``TooManyRequests``.

        Raises ``TooManyRequests`` if that client is this one, and ``ServiceNotReady`` if it is
        gone.
        """
        if load in line.loads:
            return
        if line.is_closed:
            raise ServiceNotReady("the client has closed its connection")
        if self.waiting_count + self.begun_count >= places_max and not self._make_room(line):
            raise _too_many(self.waiting_count + self.begun_count)
        line.turns = self
        line.loads[load] = None
        load.lines.append(line)
        self.waiting_count += 1
        self._lines[line] = None
        self._begin_next()
        if self._lines and not self._is_watching:
            self._is_watching = True
            _ = self._tasks.spawn(self._watch(), name="turns of topics")
        line.on_joined()

    def _make_room(self, line: LoadLine) -> bool:
        """Take a place from the client with most places; ``False`` if that would not be fair.

        A load that others want, too, keeps its place.
        """
        longest = max(self._lines, key=lambda each: len(each.loads), default=line)
        if len(longest.loads) <= len(line.loads) + 1:
            return False
        newest = next(reversed(longest.loads))
        if len(newest.lines) > 1:
            return False
        places = self.waiting_count + self.begun_count
        self._take_out(newest)
        newest.give_up(_too_many(places))
        return True

    def _take_out(self, load: WaitingLoad) -> None:
        lines, load.lines = load.lines, []
        for line in lines:
            self._remove(load, line)

    def _remove(self, load: WaitingLoad, line: LoadLine) -> None:
        del line.loads[load]
        self.waiting_count -= 1
        if not line.loads:
            del self._lines[line]

    def leave(self, line: LoadLine) -> None:
        """Empty the line of a client that is gone; give up loads that no other client wants."""
        for load in list(line.loads):
            load.lines.remove(line)
            self._remove(load, line)
            if not load.lines:
                load.give_up(ServiceNotReady("the client has closed its connection"))

    def end(self, number: int) -> None:
        """End a turn. As many begin as may."""
        self.begun_count -= 1
        self._begun.pop(number, None)
        self._begin_next()

    def _begin_next(self) -> None:
        now = self._clock.monotonic()
        while self._begun:
            number, since = next(iter(self._begun.items()))
            if now - since < LATE_SECONDS:
                break
            del self._begun[number]
        while self._lines and len(self._begun) < AT_ONCE_MAX:
            line = next(iter(self._lines))
            self._lines.move_to_end(line)
            load = next(iter(line.loads))
            self._take_out(load)
            self._number += 1
            self.begun_count += 1
            self._begun[self._number] = now
            load.begin(self._number)

    async def _watch(self) -> None:
        """Let others begin when turns become late, while no turn begins or ends."""
        try:
            while self._lines:
                await self._clock.sleep(LATE_SECONDS / 4)
                self._begin_next()
        finally:
            self._is_watching = False


def _too_many(places: int) -> TooManyRequests:
    return TooManyRequests(
        f"{places} topics are being loaded or wait for that, the limit of this broker "
        "(max_concurrent_topic_load_requests); try again"
    )
