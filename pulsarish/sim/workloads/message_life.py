"""A message's life: who acknowledges it and when its storage goes, for each combination of TTL,
delay, expiry, retention, roll-over and compaction.

``LIVES`` is the table of docs/guarantees.md as data: for each combination the earliest and the
latest instant at which a message that no consumer takes is gone for a subscription, and from the
topic's log. ``table`` writes it for the document. ``run_lives`` publishes one message for each row,
on a topic of its own, and watches it in virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from pulsarish.broker.topics.topic import Topic
from pulsarish.client.api.asyncio_client import AsyncClient
from pulsarish.client.enums import ConsumerType, InitialPosition
from pulsarish.model.position import Position
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.cluster import ClusterSettings, SimCluster
from pulsarish.sim.cluster.limits import Limits
from pulsarish.sim.cluster.operator import TOPICS, administer
from pulsarish.sim.cluster.oracle import Oracle, Promises
from pulsarish.sim.cluster.stage import Counts, Stage
from pulsarish.sim.workloads import unacked
from pulsarish.sim.workloads.result import BOOT_SECONDS
from pulsarish.sim.workloads.unacked import check_unacked
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.entry import EXPIRES_PROPERTY

__all__ = ["LIVES", "Instant", "Life", "run_lives", "table"]

_SUBSCRIPTION: Final = "s"
_TTL_SECONDS: Final = 20
_DELAY_SECONDS: Final = 30
_EXPIRY_SECONDS: Final = 40
_KEPT_MINUTES: Final = 1
_KEPT_ENTRIES: Final = 4
_KEPT_MB: Final = 1
_TOLERANCE_SECONDS: Final = 60
_UPKEEP_SECONDS: Final = 4.0
_FLUSH_SECONDS: Final = 1.0
_FILL_SECONDS: Final = 95.0
"""When more is published, and what is there is compacted: after the message's ledger is closed."""
_END_SECONDS: Final = 230.0
_LOOK_SECONDS: Final = 0.25
_SLACK_SECONDS: Final = 1.0
"""A look is late, clocks run differently, and what is due takes a moment to be done."""
_SLOW_SECONDS: Final = 8.0
_SLOW_MESSAGES: Final = 12
_TRANSIT_MS: Final = 50
_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Instant:
    """A point in time: the first or last of some points, and durations behind it.

    ``parts`` and ``plus`` are names, which a run has the seconds of; without parts: never.
    """

    parts: tuple[str | Instant, ...]
    plus: tuple[str, ...] = ()
    is_last: bool = True

    def __str__(self) -> str:
        if not self.parts:
            return "never"
        base = ", ".join(map(str, self.parts))
        if len(self.parts) > 1:
            base = f"{'max' if self.is_last else 'min'}({base})"
        return " + ".join((base, *self.plus))

    def seconds(self, known: Mapping[str, float]) -> float:
        """Return when it is. An instant that has not been yet is never."""
        if not self.parts:
            return _NEVER
        points = [
            each.seconds(known) if isinstance(each, Instant) else known.get(each, _NEVER)
            for each in self.parts
        ]
        base = max(points) if self.is_last else min(points)
        return base + sum(known[each] for each in self.plus)


def _at(*names: str) -> Instant:
    return Instant((names[0],), names[1:])


def _later(*parts: str | Instant, plus: tuple[str, ...] = ()) -> Instant:
    return Instant(parts, plus)


def _earlier(*parts: str | Instant, plus: tuple[str, ...] = ()) -> Instant:
    return Instant(parts, plus, is_last=False)


NEVER: Final = Instant(())
_TRIM: Final = ("flush", "upkeep")
_PUBLISHED_TTL: Final = _at("published", "TTL")
_DUE_TTL: Final = _at("due", "TTL")
_EXPIRY: Final = _at("expiry")
_KEPT: Final = _at("closed", "time", "1 min")


@dataclass(frozen=True, slots=True)
class Life:
    """One row: what is set, and when the message is gone.

    ``acknowledged`` and ``stored``: the first and the last instant. ``policies`` are set for the
    topic, ``options`` are arguments of ``send``. ``skips``: an operator skips the message at once.
    """

    name: str
    acknowledged: tuple[Instant, Instant]
    stored: tuple[Instant, Instant]
    policies: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    skips: bool = False
    compacts: bool = False


def _within(instant: Instant) -> tuple[Instant, Instant]:
    """Return what the upkeep does at an instant."""
    return instant, replace(instant, plus=(*instant.plus, "upkeep"))


def _trimmed(*parts: str | Instant) -> tuple[Instant, Instant]:
    return _later(*parts), _later(*parts, plus=_TRIM)


