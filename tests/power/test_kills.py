"""A bookie that holds the only copy of everything is killed (SIGKILL) at each of its syncs: all
that was acknowledged is read afterwards, once each, and nothing is wrong on its disks. The same on
a disk that at this moment forgets what was not synced.

In each round the bookie is killed at another boundary. POWER_ALL=1 takes all boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import pytest

import pulsarish
from tests.power.hook import Calls, sampled
from tests.power.stand import Stand, standing
from tests.support.until import until

BOOKIE: Final = "bookie-1"
BOUNDARIES: Final = Calls.SYNC | Calls.RENAME | Calls.REMOVE
MESSAGES: Final = 120

Operation = Callable[[Stand, str, int], int]
"""Prepares, with the given topic, arms the hook at the given call, operates until the bookie is
dead, and starts it again. Returns the number of calls.
"""


@pytest.fixture(scope="module", params=["killed", "power-cut"])
def stand(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stand]:
    directory = tmp_path_factory.mktemp(request.param)
    with standing(directory, 1, forgetful=request.param == "power-cut") as stand:
        yield stand


def end(stand: Stand, *, gracefully: bool = True) -> int:
    """Wait for the kill, or end the bookie that was not hit; return the number of calls."""
    hook = stand.hooks[BOOKIE]
    if not hook.hit:
        (stand.cluster.stop if gracefully else stand.cluster.kill)(BOOKIE)
    stand.wait_dead(BOOKIE)
    count = hook.count
    hook.disarm()
    stand.cut_power(BOOKIE, count)
    return count


def checkpoint(stand: Stand, topic: str, at: int) -> int:
    """Messages that fill the write cache and several journal files; then a graceful end."""
    hook = stand.hooks[BOOKIE]
    hook.arm(BOUNDARIES, at)
    producer = stand.publish(topic, MESSAGES, flush=False)
    until("acknowledged, or hit", lambda: bool(hook.hit) or len(stand.acked[topic]) == MESSAGES)
    count = end(stand)
    stand.start(BOOKIE)
    stand.finish(producer)
    return count


def start(stand: Stand, topic: str, at: int) -> int:
    """The start of a bookie that was killed, with messages in its journal only."""
    hook = stand.hooks[BOOKIE]
    stand.publish(topic, 50)
    stand.cluster.kill(BOOKIE)
    hook.arm(BOUNDARIES, at)
    said = stand.tries_to_start(BOOKIE)
    assert said is None or hook.hit, said
    count = end(stand, gracefully=False)
    stand.start(BOOKIE)
    return count


def compaction(stand: Stand, topic: str, at: int) -> int:
    """Entry logs with the ledgers of two topics, one of which is deleted."""
    hook = stand.hooks[BOOKIE]
    dropped = f"{topic}-dropped"
    for _ in range(6):
        for name in (topic, dropped):
            stand.publish(name, MESSAGES // 6)
    stand.drop(dropped)
    hook.arm(BOUNDARIES, at)
    try:
        wanted = stand.admin.bookies.collect_garbage(BOOKIE)["wanted"]
    except pulsarish.ServiceNotReady:
        # It may be hit before it answers.
        until("hit", lambda: bool(hook.hit))
    else:
        until(
            "collected, or hit",
            lambda: bool(hook.hit) or stand.garbage(BOOKIE).get("ended", 0) >= wanted,
        )
    if not hook.hit:
        assert stand.garbage(BOOKIE)["copiedBytes"] > 0, stand.garbage(BOOKIE)
    count = end(stand, gracefully=False)
    stand.start(BOOKIE)
    return count


def rebuild(stand: Stand, topic: str, at: int) -> int:
    """``storage rebuild-index``, which is killed; the bookie then starts, or names the command."""
    hook = stand.hooks[BOOKIE]
    stand.publish(topic, MESSAGES)
    # What is not closed is in doubt afterwards.
    stand.close_ledgers(topic)
    stand.cluster.kill(BOOKIE)
    hook.arm(BOUNDARIES, at)
    done = stand.storage(BOOKIE, "rebuild-index", hook=hook)
    assert bool(done.returncode) is bool(hook.hit), done.stderr
    count = end(stand)
    if (said := stand.tries_to_start(BOOKIE)) is not None:
        assert "pulsarish storage rebuild-index" in said, said
        done = stand.storage(BOOKIE, "rebuild-index")
        assert done.returncode == 0, done.stderr
        stand.start(BOOKIE)
    return count


OPERATIONS: Final[dict[str, Operation]] = {
    "rebuild": rebuild,
    "checkpoint": checkpoint,
    "start": start,
    "compaction": compaction,
}


@pytest.mark.parametrize("name", list(OPERATIONS))
def test_everything_is_there_after_a_kill_at_a_sync(stand: Stand, name: str) -> None:
    hook = stand.hooks[BOOKIE]
    total = OPERATIONS[name](stand, f"{name}-0", 0)
    assert total >= 3
    stand.read(f"{name}-0")
    hits = 0
    for number in sampled(total, 2):
        topic = f"{name}-{number}"
        OPERATIONS[name](stand, topic, number)
        hits += bool(hook.hit)
        print(f"{name} {number} of {total}: {hook.hit}", flush=True)
        stand.verify(BOOKIE)
        stand.read(topic)
    assert hits
