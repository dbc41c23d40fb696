"""One seed of the whole cluster: load and faults, then heal, and then every promise is held against what clients saw.

    result = run_seed(17)
    result.anomalies          # empty, or what was broken
    result.story()            # for people: faults, what happened to the values concerned, the end of the trace

After the faults everything must work again within a bounded virtual time: publishing, reading, consuming (liveness).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.seams import HttpRequest, StreamBroken, World
from pulsarish.sim.cluster import ClusterSettings, SimCluster, draw_cluster
from pulsarish.sim.connections import SimConnections
from pulsarish.sim.consumers import Reading, consume, drain, draw_reading, subscribe_first
from pulsarish.sim.disks import look_at_disks
from pulsarish.sim.faults import ALL_KINDS, Fault, FaultPlan
from pulsarish.sim.invariants import Invariants
from pulsarish.sim.logs import logs_into
from pulsarish.sim.nodes import Node, NodeDied
from pulsarish.sim.oracle import Anomaly, Oracle, Promises
from pulsarish.sim.publishers import draw_publisher, publish, publish_last
from pulsarish.sim.readers import read_everything, read_first, read_tail
from pulsarish.sim.stage import Counts, Stage
from pulsarish.sim.world import Simulation

__all__ = ["Result", "run_seed"]

T = TypeVar("T")

_BOOT_SECONDS: Final = 3.0
_LOAD_SECONDS: Final = 12.0
_LOOKS: Final = 5
"""Into so many equal parts the load is cut by looks at what all nodes hold in memory."""
_DARK_SECONDS: Final = 0.5
_GARBAGE_SECONDS: Final = 13.0
"""Within this time a bookie has collected its garbage twice."""
_REPAIR_SECONDS: Final = 3.0
"""A machine that has not come back by itself so long after everything has healed is given up."""
_WIND_UP_SECONDS: Final = 60.0
_TOPIC: Final = "persistent://public/default/t"
_ANCHOR: Final = "anchor"
_WORK: Final = "work"


@dataclass(slots=True)
class Result:
    """What one seed came to."""

    seed: int
    settings: ClusterSettings
    faults: list[Fault]
    anomalies: list[Anomaly]
    counts: Counts
    trace_hash: str
    trace: str = field(repr=False)

    def story(self, lines: int = 30) -> str:
        """The shortest account that tells what went wrong."""
        out = [f"seed {self.seed}: {len(self.anomalies)} anomalies", f"  {self.settings}", *(f"  {anomaly}" for anomaly in self.anomalies)]
        values = list(dict.fromkeys(anomaly.value for anomaly in self.anomalies if anomaly.value))[:2]
        trace = self.trace.splitlines()
        for value in values:
            out.append(f"what happened to {value}:")
            out += [f"  {line}" for line in trace if f" {value} " in line or line.endswith(f" {value}")][:lines]
        out.append("faults:")
        out += [
            f"  {_BOOT_SECONDS + fault.at_seconds:7.3f} {fault.kind} {fault.node} (peer {fault.peer}) for {fault.lasts_seconds:.2f} s"
            for fault in self.faults
        ]
        return "\n".join(out)


class _Run:
    def __init__(self, sim: Simulation, settings: ClusterSettings, kinds: Sequence[str], faults: Sequence[Fault] | None) -> None:
        rng = sim.workload
        self.sim = sim
        self.settings = settings
        self.cluster = SimCluster(sim, settings)
        # An anchor acknowledges nothing, so that everything is kept; without one the log is trimmed while it is used.
        self.anchored = rng.random() < 0.5
        self._blackout = random.Random(f"{sim.seed}:blackout").random() < 0.5
        self.oracle = Oracle(Promises(deduplication=settings.deduplication, trimmed=not self.anchored))
        self.invariants = Invariants(self.cluster, self.oracle.report)
        self.counts = Counts()
        self.plan: FaultPlan | None = None
        self._kinds = kinds
        self._faults = faults
        self._stage = Stage(rng, self.cluster.service_url, _TOPIC, self.oracle, self.counts, sim.trace)

    async def run(self) -> None:
        sim, stage, rng = self.sim, self._stage, self._stage.rng
        self.cluster.boot()
        publishers = [draw_publisher(rng, f"p{number}", exact=self.settings.deduplication) for number in range(2)]
        names = [_WORK, _ANCHOR] if self.anchored else [_WORK]
        readings = [draw_reading(rng, self.oracle, name) for name in names]
        work = readings[0]
        apps = [sim.node(name) for name in ("app0", "app1", "consumer0", "consumer1", "reader", "operator")]
        for node in apps:
            node.restart_after_seconds = 0.5
        await asyncio.sleep(_BOOT_SECONDS)
        for reading in readings:
            await self._well(
                f"the first subscription {reading.subscription.name}",
                "operator",
                partial(subscribe_first, stage, reading=reading),
            )
        failing = [*self.cluster.bookies, *self.cluster.brokers, *(node.name for node in apps[:4])]
        self.plan = FaultPlan(sim, failing, _LOAD_SECONDS, kinds=self._kinds, faults=self._faults, expendable=self.cluster.bookies)
        for node in apps[:4]:
            node.expect(OSError)
        self.plan.start()
        sim.at(_LOAD_SECONDS, self._end_load)
        for number in range(1, _LOOKS):
            sim.at(_LOAD_SECONDS * number / _LOOKS, self.invariants.look)
        loads = [
            *(
                self._program(node, publisher.name, partial(publish, stage, publisher=publisher))
                for node, publisher in zip(apps, publishers, strict=False)
            ),
            *(self._program(node, node.name, partial(consume, stage, reading=work, who=node.name)) for node in apps[2:4]),
            self._program(apps[4], "reader", partial(read_tail, stage)),
            self._operate(apps[5]),
        ]
        await asyncio.gather(*loads)
        await self._conclude(readings)

    def _end_load(self) -> None:
        """In half of the seeds all brokers lose power now, so that whatever they answered last must have been durable."""
        self._stage.over = True
        if self._blackout:
            for name in self.cluster.brokers:
                node = self.sim.nodes[name]
                node.crash()
                self.sim.at(_DARK_SECONDS, node.revive)

    async def _program(self, node: Node, who: str, session: Callable[[World], Awaitable[None]]) -> None:
        await self._stage.keep_running(node, who, session)

    # -- the operator

    async def _operate(self, node: Node) -> None:
        """Unloads topics and restarts nodes gracefully while everything else goes on."""
        stage, rng = self._stage, self._stage.rng
        busy = rng.choice((0.0, 2.0, 5.0))
        while busy and not stage.over:
            await asyncio.sleep(rng.expovariate(1 / busy))
            if rng.random() < 0.7:
                await self._unload(node)
            else:
                await self.cluster.restart_gracefully(rng.choice([*self.cluster.brokers, *self.cluster.bookies]))

    async def _unload(self, node: Node) -> None:
        rng = self._stage.rng
        partition = f"-partition-{rng.randrange(self.settings.partitions)}" if self.settings.partitions else ""
        broker = rng.choice(self.cluster.brokers)
        request = HttpRequest(
            "PUT",
            f"/admin/v2/persistent/public/default/t{partition}/unload",
            {},
            {},
            b"",
            ("admin", "v2", "persistent", "public", "default", f"t{partition}", "unload"),
        )

        async def ask(world: World) -> None:
            assert isinstance(world.connections, SimConnections)
            async with asyncio.timeout(5.0):
                response = await world.connections.http(f"{broker}:8080", request)
            self.sim.trace(f"unload t{partition} at {broker}: {response.status}")
            if response.status == 500:
                self.oracle.report("defect", f"unload answered 500: {response.body.decode()}")

        try:
            await node.run(ask)
        except (NodeDied, StreamBroken, TimeoutError) as error:
            self.sim.trace(f"unload at {broker} failed: {error!r}")

    # -- the end

    async def _conclude(self, readings: list[Reading]) -> None:
        """Everything has healed: it must work, and everything promised must be there."""
        sim, stage = self.sim, self._stage
        # Half of the programs end as by a crash: nothing of theirs may stand in the way of others for long.
        for name in ("app0", "consumer0"):
            sim.nodes[name].crash()
        if self.plan is not None and self.plan.destroyed:
            await asyncio.sleep(_REPAIR_SECONDS)
            self.cluster.replace_lost(self.plan.destroyed)
        final = sim.node("final")
        await self._well("publishing", final.name, partial(publish_last, stage, name="last", count=3))
        for number in range(2):
            seen = await self._well(f"final read {number}", final.name, partial(read_everything, stage))
            if seen is None:
                return
            self.oracle.finals.append(seen)
        if self.oracle.promises.trimmed:
            # What is acknowledged may be trimmed in the middle of a final read: the log is what it was from here on.
            self.oracle.first_left = await self._well("a look at the first that is left", final.name, partial(read_first, stage))
            if self.oracle.first_left is None:
                return
        log = self.oracle.finals[0]
        for reading in readings:
            await self._well(f"draining {reading.subscription.name}", final.name, partial(drain, stage, reading=reading, log=log))
        await self._look_inside()

    async def _look_inside(self) -> None:
        """At what nodes and disks hold, now that nobody works with them."""
        invariants = self.invariants
        invariants.look()
        invariants.look_at_lists()
        destroyed = self.plan.destroyed if self.plan is not None else []
        self.counts.copies_checked += await look_at_disks(self.cluster, invariants.known(), destroyed, self.oracle.report)
        self.counts.cores_checked += invariants.checks_count
        self.counts.orphans += len(invariants.orphans())

    async def _well(self, what: str, name: str, work: Callable[[World], Awaitable[T]]) -> T | None:
        """Something that must be possible now; one that is not is an anomaly."""

        async def inside(world: World) -> T:
            return await work(world)

        try:
            async with asyncio.timeout(2 * _WIND_UP_SECONDS):
                return await self.sim.nodes[name].run(inside)
        except (PulsarishError, TimeoutError, NodeDied) as error:
            self.oracle.report("not-live", f"{what} was not possible although all is well: {type(error).__name__}: {error}")
            return None


def run_seed(
    seed: int, *, kinds: Sequence[str] = ALL_KINDS, faults: Sequence[Fault] | None = None, settings: ClusterSettings | None = None
) -> Result:
    """One seed, whole. ``faults`` replays a plan instead of drawing one.

    Raises what the simulation raises (``SimulationFailed`` when a node's task died of what nobody expects, ``Deadlock``, ``TimeLimit``).
    """
    sim = Simulation(seed)
    drawn = draw_cluster(random.Random(f"{seed}:cluster"))
    run = _Run(sim, settings or drawn, kinds, faults)
    with logs_into(sim.trace):
        sim.run(run.run, max_virtual_seconds=600)
    if run.oracle.finals:
        run.oracle.judge()
    counts = run.counts
    counts.node_ends = sum(len(node.ends) for node in sim.nodes.values())
    trace = sim.story()
    counts.acquired = trace.count("broker.ownership: bundle acquired")
    counts.ledgers = trace.count("managed_ledger: a new ledger took over")
    counts.trimmed = trace.count("managed_ledger: trimmed")
    return Result(seed, run.settings, run.plan.faults if run.plan else [], run.oracle.anomalies, counts, sim.trace_hash(), trace)
