"""Hours of a cluster that is hardly used: periodic work comes due several times, and a node fails
now and then.

Programs publish to the topics every few minutes and acknowledge, two topics are deleted during the
run, and owners change with the faults. What must hold:

* a message exists at least for the retention time, counted from its receipt, whichever broker
  closed its ledger and whatever the broker's clock says (``CLOCKS_MS``);
* the end of each topic has no gap and each number once, and its subscription gets every number;
* at the end, after a quiet time, ledgers whose retention is over are in no metadata and on no
  bookie, the trash is empty, bookies have forgotten the ledgers that they remembered as deleted,
  and everything younger is there with all its copies.

Idle virtual seconds cost time, too. So the intervals of production are not shortened here, and
those of pings and heartbeats are longer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from pulsarish.autorecovery.options import AutoRecoveryOptions
from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.ledger_index import TrashedLedger
from pulsarish.metadata import paths
from pulsarish.model.errors import PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import StreamBroken, World
from pulsarish.sim.cluster.cluster import LEDGER_OPTIONS, ClusterSettings, SimCluster
from pulsarish.sim.cluster.disk_audit import look_at_disks, look_for_garbage
from pulsarish.sim.cluster.invariants import Invariants
from pulsarish.sim.cluster.limits import Limits
from pulsarish.sim.cluster.operator import NAMESPACE, TOPICS, administer
from pulsarish.sim.cluster.oracle import Oracle, Promises
from pulsarish.sim.cluster.stage import LAST_SECONDS, Counts, Stage
from pulsarish.sim.workloads.numbered import Numbered
from pulsarish.sim.workloads.result import BOOT_SECONDS
from pulsarish.sim.world.world import Simulation

__all__ = ["HOURS", "RETENTION", "HourCounts", "HourSettings", "run_hours"]

CLOCKS_MS: Final = 25_000
"""How far the brokers' clocks are off, one ahead and one behind. Larger differences are allowed."""
_SUBSCRIPTION: Final = "work"
_LEDGER: Final = {
    "heartbeat_interval_ms": 20_000,
    "check_interval_ms": 5_000,
    "explicit_lac_interval_ms": 60_000,
}
_BOOKIE: Final[dict[str, Any]] = {
    "checkpoint_interval_seconds": 60.0,
    "gc_interval_seconds": 300.0,
    "gc_second_look_seconds": 600.0,
    "trash_grace_seconds": 3_600.0,
    "deleted_ledger_fence_seconds": 3_600.0,
    "disk_check_interval_seconds": 30.0,
    "add_probe_interval_seconds": 60.0,
    "add_probe_timeout_seconds": 180.0,
    "metadata_check_interval_seconds": 120.0,
    "local_scrub_interval_seconds": 1_800.0,
    "auto_recovery": AutoRecoveryOptions(
        lost_bookie_recovery_delay_seconds=120.0,
        auditor_check_interval_seconds=60.0,
        auditor_periodic_bookie_check_interval_seconds=1_800.0,
        auditor_periodic_check_interval_seconds=3_600.0,
        ledger=msgspec.structs.replace(LEDGER_OPTIONS, **_LEDGER),
    ),
}
_LOG: Final = {
    "max_ledger_rollover_time_minutes": 10,
    "cursor_rollover_time_seconds": 1_800,
    "cursor_idle_seconds": 600,
}
_BROKER: Final = {
    "managed_ledger_maintenance_interval_seconds": 20.0,
    "keep_alive_interval_seconds": 20.0,
    "keep_alive_timeout_seconds": 60.0,
    "broker_ping_interval_ms": 20_000,
    "broker_silence_before_eviction_ms": 80_000,
    "broker_deduplication_snapshot_interval_seconds": 300,
}


@dataclass(frozen=True, slots=True)
class HourSettings:
    """Durations, and how often something happens. ``quiet_seconds`` follow the load."""

    load_seconds: float = 2 * 3_600.0
    quiet_seconds: float = 2.5 * 3_600.0
    retention_minutes: int = 30
    pause_seconds: float = 300.0
    """Pause between two uses of the topics."""
    fault_seconds: float = 1_500.0
    """Mean pause between faults; 0: none."""
    topics: int = 4
    moves: bool = False
    """Each use ends with an unload of the namespace, so that one broker closes a ledger and another
    trims it.
    """


HOURS: Final = HourSettings()
RETENTION: Final = HourSettings(
    load_seconds=400.0,
    quiet_seconds=0.0,
    retention_minutes=1,
    pause_seconds=7.0,
    fault_seconds=0.0,
    topics=2,
    moves=True,
)


@dataclass(slots=True)
class HourCounts:
    """Counts of one run."""

    sent: int = 0
    uses: int = 0
    faults: int = 0
    trimmed: int = 0
    """Ledgers that are gone at the end."""
    steps: int = 0


