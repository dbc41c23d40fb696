"""A topic with schedules, while brokers die when a message is stored and not noted yet, stop, lose
the metadata, and have their calendars moved.

What must hold: each instant of a schedule has exactly one message, which says when it was due,
however often the topic and the leader changed. A consumer acknowledges at once, so what is read
again after a crash could be trimmed.
"""

from __future__ import annotations

import asyncio
import base64
import random
from dataclasses import dataclass
from typing import Final

from pulsarish.broker.topics.topic import Topic
from pulsarish.client.enums import ConsumerType
from pulsarish.model.errors import PulsarishError
from pulsarish.model.schedule import LATE_MS
from pulsarish.runtime.seams import StreamBroken, World
from pulsarish.sim.cluster.cluster import ClusterSettings, SimCluster
from pulsarish.sim.cluster.operator import TOPICS, administer
from pulsarish.sim.cluster.oracle import Oracle, Promises
from pulsarish.sim.cluster.stage import LAST_SECONDS, Counts, Stage
from pulsarish.sim.workloads.result import BOOT_SECONDS
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.sim.world.world import Simulation

__all__ = ["ScheduleRun", "run_schedules"]

_TOPIC: Final = "persistent://public/default/report"
_EVERY_MS: Final = {"often": 2_000, "seldom": 6_000}
_CRONS: Final = {"often": "*/2 * * * * *", "seldom": "*/6 * * * * *"}
_WAYS: Final = ("unnoted", "unnoted", "crash", "stop", "cut", "ahead", "behind")
_ROUNDS: Final = 5
_LATE_SECONDS: Final = 50.0
"""Virtual seconds until all is published after a fault: less than what counts as missed."""
_LOOK_SECONDS: Final = 0.05
_LOOK_OFTEN_SECONDS: Final = 0.0002
_MOVED_MS: Final = 7_000

assert _LATE_SECONDS * 1000 < LATE_MS


@dataclass(slots=True)
class ScheduleRun:
    """Counts of what a run reached."""

    published: int = 0
    unnoted: int = 0
    """Crashes of an owner that had stored a message and not noted it."""


