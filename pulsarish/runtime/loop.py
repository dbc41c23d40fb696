"""Run a node: the event loop, its lag, its signals, its end.

**A loop that is never idle starves every other Python thread.** It releases the interpreter lock
only for the instant of a zero-time poll. A thread that waits less than the switch interval at a
time never requests the lock. One thread was seen to wait for two seconds; meanwhile the journal
does not answer and the metadata session misses its pings. So servers shorten the switch interval,
and the loop *breathes*: it really sleeps for an instant after a millisecond in which it never
waited. It looks while other threads work for it, or when it was busy for most of the last lag
measurement. A loop that waited for an event has let the other threads run. The operating system
counts how often a thread waited.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import uvloop

from pulsarish.runtime.descriptors import raise_descriptor_limit
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.log import flush_logs, get_logger
from pulsarish.runtime.metrics import LAG_BUCKETS_SECONDS, Histogram

__all__ = [
    "EXIT_SECOND_SIGNAL",
    "LoopCare",
    "NodeProcess",
    "RunningNode",
    "run_node",
    "server_runner",
]

_log = get_logger("loop")

EXIT_SECOND_SIGNAL = 130
"""The exit status when a second signal ended the process in the middle of its graceful stop."""

_SWITCH_INTERVAL_SECONDS = 0.0005
_BREATH_SECONDS = 0.000_02
_BREATH_EVERY_SECONDS = 0.001
# An idle loop looks at half the rate each time, down to this: each look wakes it. So a thread that
# finds the loop busy in the end waits for it at most as long as its work has taken already.
_LOOK_PAUSE_SECONDS_MAX = 0.008
# Below this share of a period the loop counts as idle.
_IDLE_SHARE = 0.1
# A shorter stall can go unseen.
_LAG_EVERY_SECONDS = 0.2
# Of an idle loop, which has little that a stall could delay: five measurements a second were a
# third of what an idle process cost.
_IDLE_LAG_EVERY_SECONDS = 1.0
# Measurements at the short period that follow each reading by an evictor: three seconds, so that
# one that reads once a second gets them all the time.
_READ_LAGS_COUNT = 15
# Above this share of one lag period the loop counts as busy, and breathes although no work of other
# threads is known. Metadata clients send their pings from their own threads, unasked.
_BUSY_SHARE = 0.5
_COLLECT_AFTER_ALLOCATIONS = 100_000
_UMASK = 0o077


class LoopCare:
    """Measures the loop's lag and lets other threads run.

    Create, start and stop it in the loop that it serves.
    """

    def __init__(self, outside: OutsideWork) -> None:
        self._loop = asyncio.get_running_loop()
        self._outside = outside
        self._busy = False
        self._looking: asyncio.TimerHandle | None = None
        self._pause_seconds = _BREATH_EVERY_SECONDS
        # At the last look: how often this thread had waited, and the CPU time it had used.
        self._waits_count = 0
        self._looked_used_seconds = 0.0
        self._measuring: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._lag_every_seconds = _LAG_EVERY_SECONDS
        self._read_lags_count = 0
        self._used_seconds = 0.0
        self.lag_seconds = 0.0
        """How late the loop was at the last measurement.

        The stall itself was at most one measuring period longer.
        """
        self.lags = Histogram(LAG_BUCKETS_SECONDS)
        """All measurements since the start."""
        self.lag_seconds_max = 0.0
        """The greatest lag since the last call of ``take_lag_max``."""

    def start(self) -> None:
        self._outside.first = self._watch_threads
        self._used_seconds = time.thread_time()
        self._measure_later()

    def stop(self) -> None:
        self._outside.first = None
        for handle in (self._looking, self._measuring):
            if handle is not None:
                handle.cancel()

    def take_lag_max(self) -> float:
        """Return the greatest lag in seconds since the last call.

        An evictor reads it before it suspects silent peers. While it does, an idle loop is
        measured as often as a busy one.
        """
        self._read_lags_count = _READ_LAGS_COUNT
        worst, self.lag_seconds_max = self.lag_seconds_max, 0.0
        return worst

    def _measure_later(self) -> None:
        self._due = time.perf_counter() + self._lag_every_seconds
        self._measuring = self._loop.call_later(self._lag_every_seconds, self._measure)

    def _measure(self) -> None:
        late_seconds = time.perf_counter() - self._due
        self.lag_seconds = max(0.0, late_seconds)
        self.lags.observe(self.lag_seconds)
        self.lag_seconds_max = max(self.lag_seconds_max, self.lag_seconds)
        used_seconds = time.thread_time()
        share = (used_seconds - self._used_seconds) / (self._lag_every_seconds + self.lag_seconds)
        self._used_seconds = used_seconds
        self._busy = share > _BUSY_SHARE
        if self._busy:
            self._watch_threads()
        if share < _IDLE_SHARE and not self._read_lags_count:
            self._lag_every_seconds = _IDLE_LAG_EVERY_SECONDS
        else:
            self._lag_every_seconds = _LAG_EVERY_SECONDS
            self._read_lags_count = max(0, self._read_lags_count - 1)
        self._measure_later()

    def _watch_threads(self) -> None:
        """Begin to look whether the loop lets other threads run, because they have work."""
        if self._looking is None:
            self._pause_seconds = _BREATH_EVERY_SECONDS
            self._looked_used_seconds = time.thread_time()
            self._waits_count = _waits_count()
            self._look_later()

    def _look_later(self) -> None:
        self._looking = self._loop.call_later(self._pause_seconds, self._look)

    def _look(self) -> None:
        self._looking = None
        if not (self._outside.count or self._busy):
            return
        waits_count, used_seconds = _waits_count(), time.thread_time()
        if waits_count == self._waits_count:
            time.sleep(_BREATH_SECONDS)
            # The sleep counts as a wait, and so does the one for the interpreter lock after it.
            waits_count = _waits_count()
            self._pause_seconds = _BREATH_EVERY_SECONDS
        elif used_seconds - self._looked_used_seconds < _IDLE_SHARE * self._pause_seconds:
            self._pause_seconds = min(2 * self._pause_seconds, _LOOK_PAUSE_SECONDS_MAX)
        else:
            self._pause_seconds = _BREATH_EVERY_SECONDS
        self._waits_count, self._looked_used_seconds = waits_count, used_seconds
        self._look_later()


def _waits_count() -> int:
    """Return how often this thread has given up its core to wait."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


