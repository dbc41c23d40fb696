"""How long a thread waits for the interpreter beside an event loop that never idles: uncured, half
cured, cured.

Run ``python bench/starvation.py``. Each job sleeps 1 ms, so that is the least there is. Unannounced
threads are ones that the loop is not told about, as a metadata client's pings. The uncured rows
must show the starvation; where they do not, the others prove nothing.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import uvloop

from pulsarish.runtime.lanes import Lane, OutsideWork
from pulsarish.runtime.loop import LoopCare

SECONDS = 2.0
JOBS_MAX = 300


async def _measure(
    *, cared: bool, switch_seconds: float, step_seconds: float, announced: bool
) -> str:
    sys.setswitchinterval(switch_seconds)
    outside = OutsideWork()
    care = LoopCare(outside)
    if cared:
        care.start()
    stopping = threading.Event()
    took: list[float] = []

    async def never_idle() -> None:
        while not stopping.is_set():
            until = time.perf_counter() + step_seconds
            while time.perf_counter() < until:
                pass
            await asyncio.sleep(0)

    def job() -> None:
        before = time.perf_counter()
        time.sleep(0.001)
        took.append(time.perf_counter() - before)

    def jobs() -> None:
        while not stopping.is_set() and len(took) < JOBS_MAX:
            job()

    loading = asyncio.ensure_future(never_idle())
    # Long enough for one measurement of the lag, from which the loop learns that it is busy.
    await asyncio.sleep(0.5)
    started = time.perf_counter()
    if announced:
        lane = Lane("bench", outside)
        while time.perf_counter() - started < SECONDS and len(took) < JOBS_MAX:
            await lane.run(job)
    else:
        thread = threading.Thread(target=jobs, daemon=True)
        thread.start()
        while time.perf_counter() - started < SECONDS and thread.is_alive():  # noqa: ASYNC110  # what is measured is a thread the loop knows nothing of
            await asyncio.sleep(0.01)
    stopping.set()
    await loading
    care.stop()
    if not took:
        return "nothing finished"
    took.sort()
    p50, p99, worst = took[len(took) // 2], took[len(took) * 99 // 100], took[-1]
    return (
        f"{len(took):4} jobs, ms p50 {p50 * 1e3:7.1f} p99 {p99 * 1e3:7.1f} max {worst * 1e3:7.1f}"
    )


def main() -> None:
    for announced in (True, False):
        for step_seconds in (0.000_05, 0.000_3, 0.001, 0.003):
            for name, cared, switch_seconds in (
                ("uncured", False, 0.005),
                ("switch only", False, 0.0005),
                ("cured", True, 0.0005),
            ):
                result = uvloop.run(
                    _measure(
                        cared=cared,
                        switch_seconds=switch_seconds,
                        step_seconds=step_seconds,
                        announced=announced,
                    )
                )
                print(
                    f"announced {announced!s:5} step {step_seconds * 1e3:4.2f} ms {name:11} "
                    f"{result}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
