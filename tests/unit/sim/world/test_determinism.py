"""One seed, one run: in one process with other allocations between, and in processes with other
hash seeds.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from pulsarish.runtime.seams import Op, OutcomeUnknown, SessionLost, Stream, StreamBroken, World
from pulsarish.sim.world.faults import FaultPlan
from pulsarish.sim.world.world import Simulation


async def _store(world: World) -> None:
    """A server that writes what it gets, answers when it is synced, and registers itself."""
    await world.files.lock("/data")
    names = await world.files.list("/data")
    file = await world.files.open(
        f"/data/{len(names)}", lane="journal", create=True, reserve_bytes=10_000
    )
    index = await world.open_index("/data/index")
    offset = 0

    async def add(stream: Stream) -> None:
        nonlocal offset
        while (message := await stream.receive()) is not None:
            place, offset = offset, offset + len(message)
            await file.write(place, [message], sync=True)
            await index.write([(b"%08d" % place, message)], sync=False)
            await stream.send([message[:4]])

    await world.connections.serve("store:1", {"add": add}, {})
    while True:
        try:
            await world.metadata.commit([Op("create_sequential", "/store-", b"%d" % len(names))])
        except (OutcomeUnknown, SessionLost):
            await world.clock.sleep(0.5)
        await world.clock.sleep(1)


async def _send(world: World) -> list[str]:
    """A client that keeps several streams busy, and sets of tasks whose order must not matter."""

    async def one(number: int) -> None:
        while True:
            try:
                stream = await world.connections.open("store:1", "add")
                while True:
                    await stream.send(
                        [b"%04d" % number, world.random.randbytes(world.random.randrange(2000))]
                    )
                    await stream.receive()
            except StreamBroken:
                await world.clock.sleep(0.2)

    async def idle() -> None:
        await world.clock.sleep(1_000)

    tasks = {world.tasks.spawn(one(number), name=f"one-{number}") for number in range(5)}
    tasks |= {world.tasks.spawn(idle(), name=f"idle-{number}") for number in range(30)}
    # Banned in node code; here to show that sets of tasks do not iterate by address.
    _, pending = await asyncio.wait(tasks, timeout=15)
    return [task.get_name() for task in pending]


def trace_hash(seed: int) -> str:
    sim = Simulation(seed)

    async def scenario() -> list[str]:
        store = sim.node("store", _store)
        store.expect(OSError)
        store.restart_after_seconds = 1
        sender = sim.node("sender")
        FaultPlan(sim, ["store"], seconds=10).start()
        return await sender.run(_send)

    order = sim.run(scenario, 100)
    return f"{sim.trace_hash()} {sim.loop.steps} {order}"


@pytest.mark.parametrize("seed", range(5))
def test_twice_in_one_process_with_other_allocations_between(seed: int) -> None:
    first = trace_hash(seed)
    ballast = [object() for _ in range(12_345)]
    others = [trace_hash(seed + 100)]
    assert trace_hash(seed) == first
    assert others != [first]
    del ballast


def test_in_processes_with_other_hash_seeds() -> None:
    program = f"import runpy; print(runpy.run_path({__file__!r})['trace_hash'](3))"
    answers = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={
                **os.environ,
                "PYTHONHASHSEED": hash_seed,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert answers[0] == answers[1]
    assert answers[0].strip() == trace_hash(3)