class RunningNode(Protocol):
    """A node that serves."""

    ready_line: str
    """Printed to standard output when the node can serve."""

    async def stop(self) -> None:
        """Stop gracefully: hand over, flush, close. Called once."""
        ...


class NodeProcess:
    """What a process passes to its starting node."""

    def __init__(self) -> None:
        self.outside = OutsideWork()
        self.care = LoopCare(self.outside)
        self._stopping = asyncio.Event()

    def request_stop(self, reason: str) -> None:
        """Begin the graceful stop, as a signal does."""
        if not self._stopping.is_set():
            _log.info("stopping", reason=reason)
            self._stopping.set()

    async def stop_requested(self) -> None:
        await self._stopping.wait()


def run_node(start: Callable[[NodeProcess], Awaitable[RunningNode]]) -> int:
    """Run one node until SIGTERM or SIGINT, or until it requests a stop. Return the exit status.

    ``start`` returns once the node can serve. Its exceptions (a rejected configuration, a port in
    use) are raised to the caller. A signal during the start ends the process at once, since it
    serves no client yet. A second signal during the stop ends it at once too.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    raise_descriptor_limit()
    # RocksDB makes its files with all the rights that this mask leaves.
    os.umask(_UMASK)
    with server_runner() as runner:
        return runner.run(_run(start))


def server_runner() -> asyncio.Runner:
    """Return a runner with the event loop that servers run in."""
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


async def _run(start: Callable[[NodeProcess], Awaitable[RunningNode]]) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_loop_exception)
    process = NodeProcess()
    process.care.start()
    signals_count = 0

    def signalled(name: str) -> None:
        nonlocal signals_count
        signals_count += 1
        if signals_count > 1 or node is None:
            _log.warning("ended by a signal", signal=name)
            flush_logs()
            os._exit(EXIT_SECOND_SIGNAL)
        process.request_stop(name)

    node: RunningNode | None = None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled, number.name)
    try:
        node = await start(process)
        _calm_collector()
        sys.stdout.write(node.ready_line + "\n")
        sys.stdout.flush()
        await process.stop_requested()
        await node.stop()
        _log.info("stopped")
    finally:
        process.care.stop()
        flush_logs()
    return 0


def _calm_collector() -> None:
    """Collect cycles rarely.

    A node's hot paths make no cycles, and waiting entries live long enough to be traversed again
    and again. The default thresholds cost a bookie a fifth of its CPU. Objects that exist now live
    as long as the process.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER_ALLOCATIONS, 50, 100)


def _log_loop_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log a failed callback, or a task's exception that was never retrieved: a defect that must be
    seen.
    """
    _log.error("event loop", exception=context.get("exception"), message=context.get("message"))
