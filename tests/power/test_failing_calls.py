"""System calls on the directories of a bookie with the only copy fail, one in each round: the
bookie goes on correctly, or ends and names the file and what to do. After a restart everything that
was acknowledged is read, once each. POWER_ALL=1 lets each call fail.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Iterator
from typing import Final

import pytest

from tests.power.hook import Calls, sampled
from tests.power.stand import Stand, standing
from tests.support.until import until

BOOKIE: Final = "bookie-1"
MESSAGES: Final = 80
FOREVER: Final = 1 << 30
FAULTS: Final = {
    "sync-eio": (Calls.SYNC, errno.EIO, 1),
    "write-eio": (Calls.WRITE, errno.EIO, 1),
    "write-enospc": (Calls.WRITE, errno.ENOSPC, FOREVER),
    "rename-eio": (Calls.RENAME, errno.EIO, 1),
    "open-eio": (Calls.OPEN, errno.EIO, 1),
    "open-enospc": (Calls.OPEN, errno.ENOSPC, FOREVER),
    "remove-eio": (Calls.REMOVE, errno.EIO, 1),
}


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with standing(tmp_path_factory.mktemp("failing"), 1) as stand:
        yield stand


def run_once(
    stand: Stand, topic: str, calls: Calls, at: int, error: int, times: int
) -> tuple[int, str]:
    """A start, messages that fill the write cache and journal files, and a graceful end, with calls
    that fail from ``at`` on. Returns the number of calls, and what a bookie said that ended by
    itself.
    """
    hook, cluster = stand.hooks[BOOKIE], stand.cluster
    stand.publish(topic, 40)
    cluster.kill(BOOKIE)
    before = cluster.log_path(BOOKIE).stat().st_size
    hook.arm(calls, at, error=error, times=times)
    producer = None
    gave_up = stand.tries_to_start(BOOKIE) is not None
    if not gave_up:
        producer = stand.publish(topic, MESSAGES, flush=False)
        acked = stand.acked[topic]
        until(
            "acknowledged, or hit",
            lambda: bool(hook.hit) or cluster.pid(BOOKIE) is None or len(acked) == 40 + MESSAGES,
        )
        stand.cluster.send_signal(BOOKIE, signal.SIGTERM)
        stand.wait_dead(BOOKIE)
    said = stand.said(BOOKIE, before)
    count = hook.count
    hook.disarm()
    stand.start(BOOKIE)
    if producer is not None:
        stand.finish(producer)
    return count, said


USUAL: Final = ("sync-eio", "write-enospc", "rename-eio")
"""What is tried without POWER_ALL."""


@pytest.mark.parametrize("fault", list(FAULTS if os.environ.get("POWER_ALL") else USUAL))
def test_what_was_acknowledged_is_there_after_a_failed_call(stand: Stand, fault: str) -> None:
    calls, error, times = FAULTS[fault]
    hook = stand.hooks[BOOKIE]
    total, _ = run_once(stand, f"{fault}-0", calls, 0, 0, 1)
    for number in sampled(total, 2):
        topic = f"{fault}-{number}"
        _, said = run_once(stand, topic, calls, number, error, times)
        hit = hook.hit
        last = said.strip().splitlines()[-1]
        print(f"{fault} {number} of {total}: {hit}: {last}", flush=True)
        assert "Traceback" not in said, said
        if hit and "INFO    loop stopp" not in said:  # it ended by itself
            assert hit.split(" ", 1)[1] in last, said
            assert "make room" in last or "dmesg" in last, said
        stand.verify(BOOKIE)
        stand.read(topic)
