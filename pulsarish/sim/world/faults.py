"""Faults of a run and their times: a plan that the seed draws, and that can be printed, replayed
and reduced.

This is swarm testing: each seed first chooses which kinds of faults it uses and how often they
come. So some runs have only crashes and others only slow links. At the end of the plan everything
is healed: links are open, disks work, paused nodes run, dead nodes are started.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pulsarish.bookie.cookies import COOKIE_NAME
from pulsarish.model.errors import ConfigError, CorruptData
from pulsarish.sim.world.disk_faults import OLDER_SECONDS, DiskFaults, DiskOperator
from pulsarish.sim.world.metadata_service import METADATA, copy_of

if TYPE_CHECKING:
    from pulsarish.sim.world.world import Simulation

__all__ = [
    "ALL_KINDS",
    "DESTRUCTIVE",
    "HARSH_KINDS",
    "Fault",
    "FaultPlan",
    "bearable",
    "draw_faults",
    "draw_harsh",
]

ALL_KINDS = (
    "crash",
    "pause",
    "cut",
    "isolate",
    "clog",
    "swizzle",
    "reset",
    "slow_node",
    "fail_sync",
    "slow_disk",
    "full_disk",
    "fail_reads",
    "rot",
    "wipe",
    "lose_answers",
    "late_watches",
    "loose_watches",
    "stale_reads",
    "slow_metadata",
    "break_session",
    "expire_session",
    "drift",
    "jump_wall",
)

# Later kinds: seeds with ``harsh`` use some of them. Each is drawn from a stream of its own, so the
# draws of the others do not move.
HARSH_KINDS = (
    "fail_writes",
    "short_writes",
    "refuse",
    "suspend",
    "garble",
    "restart_metadata",
    "rot_index",
    "older_metadata",
    "older_disk",
)

# These kinds destroy durable data. Only one machine of a run meets them: replication cannot help
# when all copies are destroyed.
DESTRUCTIVE = ("rot", "wipe", "rot_index", "older_disk")
# The kinds among them that leave the entries on the disk.
_ENTRIES_STAY = ("rot_index",)
KIND_CHANCE = 0.4  # the chance that a seed uses a kind of fault
MEAN_PAUSE_SECONDS = (0.5, 8.0)  # between two faults of a kind; drawn once for each seed and kind
LASTS_SECONDS = (0.02, 12.0)


def bearable(kinds: Sequence[str], ack_quorum: int) -> list[str]:
    """Return the kinds that the promises cover.

    Where one copy is enough to acknowledge, no copy may be destroyed.
    """
    return [kind for kind in kinds if ack_quorum > 1 or kind not in DESTRUCTIVE]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. ``amount`` is between 0 and 1; the kind decides what it means."""

    at_seconds: float
    kind: str
    node: str
    peer: str
    lasts_seconds: float
    amount: float


def draw_faults(
    random_stream: random.Random,
    nodes: Sequence[str],
    peers: Sequence[str],
    seconds: float,
    kinds: Sequence[str] = ALL_KINDS,
    destroyed: str = "",
) -> list[Fault]:
    """Return a plan for ``seconds``, in order of time: faults of ``nodes``, and of links between
    them and ``peers``.

    Faults that destroy durable data hit ``destroyed`` only. If it is empty, they hit one of
    ``nodes``.
    """
    faults: list[Fault] = []
    destroyed = destroyed or random_stream.choice(list(nodes))
    for kind in kinds:
        faults += _draw_kind(
            random_stream, kind, [destroyed] if kind in DESTRUCTIVE else nodes, peers, seconds
        )
    return _in_order(faults)


def draw_harsh(
    seed: int,
    nodes: Sequence[str],
    seconds: float,
    disks: Sequence[str],
    kinds: Sequence[str] = HARSH_KINDS,
    destroyed: str = "",
) -> list[Fault]:
    """Return faults of ``HARSH_KINDS``.

    A fault of a disk hits one of ``disks``. A fault that destroys data hits ``destroyed``, or the
    first of ``disks``.
    """
    faults: list[Fault] = []
    for kind in kinds:
        mine = (
            disks
            if kind in ("fail_writes", "short_writes")
            else [destroyed or disks[0]]
            if kind in DESTRUCTIVE
            else nodes
        )
        faults += _draw_kind(
            random.Random(f"{seed}:faults:{kind}"), kind, mine, [METADATA], seconds
        )
    return faults


