"""One seed of the whole cluster: load and faults, then heal, then compare every promise with what
clients saw.

    result = run_seed(17)
    result.anomalies          # empty, or the broken promises
    result.story()            # for people: faults, events of these values, end of the trace

After the faults everything must work again within a bounded virtual time: publishing, reading,
consuming (liveness).
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeVar

from pulsarish.broker.publishing.dedup_log import DEDUP_CURSOR
from pulsarish.client.enums import ConsumerType
from pulsarish.model.errors import PulsarishError
from pulsarish.model.position import Position
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.cluster import ClusterSettings, SimCluster, draw_cluster, widen
from pulsarish.sim.cluster.cluster_lock import ADMINISTRATOR, APPLICATION, ClusterLock
from pulsarish.sim.cluster.disk_audit import look_at_disks, look_for_garbage
from pulsarish.sim.cluster.housekeeping import (
    wait_until_collected,
    wait_until_copied,
    wait_until_no_orphans,
    wait_until_repaired,
)
from pulsarish.sim.cluster.invariants import Invariants
from pulsarish.sim.cluster.limits import draw_limits, with_orphans_deleted, with_small_buckets
from pulsarish.sim.cluster.liveness import check_let_go
from pulsarish.sim.cluster.operator import Operator
from pulsarish.sim.cluster.oracle import Oracle, Place, Promises
from pulsarish.sim.cluster.peer_limits import beyond_peer_limits, with_small_peer_limits
from pulsarish.sim.cluster.stage import Counts, Stage
from pulsarish.sim.programs.brief_topics import SUBSCRIPTION as KEEPER
from pulsarish.sim.programs.brief_topics import Founder
from pulsarish.sim.programs.chunks_and_delays import SUBSCRIPTION as PARCELS
from pulsarish.sim.programs.chunks_and_delays import Parcels
from pulsarish.sim.programs.compactors import ANCHOR as LATEST
from pulsarish.sim.programs.compactors import Compacting
from pulsarish.sim.programs.consumers import Reading, consume, drain, draw_reading, subscribe_first
from pulsarish.sim.programs.ended_rights import SUBSCRIPTIONS, EndedRights
from pulsarish.sim.programs.foreign_ids import SUBSCRIPTION as STRANGER
from pulsarish.sim.programs.foreign_ids import Stranger
from pulsarish.sim.programs.hostile_frames import LOCAL_NAMES as HOSTILE_NAMES
from pulsarish.sim.programs.hostile_peers import ATTACKS, HostilePeer
from pulsarish.sim.programs.key_sharing import SUBSCRIPTION as KEYED
from pulsarish.sim.programs.key_sharing import KeySharers
from pulsarish.sim.programs.non_persistent import Fleeting
from pulsarish.sim.programs.optional_programs import (
    APPLICATIONS,
    COMPACTERS,
    DUELISTS,
    EXTRAS,
    HOSTILE,
    PACKERS,
    RENEWER,
    REPLICA_READERS,
    SHARERS,
    SHOUTERS,
    SIFTERS,
    TURNER,
    extra_nodes,
    extra_stream,
    extras_of,
)
from pulsarish.sim.programs.publishers import (
    Publisher,
    draw_publisher,
    publish,
    publish_last,
    publish_rest,
)
from pulsarish.sim.programs.readers import read_everything, read_first, read_replica, read_tail
from pulsarish.sim.programs.resetters import SUBSCRIPTION as MOVER
from pulsarish.sim.programs.resetters import Mover
from pulsarish.sim.programs.rival_admins import SUBSCRIPTION as DUEL
from pulsarish.sim.programs.rival_admins import Duel
from pulsarish.sim.programs.seekers import SUBSCRIPTION as SEEKER
from pulsarish.sim.programs.seekers import Seeker, judge_seeks, seek_about, seek_at_last, wander
from pulsarish.sim.programs.sifters import SUBSCRIPTION as SIFTED
from pulsarish.sim.programs.sifters import Sifters
from pulsarish.sim.workloads.result import BOOT_SECONDS, Result
from pulsarish.sim.world.faults import ALL_KINDS, HARSH_KINDS, Fault, FaultPlan, bearable
from pulsarish.sim.world.logs import logs_into
from pulsarish.sim.world.nodes import Node, NodeDied
from pulsarish.sim.world.world import Simulation

__all__ = ["Result", "run_seed"]

T = TypeVar("T")

_LOAD_SECONDS: Final = 12.0
_BRIEF_LOAD_SECONDS: Final = 6.0
_BRIEF_PACE_SECONDS: Final = 0.08
"""Mean seconds that a publisher takes for a message in a brief seed."""
_BURST_PACE_SECONDS: Final = 0.05
"""The same in a seed with bursts, so that the bursts do not make it longer."""
_LOOK_SECONDS: Final = 2.4
_MOVE_SECONDS: Final = 5.0  # a move that has begun has ended
_PROGRESS_SECONDS: Final = 1.0
"""Interval at which the memory of all nodes is checked during the load."""
_PRESSURE_SECONDS: Final = 0.1  # interval at which the reached limits are counted
# interval at which brokers are checked for what hostile peers make them hold
_PEERS_SECONDS: Final = 0.05
_PARTING_SECONDS: Final = 30.0
_DARK_SECONDS: Final = 0.5
_REPAIR_SECONDS: Final = 3.0
"""A machine that has not come back this long after everything has healed is given up."""
# longer than the retention that operators set (``cluster/operator.py``)
_LONG_SECONDS: Final = 700.0
_WIND_UP_SECONDS: Final = 60.0
_APPS: Final = ("app0", "app1", "consumer0", "consumer1", "reader", "operator")
_LIVES_SECONDS: Final = (4.0, 8.0, 30.0)
"""Lives of tokens. The last one outlives every connection that is slow to be heard."""
_TOPIC: Final = "persistent://public/default/t"
_ANCHOR: Final = "anchor"
_HASTE_MS: Final = 20 * 3_600_000
_WORK: Final = "work"
_NAMESPACE: Final = ("public", "default")
_BOUND_SECONDS: Final = 60
"""A broker has all bundles that only it may have, this long after everything has healed."""


class _Run:
    def __init__(
        self,
        sim: Simulation,
        settings: ClusterSettings,
        kinds: Sequence[str],
        faults: Sequence[Fault] | None,
        planned: Callable[[Sequence[Fault]], object] | None,
        extras: Sequence[str],
        attacks: Sequence[str],
        directory: Path | None,
    ) -> None:
        rng = sim.workload
        self.sim = sim
        self.settings = settings
        self.cluster = SimCluster(sim, settings)
        life_seconds = self._extra("life of tokens").choice(_LIVES_SECONDS)
        lock = None
        if directory is not None:
            lock = ClusterLock(sim, directory, self.cluster.brokers, life_seconds)
            self._give_roles(lock, extras)
            self.cluster.lock = lock
        # An anchor acknowledges nothing, so that everything is kept. Without one the log is trimmed
        # while it is used.
        self.anchored = rng.random() < 0.5
        self._blackout = random.Random(f"{sim.seed}:blackout").random() < 0.5
        self._publishers: list[Publisher] = []
        self.extras = extras
        exact = settings.deduplication and "toggles" not in self.extras
        self.oracle = Oracle(Promises(deduplication=exact, trimmed=not self.anchored))
        self.invariants = Invariants(self.cluster, self.oracle.report)
        self.oracle.watch = lambda place, who: self.invariants.seen(place.ledger, place.entry, who)
        self.oracle.watch_receipts = self._receipt
        self.counts = Counts()
        self._sought_first: dict[int, Place] | None = None
        self._well_since = 0.0
        self._bound_to = ""
        """The one broker that may serve the namespace, once that is so."""
        self.plan: FaultPlan | None = None
        self._kinds = kinds
        self._faults = faults
        self._planned = planned
        self._attacks = attacks
        self._stage = Stage(
            rng,
            self.cluster.service_url,
            _TOPIC,
            self.oracle,
            self.counts,
            sim.trace,
            owner_may_be_stale=self.cluster.owner_may_be_stale,
        )
        self._load_seconds = _BRIEF_LOAD_SECONDS if "brief" in self.extras else _LOAD_SECONDS
        self.seekers: dict[str, Seeker] = {}
        """Seekers by the name of their node, which is also the name of their subscription."""
        self.wanderer = Seeker(self._extra("wanderer"), durable=False, inclusive=True)
        if "seeks" in self.extras:
            rng = self._extra("seeker")
            self.seekers[SEEKER] = Seeker(rng, durable=True, inclusive=rng.random() < 0.5)
            self.wanderer.stamps = self.seekers[SEEKER].stamps
        if "turns" in self.extras:
            rng = self._extra(TURNER)
            turner = self.seekers[TURNER] = Seeker(
                rng, durable=True, inclusive=rng.random() < 0.5, subscription=TURNER
            )
            turner.kind = rng.choice((ConsumerType.Shared, ConsumerType.Failover))
            turner.meets_damage = "harsh" in self.extras
        self.mover = None
        if "resets" in self.extras:
            moved = Seeker(self._extra("resets"), durable=True, inclusive=True, subscription=MOVER)
            self.mover = Mover(self._stage, self.cluster.brokers, moved)
        self.stranger = None
        if "strangers" in self.extras:
            self.stranger = Stranger.draw(self._stage, self.invariants, self._extra("strangers"))
        self.founders: dict[str, Founder] = {}
        """Founders by the name of their node."""
        if "topics" in self.extras:
            self.founders["founder"] = Founder(
                self._stage, self.cluster, self._extra("topics"), self.oracle.watch
            )
        if "anew" in self.extras:
            self.founders[RENEWER] = Founder(
                self._stage, self.cluster, self._extra("anew"), self.oracle.watch, renews=True
            )
        self.sharers = None
        if "keys" in self.extras:
            self.sharers = KeySharers(
                self._stage, self._extra("keys"), self.oracle.report, self.oracle.watch
            )
        self.parcels = None
        if "parcels" in self.extras:
            self.parcels = Parcels(
                self._stage, self._extra("parcels"), self.oracle.report, self._hasten
            )
        self.sifters = None
        if "filters" in self.extras:
            self.sifters = Sifters(
                self._stage, self._extra("filters"), self.cluster.brokers, self.oracle.report
            )
        self.compacting = None
        if "compacting" in self.extras:
            rng = self._extra("compacting")
            self.compacting = Compacting(
                self._stage,
                rng,
                self.cluster.brokers,
                self.oracle.report,
                anchored=rng.random() < 0.5,
            )
        self.fleeting = None
        if "fleeting" in self.extras:
            self.fleeting = Fleeting(
                self._stage, self._extra("fleeting"), self.cluster, self.oracle.report
            )
        self.guests = None
        if lock is not None:
            self._stage.tokens_may_be_late = life_seconds < _LIVES_SECONDS[-1]
            self.guests = EndedRights(
                self._stage,
                self._extra("locked"),
                self.cluster,
                lock,
                self._load_seconds,
                self.oracle.report,
            )

    def _give_roles(self, lock: ClusterLock, extras: Sequence[str]) -> None:
        """Have programs show who they are: applications, or administrators."""
        for name in self.cluster.bookies:
            lock.show_member(name, "bookie")
        for name in self.cluster.brokers:
            lock.show_member(name, "broker")
        lock.show_member("rival", "operator")
        application = lock.tokens_of(APPLICATION)
        administrator = lock.tokens_of(ADMINISTRATOR)
        for name in (*_APPS, *extra_nodes(extras), "final"):
            lock.show(name, application if name in APPLICATIONS else administrator)
        self.sim.credentials_of = lock.source_of

    async def run(self) -> None:
        sim, stage, rng = self.sim, self._stage, self._stage.rng
        self.cluster.boot()
        if self.cluster.lock is not None:
            self.cluster.lock.set_calendars()
        self._draw_publishers()
        names = [_WORK, _ANCHOR] if self.anchored else [_WORK]
        readings = [draw_reading(rng, self.oracle, name) for name in names]
        work = readings[0]
        if self.stranger is not None:
            readings.append(self.stranger.reading)
        apps = [sim.node(name) for name in _APPS]
        extras = [sim.node(name) for name in extra_nodes(self.extras)]
        for node in (*apps, *extras):
            node.restart_after_seconds = 0.5
        await asyncio.sleep(BOOT_SECONDS)
        if self.guests is not None:
            await self._well("granting", "operator", self.guests.grant)
        for reading in readings:
            await self._well(
                f"the first subscription {reading.subscription.name}",
                "operator",
                partial(subscribe_first, stage, reading=reading),
            )
        for name, seeker in self.seekers.items():
            await self._well(
                f"the first subscription of the {name}",
                "operator",
                partial(seek_about, stage, seeker=seeker, first=True),
            )
        if self.mover is not None:
            await self._well(
                "the first subscription of the mover", "operator", self.mover.subscribe_first
            )
        if self.sharers is not None:
            await self._well(
                "the first subscription by keys", "operator", self.sharers.subscribe_first
            )
        if self.parcels is not None:
            await self._well(
                "the first subscription to parcels", "operator", self.parcels.subscribe_first
            )
        if self.sifters is not None:
            await self._well(
                "the first subscription with a filter", "operator", self.sifters.subscribe_first
            )
        if self.compacting is not None:
            await self._well("the first compaction", "operator", self.compacting.subscribe_first)
        failing = [
            *self.cluster.bookies,
            *self.cluster.brokers,
            *(node.name for node in (*apps[:4], *extras)),
        ]
        self.plan = FaultPlan(
            sim,
            failing,
            self._load_seconds,
            kinds=bearable(self._known_kinds(), self.settings.quorums[2]),
            faults=self._faults,
            expendable=self.cluster.bookies,
            harsh=bearable(HARSH_KINDS, self.settings.quorums[2])
            if "harsh" in self.extras and self._kinds
            else (),
            servers=[*self.cluster.bookies, *self.cluster.brokers],
            storage=self.cluster,
        )
        if self._planned is not None:
            self._planned(self.plan.faults)
        self.plan.start()
        sim.at(self._load_seconds, self._end_load)
        if self.guests is not None:
            self.guests.start()
        self._look_now_and_then()
        loads = [
            *(
                self._program(node, publisher.name, partial(publish, stage, publisher=publisher))
                for node, publisher in zip(apps, self._publishers, strict=False)
            ),
            *(
                self._program(node, node.name, partial(consume, stage, reading=work, who=node.name))
                for node in apps[2:4]
            ),
            self._program(apps[4], "reader", partial(read_tail, stage)),
            Operator(stage, self.cluster, apps[5]).unload_and_restart(),
            *self._extra_loads(),
        ]
        # Two consumers that each hold one partition of an exclusive subscription wait for each
        # other until one of them leaves.
        parting = sim.loop.call_later(
            self._load_seconds + _PARTING_SECONDS,
            sim.nodes["consumer0"].crash,
            context=contextvars.Context(),
        )
        await asyncio.gather(*loads)
        parting.cancel()
        await self._conclude(readings)

    def _receipt(self, subscription: str, place: Place) -> None:
        partition = f"-partition-{place.partition}" if place.partition >= 0 else ""
        self.invariants.acknowledged(
            _TOPIC + partition, subscription, Position(place.ledger, place.entry), place.in_batch
        )

    def _known_kinds(self) -> Sequence[str]:
        """Return the kinds of faults of this seed.

        Where credentials expire and members show tokens, calendars are not wrong by an hour.
        """
        if self.guests is None:
            return self._kinds
        return [kind for kind in self._kinds if kind != "jump_wall"]

    def _draw_publishers(self) -> None:
        limits = self.settings.limits
        # A producer whose sequence ids begin again in each session must not use deduplication.
        exact = self.settings.deduplication or "toggles" in self.extras
        publishers = self._publishers = [
            draw_publisher(self._stage.rng, f"p{number}", exact=exact) for number in range(2)
        ]
        for publisher in publishers:
            if "brief" in self.extras:
                publisher.pace_seconds = _BRIEF_PACE_SECONDS
            if limits.burst:
                publisher.burst = max(publisher.burst, limits.burst)
                publisher.pace_seconds = max(publisher.pace_seconds, _BURST_PACE_SECONDS)
            publisher.sizes = limits.sizes or publisher.sizes

    def _look_at_progress(self) -> None:
        """Check progress each second, until the end of the run."""
        self.invariants.look_at_progress()
        self.sim.at(_PROGRESS_SECONDS, self._look_at_progress)

    def _look_now_and_then(self) -> None:
        sim = self.sim
        self._look_at_progress()
        for number in range(1, ceil(self._load_seconds / _LOOK_SECONDS)):
            sim.at(_LOOK_SECONDS * number, self.invariants.look)
        if "tight" in self.extras:
            for number in range(ceil(self._load_seconds / _PRESSURE_SECONDS)):
                sim.at(_PRESSURE_SECONDS * number, self._count_reached_limits)
        if "hostile" in self.extras:
            self._look_at_peers()

    def _look_at_peers(self) -> None:
        """Check what peers make brokers hold until the end of the run, because the last peers may
        leave late.
        """
        for what in beyond_peer_limits(self.cluster):
            self.oracle.report("limit", what)
        self.sim.at(_PEERS_SECONDS, self._look_at_peers)

    def _count_reached_limits(self) -> None:
        for name in self.cluster.reached_limits():
            setattr(self.counts, name, getattr(self.counts, name) + 1)

    # -- parts of some seeds only

    def _extra(self, name: str) -> random.Random:
        return extra_stream(self.sim.seed, name)

    def _hasten(self) -> None:
        """Move the calendars so that every delayed message is due: the calendars were wrong by
        less.
        """
        for name in self.cluster.brokers:
            self.sim.nodes[name].clock.wall_offset_ms += _HASTE_MS

    def _extra_loads(self) -> Iterator[Awaitable[None]]:
        sim, stage = self.sim, self._stage
        for name, seeker in self.seekers.items():
            yield self._program(sim.nodes[name], name, partial(seek_about, stage, seeker=seeker))
        if "seeks" in self.extras:
            yield self._program(
                sim.nodes["wanderer"], "wanderer", partial(wander, stage, seeker=self.wanderer)
            )
        yield from self._loads_of_operators()
        if "rivals" in self.extras:
            yield Operator(stage, self.cluster, sim.nodes["rival"]).recover_others_ledgers(
                self._extra("rivals"), self.invariants
            )
        if "duel" in self.extras:
            yield Duel(
                stage, self.cluster, [sim.nodes[name] for name in DUELISTS], self._extra("duel")
            ).run()
        for name, founder in self.founders.items():
            yield self._program(sim.nodes[name], name, founder.session)
        if self.stranger is not None:
            yield self._program(sim.nodes[STRANGER], STRANGER, self.stranger.session)
        if self.mover is not None:
            yield self._program(sim.nodes[MOVER], MOVER, self.mover.session)
        if "replicas" in self.extras:
            for name in REPLICA_READERS:
                work = partial(read_replica, stage, rng=self._extra(name))
                yield self._program(sim.nodes[name], name, work)
        if "hostile" in self.extras:
            peer = HostilePeer(
                stage,
                self._extra("hostile"),
                self.cluster.brokers,
                self.cluster.bookies,
                self._attacks or ATTACKS,
            )
            yield self._program(sim.nodes[HOSTILE], HOSTILE, peer.session)
        yield from self._loads_of_own_topics()

    def _loads_of_operators(self) -> Iterator[Awaitable[None]]:
        sim, stage = self.sim, self._stage
        if "toggles" in self.extras:
            yield Operator(stage, self.cluster, sim.nodes["toggler"]).toggle_deduplication(
                self._extra("toggles")
            )
        if "policies" in self.extras:
            yield Operator(stage, self.cluster, sim.nodes["manager"]).change_policies(
                self._extra("policies")
            )
        if "moves" in self.extras:
            yield Operator(stage, self.cluster, sim.nodes["shifter"]).move_bundles(
                self._extra("moves")
            )
        if "placement" in self.extras:
            yield Operator(stage, self.cluster, sim.nodes["placer"]).change_placement(
                self._extra("placement")
            )

    def _loads_of_own_topics(self) -> Iterator[Awaitable[None]]:
        sim = self.sim
        if self.sharers is not None:
            publisher, *consumers = SHARERS
            yield self._program(sim.nodes[publisher], publisher, self.sharers.publish)
            for name in consumers:
                yield self._program(sim.nodes[name], name, partial(self.sharers.consume, who=name))
        if self.parcels is not None:
            publisher, *consumers = PACKERS
            yield self._program(sim.nodes[publisher], publisher, self.parcels.publish)
            for name in consumers:
                yield self._program(sim.nodes[name], name, partial(self.parcels.consume, who=name))
        if self.sifters is not None:
            publisher, *consumers = SIFTERS
            yield self._program(sim.nodes[publisher], publisher, self.sifters.publish)
            for name in consumers:
                yield self._program(sim.nodes[name], name, partial(self.sifters.consume, who=name))
        if self.compacting is not None:
            sessions = (self.compacting.publish, self.compacting.compact, self.compacting.read)
            for name, session in zip(COMPACTERS, sessions, strict=True):
                yield self._program(sim.nodes[name], name, session)
        if self.fleeting is not None:
            publisher, *consumers = SHOUTERS
            yield self._program(sim.nodes[publisher], publisher, self.fleeting.publish)
            for name in consumers:
                yield self._program(sim.nodes[name], name, partial(self.fleeting.consume, who=name))
        if self.guests is not None:
            for name, program in self.guests.programs().items():
                yield self._program(sim.nodes[name], name, program)

    def _end_load(self) -> None:
        """End the load.

        In half of the seeds all brokers lose power now, so whatever they answered last must have
        been durable.
        """
        self._stage.over = True
        if self.plan is not None and self.plan.destroyed:
            # Some programs end only when their messages are stored. That may need as many bookies
            # as there were.
            self.sim.at(_REPAIR_SECONDS, partial(self.cluster.replace_lost, self.plan.destroyed))
        if self._blackout:
            for name in self.cluster.brokers:
                node = self.sim.nodes[name]
                node.crash()
                self.sim.at(_DARK_SECONDS, node.revive)

    async def _program(
        self, node: Node, who: str, session: Callable[[World], Awaitable[None]]
    ) -> None:
        await self._stage.keep_running(node, who, session)

    # -- the end

    async def _conclude(self, readings: list[Reading]) -> None:
        """Check, once everything has healed, that the cluster works and that everything promised is
        there.
        """
        sim, stage = self.sim, self._stage
        self._well_since = sim.loop.time()
        if self.cluster.lock is not None:
            self.cluster.lock.lengthen_lives()
            self._stage.tokens_may_be_late = False
        # Half of the programs end as by a crash. What they leave must not block other clients for
        # long.
        for name in ("app0", "consumer0"):
            sim.nodes[name].crash()
        if self.plan is not None and self.plan.destroyed:
            await asyncio.sleep(_REPAIR_SECONDS)
            # A bookie that was restarted after the operator's last check may have found only now
            # that it cannot read what it needs.
            self.cluster.replace_lost(self.plan.destroyed)
        if "long" in self.extras:
            await asyncio.sleep(_LONG_SECONDS)
        await self._take_policies_back()
        await self._bind_the_namespace()
        final = sim.node("final")
        await self._resume(final.name)
        await self._well(
            "publishing", final.name, partial(publish_last, stage, name="last", count=3)
        )
        for number in range(2):
            seen = await self._well(
                f"final read {number}", final.name, partial(read_everything, stage)
            )
            if seen is None:
                return
            self.oracle.finals.append(seen)
        if self.oracle.promises.trimmed:
            # What is acknowledged may be trimmed during a final read. The log begins here from now
            # on.
            self.oracle.first_left = await self._well(
                "a look at the first that is left", final.name, partial(read_first, stage)
            )
            if self.oracle.first_left is None:
                return
        log = self.oracle.finals[0]
        await self._seek_at_last(final.name, log)
        await self._conclude_own_topics(final.name)
        for name, founder in self.founders.items():
            await self._well(
                f"finishing with the topics of the {name}", final.name, founder.conclude
            )
        for reading in readings:
            await self._well(
                f"draining {reading.subscription.name}",
                final.name,
                partial(drain, stage, reading=reading, log=log),
            )
        await self._look_inside()

    async def _seek_at_last(self, node: str, log: Sequence[Place]) -> None:
        """Run the last sessions of the seekers and of the mover."""
        stage = self._stage
        for name, seeker in self.seekers.items():
            left = log if self.anchored else ()
            await self._well(
                f"seeking by the {name}",
                node,
                partial(seek_at_last, stage, seeker=seeker, log=left),
            )
        if self.mover is not None:
            await self._well("a session of the mover", node, self.mover.session)
            await self._well("a session of the mover that was moved", node, self.mover.session)
        if self.oracle.promises.trimmed:
            # It cannot be judged either where a seek led to in what was trimmed since.
            self._sought_first = await self._well(
                "a look at the first after the seeks", node, partial(read_first, stage)
            )

    async def _conclude_own_topics(self, node: str) -> None:
        if self.sharers is not None:
            await self._well("sharing keys", node, self.sharers.conclude)
        if self.parcels is not None:
            await self._well("the last parcels", node, self.parcels.conclude)
        if self.sifters is not None:
            await self._well("the last sifting", node, self.sifters.conclude)
        if self.compacting is not None:
            await self._well("the last compaction", node, self.compacting.conclude)
        if self.fleeting is not None:
            # The last messages are judged by who has them, and a topic that is not kept may have
            # another active consumer after a move.
            self.cluster.stop_balancing()
            await asyncio.sleep(_MOVE_SECONDS)
            await self._well("publishing what is not kept", node, self.fleeting.conclude)
        if self.guests is not None:
            await self._well("ending rights", node, self.guests.conclude)

    def judge(self) -> None:
        """Compare everything that was promised with what was seen."""
        self.oracle.judge()
        log = [place for place in self.oracle.log if place.partition <= 0]
        if self._sought_first is not None:
            first = self._sought_first
            log = [
                place
                for place in log
                if place.partition in first and place >= first[place.partition]
            ]
        for founder in self.founders.values():
            founder.judge(self.invariants, self.oracle.report)
        if self.fleeting is not None:
            self.fleeting.judge()
        for seeker in (*self.seekers.values(), self.wanderer):
            judge_seeks(self.oracle, seeker, log)
        if self.mover is not None:
            judge_seeks(self.oracle, self.mover.seeker, log)

    async def _resume(self, node: str) -> None:
        for publisher in self._publishers:
            if "resumes" in self.extras and publisher.exact:
                await self._well(
                    f"the rest of {publisher.name}",
                    node,
                    partial(publish_rest, self._stage, publisher=publisher),
                )

    async def _take_policies_back(self) -> None:
        if "policies" in self.extras:
            await Operator(
                self._stage, self.cluster, self.sim.nodes["manager"]
            ).take_policies_back()
        if "toggles" in self.extras:
            await Operator(
                self._stage, self.cluster, self.sim.nodes["toggler"]
            ).take_deduplication_back()

    async def _bind_the_namespace(self) -> None:
        """Bind the namespace to one broker, strictly. It must have every bundle of it soon, and
        from then on; everything that follows must be possible there.
        """
        if "placement" not in self.extras:
            return
        self._bound_to = self._extra("bound").choice(self.cluster.brokers)
        placer = Operator(self._stage, self.cluster, self.sim.nodes["placer"])
        await placer.bind_to(self._bound_to)
        for _ in range(_BOUND_SECONDS):
            if not self._misplaced():
                break
            await asyncio.sleep(1.0)
        self._look_at_placement()

    def _misplaced(self) -> list[str]:
        """Return the bundles of the namespace that another broker has than the one it is bound
        to.
        """
        return [
            f"{name} has {bundle}"
            for name, broker in self.cluster.brokers_up()
            for bundle in broker._ownership.owned.bundles()
            if (bundle.tenant, bundle.namespace) == _NAMESPACE and name != self._bound_to
        ]

    def _look_at_placement(self) -> None:
        if self._bound_to:
            for what in self._misplaced():
                self.oracle.report(
                    "misplaced", f"{what}, although its namespace is bound to {self._bound_to}"
                )

    async def _look_inside(self) -> None:
        """Check what nodes and disks hold, now that no process uses them."""
        invariants = self.invariants
        self._look_at_placement()
        if self.settings.repair:
            await wait_until_repaired(
                self.cluster,
                Operator(self._stage, self.cluster, self.sim.nodes["final"]),
                invariants,
            )
        if "orphans" in self.extras:
            await wait_until_no_orphans(self.sim, invariants, self.oracle.report)
            self.counts.orphans_deleted += sum(
                broker.orphans.deleted_count for _, broker in self.cluster.brokers_up()
            )
        await wait_until_collected(self.cluster, self.oracle.report)
        invariants.look()
        names = [
            _WORK,
            _ANCHOR,
            SEEKER,
            MOVER,
            TURNER,
            KEEPER,
            KEYED,
            STRANGER,
            PARCELS,
            SIFTED,
            LATEST,
            DUEL,
            *SUBSCRIPTIONS,
            DEDUP_CURSOR,
        ]
        invariants.look_at_nodes(names, besides=HOSTILE_NAMES)
        await look_for_garbage(self.cluster, self.oracle.report)
        if self.fleeting is not None:
            self.fleeting.look(invariants)
        invariants.look_at_lists()
        self.counts.indexes_rebuilt += self.cluster.indexes_rebuilt
        self.counts.journals_given_up += self.cluster.journals_given_up
        if self.settings.repair:
            self.counts.missing_copies += await wait_until_copied(self._look_at_disks, self.sim)
        self.counts.copies_checked += await self._look_at_disks(self.oracle.report)
        self.counts.cores_checked += invariants.checks_count
        self.counts.orphans += len(invariants.orphans())
        await check_let_go(self.cluster, self._well_since, self.oracle.report)

    async def _look_at_disks(self, report: Callable[[str, str], None]) -> int:
        destroyed = [*self.plan.emptied, *self.cluster.unread] if self.plan is not None else []
        return await look_at_disks(
            self.cluster, self.invariants.known(), destroyed, report, repaired=self.settings.repair
        )

    async def _well(self, what: str, name: str, work: Callable[[World], Awaitable[T]]) -> T | None:
        """Do something that must be possible now. A failure is an anomaly."""

        async def inside(world: World) -> T:
            return await work(world)

        try:
            async with asyncio.timeout(2 * _WIND_UP_SECONDS):
                return await self.sim.nodes[name].run(inside)
        except (PulsarishError, TimeoutError, NodeDied) as error:
            self.oracle.report(
                "not-live",
                f"{what} was not possible although all is well: {type(error).__name__}: {error}",
            )
            return None


def run_seed(
    seed: int,
    *,
    kinds: Sequence[str] = ALL_KINDS,
    faults: Sequence[Fault] | None = None,
    settings: ClusterSettings | None = None,
    planned: Callable[[Sequence[Fault]], object] | None = None,
    extras: Sequence[str] = EXTRAS,
    attacks: Sequence[str] = (),
) -> Result:
    """Run one seed.

    Args:
        faults: replays a plan instead of drawing one.
        extras: optional programs, of which a seed draws some. Without any, seeds from before there
            were extras keep their runs.
        attacks: what a hostile peer does, which then takes part in every seed. Empty: any attack,
            where the seed draws a hostile peer.
        planned: called with the plan before it begins, so that the plan is known even when the run
            raises.

    Raises what the simulation raises (``SimulationFailed`` when a node's task died of an unexpected
    error, ``Deadlock``, ``TimeLimit``).
    """
    sim = Simulation(seed)
    drawn = draw_cluster(random.Random(f"{seed}:cluster"))
    taking_part = extras_of(seed, extras)
    if attacks and "hostile" not in taking_part:
        taking_part.append("hostile")
    if "tight" in taking_part:
        drawn = replace(drawn, limits=draw_limits(extra_stream(seed, "tight")))
    if "parcels" in taking_part:
        drawn = replace(
            drawn, limits=with_small_buckets(drawn.limits, extra_stream(seed, "buckets"))
        )
    if "orphans" in taking_part:
        drawn = replace(drawn, limits=with_orphans_deleted(drawn.limits))
    if "wide" in taking_part:
        drawn = widen(drawn, extra_stream(seed, "wide"))
    if "moves" in taking_part or "placement" in taking_part:
        drawn = replace(drawn, balances=True)
    if "hostile" in taking_part:
        drawn = with_small_peer_limits(drawn)
        # A peer without rights is ended before it can send anything.
        taking_part = [name for name in taking_part if name != "locked"]
    with ExitStack() as stack:
        directory = None
        if "locked" in taking_part:
            directory = Path(stack.enter_context(TemporaryDirectory()))
        run = _Run(sim, settings or drawn, kinds, faults, planned, taking_part, attacks, directory)
        stack.enter_context(logs_into(sim.trace))
        sim.run(run.run, max_virtual_seconds=600 + _LONG_SECONDS)
    if run.oracle.finals:
        run.judge()
    counts = run.counts
    counts.node_ends = sum(len(node.ends) for node in sim.nodes.values())
    trace = sim.story()
    counts.acquired = trace.count("broker.ownership: bundle acquired")
    counts.ledgers = trace.count("managed_ledger: a new ledger took over")
    counts.trimmed = trace.count("managed_ledger: trimmed")
    return Result(
        seed,
        run.settings,
        run.plan.faults if run.plan else [],
        run.oracle.anomalies,
        counts,
        sim.trace_hash(),
        trace,
    )