class _Run:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.counts = ScheduleRun()
        self.found: dict[tuple[str, int], set[str]] = {}
        self.is_subscribed = asyncio.Event()
        self.rng = rng = random.Random(f"{sim.seed}:schedules")
        self.cluster = SimCluster(
            sim,
            ClusterSettings(
                bookies=3,
                brokers=3,
                quorums=(3, 3, 2),
                deduplication=False,
                partitions=0,
                entries_per_ledger=5,
                cursor_node_writes_max=3,
                cursor_flush_interval_ms=200,
                read_batch=30,
                bundles=rng.choice((1, 4)),
                repair=False,
            ),
        )
        self.oracle = Oracle(Promises(deduplication=False, trimmed=True))
        self.stage = Stage(rng, self.cluster.service_url, "", self.oracle, Counts(), sim.trace)

    async def run(self) -> None:
        sim, loop = self.sim, asyncio.get_running_loop()
        self.cluster.boot()
        # Calendars of nodes are minutes apart in a simulation. Here they nearly agree, so that each
        # leader finds instants due in time.
        shown = [sim.nodes[name].clock for name in self.cluster.brokers]
        for clock in shown[1:]:
            clock.wall_offset_ms += shown[0].wall_ms() - clock.wall_ms() + self.rng.randrange(500)
        for name in ("consumer", "operator"):
            sim.node(name)
        await asyncio.sleep(BOOT_SECONDS)
        consuming = loop.create_task(sim.nodes["consumer"].run(self._consume))
        await self.is_subscribed.wait()
        await sim.nodes["operator"].run(self._set)
        for _ in range(_ROUNDS):
            await self._progress()
            await asyncio.sleep(self.rng.uniform(0.0, 4.0))
            await self._fail(self.rng.choice(_WAYS))
        await self._progress()
        sim.nodes["consumer"].crash()
        _ = await asyncio.gather(consuming, return_exceptions=True)
        self._look()

    async def _progress(self) -> None:
        """Wait until the schedules go on: what was due in a fault is published."""
        until = {name: max(self._instants(name), default=0) + 9_000 for name in _CRONS}
        deadline = self.sim.loop.time() + _LATE_SECONDS
        while any(max(self._instants(name), default=0) < until[name] for name in _CRONS):
            assert self.sim.loop.time() < deadline, f"nothing is published: {self._newest()}"
            await asyncio.sleep(_LOOK_SECONDS)

    def _instants(self, name: str) -> list[int]:
        return [instant for schedule, instant in self.found if schedule == name]

    def _newest(self) -> dict[str, int]:
        return {name: max(self._instants(name), default=0) for name in _CRONS}

    # -- the programs

    async def _consume(self, world: World) -> None:
        async with self.stage.connected(world, LAST_SECONDS) as client:
            consumer = await client.subscribe(_TOPIC, "s", consumer_type=ConsumerType.Failover)
            self.is_subscribed.set()
            while True:
                message = await consumer.receive()
                name = message.properties()["schedule"]
                assert message.data() == name.encode()
                place = f"{message.message_id()}"
                self.found.setdefault((name, message.event_timestamp()), set()).add(place)
                await consumer.acknowledge(message)

    async def _set(self, world: World) -> None:
        for name, cron in _CRONS.items():
            payload = base64.b64encode(name.encode()).decode()
            await self._put(world, name, {"cron": cron, "payload": payload})

    async def _put(self, world: World, name: str, body: object) -> None:
        target = f"{TOPICS}/report/schedules/{name}"
        while True:
            broker = self.rng.choice(self.cluster.brokers)
            try:
                answer = await administer(self.stage, world, broker, "PUT", target, body)
            except (StreamBroken, TimeoutError, PulsarishError) as error:
                self.sim.trace(f"PUT {target} has no answer: {error!r}")
            else:
                if answer.status == 204:
                    return
            await world.clock.sleep(1.0)

    # -- faults and the end

    def _owner(self) -> tuple[str, Topic] | None:
        for name, broker in self.cluster.brokers_up():
            topic = broker._topics.loaded.get(_TOPIC)
            if topic is not None and topic.closed is None:
                return name, topic
        return None

    async def _unnoted(self) -> str:
        """Wait for the moment in which a message is stored, and see to it that it is not noted:
        cut its broker off from the metadata service, until the broker crashes.
        """
        for _ in range(100_000):
            found = self._owner()
            if found is not None and found[1].log.attributes.unsettled_after is not None:
                break
            await asyncio.sleep(_LOOK_OFTEN_SECONDS)
        else:
            raise AssertionError("no owner publishes scheduled messages")
        name, topic = found
        stored = topic.log.last_confirmed
        self.sim.network.partition([name], [METADATA])
        for _ in range(10_000):
            if topic.log.last_confirmed > stored:
                self.counts.unnoted += 1
                break
            await asyncio.sleep(_LOOK_OFTEN_SECONDS)
        return name

    async def _fail(self, way: str) -> None:
        """Have a broker fail for some seconds. At the end all is well again."""
        sim, lasts = self.sim, self.rng.uniform(1.0, 8.0)
        name = self.rng.choice(self.cluster.brokers)
        if way == "unnoted":
            name, way = await self._unnoted(), "crash"
        sim.trace(f"{way} of {name} for {lasts:.1f} s")
        match way:
            case "crash":
                sim.nodes[name].crash()
                await asyncio.sleep(lasts)
                sim.network.heal_all()  # not before: what waits on a cut link would arrive
                sim.nodes[name].revive()
            case "stop":
                await self.cluster.restart_gracefully(name)
            case "cut":
                sim.network.partition([name], [METADATA])
                await asyncio.sleep(lasts)
                sim.network.heal_all()
            case _:
                moved_ms = _MOVED_MS if way == "ahead" else -_MOVED_MS
                sim.nodes[name].clock.wall_offset_ms += moved_ms
                await asyncio.sleep(lasts)
                sim.nodes[name].clock.wall_offset_ms -= moved_ms

    def _look(self) -> None:
        assert not self.oracle.anomalies, "; ".join(map(str, self.oracle.anomalies[:5]))
        for name, every_ms in _EVERY_MS.items():
            instants = sorted(self._instants(name))
            self.counts.published += len(instants)
            for instant in instants:
                places = self.found[name, instant]
                assert len(places) == 1, f"{name} at {instant} was published as {places}"
            lost = set(range(instants[0], instants[-1], every_ms)) - set(instants)
            assert not lost, f"{name} has no message of {sorted(lost)}"
            assert all(not instant % every_ms for instant in instants)


def run_schedules(seed: int) -> ScheduleRun:
    """Run one seed. Raises ``AssertionError`` when a promise was broken."""
    sim = Simulation(seed)
    run = _Run(sim)
    sim.run(run.run, max_virtual_seconds=900)
    return run.counts