_ONCE: Final = (_at("acknowledged"), _at("acknowledged"))
_GONE: Final = _trimmed("acknowledged", "closed")
_TTL: Final = {"messageTTL": _TTL_SECONDS}
_DELAY: Final = {"deliver_after": timedelta(seconds=_DELAY_SECONDS)}
_EXPIRES: Final = {"expires_after": timedelta(seconds=_EXPIRY_SECONDS)}


def _retention(minutes: int = -1, megabytes: int = -1, count: int = -1) -> dict[str, Any]:
    value = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
    return {"retention": value if count < 0 else {**value, "retentionCountLimit": count}}


LIVES: Final = (
    Life("nothing, not acknowledged", (NEVER, NEVER), (NEVER, NEVER)),
    Life("nothing, acknowledged", _ONCE, _GONE, skips=True),
    Life("TTL", _within(_PUBLISHED_TTL), _GONE, _TTL),
    Life("TTL, delay", _within(_DUE_TTL), _GONE, _TTL, _DELAY),
    Life("own expiry", _within(_EXPIRY), _GONE, {}, _EXPIRES),
    Life("own expiry, delay", _within(_EXPIRY), _GONE, {}, {**_EXPIRES, **_DELAY}),
    Life("own expiry, TTL", _within(_earlier(_PUBLISHED_TTL, _EXPIRY)), _GONE, _TTL, _EXPIRES),
    Life(
        "own expiry, TTL, delay",
        _within(_earlier(_DUE_TTL, _EXPIRY)),
        _GONE,
        _TTL,
        {**_EXPIRES, **_DELAY},
    ),
    Life(
        "retention by time",
        _ONCE,
        _trimmed("acknowledged", _KEPT),
        _retention(minutes=_KEPT_MINUTES),
        skips=True,
    ),
    Life(
        "retention by size",
        _ONCE,
        _trimmed("acknowledged", "closed", "outgrown"),
        _retention(megabytes=_KEPT_MB),
        skips=True,
    ),
    Life(
        "retention by count",
        _ONCE,
        _trimmed("acknowledged", "closed", "outgrown"),
        _retention(count=_KEPT_ENTRIES),
        skips=True,
    ),
    Life(
        "retention by time and count",
        _ONCE,
        _trimmed("acknowledged", _earlier(_KEPT, _later("closed", "outgrown"))),
        _retention(minutes=_KEPT_MINUTES, count=_KEPT_ENTRIES),
        skips=True,
    ),
    Life(
        "TTL, delay, retention by time",
        _within(_DUE_TTL),
        _trimmed("acknowledged", _KEPT),
        {**_TTL, **_retention(minutes=_KEPT_MINUTES)},
        _DELAY,
    ),
    Life(
        "compaction",
        _ONCE,
        _trimmed("acknowledged", "closed", "compacted"),
        skips=True,
        compacts=True,
    ),
    Life(
        "compaction, TTL, delay",
        _within(_DUE_TTL),
        _trimmed("acknowledged", "closed", "compacted"),
        _TTL,
        _DELAY,
        compacts=True,
    ),
)


def table() -> str:
    """Return the table of docs/guarantees.md."""
    head = (
        "set",
        "gone for a subscription: earliest",
        "latest",
        "gone from the log: earliest",
        "latest",
    )
    rows = [head, ("---",) * len(head)]
    rows += [(each.name, *map(str, (*each.acknowledged, *each.stored))) for each in LIVES]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


class _Watched:
    """The message of one row."""

    def __init__(self, number: int, life: Life) -> None:
        self.life = life
        self.topic = f"persistent://public/default/life{number}"
        self.position = Position(-1, -1)
        self.known: dict[str, float] = {
            "TTL": _TTL_SECONDS,
            "time": _KEPT_MINUTES * 60.0,
            "1 min": _TOLERANCE_SECONDS,
            "upkeep": _UPKEEP_SECONDS,
            "flush": _FLUSH_SECONDS,
        }
        """Durations, and instants that have been."""
        self.stored_at = _NEVER

    def look(self, topic: Topic, now: float) -> None:
        """Note what has happened to the message since the last look."""
        known = self.known
        subscription = topic.subscriptions[_SUBSCRIPTION]
        if "acknowledged" not in known and subscription.cursor.is_acknowledged(self.position):
            known["acknowledged"] = now
        link = next(
            (each for each in topic.log.ledgers if each.ledger_id == self.position.ledger_id), None
        )
        if link is None:
            self.stored_at = min(self.stored_at, now)
            known.setdefault("closed", now)
        elif link.closed_ms and "closed" not in known:
            known["closed"] = now
        horizon = topic.log.views.horizon
        if "compacted" not in known and horizon is not None and horizon >= self.position:
            known["compacted"] = now

    def judge(self) -> list[str]:
        """Return what is not as the table says."""
        life, known = self.life, self.known
        gone_at = known.get("acknowledged", _NEVER)
        return [
            f"{life.name}: gone {what} at {at:.1f}, not from {first} ({first.seconds(known):.1f}) "
            f"to {last} ({last.seconds(known):.1f}); known: {known}"
            for what, at, (first, last) in (
                ("for the subscription", gone_at, life.acknowledged),
                ("from the log", self.stored_at, life.stored),
            )
            if not first.seconds(known) - _SLACK_SECONDS
            <= at
            <= last.seconds(known) + _SLACK_SECONDS
        ]


