"""All streams of one process to bookies, made on first use, and the one timer that detects silent
bookies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pulsarish.ledger.add_stream import AddStream
from pulsarish.ledger.bookie_control import BookieControl
from pulsarish.ledger.bookie_stream import BookieStream
from pulsarish.ledger.bookies import Bookies
from pulsarish.ledger.local_reads import LocalReads
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.placement_policy import Placement
from pulsarish.ledger.read_stream import ReadStream
from pulsarish.ledger.slow_adds import SlowAdds
from pulsarish.ledger.slow_bookies import SlowBookies
from pulsarish.runtime.containment import Critical, run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock, World

__all__ = ["BookiePool"]

_log = get_logger("bookies")


class BookiePool:
    """Streams by bookie instance.

    A bookie that is not registered and not in use is forgotten: at once when its stream has ended,
    otherwise after ``quarantine_ms``, because another instance at the same address may have taken
    the connection.
    """

    def __init__(self, world: World, options: LedgerOptions, bookies: Bookies) -> None:
        self.bookies = bookies
        self.control = BookieControl(world, options, bookies.book)
        self.clock: Clock = world.clock
        self.slow = SlowBookies(options)
        local = LocalReads(options, bookies.describe)
        self.local = local if local.is_used else None
        self._world = world
        self._options = options
        self.placement = Placement(options, world.random)
        self._slow_adds = SlowAdds(options)
        self._adds: dict[str, AddStream] = {}
        self._recoveries: dict[str, AddStream] = {}
        self._reads: dict[str, ReadStream] = {}
        self._ticked: list[tuple[Callable[[], None], Callable[[], bool]]] = []
        self._wake = asyncio.Event()
        self._closed = False

    async def start(self, *, may_end_process: bool = True) -> None:
        """Watch the registrations, and time what bookies owe.

        ``may_end_process``: a failure of the timing ends the process. Otherwise it starts again.
        """
        await self.bookies.start()
        tasks, clock, name = self._world.tasks, self._world.clock, "bookie-streams"
        if may_end_process:
            _ = tasks.spawn(self._tick(), name=name, critical=Critical.LEDGER_TIMEOUTS)
        else:
            _ = run_in_background(tasks, clock, name, self._tick)

    def each_tick(self, callback: Callable[[], None], wanted: Callable[[], bool]) -> None:
        """Call back every ``check_interval_ms`` while there is a stream or ``wanted`` is true.

        Call ``wake`` when ``wanted`` becomes true.
        """
        self._ticked.append((callback, wanted))

    def wake(self) -> None:
        """Start the tick again, because there is something to time."""
        self._wake.set()

    def adder(self, member: str, *, recovery: bool) -> AddStream:
        streams = self._recoveries if recovery else self._adds
        stream = streams.get(member)
        if stream is None:
            stream = streams[member] = AddStream(
                self._world, self._options, self.bookies.book, member, recovery=recovery
            )
            self.wake()
        return stream

    def reader(self, member: str) -> ReadStream:
        stream = self._reads.get(member)
        if stream is None:
            stream = self._reads[member] = ReadStream(
                self._world, self._options, self.bookies.book, member, self.slow
            )
            self.wake()
        return stream

    def usable(self, member: str) -> bool:
        """Whether adds may be sent to this bookie now: it is healthy and does not refuse
        connections.
        """
        stream = self._adds.get(member)
        return self.bookies.healthy(member) and (stream is None or not stream.down)

    def backlog_bytes(self) -> int:
        return sum(
            stream.backlog_bytes
            for streams in (self._adds, self._recoveries)
            for stream in streams.values()
        )

    @property
    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self.wake()
        self.bookies.close()
        for stream in self._streams():
            stream.close()

    def _streams(self) -> list[BookieStream]:
        return [*self._adds.values(), *self._recoveries.values(), *self._reads.values()]

    async def _tick(self) -> None:
        interval = self._options.check_interval_ms / 1000
        clock = self._world.clock
        before = clock.monotonic()
        while not self._closed:
            if not (
                self._adds
                or self._recoveries
                or self._reads
                or any(wanted() for _, wanted in self._ticked)
            ):
                # A process that uses no ledger sets no timer.
                self._wake.clear()
                await self._wake.wait()
                before = clock.monotonic()
                continue
            await clock.sleep(interval)
            now = clock.monotonic()
            # After this process itself was stopped, silence does not prove that the bookies failed.
            stood_still = (
                now - before
                > interval + min(self._options.add_timeout_ms, self._options.read_timeout_ms) / 2000
            )
            before = now
            for stream in self._streams():
                if stood_still:
                    stream.forgive()
                    continue
                try:
                    stream.tick()
                except Exception as error:  # noqa: BLE001
                    # Of one connection: the others must still be timed.
                    self._world.tasks.contain(f"tick of {stream.member}", error, stream.scope)
            if stood_still:
                self._slow_adds.forget_all()
            elif self._slow_adds.is_used:
                self._look_for_slow_adds(now)
            for callback, _ in self._ticked:
                callback()
            self._forget()

    def _look_for_slow_adds(self, now: float) -> None:
        times = {
            member: found
            for member, stream in self._adds.items()
            if (found := stream.take_times(now)) is not None
        }
        for slow in self._slow_adds.look(times, now):
            _log.warning(
                "a bookie is far slower with adds than the others; new ledgers avoid it",
                bookie=slow.member,
                took_ms=round(slow.took_seconds * 1000),
                others_ms=round(slow.others_seconds * 1000),
                avoided_ms=self._options.quarantine_ms,
            )
            self.bookies.avoid_slow(slow.member)

    def _forget(self) -> None:
        for streams in (self._adds, self._recoveries, self._reads):
            for member in [
                member for member, stream in streams.items() if self._forgettable(stream)
            ]:
                streams.pop(member).close()
                self.slow.forget(member)
                self._slow_adds.forget(member)

    def _forgettable(self, stream: BookieStream) -> bool:
        if stream.in_use or self.bookies.registered(stream.member):
            return False
        return not stream.connected or stream.silent_ms >= self._options.quarantine_ms
