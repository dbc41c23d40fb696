"""What spreads a bookie's work on its disk: the pace of a checkpoint, and the preparation of the
next journal file.
"""

from __future__ import annotations

import pytest

from pulsarish.bookie.journal.journal_prepare import NextFile
from pulsarish.bookie.pace import PAUSE_SECONDS_MAX, Pace
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation


@pytest.mark.parametrize(
    ("done", "elapsed", "filled", "expected"),
    [
        (0, 0.0, 0.0, 0.0),  # nothing done: nothing to wait for
        (50, 1.0, 0.0, PAUSE_SECONDS_MAX),  # half done after a tenth of the time
        (50, 4.99, 0.0, pytest.approx(0.01)),  # a little early
        (50, 5.0, 0.0, 0.0),  # on time
        (50, 9.0, 0.0, 0.0),  # late
        (50, 1.0, 0.2, PAUSE_SECONDS_MAX),  # the cache fills more slowly than it is emptied
        (50, 1.0, 0.25, 0.0),  # it fills as fast
        (100, 1.0, 0.4, PAUSE_SECONDS_MAX),
        (100, 1.0, 0.5, 0.0),
    ],
)
def test_a_pace_waits_for_its_time_unless_the_cache_fills(
    done: int, elapsed: float, filled: float, expected: float
) -> None:
    pace = Pace(100, 10.0)
    pace.did(done)
    assert pace.pause_seconds(elapsed, filled) == expected


@pytest.mark.parametrize("fill_seconds", [0.2, 3.0, 1000.0])
def test_a_paced_checkpoint_ends_in_its_time_and_before_half_of_the_room_is_taken(
    fill_seconds: float,
) -> None:
    """Steps of 10 ms, while the room would be full after ``fill_seconds``; at the latest it ends
    when it never pauses any more.
    """
    pace, elapsed, paused = Pace(200, 10.0), 0.0, 0.0
    for _ in range(20):
        elapsed += 0.01
        pace.did(10)
        while (pause := pace.pause_seconds(elapsed, elapsed / fill_seconds)) > 0:
            elapsed += pause
            paused += pause
    assert elapsed <= max(0.01 * 20, min(10.0, fill_seconds * 0.5)) + 0.01 + PAUSE_SECONDS_MAX
    assert (paused > 0) == (fill_seconds > 1), "there was time, so it was to be used"


def test_work_is_not_done_twice() -> None:
    pace = Pace(10, 1.0)
    pace.did(10)
    with pytest.raises(AssertionError, match="11 of 10"):
        pace.did(1)


def _prepared_sizes(reached: list[int], *, hurry: bool = False) -> list[int]:
    """The size of a file of 10,000 bytes, in slices of 1,000, after each word of how far the
    current one is; at last whether it is done.
    """
    sizes: list[int] = []

    async def work(world: World) -> None:
        async def look() -> None:
            sizes.append(await (await world.files.open("/j/next", lane="look")).size_bytes())

        following = NextFile(world.files, "/j/next", None, size_bytes=10_000, slice_bytes=1000)
        task = world.tasks.spawn(following.run(), name="prepare")
        for offset in reached:
            following.reached(offset)
            await world.clock.sleep(1.0)
            await look()
        if hurry:
            following.hurry()
        else:
            following.give_up()
        await task
        await look()

    sim = Simulation(1)
    sim.run(lambda: sim.node("b1").run(work))
    return sizes


@pytest.mark.parametrize(
    ("reached", "hurry", "sizes"),
    [
        ([0], False, [0, 0]),  # an idle bookie prepares nothing
        ([16], False, [1000, 1000]),
        ([16, 400, 600, 2000], False, [1000, 1000, 2000, 4000, 4000]),
        ([16], True, [1000, 10_000]),
        ([5000], False, [10_000, 10_000]),
        ([9_000_000], True, [10_000, 10_000]),
    ],
)
def test_the_next_file_keeps_ahead_of_the_current_one(
    reached: list[int], hurry: bool, sizes: list[int]
) -> None:
    assert _prepared_sizes(reached, hurry=hurry) == sizes