class _Run:
    def __init__(self, sim: Simulation) -> None:
        rng = random.Random(f"{sim.seed}:life")
        self.sim = sim
        self._cluster = SimCluster(
            sim,
            ClusterSettings(
                bookies=3,
                brokers=1,
                quorums=(3, 3, 2),
                deduplication=False,
                partitions=0,
                entries_per_ledger=1_000,
                cursor_node_writes_max=3,
                cursor_flush_interval_ms=int(_FLUSH_SECONDS * 1000),
                read_batch=30,
                bundles=1,
                repair=False,
                limits=Limits(
                    ledger={"heartbeat_interval_ms": 20_000, "check_interval_ms": 5_000},
                    log={"max_ledger_rollover_time_minutes": 1, "rollover_jitter": 0.0},
                    broker={
                        "managed_ledger_maintenance_interval_seconds": _UPKEEP_SECONDS,
                        "keep_alive_interval_seconds": 20.0,
                        "keep_alive_timeout_seconds": 60.0,
                        "max_message_size_bytes": 1 << 20,
                    },
                    bookie={
                        "journal_file_size_bytes": 1 << 20,
                        "journal_group_size_bytes": 1 << 18,
                        "write_cache_size_bytes": 4 << 20,
                        "entry_log_size_bytes": 1 << 20,
                        "reserved_bytes": 8 << 20,
                        "read_only_free_bytes": 8 << 20,
                        "gc_interval_seconds": 300.0,
                        "checkpoint_interval_seconds": 30.0,
                        "disk_check_interval_seconds": 30.0,
                        "add_probe_interval_seconds": 60.0,
                        "add_probe_timeout_seconds": 180.0,
                        "metadata_check_interval_seconds": 120.0,
                    },
                ),
            ),
        )
        self._oracle = Oracle(Promises(deduplication=False, trimmed=True))
        self._stage = Stage(rng, self._cluster.service_url, "", self._oracle, Counts(), sim.trace)
        self.watched = [_Watched(number, life) for number, life in enumerate(LIVES)]

    async def run(self) -> None:
        sim = self.sim
        self._cluster.boot()
        app = sim.node("app").clock
        for name in self._cluster.brokers:
            clock = sim.nodes[name].clock
            clock.rate = app.rate
            clock.wall_offset_ms += app.wall_ms() - clock.wall_ms()
        await asyncio.sleep(BOOT_SECONDS)
        await sim.nodes["app"].run(self._live)
        faults = [fault for each in self.watched for fault in each.judge()]
        faults += map(str, self._oracle.anomalies)
        faults += [
            f"the watchdog of {name} has restarted a dispatcher"
            for name, broker in self._cluster.brokers_up()
            if broker.stalls_count
        ]
        assert not faults, "\n".join(faults)

    async def _live(self, world: World) -> None:
        async with self._stage.connected(world, 20.0) as client:
            for each in self.watched:
                await self._publish(world, client, each)
            began = self.sim.loop.time()
            watching = asyncio.get_running_loop().create_task(self._watch(began))
            await self._deliver_slowly(world, client)
            await check_unacked(
                world,
                client,
                random.Random(f"{self.sim.seed}:unacked"),
                lambda seconds: self._set_unacked(world, seconds),
                lambda: self._topics()[unacked.TOPIC].subscriptions["s"],
            )
            await world.clock.sleep(began + _FILL_SECONDS - self.sim.loop.time())
            for each in self.watched:
                await self._fill(world, client, each)
            await watching

    async def _publish(self, world: World, client: AsyncClient, each: _Watched) -> None:
        consumer = await client.subscribe(
            each.topic,
            _SUBSCRIPTION,
            consumer_type=ConsumerType.Shared,
            initial_position=InitialPosition.Earliest,
        )
        await consumer.close()
        for name, value in each.life.policies.items():
            if name == "messageTTL":
                await self._ask(world, "POST", each, f"messageTTL?messageTTL={value}")
            else:
                await self._ask(world, "POST", each, name, value)
        producer = await client.create_producer(each.topic)
        if each.life.compacts:
            await producer.send(b"before", partition_key="k")
            await self._compact(world, each)
        now = self.sim.loop.time()
        for name, after in (
            ("published", timedelta(0)),
            ("due", each.life.options.get("deliver_after")),
            ("expiry", each.life.options.get("expires_after")),
        ):
            if after is not None:
                each.known[name] = now + after.total_seconds()
        message_id = await producer.send(b"it", partition_key="k", **each.life.options)
        await producer.close()
        each.position = Position(message_id.ledger_id(), message_id.entry_id())
        if each.life.skips:
            await self._ask(world, "POST", each, f"subscription/{_SUBSCRIPTION}/skip_all")

    async def _deliver_slowly(self, world: World, client: AsyncClient) -> None:
        """Have messages expire while they wait for a consumer that takes one at a time."""
        topic = "persistent://public/default/slow"
        consumer = await client.subscribe(
            topic, _SUBSCRIPTION, consumer_type=ConsumerType.Shared, receiver_queue_size=0
        )
        producer = await client.create_producer(topic)
        rng = self._stage.rng
        lives = [rng.uniform(0.3, _SLOW_SECONDS) for _ in range(_SLOW_MESSAGES)]
        for seconds in lives:
            await producer.send(b"it", expires_after=timedelta(seconds=seconds))
        await producer.send(b"end")
        taken = 0
        while (message := await consumer.receive(timeout_millis=10_000)).data() != b"end":
            late_ms = world.clock.wall_ms() - int(message.properties()[EXPIRES_PROPERTY])
            assert late_ms < _TRANSIT_MS, f"a message came {late_ms} ms after it had expired"
            await consumer.acknowledge(message)
            taken += 1
            await world.clock.sleep(_SLOW_SECONDS / 4)
        assert 0 < taken < _SLOW_MESSAGES, "some expire, and some do not"
        await consumer.close()

    async def _set_unacked(self, world: World, seconds: int) -> None:
        target = f"{TOPICS}/{unacked.TOPIC.rpartition('/')[2]}/unackedRedelivery"
        answer = await administer(
            self._stage, world, self._cluster.brokers[0], "POST", target, seconds
        )
        assert answer.status < 300, answer.body

    async def _fill(self, world: World, client: AsyncClient, each: _Watched) -> None:
        """Publish more than a retention by size or count keeps, and compact."""
        retention = each.life.policies.get("retention", {})
        count = _KEPT_ENTRIES if "retentionCountLimit" in retention else 0
        size_bytes = 10
        if retention.get("retentionSizeInMB", -1) > 0:
            count, size_bytes = 4, (_KEPT_MB << 20) // 4
        if count:
            producer = await client.create_producer(each.topic)
            for _ in range(count):
                await producer.send(bytes(size_bytes))
            await producer.close()
            await self._ask(world, "POST", each, f"subscription/{_SUBSCRIPTION}/skip_all")
            each.known["outgrown"] = self.sim.loop.time()
        if each.life.compacts:
            await self._compact(world, each)

    async def _compact(self, world: World, each: _Watched) -> None:
        await self._ask(world, "PUT", each, "compaction")
        topic = self._topics()[each.topic]
        while topic.log.views.horizon != topic.log.last_confirmed:
            await world.clock.sleep(0.05)

    async def _ask(
        self, world: World, method: str, each: _Watched, words: str, body: object = None
    ) -> None:
        name = each.topic.rpartition("/")[2]
        target = f"{TOPICS}/{name}/{words}"
        answer = await administer(
            self._stage, world, self._cluster.brokers[0], method, target, body
        )
        assert answer.status < 300, f"{method} {target}: {answer.status} {answer.body!r}"

    def _topics(self) -> dict[str, Topic]:
        return {topic.name.full: topic for _, topic in self._cluster.loaded_topics()}

    async def _watch(self, began: float) -> None:
        while (now := self.sim.loop.time()) < began + _END_SECONDS:
            topics = self._topics()
            for each in self.watched:
                each.look(topics[each.topic], now)
            await asyncio.sleep(_LOOK_SECONDS)


def run_lives(seed: int) -> None:
    """Run one seed. Raises ``AssertionError`` when a message is gone too early or too late."""
    sim = Simulation(seed)
    sim.run(_Run(sim).run, max_virtual_seconds=2 * _END_SECONDS)
