"""Clients that publish to one topic under one name, while their connections break.

Two machines open producers of the same name, session after session. Connections are reset, links
are cut for longer than a broker waits for a silent client, and machines stand still.

What must hold: a producer whose machine had no fault stays connected while others ask for its name.
What has a receipt is in the log, with deduplication exactly once; nothing is there twice then. The
messages of a session are there in the order of sending.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import partial
from typing import Final

from pulsarish.client.api.asyncio_producer import AsyncProducer
from pulsarish.client.enums import InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import ProducerBusy, PulsarishError
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.cluster import ClusterSettings, SimCluster
from pulsarish.sim.cluster.oracle import Oracle, Promises
from pulsarish.sim.cluster.stage import LAST_SECONDS, Counts, Stage
from pulsarish.sim.workloads.result import BOOT_SECONDS
from pulsarish.sim.world.world import Simulation

__all__ = ["run_namesakes"]

_TOPIC: Final = "persistent://public/default/t"
_NAME: Final = "same"
_BROKER: Final = "broker0"
_MACHINES: Final = ("machine0", "machine1")
_FAULTS_SECONDS: Final = 60.0
_CUT_SECONDS_MAX: Final = 12.0
"""A broker of the simulation waits 6 to 8 seconds for a silent client."""


class _Run:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self._rng = rng = random.Random(f"{sim.seed}:namesakes")
        self._deduplication = rng.random() < 0.7
        self._cluster = SimCluster(
            sim,
            ClusterSettings(
                bookies=1,
                brokers=1,
                quorums=(1, 1, 1),
                deduplication=self._deduplication,
                partitions=0,
                entries_per_ledger=1_000,
                cursor_node_writes_max=3,
                cursor_flush_interval_ms=1_000,
                read_batch=30,
                bundles=1,
                repair=False,
            ),
        )
        oracle = Oracle(Promises(deduplication=self._deduplication, trimmed=True))
        self._stage = Stage(rng, self._cluster.service_url, "", oracle, Counts(), sim.trace)
        self._faults = dict.fromkeys(_MACHINES, 0)
        self._holder = _MACHINES[0]
        self._sessions = 0
        self._stored: set[str] = set()
        """The messages that have a receipt."""

    async def run(self) -> None:
        loop, sim = asyncio.get_running_loop(), self.sim
        self._cluster.boot()
        for machine in _MACHINES:
            sim.node(machine)
        app = sim.node("app")
        await asyncio.sleep(BOOT_SECONDS)
        await app.run(self._keep)
        tasks = [loop.create_task(self._publish_on(machine)) for machine in _MACHINES]
        tasks.append(loop.create_task(self._disturb()))
        await asyncio.sleep(_FAULTS_SECONDS)
        self._stage.over = True
        for task in tasks:
            await task
        await app.run(self._look)

    async def _keep(self, world: World) -> None:
        """Keep the log with a subscription."""
        async with self._stage.connected(world, LAST_SECONDS) as client:
            consumer = await client.subscribe(
                _TOPIC, "keep", initial_position=InitialPosition.Earliest
            )
            await consumer.close()

    async def _publish_on(self, machine: str) -> None:
        async def inside(world: World) -> None:
            while not self._stage.over:
                try:
                    await self._session(machine, world)
                except PulsarishError as error:
                    self.sim.trace(f"{machine}: {type(error).__name__}: {error}")
                await world.clock.sleep(self._rng.choice((0.05, 10.0)) * self._rng.random())

        await self.sim.nodes[machine].run(inside)

    async def _session(self, machine: str, world: World) -> None:
        rng = self._rng
        async with self._stage.connected(world) as client:
            producer = await client.create_producer(
                _TOPIC,
                producer_name=_NAME,
                max_pending_messages=30,
                send_timeout_millis=rng.choice((3_000, 20_000)),
                batching_max_messages=rng.choice((1, 3)),
            )
            self._sessions += 1
            self._holder = machine
            session, number = self._sessions, 0
            faults, epoch = self._faults[machine], _epoch(producer)
            ends = world.clock.monotonic() + rng.choice((0.0, 8.0)) * rng.random()
            try:
                while not self._stage.over:
                    sent = [f"{session}.{number + each}" for each in range(rng.choice((1, 1, 15)))]
                    number += len(sent)
                    receipts = []
                    for value in sent:
                        receipt = producer.send_soon(value.encode())
                        receipt.add_done_callback(partial(self._answered, value))
                        receipts.append(receipt)
                    _ = await asyncio.wait(receipts)
                    receipts[0].result()
                    if world.clock.monotonic() >= ends:
                        break
                    await world.clock.sleep(rng.uniform(0.0, 0.2))
            finally:
                if faults == self._faults[machine]:
                    assert epoch == _epoch(producer), f"{machine} has lost its producer"

    def _answered(self, value: str, receipt: asyncio.Future[MessageId]) -> None:
        if receipt.exception() is None:
            self.sim.trace(f"stored {value} at {receipt.result()}")
            self._stored.add(value)

    async def _disturb(self) -> None:
        """Make faults of the machine that has the name."""
        rng, network = self._rng, self.sim.network
        while not self._stage.over:
            await asyncio.sleep(rng.uniform(0.1, 4.0))
            machine = self._holder
            self._faults[machine] += 1
            seconds = rng.choice((0.5, 8.0, 12.0)) * rng.uniform(0.7, 1.0)
            match rng.choice(("reset", "reset", "cut", "cut", "pause")):
                case "reset":
                    network.reset(machine, rng.random())
                case "cut":
                    ways = ((machine, _BROKER), (_BROKER, machine))
                    for source, target in rng.choice((ways, ways[:1], ways[1:])):
                        network.cut(source, target)
                    await asyncio.sleep(seconds)
                    for source, target in ways:
                        network.heal(source, target)
                case _:
                    self.sim.nodes[machine].pause()
                    await asyncio.sleep(seconds)
                    self.sim.nodes[machine].resume()
            # What is left of it may still break the connection.
            self._faults[machine] += 1

    async def _look(self, world: World) -> None:
        """Read the log, and compare it with what was sent."""
        found: list[str] = []
        async with self._stage.connected(world, LAST_SECONDS) as client:
            while True:
                try:  # the last holder of the name may have gone without a word
                    await (await client.create_producer(_TOPIC, producer_name=_NAME)).close()
                    break
                except ProducerBusy:
                    await world.clock.sleep(0.5)
            reader = await client.create_reader(_TOPIC, MessageId.earliest)
            while await reader.has_message_available():
                found.append((await reader.read_next(int(LAST_SECONDS * 1000))).data().decode())
        times = Counter(found)
        missing = sorted(self._stored - times.keys())
        assert not missing, f"messages with receipts are missing: {missing[:5]}"
        first = list(times)
        if self._deduplication:
            twice = [value for value, count in times.items() if count > 1]
            assert not twice, f"messages are there twice: {twice[:5]}"
        numbers: dict[str, int] = {}
        for value in first:
            session, _, number = value.partition(".")
            assert int(number) > numbers.get(session, -1), f"{value} is out of order"
            numbers[session] = int(number)
        assert self._stored, "nothing was stored"


def _epoch(producer: AsyncProducer) -> int:
    """Return how often a producer was opened."""
    return producer._publishing.children[0]._epoch


def run_namesakes(seed: int) -> None:
    """Run one seed. Raises ``AssertionError`` when a promise was broken."""
    sim = Simulation(seed)
    sim.run(_Run(sim).run, max_virtual_seconds=300.0)
