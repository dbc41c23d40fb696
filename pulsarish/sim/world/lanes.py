"""Lanes: a production thread with a queue becomes a queue of jobs under virtual time.

A job is a generator. It yields how many seconds its next step takes, and returns its result. It is
not a task: to cancel a caller that waits for it does not stop it, because nothing stops a thread in
``fdatasync``. It stops between two steps when the process dies.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from typing import Any, TypeVar

from pulsarish.sim.world.loop import SimLoop
from pulsarish.sim.world.nodes import Process

__all__ = ["Job", "Lane"]

T = TypeVar("T")
Job = Generator[float, None, T]


class Lane:
    """The jobs of one process, run one after the other in the order of ``run``."""

    def __init__(self, loop: SimLoop, process: Process) -> None:
        self._loop = loop
        self._process = process
        self._waiting: deque[tuple[Job[Any], asyncio.Future[Any]]] = deque()
        self._busy = False

    def run(self, job: Job[T]) -> asyncio.Future[T]:
        self._process.check()
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append((job, future))
        if not self._busy:
            self._busy = True
            self._later(0.0)
        return future

    def _later(self, seconds: float) -> None:
        self._loop.call_later(seconds, self._step, context=self._process.context)

    def _step(self) -> None:
        job, future = self._waiting[0]
        try:
            seconds = next(job)
        except StopIteration as done:
            if not future.done():
                future.set_result(done.value)
        except Exception as error:  # noqa: BLE001
            # The answer of the job to its caller, whatever it is.
            if not future.done():
                future.set_exception(error)
        else:
            self._later(seconds)
            return
        self._waiting.popleft()
        if self._waiting:
            self._later(0.0)
        else:
            self._busy = False
