"""Whole clusters under faults: fixed seeds, every seed that ever failed, and one seed the same in every process."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from pulsarish.sim.cluster import SimCluster, draw_cluster
from pulsarish.sim.workload import run_seed
from pulsarish.sim.world import Simulation

FIXED = (1, 2, 3, 5)

FAILED_ONCE = {
    0: "a command that acknowledged messages of a batch and then its whole entry lost the latter, receipt and all",
    4: "the client took the late answer to acknowledgements that were put back for an unknown one, and its stream died",
    10: "the same, and a receipt that never came",
    21: "a bookie's add died of a ledger whose state was evicted while another's was loaded",
    52: "a part of a ledger's first batch, acknowledged cumulatively, was refused as a position before the ledger",
    59: "a stale owner refused for good an acknowledgement of what its successor had delivered",
    1296: "a broker whose session was lost while it looked for its own registration died",
    5778: "a reader that left while its broker lost the metadata session ended the broker",
    5103: "a topic whose closing was asked for while a new ledger was taking over left that ledger open, and died of what it held",
}

SHOWN_IN_ANOTHER_PROCESS = """
from pulsarish.sim.workload import run_seed
print(run_seed(3).trace_hash)
"""


@pytest.mark.parametrize("seed", [*FIXED, *FAILED_ONCE])
def test_no_promise_is_broken(seed: int) -> None:
    result = run_seed(seed)
    assert not result.anomalies, result.story()
    counts = result.counts
    assert counts.ok > 0
    assert counts.delivered > 0
    assert counts.read > 0


def test_with_nothing_wrong_nothing_is_left_behind() -> None:
    for seed in range(4):
        result = run_seed(seed, kinds=())
        assert not result.anomalies, result.story()
        assert result.counts.orphans == 0, "a ledger that nobody refers to"
        assert result.counts.copies_checked > 0
        assert result.counts.cores_checked > 0


@pytest.mark.parametrize("seed", range(3))
def test_an_idle_cluster_takes_few_steps(seed: int) -> None:
    """What is polled in an idle cluster is paid for by every simulated second, and by every real one."""
    sim = Simulation(seed)
    cluster = SimCluster(sim, replace(draw_cluster(random.Random(seed)), bookies=5, brokers=3))

    async def idle() -> float:
        cluster.boot()
        await asyncio.sleep(10)
        began = sim.loop.steps
        await asyncio.sleep(20)
        return (sim.loop.steps - began) / 20

    assert sim.run(idle) < 300


def test_a_seed_is_the_same_run_everywhere() -> None:
    here = run_seed(3).trace_hash
    ballast = [bytearray(size) for size in range(1, 4_000)]  # other addresses
    assert run_seed(3).trace_hash == here
    assert run_seed(4).trace_hash != here
    del ballast
    for hash_seed in ("1", "4242"):
        there = subprocess.run(
            [sys.executable, "-c", SHOWN_IN_ANOTHER_PROCESS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert there.stdout.strip() == here, f"PYTHONHASHSEED={hash_seed} gives another run"
