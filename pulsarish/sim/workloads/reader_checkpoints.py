"""Readers that keep their positions in a topic, while they, their rivals and brokers die.

Two machines read under one name, one at a time, and a third one under another name. Each reads
some messages and stores positions now and then. A machine dies most often while it stores one, or
stands still while its rival reads.

What must hold when a reader opens: the position is the last one that was acknowledged, or one that
was sent after it and may have been stored. The reader gets the message after its position first,
and then each one once and in order. So it skips nothing that the application has not got under
this name, and never goes back before an acknowledged position.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.api.asyncio_consumer import AsyncReader
from pulsarish.client.enums import InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.cluster import ClusterSettings, SimCluster
from pulsarish.sim.cluster.oracle import Oracle, Place, Promises
from pulsarish.sim.cluster.stage import LAST_SECONDS, Counts, Stage, place_of
from pulsarish.sim.workloads.result import BOOT_SECONDS
from pulsarish.sim.world.nodes import NodeDied
from pulsarish.sim.world.world import Simulation

__all__ = ["run_late_reader_checkpoints", "run_reader_checkpoints"]

_LOG: Final = "persistent://public/default/log"
_POSITIONS: Final = "persistent://public/default/positions"
_READERS: Final = {"machine0": "report", "machine1": "report", "machine2": "audit"}
"""The names of readers, by machine."""
_MESSAGES: Final = 60
_BATCH: Final = 4
_STORE_CHANCE: Final = 0.4
_FAULT_CHANCE: Final = 0.7
_PAUSE_CHANCE: Final = 0.3
"""Chance of a machine to stand still for longer than brokers wait for a silent client, not to die.
"""
_READS: Final = 20
"""The most messages of a session."""
_LATE_READS: Final = 4
_LATE_ROUNDS: Final = 8
_RIVAL_READS: Final = 8
_OPENING_SECONDS: Final = (0.005, 0.011)
"""About when a reader that opens asks for its position."""
_FAULTS_SECONDS: Final = 25.0
_ALL_SECONDS: Final = 90.0


class _Positions:
    """What the positions of one reader's name may be, as numbers of messages; -1: none is stored.

    They change in the order in which they are sent: a producer of this name is open at one machine
    at a time.
    """

    def __init__(self) -> None:
        self.acknowledged = -1
        self._later: list[int] = []
        """Sent after the acknowledged one; each may be stored."""

    def on_sending(self, number: int) -> None:
        # A machine that stood still may send an older one, which must be refused.
        if number > self.acknowledged:
            self._later.append(number)

    def on_stored(self, number: int) -> None:
        """Note that a position is stored: its receipt came, or a reader found it."""
        if number in self._later:
            self.acknowledged = number
            del self._later[: self._later.index(number) + 1]

    def on_found(self, number: int) -> None:
        """Check the position that a reader found. Raises ``AssertionError``."""
        allowed = (self.acknowledged, *self._later)
        assert number in allowed, f"a reader found position {number}, not one of {allowed}"
        self.on_stored(number)


class _Run:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self._rng = rng = random.Random(f"{sim.seed}:checkpoints")
        self._cluster = SimCluster(
            sim,
            ClusterSettings(
                bookies=1,
                brokers=2,
                quorums=(1, 1, 1),
                deduplication=False,
                partitions=0,
                entries_per_ledger=rng.choice((7, 1_000)),
                cursor_node_writes_max=3,
                cursor_flush_interval_ms=1_000,
                read_batch=rng.choice((4, 30)),
                bundles=1,
                repair=False,
            ),
        )
        oracle = Oracle(Promises(deduplication=False, trimmed=True))
        self._stage = Stage(rng, self._cluster.service_url, "", oracle, Counts(), sim.trace)
        self._numbers: dict[Place | None, int] = {}
        self._positions = {name: _Positions() for name in _READERS.values()}
        self._storing = {machine: asyncio.Event() for machine in _READERS}
        self._pauses = dict.fromkeys(_READERS, 0)
        self._faults = True

    async def _start(self) -> None:
        self._cluster.boot()
        for machine in _READERS:
            self.sim.node(machine)
        app = self.sim.node("app")
        await asyncio.sleep(BOOT_SECONDS)
        await app.run(self._publish)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        await self._start()
        tasks = [loop.create_task(self._keep_on(machine)) for machine in _READERS]
        tasks.append(loop.create_task(self._change_owners()))
        calm, ends = loop.time() + _FAULTS_SECONDS, loop.time() + _ALL_SECONDS
        while loop.time() < calm or any(
            each.acknowledged < _MESSAGES - 1 for each in self._positions.values()
        ):
            await asyncio.sleep(0.1)
            self._faults = loop.time() < calm
            assert loop.time() < ends, "a reader has not come to the end"
            for task in tasks:
                if task.done():
                    task.result()
        for task in tasks:
            _ = task.cancel()

    async def run_late(self) -> None:
        """Let one machine stand still, while it opens or stores, until its rival has read."""
        loop, rng = asyncio.get_running_loop(), self._rng
        await self._start()
        late = self.sim.nodes["machine0"]
        for _ in range(_LATE_ROUNDS):
            self._storing["machine0"].clear()
            running = loop.create_task(late.run(self._session("machine0", _LATE_READS)))
            if rng.random() < 0.5:
                await asyncio.sleep(rng.uniform(*_OPENING_SECONDS))
            else:
                stores = loop.create_task(self._storing["machine0"].wait())
                _ = await asyncio.wait((running, stores), return_when=asyncio.FIRST_COMPLETED)
                _ = stores.cancel()
            self._pauses["machine0"] += 1
            late.pause()
            await self._let_rival_read(_RIVAL_READS)
            late.resume()
            _ = await running
            await self._let_rival_read(0)  # it finds what the late one stored

    async def _let_rival_read(self, reads: int) -> None:
        """Run a session, as soon as the broker knows that the late machine is gone."""
        while True:
            if await self.sim.nodes["machine1"].run(self._session("machine1", reads)):
                return
            await asyncio.sleep(3.0)

    async def _publish(self, world: World) -> None:
        """Publish in batches, so that positions lie within entries, too."""
        async with self._stage.connected(world, LAST_SECONDS) as client:
            for topic in (_LOG, _POSITIONS):  # the subscription keeps what readers have not read
                first = await client.subscribe(
                    topic, "keep", initial_position=InitialPosition.Earliest
                )
                await first.close()
            producer = await client.create_producer(_LOG, batching_max_messages=_BATCH)
            receipts = [producer.send_soon(b"%d" % number) for number in range(_MESSAGES)]
            for number, message_id in enumerate(await asyncio.gather(*receipts)):
                self._numbers[place_of(message_id)] = number

    async def _keep_on(self, machine: str) -> None:
        """Run session after session on a machine, which may die while it stores during faults."""
        node, loop = self.sim.nodes[machine], asyncio.get_running_loop()
        storing = self._storing[machine]
        while True:
            storing.clear()
            running = loop.create_task(node.run(self._session(machine, _READS)))
            if self._faults and self._rng.random() < _FAULT_CHANCE:
                # Some machines come no further than to open.
                seconds = self._rng.choice((0.05, 60.0)) * self._rng.random()
                stores = loop.create_task(storing.wait())
                _ = await asyncio.wait(
                    (running, stores), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                _ = stores.cancel()
                await asyncio.sleep(self._rng.choice((0.01, 0.1, 3.0)) * self._rng.random())
                if self._rng.random() < _PAUSE_CHANCE:
                    self._pauses[machine] += 1
                    node.pause()
                    await asyncio.sleep(self._rng.uniform(6.0, 12.0))
                    node.resume()
                else:
                    node.crash()
                    node.revive()
            with suppress(NodeDied):
                await running
            await asyncio.sleep(self._rng.uniform(0.0, 0.1))

    def _session(self, machine: str, reads: int) -> Callable[[World], Coroutine[Any, Any, bool]]:
        """Return what reads at most this many messages, and returns whether it came to its end."""

        async def session(world: World) -> bool:
            try:
                async with self._stage.connected(world) as client:
                    await self._read_some(machine, client, reads)
            except PulsarishError as error:  # a rival reads, or no broker answers
                self.sim.trace(f"{machine}: {error}")
                return False
            return True

        return session

    async def _read_some(self, machine: str, client: AsyncClient, reads: int) -> None:
        name, rng = _READERS[machine], self._rng
        positions = self._positions[name]
        pauses = self._pauses[machine]
        reader = await client.create_reader(
            _LOG,
            MessageId.earliest,
            reader_name=name,
            checkpoint_topic=_POSITIONS,
            start_message_id_inclusive=rng.random() < 0.5,
            receiver_queue_size=rng.choice((1, 10)),
        )
        found = reader.last_checkpoint()
        number = -1 if found is None else self._numbers[place_of(found)]
        # A machine that stood still may have read its position before a rival stored a later one.
        # Then it can store none.
        if pauses == self._pauses[machine]:
            positions.on_found(number)
        for _ in range(rng.randint(min(1, reads), reads)):
            if number == _MESSAGES - 1:
                assert not await reader.has_message_available()
                break
            number += 1
            await self._read_one(machine, reader, number)
            await asyncio.sleep(rng.choice((0.0, 0.4)) * rng.random())
        await reader.close()

    async def _read_one(self, machine: str, reader: AsyncReader, number: int) -> None:
        message = await reader.read_next(int(LAST_SECONDS * 1000))
        got = int(message.data())
        assert got == number, f"{machine} got message {got}, not {number}"
        if number == _MESSAGES - 1 or self._rng.random() < _STORE_CHANCE:
            positions = self._positions[_READERS[machine]]
            positions.on_sending(number)
            self._storing[machine].set()
            await reader.checkpoint(message)
            positions.on_stored(number)

    async def _change_owners(self) -> None:
        while self._faults:
            await asyncio.sleep(self._rng.uniform(1.0, 8.0))
            owners = sorted({name for name, _ in self._cluster.loaded_topics()})
            if owners:
                owner = self.sim.nodes[self._rng.choice(owners)]
                owner.crash()
                await asyncio.sleep(self._rng.uniform(0.1, 2.0))
                owner.revive()


def run_reader_checkpoints(seed: int) -> None:
    """Run one seed. Raises ``AssertionError`` when a reader skips a message or goes back."""
    sim = Simulation(seed)
    sim.run(_Run(sim).run, max_virtual_seconds=300.0)


def run_late_reader_checkpoints(seed: int) -> None:
    """Run one seed in which a machine stands still while its rival reads, and none dies.

    Raises errors as ``run_reader_checkpoints``.
    """
    sim = Simulation(seed)
    sim.run(_Run(sim).run_late, max_virtual_seconds=900.0)