def _draw_kind(
    rng: random.Random, kind: str, nodes: Sequence[str], peers: Sequence[str], seconds: float
) -> Iterator[Fault]:
    draw = rng.random
    if draw() >= KIND_CHANCE:
        return
    mean = rng.uniform(*MEAN_PAUSE_SECONDS)
    at = rng.expovariate(1 / mean)
    while at < seconds:
        node = nodes[0] if kind in DESTRUCTIVE else rng.choice(list(nodes))
        peer = rng.choice([peer for peer in peers if peer != node])
        # The durations are uniform in the logarithm: short ones are as likely as long ones at any
        # scale.
        shortest, longest = LASTS_SECONDS
        lasts = shortest * (longest / shortest) ** draw()
        yield Fault(at, kind, node, peer, min(lasts, seconds - at), draw())
        at += rng.expovariate(1 / mean)


def _in_order(faults: Sequence[Fault]) -> list[Fault]:
    return sorted(faults, key=lambda fault: fault.at_seconds)


class FaultPlan:
    """The faults of one run. ``start`` sets their timers. After ``seconds`` everything is healed.

    ``nodes`` may fail. Links are cut between them and any node of the simulation or the metadata
    service. A program that must end because of a disk error is expected to end, and is restarted.
    ``faults`` replays a given list instead of drawing one. ``harsh`` names those of ``HARSH_KINDS``
    that are also drawn. ``servers`` check the age of the metadata; without servers the metadata
    never come back older. ``storage`` is an operator who knows the bookies; without one no index is
    damaged and no disk comes back older.
    """

    def __init__(
        self,
        sim: Simulation,
        nodes: Sequence[str],
        seconds: float,
        *,
        kinds: Sequence[str] = ALL_KINDS,
        faults: Sequence[Fault] | None = None,
        expendable: Sequence[str] = (),
        harsh: Sequence[str] = (),
        servers: Sequence[str] = (),
        storage: DiskOperator | None = None,
    ) -> None:
        self.sim = sim
        self.servers = list(servers)
        self._disks = DiskFaults(sim, storage)
        self.nodes = list(nodes)
        self.seconds = seconds
        self.peers = [*sim.nodes, METADATA]
        self._healed = False
        if faults is None:
            disks = list(expendable or self.nodes)
            destroyed = sim.faults.choice(disks)
            drawn = draw_faults(sim.faults, self.nodes, self.peers, seconds, kinds, destroyed)
            faults = _in_order(
                [*drawn, *draw_harsh(sim.seed, self.nodes, seconds, disks, harsh, destroyed)]
            )
        self.faults = list(faults)

    @property
    def destroyed(self) -> list[str]:
        """Return the machines that lose something durable, and may not start again."""
        return sorted({fault.node for fault in self.faults if fault.kind in DESTRUCTIVE})

    @property
    def emptied(self) -> list[str]:
        """Return those of ``destroyed`` that may miss entries which they had.

        A damaged index is rebuilt and then names all entries again, so its machine is not among
        them.
        """
        gone = {
            fault.node
            for fault in self.faults
            if fault.kind in DESTRUCTIVE and fault.kind not in _ENTRIES_STAY
        }
        return sorted(
            gone | {name for name in self.destroyed if self.sim.nodes[name].disk.wipes_count}
        )

    def start(self) -> None:
        for name in self.destroyed:
            # The bookie may find that it cannot vouch for its data, and then it does not start.
            self.sim.nodes[name].expect_at_start(CorruptData, ConfigError)
        for name in self.nodes:
            node = self.sim.nodes[name]
            if node.restart_after_seconds is None:
                node.restart_after_seconds = 1.0
        for fault in self.faults:
            if fault.kind == "full_disk":
                self.sim.nodes[fault.node].full_disk_ends = True
            self._begin_later(fault)
        self.sim.at(self.seconds, self.heal)

    def _begin_later(self, fault: Fault) -> None:
        begin = getattr(self, f"_{fault.kind}")
        self.sim.at(fault.at_seconds, lambda: self._begin(fault, begin))

    def _begin(self, fault: Fault, begin: Callable[[Fault], Callable[[], object] | None]) -> None:
        self.sim.trace(
            f"fault {fault.kind} {fault.node} {fault.peer} {fault.lasts_seconds:.3f} "
            f"{fault.amount:.3f}"
        )
        end = begin(fault)
        if end is not None:
            self.sim.at(fault.lasts_seconds, end)

    def heal(self) -> None:
        """End every fault, resume and restart every node."""
        self.sim.trace("fault heal all")
        self._healed = True
        self.sim.network.heal_all()
        self.sim.metadata.heal()
        for name in self.nodes:
            node = self.sim.nodes[name]
            node.disk.heal()
            node.resume()
            node.revive()
        self._disks.heal()

    # -- the kinds: each begins its fault and returns what ends it

    def _crash(self, fault: Fault) -> Callable[[], object]:
        node = self.sim.nodes[fault.node]
        node.crash()
        return node.revive

    def _pause(self, fault: Fault) -> Callable[[], object]:
        node = self.sim.nodes[fault.node]
        node.pause()
        return node.resume

    def _cut(self, fault: Fault) -> Callable[[], object]:
        source, target = (
            (fault.node, fault.peer) if fault.amount < 0.5 else (fault.peer, fault.node)
        )
        self.sim.network.cut(source, target)
        return lambda: self.sim.network.heal(source, target)

    def _isolate(self, fault: Fault) -> Callable[[], object]:
        # From all nodes, or from the metadata service alone.
        others = (
            [peer for peer in self.peers if peer != fault.node]
            if fault.amount < 0.5
            else [METADATA]
        )
        network = self.sim.network
        network.partition([fault.node], others)

        def end() -> None:
            for other in others:
                network.heal(fault.node, other)
                network.heal(other, fault.node)

        return end

    def _clog(self, fault: Fault) -> Callable[[], object]:
        self.sim.network.clog(fault.node, fault.peer)
        return lambda: self.sim.network.heal(fault.node, fault.peer)

    def _swizzle(self, fault: Fault) -> None:
        """Clog some links of the node one after the other, each in one direction or both.

        Open them in another order.
        """
        sim = self.sim
        rng = random.Random(f"{sim.seed}:{fault.at_seconds}:swizzle")
        links = [
            link
            for peer in self.peers
            if peer != fault.node
            for link in ((fault.node, peer), (peer, fault.node))
        ]
        links = [link for link in links if rng.random() < fault.amount]
        rng.shuffle(links)
        step = fault.lasts_seconds / (2 * len(links) + 1)
        for number, link in enumerate(links):
            sim.at(number * step, partial(self._clog_link, *link))
        rng.shuffle(links)
        for number, link in enumerate(links):
            sim.at((len(links) + number) * step, partial(sim.network.heal, *link))

    def _clog_link(self, source: str, target: str) -> None:
        if not self._healed:
            self.sim.network.clog(source, target)

    def _reset(self, fault: Fault) -> None:
        self.sim.network.reset(fault.node, fault.amount)

    def _slow_node(self, fault: Fault) -> Callable[[], object]:
        self.sim.network.slow(fault.node, fault.amount)
        return lambda: self.sim.network.slow(fault.node, 0.0)

    def _fail_sync(self, fault: Fault) -> None:
        self.sim.nodes[fault.node].disk.fail_next_sync()

    def _slow_disk(self, fault: Fault) -> Callable[[], object]:
        disk = self.sim.nodes[fault.node].disk
        disk.slowness = 1 + 500 * fault.amount**2

        def end() -> None:
            disk.slowness = 1.0

        return end

    def _full_disk(self, fault: Fault) -> Callable[[], object]:
        disk = self.sim.nodes[fault.node].disk
        well = disk.capacity_bytes
        disk.capacity_bytes = disk.used_bytes() + int(fault.amount * 64 * 1024)

        def end() -> None:
            disk.capacity_bytes = max(well, disk.capacity_bytes)

        return end

    def _fail_reads(self, fault: Fault) -> Callable[[], object]:
        disk = self.sim.nodes[fault.node].disk
        disk.read_failure_chance = fault.amount / 2

        def end() -> None:
            disk.read_failure_chance = 0.0

        return end

    def _fail_writes(self, fault: Fault) -> Callable[[], object]:
        disk = self.sim.nodes[fault.node].disk
        disk.write_failure_chance = fault.amount / 4

        def end() -> None:
            disk.write_failure_chance = 0.0

        return end

    def _short_writes(self, fault: Fault) -> Callable[[], object]:
        disk = self.sim.nodes[fault.node].disk
        disk.short_write_chance = fault.amount / 4

        def end() -> None:
            disk.short_write_chance = 0.0

        return end

    def _refuse(self, fault: Fault) -> Callable[[], object]:
        self.sim.network.refuse(fault.node, True)
        return lambda: self.sim.network.refuse(fault.node, False)

    def _suspend(self, fault: Fault) -> Callable[[], object]:
        node = self.sim.nodes[fault.node]
        node.suspend()
        return node.resume

    def _garble(self, fault: Fault) -> Callable[[], object]:
        self.sim.network.garble(fault.node, fault.amount / 4)
        return lambda: self.sim.network.garble(fault.node, 0.0)

    def _rot(self, fault: Fault) -> None:
        disk = self.sim.nodes[fault.node].disk
        place = disk.draw_place()
        if place is None:
            return
        if fault.amount < 0.5:
            disk.flip_bit(*place, bit=int(fault.amount * 16))
        else:
            disk.spoil_sector(*place)

    def _rot_index(self, fault: Fault) -> None:
        self._disks.rot_index(fault)

    def _older_disk(self, fault: Fault) -> None:
        # Older metadata know less of the journal. No promise covers both faults at once.
        if all(each.kind != "older_metadata" for each in self.faults):
            self._disks.older_disk(fault)

    def _wipe(self, fault: Fault) -> Callable[[], object]:
        """Restart the machine without its data: with nothing at all, or with only the files that
        identify it.
        """
        node = self.sim.nodes[fault.node]
        node.crash()
        node.disk.wipe(keep="" if fault.amount < 0.5 else COOKIE_NAME)
        return node.revive

    def _lose_answers(self, fault: Fault) -> Callable[[], object]:
        return self._chance("lost_answer_chance", fault.amount / 2)

    def _late_watches(self, fault: Fault) -> Callable[[], object]:
        return self._chance("late_watch_chance", fault.amount)

    def _loose_watches(self, fault: Fault) -> Callable[[], object]:
        return self._chance("loose_watch_chance", fault.amount)

    def _chance(self, name: str, chance: float) -> Callable[[], object]:
        setattr(self.sim.metadata, name, chance)
        return lambda: setattr(self.sim.metadata, name, 0.0)

    def _stale_reads(self, fault: Fault) -> Callable[[], object]:
        session_id = self.sim.nodes[fault.node].session_id
        self.sim.metadata.lag(session_id)
        return lambda: self.sim.metadata.catch_up(session_id)

    def _slow_metadata(self, fault: Fault) -> Callable[[], object]:
        return self._chance("slow_write_chance", fault.amount)

    def _restart_metadata(self, _fault: Fault) -> Callable[[], object]:
        self.sim.metadata.stop()
        return self.sim.metadata.start

    def _older_metadata(self, fault: Fault) -> None:
        """Restart the service without the commits of the last seconds, until an operator puts the
        newer tree back.

        Do nothing when a running server has seen none of these commits. It would continue with the
        older tree, and the newer tree would then look older.
        """
        service = self.sim.metadata
        if service.newer is not None or not self.servers:
            return
        older = copy_of(service.tree)

        def go_back() -> None:
            servers = [self.sim.nodes[name].world for name in self.servers]
            if not self._healed and all(
                world is None or world.metadata.zxid > older.zxid for world in servers
            ):
                service.go_back(older)
                self.sim.at(fault.lasts_seconds, service.bring_back)

        self.sim.at(OLDER_SECONDS * (1 + fault.amount), go_back)

    def _break_session(self, fault: Fault) -> None:
        self.sim.metadata.break_connection(self.sim.nodes[fault.node].session_id)

    def _expire_session(self, fault: Fault) -> None:
        self.sim.metadata.expire(self.sim.nodes[fault.node].session_id)

    def _drift(self, fault: Fault) -> None:
        self.sim.nodes[fault.node].clock.rate = 0.99 + 0.02 * fault.amount

    def _jump_wall(self, fault: Fault) -> None:
        self.sim.nodes[fault.node].clock.wall_offset_ms += int((fault.amount - 0.5) * 2 * 3_600_000)
