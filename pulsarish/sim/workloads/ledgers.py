"""Ledgers under faults: writers, rival recoverers and followers on the real bookies, and the oracle
that watches them.

What must hold, whatever fails (rules 2 to 8; the invariants of the published BookKeeper
specification by their names there):

* an entry that was confirmed is in the closed ledger and every reader gets exactly its bytes
  (AllAckedEntriesAreReadable);
* two recoverers agree, and a closed ledger never changes (NoDivergence);
* no entry is confirmed beyond the end of a closed ledger, nor one that was appended after the
  ledger's deletion was answered;
* no reader that does not recover sees a LAC above what the writer has confirmed (no dirty reads);
* after everything has healed, every ledger can be recovered and read (liveness);
* then Qa members of the ensembles in the metadata have each entry
  (AllCommittedEntriesReachAckQuorum).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from msgspec.structs import replace as replace_fields

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.config import BookieConfig
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.replicator import Replicator
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.model.errors import EntryUnknown, NoSuchLedger, PulsarishError
from pulsarish.model.ledger_metadata import LedgerPurpose, LedgerState, PurposeKind
from pulsarish.runtime.seams import World
from pulsarish.sim.cluster.disk_audit import look_at_disks
from pulsarish.sim.workloads.ledger_oracle import LedgerCounts, LedgerHistory, LedgerOracle
from pulsarish.sim.workloads.safeguard import replaced
from pulsarish.sim.world.faults import FaultPlan
from pulsarish.sim.world.flaky_calls import FlakyCalls
from pulsarish.sim.world.nodes import Node, NodeDied
from pulsarish.sim.world.world import Simulation

__all__ = ["LEDGER_FAULTS", "LedgerSettings", "bookie_config", "run_ledgers"]

T = TypeVar("T")

LEDGER_FAULTS: Final = (
    "crash",
    "pause",
    "cut",
    "isolate",
    "clog",
    "slow_node",
    "fail_sync",
    "slow_disk",
    "fail_reads",
    "lose_answers",
    "late_watches",
    "slow_metadata",
    "break_session",
    "expire_session",
    "drift",
)

_OPTIONS: Final = LedgerOptions(
    add_timeout_ms=800,
    heartbeat_interval_ms=500,
    check_interval_ms=100,
    read_timeout_ms=600,
    control_timeout_ms=800,
    quarantine_ms=2_000,
    explicit_lac_interval_ms=200,
    window_entries=64,
    message_bytes_target=2_048,
    recovery_read_entries=7,
    recovery_copies_wait_ms=50,
    ledger_id_block=3,
)
_SETTLE_SECONDS: Final = 30.0
_FINAL_SECONDS: Final = 120.0
_LOOKED_AT_MAX: Final = 8
"""Ledgers whose copies are counted at the end."""
_QUORUMS: Final = ((3, 3, 2), (3, 3, 2), (3, 2, 2), (2, 2, 2), (3, 3, 3))


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """Amounts of load and faults. ``seconds`` is how long both last."""

    bookies: int = 4
    writers: int = 2
    rivals: int = 2
    """Clients that recover at the same time."""
    endings: Sequence[str] = ("close", "leave", "fight")
    """What writers do at the end: close, leave without closing, or continue until they are
    stopped.
    """
    recovery_pause_seconds: float = 0.6
    """The longest pause between two recoveries."""
    recovery_lag_ledgers: int = 0
    """Number of the newest ledgers that are not recovered, so that recovered ledgers have left the
    bookies' memory.
    """
    deletion_chance: float = 0.08
    """The chance that a ledger is deleted instead of recovered."""
    seconds: float = 12.0
    kinds: Sequence[str] = LEDGER_FAULTS
    quorums: Sequence[tuple[int, int, int]] = _QUORUMS
    swizzle_seconds: float = 0.0
    """Mean pause between short cuts and clogs of single links from clients to bookies, one way; 0:
    none.
    """
    blackout_seconds: float = 0.0
    """Mean pause between crashes of all bookies at once; 0: none."""
    lost_call_chance: float = 0.0
    """The chance that a call of a rival is lost: the request or the answer."""
    broken_stream_seconds: float = 0.0
    """Mean pause between breaks of the writers' add streams; 0: none."""
    slow_write_chance: float = 0.0
    """The chance that a write of metadata is slow, during the whole run."""
    broken_recovery_seconds: float = 0.0
    """Mean pause between breaks of the rivals' add streams; 0: none."""
    recoveries_at_once: int = 1
    """Ledgers that a rival recovers at a time."""
    queue_bytes: int = 0
    """Bytes that may wait for one bookie in a rival, so small that recoveries wait for room; 0: the
    usual number.
    """
    bad_disk_seconds: float = 0.0
    """Mean pause between bad sectors in the first bookie's entry logs; 0: none."""


