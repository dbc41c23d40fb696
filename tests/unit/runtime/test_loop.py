"""The care of the event loop: other threads get the interpreter beside a loop that is never idle,
and an idle loop costs next to nothing.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import uvloop

from pulsarish.runtime import loop
from pulsarish.runtime.lanes import Lane, OutsideWork
from pulsarish.runtime.loop import LoopCare
from tests.support.modules import changed

STEP_SECONDS = 0.000_05
"""Of the loop, between its polls."""
BUSY_SECONDS = 0.6
JOBS_MIN = 30
"""Jobs of a millisecond in that time. Without breaths some of them take half a second each; with
them, 250 and more are done on a free machine.
"""


@pytest.fixture(autouse=True)
def _switch_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    # So long that no waiting thread ever requests the lock, also while the machine keeps the loop
    # from its core: only what the loop gives away itself counts.
    sys.setswitchinterval(1.0)
    yield
    sys.setswitchinterval(before)


async def _stay_busy(cpu_seconds: float) -> None:
    """Give the loop no idle moment until this thread has used ``cpu_seconds``.

    CPU time: a machine that is busy with other work takes none of the threads' chances.
    """
    until = time.thread_time() + cpu_seconds
    while time.thread_time() < until:
        step_until = time.perf_counter() + STEP_SECONDS
        while time.perf_counter() < step_until:
            pass
        await asyncio.sleep(0)


def _count_breaths(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    count = 0

    def counted(seconds: float) -> None:
        nonlocal count
        count += seconds == loop._BREATH_SECONDS
        time.sleep(seconds)

    monkeypatch.setattr(loop, "time", changed(time, sleep=counted))
    return lambda: count


def test_a_busy_loop_lets_the_threads_run_that_work_for_it() -> None:
    done = 0

    async def run() -> None:
        outside = OutsideWork()
        care = LoopCare(outside)
        care.start()
        lane = Lane("test", outside)
        busy = asyncio.ensure_future(_stay_busy(BUSY_SECONDS))
        nonlocal done
        while not busy.done():
            await lane.run(lambda: time.sleep(0.001))
            done += 1
        care.stop()
        await lane.close()

    uvloop.run(run())
    assert done >= JOBS_MIN


def test_a_busy_loop_lets_threads_run_that_it_does_not_know_of() -> None:
    done = 0

    def work() -> None:
        nonlocal done
        while not ending.is_set():
            time.sleep(0.001)
            done += 1

    ending = threading.Event()

    async def run() -> None:
        nonlocal done
        care = LoopCare(OutsideWork())
        care.start()
        await _stay_busy(0.3)  # longer than the measurement that finds the loop busy
        thread = threading.Thread(target=work)
        thread.start()
        await _stay_busy(BUSY_SECONDS)
        care.stop()
        ending.set()
        await asyncio.get_running_loop().run_in_executor(None, thread.join)

    uvloop.run(run())
    assert done >= JOBS_MIN


def test_a_loop_that_waits_does_not_breathe(monkeypatch: pytest.MonkeyPatch) -> None:
    breaths = _count_breaths(monkeypatch)
    looks = 0

    async def run() -> None:
        nonlocal looks
        outside = OutsideWork()
        care = LoopCare(outside)
        care.start()
        outside.began()
        look = care._look

        def counted() -> None:
            nonlocal looks
            looks += 1
            look()

        monkeypatch.setattr(care, "_look", counted)
        await asyncio.sleep(0.4)
        care.stop()

    uvloop.run(run())
    # Each look of an idle loop is a wake-up: about 50 of the 400 that a millisecond would make.
    assert 5 <= looks <= 100
    assert breaths() <= looks // 4


def test_a_loop_that_is_never_idle_breathes_about_once_a_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaths = _count_breaths(monkeypatch)

    async def run() -> None:
        outside = OutsideWork()
        care = LoopCare(outside)
        care.start()
        outside.began()
        await _stay_busy(0.3)
        care.stop()

    uvloop.run(run())
    assert breaths() >= 60


def test_an_idle_loop_is_measured_rarely_unless_an_evictor_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used_seconds = 0.0
    periods: list[float] = []

    async def run() -> None:
        nonlocal used_seconds
        care = LoopCare(OutsideWork())
        monkeypatch.setattr(loop, "time", changed(time, thread_time=lambda: used_seconds))
        monkeypatch.setattr(care, "_measure_later", lambda: periods.append(care._lag_every_seconds))

        def measure() -> float:
            care._due = time.perf_counter()
            care._measure()
            return periods[-1]

        care.start()
        assert periods == [0.2]
        assert measure() == 1.0
        used_seconds += 0.9
        assert measure() == 0.2
        assert measure() == 1.0
        care.take_lag_max()
        assert [measure() for _ in range(16)] == [0.2] * 15 + [1.0]
        care.stop()

    uvloop.run(run())
