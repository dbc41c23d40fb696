"""Lanes: threads with a queue each, for calls that block and release the interpreter lock
meanwhile.

Jobs of one lane run one after another, in the order in which they were queued. One
``call_soon_threadsafe`` posts all finished jobs to the event loop: a post costs a system call and a
wake-up of the loop.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["LANE_JOBS_MAX", "Lane", "Lanes", "OutsideWork"]

T = TypeVar("T")

LANE_JOBS_MAX = 100_000
"""Limit of the jobs that wait in one lane.

A coroutine waits for every job, so the callers' own limits apply long before this one. Exceeding it
means that a caller has no limit, which is a defect.
"""


class OutsideWork:
    """Counts the work that other threads do for the event loop.

    While the count is not zero the loop must let those threads run (see ``runtime.loop``): a loop
    that is never idle starves them.
    """

    __slots__ = ("count", "first")

    def __init__(self) -> None:
        self.count = 0
        self.first: Callable[[], None] | None = None
        """Called in the loop when the count leaves zero."""

    def began(self) -> None:
        """Count a request that the loop has passed to another thread. Called in the loop."""
        self.count += 1
        if self.count == 1 and self.first is not None:
            self.first()

    def ended(self) -> None:
        """Count an answer that has arrived. Called in the loop."""
        self.count -= 1
        assert self.count >= 0, "more work ended than began"


class Lane:
    """One thread and its queue. Belongs to the event loop in which it was made."""

    def __init__(self, name: str, outside: OutsideWork) -> None:
        self._loop = asyncio.get_running_loop()
        self._outside = outside
        self._waiting_count = 0
        self._closed = False
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = (
            queue.SimpleQueue()
        )
        self._finished: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._posted = False
        # A daemon: a process that ends abruptly must not wait for a disk that hangs.
        self._thread = threading.Thread(target=self._work, name=f"lane-{name}", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Queue ``job``.

        The future gets its result or exception. Cancelling the future does not stop the job.
        """
        assert not self._closed, "the lane is closed"
        assert self._waiting_count < LANE_JOBS_MAX, "a caller of this lane has no limit of its own"
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting_count += 1
        self._outside.began()
        self._jobs.put((job, future))
        return future

    def _work(self) -> None:
        while (taken := self._jobs.get()) is not None:
            job, future = taken
            result, error = None, None
            try:
                result = job()
            except Exception as failure:  # noqa: BLE001
                # Whatever it is, the waiting coroutine gets it.
                error = failure
            self._finished.append((future, result, error))
            # The thread must not keep anything of this job while it waits for the next one: buffers
            # can be large.
            del taken, job, future, result, error
            # Append first, then read the flag. The loop clears the flag first, then drains. So
            # every job is drained.
            if not self._posted:
                self._posted = True
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:
                    # The loop was closed: the process is ending and no task waits any more.
                    if self._loop.is_closed():
                        return
                    raise

    def _deliver(self) -> None:
        self._posted = False
        while self._finished:
            future, result, error = self._finished.popleft()
            self._waiting_count -= 1
            self._outside.ended()
            if future.cancelled():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    async def close(self) -> None:
        """Run the queued jobs, then end the thread."""
        if self._closed:
            return
        last: asyncio.Future[None] = self.run(lambda: None)
        self._closed = True
        self._jobs.put(None)
        await last


class Lanes:
    """A node's lanes by name; a lane's thread starts with its first use."""

    def __init__(self, outside: OutsideWork) -> None:
        self._outside = outside
        self._lanes: dict[str, Lane] = {}

    def get(self, name: str) -> Lane:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = Lane(name, self._outside)
        return lane

    async def close(self) -> None:
        """End all lanes, each after its remaining jobs."""
        for lane in list(self._lanes.values()):
            await lane.close()
        self._lanes.clear()