def bookie_config(name: str) -> BookieConfig:
    """Return the configuration of a bookie with little room: its files roll and its cache is
    flushed in a short run.
    """
    return BookieConfig(
        bookie_id=name,
        listen_address=f"{name}:3181",
        http_address="",
        host=name,
        data_directory="/data",
        journal_file_size_bytes=1 << 15,
        journal_group_size_bytes=1 << 13,
        write_cache_size_bytes=1 << 14,
        read_cache_size_bytes=1 << 14,
        read_ahead_cache_size_bytes=1 << 13,
        read_ahead_batch_size_bytes=1 << 11,
        entry_log_size_bytes=1 << 15,
        checkpoint_interval_seconds=1.5,
        read_only_free_bytes=1 << 18,
        reserved_bytes=1 << 17,
        # Garbage collection forgets a deleted ledger with its fence. Another workload tests that.
        gc_interval_seconds=3_600.0,
    )


class _Workload:
    """One run.

    Actors are coroutines of the scenario. What they do on a node runs in that node and dies with
    it.
    """

    def __init__(self, sim: Simulation, settings: LedgerSettings, oracle: LedgerOracle) -> None:
        self.sim = sim
        self.oracle = oracle
        self.counts = oracle.counts
        self._settings = settings
        self._rng = sim.workload
        self._clients: dict[str, tuple[int, LedgerClient]] = {}
        # by name and life: a life that ends leaves its lock held
        self._starting: dict[tuple[str, int], asyncio.Lock] = {}
        self._lives: dict[str, tuple[int, Bookie]] = {}  # by name, with the life of the node
        self._over = False

    async def run(self) -> None:
        settings, sim = self._settings, self.sim
        sim.metadata.slow_write_chance = settings.slow_write_chance
        bookies = [f"bookie{number}" for number in range(settings.bookies)]
        for name in bookies:
            node = sim.node(name, self._bookie(name))
            node.restart_after_seconds = 1.0
        writers = [sim.node(f"writer{number}") for number in range(settings.writers)]
        rivals = [sim.node(f"rival{number}") for number in range(settings.rivals)]
        follower = sim.node("follower")
        for node in (*writers, *rivals, follower):
            node.restart_after_seconds = 0.5
        await asyncio.sleep(2.0)
        plan = FaultPlan(
            sim,
            [*bookies, *(node.name for node in writers), *(node.name for node in rivals[:1])],
            settings.seconds,
            kinds=settings.kinds,
        )
        plan.start()
        sim.at(settings.seconds, self._end_load)
        if settings.swizzle_seconds:
            # Rivals that lose single calls have enough faults.
            clients = [
                node.name for node in (*writers, *(() if settings.lost_call_chance else rivals))
            ]
            self._after(settings.swizzle_seconds, lambda: self._swizzle(clients, bookies))
        if settings.blackout_seconds:
            self._after(settings.blackout_seconds, lambda: self._blackout(bookies))
        if settings.broken_stream_seconds:
            self._after(settings.broken_stream_seconds, lambda: self._break_stream("writer"))
        if settings.broken_recovery_seconds:
            self._after(settings.broken_recovery_seconds, lambda: self._break_stream("rival"))
        if settings.bad_disk_seconds:
            self._after(settings.bad_disk_seconds, lambda: self._bad_disk(bookies[0]))
        await asyncio.gather(
            *(self._write(node) for node in writers), self._recover(rivals), self._follow(follower)
        )
        await asyncio.sleep(_SETTLE_SECONDS)
        await self._final(sim.node("final"))

    def _end_load(self) -> None:
        self._over = True

    def _bookie(self, name: str) -> Callable[[World], Coroutine[Any, Any, None]]:
        async def main(world: World) -> None:
            bookie = Bookie(world, bookie_config(name))
            self._lives[name] = self.sim.nodes[name].incarnation, bookie
            await bookie.run()

        return main

    def bookies_up(self) -> Iterator[tuple[str, Bookie]]:
        """Yield the bookies that serve."""
        for name, (incarnation, bookie) in self._lives.items():
            node = self.sim.nodes[name]
            if node.alive and node.incarnation == incarnation and bookie.is_ready:
                yield name, bookie

    # -- faults that are not in the plan

    def _after(self, mean_seconds: float, action: Callable[[], None]) -> None:
        """Do something again and again during the load."""

        def act() -> None:
            if not self._over:
                action()
                self.sim.at(self.sim.faults.expovariate(1 / mean_seconds), act)

        self.sim.at(self.sim.faults.expovariate(1 / mean_seconds), act)

    def _swizzle(self, clients: Sequence[str], bookies: Sequence[str]) -> None:
        rng, network = self.sim.faults, self.sim.network
        ends = [rng.choice(list(clients)), rng.choice(list(bookies))]
        source, target = ends if rng.random() < 0.7 else reversed(ends)
        if network.state(source, target) != "open":
            return
        (network.cut if rng.random() < 0.6 else network.clog)(source, target)
        self.sim.at(0.005 * 100 ** rng.random(), lambda: network.heal(source, target))

    def _break_stream(self, client: str) -> None:
        """Reset a connection. The client counts the bookie as failed although it is alive."""
        open_ones = self.sim.network._streams.values()
        streams = [
            stream
            for stream in open_ones
            if stream.process.node.name.startswith(client) and stream.peer.startswith("bookie")
        ]
        if streams:
            self.sim.faults.choice(streams).abort("the connection was reset")

    def _blackout(self, bookies: Sequence[str]) -> None:
        for name in bookies:
            node = self.sim.nodes[name]
            node.crash()
            self.sim.at(self.sim.faults.uniform(0.1, 1.0), node.revive)

    def _bad_disk(self, bookie: str) -> None:
        disk = self.sim.nodes[bookie].disk
        place = disk.draw_place(".log")
        if place is not None:
            disk.spoil_sector(*place)

    # -- work on a node

    async def _on(
        self, node: Node, work: Callable[..., Coroutine[Any, Any, T]], *arguments: object
    ) -> T | None:
        """Run ``work(client, world, *arguments)`` on a node.

        Return ``None`` when the node dies or the cluster refuses.
        """

        async def inside(world: World) -> T:
            if node.name.startswith("rival") and self._settings.lost_call_chance:
                world = replace(
                    world,
                    connections=FlakyCalls(
                        world.connections, self.sim.faults, self._settings.lost_call_chance
                    ),
                )
            async with self._starting.setdefault((node.name, node.incarnation), asyncio.Lock()):
                known = self._clients.get(node.name)
                if known is None or known[0] != node.incarnation:
                    known = node.incarnation, LedgerClient(world, self._client_options(node))
                    await known[1].start()
                    self._clients[node.name] = known
            return await work(known[1], world, *arguments)

        try:
            return await node.run(inside)
        except NodeDied:
            await asyncio.sleep(0.3)
        except PulsarishError as error:
            self.sim.trace(f"refused on {node}: {type(error).__name__}")
            if error.retryable:
                self.counts.undecided += 1
            await asyncio.sleep(self._rng.uniform(0.01, 0.3))
        return None

    def _client_options(self, node: Node) -> LedgerOptions:
        size = self._settings.queue_bytes
        if not size or not node.name.startswith("rival"):
            return _OPTIONS
        # Far below what a configuration allows.
        return replace_fields(_OPTIONS, bookie_queue_bytes=size, message_bytes_target=size // 4)

    # -- actors

    async def _write(self, node: Node) -> None:
        while not self._over:
            ending = self._rng.choice(list(self._settings.endings))
            quorums = self._rng.choice(list(self._settings.quorums))
            await self._on(node, self._write_one, ending, quorums)

    async def _write_one(
        self, client: LedgerClient, world: World, ending: str, quorums: tuple[int, int, int]
    ) -> None:
        rng, counts = self._rng, self.counts
        history = LedgerHistory(-1)
        writer = await client.create(
            ensemble_size=quorums[0],
            write_quorum=quorums[1],
            ack_quorum=quorums[2],
            purpose=LedgerPurpose(PurposeKind.DIAGNOSTIC, "simulation"),
            listener=history,
        )
        history.ledger_id = writer.ledger_id
        self.oracle.ledgers.append(history)
        counts.ledgers += 1
        counts.below_policy += writer.metadata.below_policy
        try:
            await self._append(writer, world, history, ending)
            if ending == "close":
                history.closed(await writer.close())
                counts.closed_by_writer += 1
            elif ending == "leave":
                await world.clock.sleep(rng.uniform(0, 0.5))
                writer.abandon()
        finally:
            counts.stopped_writers += history.stopped_by is not None
            counts.ensemble_changes += len(writer.metadata.segments) - 1

    async def _append(
        self, writer: LedgerWriter, world: World, history: LedgerHistory, ending: str
    ) -> None:
        """Append bursts with pauses. A writer that fights continues until it is stopped."""
        rng = self._rng
        bursts = rng.randrange(1, 25)
        pause = rng.choice((0.004, 0.02, 0.05, 0.3))
        while not self._over and (bursts > 0 or ending == "fight"):
            bursts -= 1
            for _ in range(rng.randrange(1, 8)):
                await writer.wait_for_room()
                payload = b"%d:%d:%d" % (
                    writer.ledger_id,
                    len(history.payloads),
                    rng.getrandbits(64),
                )
                payload += b"." * rng.choice((0, 0, 50, 900))
                entry_id = writer.append(payload)
                assert entry_id == len(history.payloads)
                history.payloads.append(payload)
            await world.clock.sleep(pause * rng.random())

    async def _recover(self, rivals: list[Node]) -> None:
        """Recover with two clients, mostly at once, mostly the newest ledger, which its writer
        mostly still writes to.
        """
        rng = self._rng
        while rivals and not self._over:
            await asyncio.sleep(rng.uniform(0.0, self._settings.recovery_pause_seconds))
            old_ones = self.oracle.ledgers[
                : len(self.oracle.ledgers) - self._settings.recovery_lag_ledgers
            ]
            open_ones = [history for history in old_ones[-6:] if not history.deleting]
            if not open_ones:
                continue
            history = open_ones[-1] if rng.random() < 0.6 else rng.choice(open_ones)
            if rng.random() < self._settings.deletion_chance:
                await self._on(rivals[0], self._delete, history)
                continue
            gap = rng.choice((0.0, 0.0, 0.002, 0.05))
            together = [history]
            if self._settings.recoveries_at_once > 1:
                others = [other for other in open_ones if other is not history]
                together += rng.sample(
                    others, min(len(others), self._settings.recoveries_at_once - 1)
                )
            await asyncio.gather(
                *(
                    self._on(rival, self._open, each, number * gap)
                    for each in together
                    for number, rival in enumerate(rivals)
                )
            )

    async def _open(
        self, client: LedgerClient, world: World, history: LedgerHistory, wait_seconds: float
    ) -> None:
        await world.clock.sleep(wait_seconds)
        known = history.end is not None
        confirmed = history.last_confirmed
        try:
            reader = await client.open(history.ledger_id)
        except NoSuchLedger:
            assert history.deleting
            return
        history.closed(reader.metadata)
        if not known:
            self.counts.recovered += 1
            self.counts.recovered_entries += reader.metadata.last_entry - confirmed
        await self._read_all(reader, history)

    async def _delete(self, client: LedgerClient, _world: World, history: LedgerHistory) -> None:
        history.deleting = True
        await client.delete(history.ledger_id)
        history.deleted_at = len(history.payloads)
        self.counts.deleted += 1

    async def _read_all(self, reader: LedgerReader, history: LedgerHistory) -> None:
        entry_id = 0
        while entry_id <= reader.last_add_confirmed:
            for entry in await reader.read(entry_id, reader.last_add_confirmed, max_bytes=4_096):
                assert entry.entry_id == entry_id
                history.read(entry_id, bytes(entry.payload))
                entry_id += 1

    async def _follow(self, node: Node) -> None:
        rng = self._rng
        while not self._over:
            await asyncio.sleep(rng.uniform(0.05, 0.5))
            if (
                self.oracle.ledgers
                and not (history := rng.choice(self.oracle.ledgers[-3:])).deleting
            ):
                await self._on(node, self._follow_one, history)

    async def _follow_one(
        self, client: LedgerClient, _world: World, history: LedgerHistory
    ) -> None:
        try:
            reader = await client.open_no_recovery(history.ledger_id)
            for _ in range(3):
                self._check_lac(reader, history)
                first = max(0, reader.last_add_confirmed - 5)
                if first <= reader.last_add_confirmed:
                    for entry in await reader.read(
                        first, reader.last_add_confirmed, max_bytes=2_048
                    ):
                        history.read(entry.entry_id, bytes(entry.payload))
                        self.counts.followed += 1
                await reader.refresh(wait_seconds=0.2)
        except NoSuchLedger:
            assert history.deleting

    def _check_lac(self, reader: LedgerReader, history: LedgerHistory) -> None:
        if reader.metadata.state is LedgerState.CLOSED:
            history.closed(reader.metadata)
        else:
            assert reader.last_add_confirmed <= history.last_confirmed, (
                f"a reader of ledger {history.ledger_id} sees {reader.last_add_confirmed}, "
                f"confirmed is {history.last_confirmed}"
            )

    # -- the end

    async def _final(self, node: Node) -> None:
        """Check, once everything has healed: no recovery is left, every ledger can be closed, and
        everything confirmed is there.
        """
        for name, (incarnation, client) in self._clients.items():
            if self.sim.nodes[name].incarnation == incarnation:
                assert not client._recoveries, (
                    f"{name} is still recovering ledgers {list(client._recoveries)} although all "
                    "is well again"
                )
        deadline = self.sim.loop.time() + _FINAL_SECONDS
        for history in self.oracle.ledgers:
            self.counts.confirmed += history.last_confirmed + 1
            while not history.deleting:
                if await self._on(node, self._last_look, history):
                    break
                assert self.sim.loop.time() < deadline, (
                    f"ledger {history.ledger_id} cannot be recovered or read although all is well "
                    "again"
                )
        # The ledgers whose ensemble changed, and some others.
        ends = [
            history.end
            for history in self.oracle.ledgers
            if history.end is not None and not history.deleting
        ]
        ends.sort(key=lambda end: -len(end.segments))
        spoiled = ["bookie0"] if self._settings.bad_disk_seconds else []
        problems: list[str] = []
        await look_at_disks(
            self,
            ends[:_LOOKED_AT_MAX],
            spoiled,
            lambda name, what: problems.append(f"{name}: {what}"),
        )
        assert not problems, "; ".join(problems[:3])

    async def _last_look(self, client: LedgerClient, _world: World, history: LedgerHistory) -> bool:
        reader = await client.open(history.ledger_id)
        history.closed(reader.metadata)
        try:
            await self._read_all(reader, history)
        except EntryUnknown as error:
            self.sim.trace(f"cannot read: {error}")
            raise
        return True


def run_ledgers(seed: int, settings: LedgerSettings | None = None) -> LedgerCounts:
    """Run one seed. Return the counts. Raises ``AssertionError`` when a promise was broken."""
    sim = Simulation(seed)
    oracle = LedgerOracle()
    workload = _Workload(sim, settings or LedgerSettings(), oracle)
    with replaced(Replicator, "_settle", _checked):
        sim.run(workload.run, max_virtual_seconds=400)
    return oracle.counts


def _checked(was: object) -> object:
    """Let the writer's core check its invariants after each event."""
    settle: Callable[[Replicator], None] = was  # type: ignore[assignment]

    def checked(replicator: Replicator) -> None:
        settle(replicator)
        replicator.core.check()

    return checked