@dataclass(slots=True)
class _Aged:
    """A topic, and when each of its numbers got its receipt."""

    numbered: Numbered
    at: dict[int, float] = field(default_factory=dict)


class _Run:
    def __init__(self, sim: Simulation, settings: HourSettings) -> None:
        rng = random.Random(f"{sim.seed}:hours")
        self.sim = sim
        self.counts = HourCounts()
        self._rng = rng
        self._settings = settings
        retention = {
            "default_retention_time_minutes": settings.retention_minutes,
            "default_retention_size_mb": -1,
        }
        quick = {"managed_ledger_maintenance_interval_seconds": 2.0} if settings.moves else {}
        self._cluster = SimCluster(
            sim,
            ClusterSettings(
                bookies=4,
                brokers=2,
                quorums=(3, 3, 2),
                deduplication=True,
                partitions=0,
                entries_per_ledger=rng.choice((4, 60)),
                cursor_node_writes_max=rng.choice((0, 3)),
                cursor_flush_interval_ms=4_000,
                read_batch=30,
                bundles=4,
                repair=True,
                limits=Limits(
                    ledger=_LEDGER,
                    log=_LOG,
                    broker={**_BROKER, **retention, **quick},
                    bookie=_BOOKIE,
                ),
            ),
        )
        self._oracle = Oracle(Promises(deduplication=True, trimmed=True))
        self._invariants = Invariants(self._cluster, self._oracle.report)
        self._stage = Stage(rng, self._cluster.service_url, "", self._oracle, Counts(), sim.trace)
        self._topics = [
            _Aged(Numbered(f"persistent://public/default/aged{number}"))
            for number in range(settings.topics)
        ]
        self._fleeting = [
            Numbered(f"persistent://public/default/gone{number}") for number in range(2)
        ]
        self._over = False

    async def run(self) -> None:
        sim, settings, loop = self.sim, self._settings, self.sim.loop
        self._cluster.boot()
        for name, offset in zip(
            self._cluster.brokers, self._rng.sample((-CLOCKS_MS, CLOCKS_MS), 2), strict=True
        ):
            clock = sim.nodes[name].clock
            clock.wall_offset_ms = offset - int((clock.monotonic() - sim.loop.time()) * 1000)
        sim.node("app").restart_after_seconds = 1.0
        await asyncio.sleep(BOOT_SECONDS)
        await self._on_app(self._found)
        if settings.fault_seconds:
            sim.at(self._rng.expovariate(1 / settings.fault_seconds), self._fault)
        ends = loop.time() + settings.load_seconds
        while loop.time() < ends:
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * settings.pause_seconds)
            await self._on_app(self._use)
            self.counts.uses += 1
            if self._fleeting and loop.time() > ends - settings.load_seconds / 2:
                await self._on_app(self._delete)
        self._over = True
        self._heal()
        await asyncio.sleep(settings.quiet_seconds)
        await self._on_app(self._use)
        await self._look()
        self.counts.sent = sum(topic.numbered.sent for topic in self._topics)
        self.counts.steps = loop.steps

    async def _on_app(self, work: Callable[[World], Any]) -> None:
        """Run one session.

        Raises ``TimeoutError`` when it cannot be done within the time that a fault may cost.
        """
        async with asyncio.timeout(5 * LAST_SECONDS):
            await self.sim.nodes["app"].run(work)

    # -- the load

    async def _found(self, world: World) -> None:
        async with self._stage.connected(world, LAST_SECONDS) as client:
            for topic in (*(each.numbered for each in self._topics), *self._fleeting):
                producer = await topic.open(world, client, (_SUBSCRIPTION,))
                await topic.send(producer)
                await producer.close()

    async def _use(self, world: World) -> None:
        """Publish a few messages to each topic, acknowledge what is there, and read all of it."""
        async with self._stage.connected(world, LAST_SECONDS) as client:
            for topic in self._topics:
                producer = await topic.numbered.open(world, client)
                for _ in range(self._rng.randrange(1, 4)):
                    number = topic.numbered.sent
                    await topic.numbered.send(producer)
                    topic.at[number] = self.sim.loop.time()
                await producer.close()
                consuming = asyncio.get_running_loop().create_task(
                    topic.numbered.consume(world, client, _SUBSCRIPTION)
                )
                while len(topic.numbered.delivered) < topic.numbered.sent:
                    await world.clock.sleep(0.05)
                consuming.cancel()
                self._check_kept(topic, await topic.numbered.read(client))
        if self._settings.moves:
            await self._administer(world, "PUT", f"{NAMESPACE}/unload")

    def _check_kept(self, topic: _Aged, found: list[int]) -> None:
        """Check what a reader found. Old messages may be deleted between two that it reads."""
        numbered = topic.numbered
        assert found == sorted(set(found)), f"{numbered.topic} was read as {found}"
        since = self.sim.loop.time() - self._settings.retention_minutes * 60
        lost = [number for number, at in topic.at.items() if at > since and number not in found]
        assert not lost, (
            f"{numbered.topic} kept {lost} for less than its retention of "
            f"{self._settings.retention_minutes} minutes"
        )

    async def _delete(self, world: World) -> None:
        topic = self._fleeting.pop()
        while True:
            status = await self._administer(
                world, "DELETE", f"{TOPICS}/{topic.topic.rpartition('/')[2]}?force=true"
            )
            if status in (204, 404):
                return
            await world.clock.sleep(1.0)

    async def _administer(self, world: World, method: str, target: str) -> int:
        try:
            return (
                await administer(
                    self._stage, world, self._rng.choice(self._cluster.brokers), method, target
                )
            ).status
        except (StreamBroken, TimeoutError, PulsarishError) as error:
            self.sim.trace(f"{method} {target} has no answer: {error!r}")
            return 0

    # -- faults

    def _fault(self) -> None:
        """Crash, pause or cut off a machine for up to a minute.

        One at a time, so that everything stays possible.
        """
        if self._over:
            return
        sim, rng = self.sim, self._rng
        self.counts.faults += 1
        name = rng.choice([*self._cluster.bookies, *self._cluster.brokers])
        node, lasts = sim.nodes[name], rng.uniform(1.0, 60.0)
        match rng.choice(("crash", "pause", "restart_metadata", "fail_sync")):
            case "crash":
                node.crash()
                sim.at(lasts, node.revive)
            case "pause":
                node.pause()
                sim.at(lasts, node.resume)
            case "restart_metadata":
                sim.metadata.stop()
                sim.at(min(lasts, 8.0), sim.metadata.start)
            case _:
                node.disk.fail_next_sync()
        sim.at(lasts + rng.expovariate(1 / self._settings.fault_seconds), self._fault)

    def _heal(self) -> None:
        self.sim.metadata.heal()
        for name in (*self._cluster.bookies, *self._cluster.brokers):
            node = self.sim.nodes[name]
            node.disk.heal()
            node.resume()
            node.revive()

    # -- the end

    async def _look(self) -> None:
        invariants, sim = self._invariants, self.sim
        invariants.look()
        invariants.look_at_lists()
        there = {
            ledger_id: sim.metadata.tree.get(paths.ledger(ledger_id)) is not None
            for ledger_id in invariants.ledgers
        }
        self.counts.trimmed = sum(not each for each in there.values())
        left = [record for ledger_id, record in invariants.ledgers.items() if there[ledger_id]]
        _ = await look_at_disks(self._cluster, left, (), self._oracle.report)
        if self._settings.quiet_seconds:
            self._look_at_ages(there)
            await look_for_garbage(self._cluster, self._oracle.report)
            gone = [ledger_id for ledger_id, is_there in there.items() if not is_there]
            for name, bookie in self._cluster.bookies_up():
                await self._look_at_bookie(name, bookie, gone)
        assert not self._oracle.anomalies, "; ".join(map(str, self._oracle.anomalies[:5]))

    async def _look_at_bookie(self, name: str, bookie: Bookie, gone: list[int]) -> None:
        async def inside(_world: World) -> tuple[list[TrashedLedger], list[bool]]:
            return await bookie.garbage.trash.ledgers(), await bookie.store.index.were_deleted(gone)

        trashed, known = await self.sim.nodes[name].run(inside)
        if trashed:
            self._oracle.report(
                "garbage", f"the trash of {name} still holds {[each.ledger_id for each in trashed]}"
            )
        if any(known):
            self._oracle.report(
                "garbage", f"{name} still remembers the deletion of {sum(known)} ledgers"
            )

    def _look_at_ages(self, there: dict[int, bool]) -> None:
        """Check the ledgers of a topic's list from before the quiet time: the last one, and one
        closed only when it was found too old.
        """
        for topic in self._topics:
            listed = [
                ledger_id
                for ledger_id in self._invariants.listed(TopicName.parse(topic.numbered.topic))
                if there[ledger_id]
            ]
            if len(listed) > 2:
                self._oracle.report(
                    "garbage",
                    f"{topic.numbered.topic} still has ledgers {listed}, whose retention is over",
                )


def run_hours(seed: int, settings: HourSettings = HOURS) -> HourCounts:
    """Run one seed. Raises ``AssertionError`` when a promise was broken."""
    sim = Simulation(seed)
    run = _Run(sim, settings)
    sim.run(run.run, max_virtual_seconds=2 * (settings.load_seconds + settings.quiet_seconds) + 600)
    return run.counts
