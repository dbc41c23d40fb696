"""Lanes: order, errors, and the count of work that is out."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pulsarish.runtime.lanes import Lane, Lanes, OutsideWork


def test_jobs_run_in_order_and_errors_reach_their_caller() -> None:
    ran: list[int] = []

    async def main() -> None:
        outside = OutsideWork()
        lane = Lane("x", outside)

        def job(number: int) -> int:
            ran.append(number)
            if number == 3:
                raise OSError("disk")
            return number * 2

        futures = [lane.run(lambda number=number: job(number)) for number in range(6)]  # type: ignore[misc]
        futures[4].cancel()  # nobody waits any more; the job runs all the same
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert outcomes[:3] == [0, 2, 4]
        assert isinstance(outcomes[3], OSError)
        assert isinstance(outcomes[4], asyncio.CancelledError)
        assert outcomes[5] == 10
        assert outside.count == 0
        await lane.close()

    asyncio.run(main())
    assert ran == list(range(6))


def test_lanes_do_not_wait_for_each_other_and_close_runs_what_is_queued() -> None:
    async def main() -> None:
        first: list[int] = []
        outside = OutsideWork()
        outside.first = lambda: first.append(outside.count)
        lanes = Lanes(outside)
        gate = threading.Event()
        held = lanes.get("slow").run(gate.wait)
        assert await lanes.get("fast").run(lambda: "through") == "through"
        assert not held.done()
        assert (outside.count, first) == (1, [1])
        last = lanes.get("slow").run(lambda: "last")
        gate.set()
        await lanes.close()
        assert (await held, await last) == (True, "last")
        assert outside.count == 0

    asyncio.run(main())


def test_a_closed_lane_refuses() -> None:
    async def main() -> None:
        lane = Lane("x", OutsideWork())
        await lane.close()
        with pytest.raises(AssertionError, match="closed"):
            await lane.run(lambda: None)

    asyncio.run(main())
