"""Bookies and the metadata service are killed at their syncs while ledgers move: while a dead
bookie is decommissioned, and while an empty one that joined gets its share. What was acknowledged
is read afterwards, and every bookie has what the metadata say.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Final

import pytest

from tests.power.hook import Calls, sampled
from tests.power.stand import Stand, standing
from tests.support.until import until

LEAVING: Final = "bookie-4"
BOUNDARIES: Final = Calls.SYNC | Calls.RENAME
SETTINGS: Final = {
    "bookie": [
        "auto_recovery.lost_bookie_recovery_delay_seconds=3600",
        "auto_recovery.open_ledger_rereplication_grace_period_seconds=1",
        "checkpoint_interval_seconds=0.5",
    ]
}


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with standing(tmp_path_factory.mktemp("copies"), 4, SETTINGS) as stand:
        yield stand


class Command:
    """A command of the broker that runs beside the test."""

    def __init__(self, stand: Stand, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pulsarish", *words, "--admin-url", stand.cluster.admin_url()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = ""
        self._reads = threading.Thread(target=self._read)
        self._reads.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            self.output = output.read()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def finish(self) -> int:
        status = self._process.wait(180)
        self._reads.join()
        return status


def publish_ledgers(stand: Stand, topic: str) -> None:
    for _ in range(6):
        stand.publish(topic, 15)
        stand.close_ledgers(topic)


def under_fault(stand: Stand, victim: str, at: int, *words: str) -> int:
    """Run a command while ``victim`` is killed at call ``at`` and started again; return the number
    of its calls. A command that fails meanwhile is given once more, as it says.
    """
    hook = stand.hooks[victim]
    hook.arm(BOUNDARIES, at)
    command = Command(stand, *words)
    until("the command ends, or it is hit", lambda: bool(hook.hit) or command.has_ended, 120)
    if hook.hit:
        stand.wait_dead(victim)
        hook.disarm()
        stand.start(victim)
    status = command.finish()
    assert "Traceback" not in command.output, command.output
    count = hook.count
    hook.disarm()
    if status:
        print(f"{words[1]} with {victim} killed: {command.output}", flush=True)
        until("it is done when given again", lambda: not Command(stand, *words).finish(), 120)
    return count


def decommission(stand: Stand, victim: str, at: int, topic: str) -> int:
    publish_ledgers(stand, topic)
    stand.cluster.stop(LEAVING)
    shutil.rmtree(stand.home(LEAVING))
    return under_fault(stand, victim, at, "bookies", "decommission", LEAVING, "--yes")


def rebalance(stand: Stand, victim: str, at: int) -> int:
    """An empty bookie is there again."""
    stand.start(LEAVING)
    return under_fault(stand, victim, at, "bookies", "rebalance", "--tolerance", "1")


def check(stand: Stand) -> None:
    stand.wait_whole()
    for topic in stand.acked:
        stand.read(topic)
    for name in stand.bookies:
        if stand.cluster.pid(name) is not None:
            stand.verify(name, "--metadata")


@pytest.mark.parametrize("victim", ["bookie-1", "metadata"])
def test_copies_move_although_a_node_is_killed_at_a_sync(stand: Stand, victim: str) -> None:
    leaves = decommission(stand, victim, 0, f"{victim}-0")
    joins = rebalance(stand, victim, 0)
    check(stand)
    print(f"{victim}: {leaves} calls to decommission, {joins} to rebalance")
    for number, (leaving, joining) in enumerate(
        zip(sampled(leaves, 2), sampled(joins, 2), strict=False), start=1
    ):
        decommission(stand, victim, leaving, f"{victim}-{number}")
        print(f"decommission {leaving}: {stand.hooks[victim].hit}", flush=True)
        check(stand)
        rebalance(stand, victim, joining)
        print(f"rebalance {joining}: {stand.hooks[victim].hit}", flush=True)
        check(stand)
