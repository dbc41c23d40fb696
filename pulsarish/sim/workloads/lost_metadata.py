"""A topic whose metadata are lost without a backup, and made again from what bookies know.

An owner appends while bookies crash, so that ledgers roll over and change their ensembles. Then all
processes die and the metadata are empty, or have only the namespace, of an older backup. The
operator rebuilds them from the bookies' disks, and an owner opens the topic with the retention that
it or its namespace has then.

    run_lost_metadata(17)

raises ``AssertionError`` when

* an entry that was confirmed is missing in a ledger that the topic names again, or has other bytes;
* an entry that no client acknowledged counts as acknowledged;
* a bookie deletes a ledger that the tree does not name, before the tree is confirmed;
* the topic cannot be opened, or lacks a confirmed entry, although bookies had a few seconds without
  changes before the loss;
* then another record than the newest one of a ledger counts, although rounds of garbage collection
  are frequent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.inspection.copies import read_copies
from pulsarish.bookie.inspection.directories import directories_of
from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.cursors.cursor import Cursor
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.managed_ledger import ManagedLedger
from pulsarish.managed_ledger.options import ManagedLedgerOptions, Retention
from pulsarish.managed_ledger.topics_store import create_topic
from pulsarish.metadata import paths
from pulsarish.metadata.backup.ledger_copies import BookieCopies
from pulsarish.metadata.backup.rebuild import Rebuild, RebuildReport
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import NamespacePolicies, TopicPolicies, TopicRecord
from pulsarish.metadata.tree.tree import Tree
from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.model.policies import RETENTION, RetentionPolicies
from pulsarish.model.position import EARLIEST, Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import KeyValueIndex, World
from pulsarish.sim.workloads.ledgers import bookie_config
from pulsarish.sim.workloads.topic_log import LOG_LEDGER_OPTIONS
from pulsarish.sim.world.nodes import Node, NodeDied
from pulsarish.sim.world.world import Simulation

__all__ = ["RebuildCounts", "run_lost_metadata"]

_NAME: Final = TopicName.parse("persistent://public/default/lost")
_SUBSCRIPTION: Final = "s"
_BOOKIES: Final = 5
_LOAD_SECONDS: Final = 6.0
_QUIET_SECONDS: Final = 5.0
_FINAL_SECONDS: Final = 60.0
_HELD_BACK_SECONDS: Final = 5.0
_QUORUMS: Final = ((3, 3, 2), (3, 2, 2))


@dataclass(slots=True)
class RebuildCounts:
    """Counts of what a run reached."""

    confirmed: int = 0
    ledgers: int = 0
    changed_ensembles: int = 0
    unrecorded: int = 0
    """Ledgers with confirmed entries, of whose record no bookie had a copy yet."""
    subscriptions: int = 0
    not_opened: int = 0
    """Runs in which a ledger was not closed, because a bookie that its record does not name may
    hold more of it.
    """

    def add(self, other: RebuildCounts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class _Oracle:
    """What clients know. It gets the events of the log as its ``LogListener``."""

    confirmed: dict[Position, bytes] = field(default_factory=dict)
    # only for membership tests
    maybe_acknowledged: set[Position] = field(default_factory=set)
    over: PulsarishError | None = None

    def appended(self, ledger_id: int, first_entry: int, contexts: Sequence[object]) -> None:
        for offset, context in enumerate(contexts):
            assert isinstance(context, bytes)
            self.confirmed[Position(ledger_id, first_entry + offset)] = context

    def append_failed(self, contexts: Sequence[object], error: PulsarishError) -> None:
        pass

    def fenced(self, error: PulsarishError) -> None:
        self.over = error


class _Run:
    def __init__(self, sim: Simulation, *, has_namespace: bool) -> None:
        rng = sim.workload
        self._has_namespace = has_namespace
        self.counts = RebuildCounts()
        self._sim = sim
        self._random = rng
        self._oracle = _Oracle()
        self._is_quiet = rng.random() < 0.5
        self._reads_disks = False
        self._appended = 0
        ensemble_size, write_quorum, ack_quorum = rng.choice(_QUORUMS)
        self._options = ManagedLedgerOptions(
            ensemble_size=ensemble_size,
            write_quorum=write_quorum,
            ack_quorum=ack_quorum,
            max_entries_per_ledger=rng.choice((10, 100, 1_000)),
            min_ledger_rollover_time_minutes=0,
            append_hold_ms=500,
            retry_wait_ms=10,
            retry_wait_max_ms=200,
            cursor_flush_interval_ms=100,
            cursor_node_writes_max=rng.choice((0, 10_000)),
        )
        gc_seconds = rng.choice((1.0, 1.0, 900.0))
        self._looks_often = gc_seconds < _QUIET_SECONDS
        self._before: dict[int, LedgerMetadata] = {}
        self._configs = {name: _config(name, gc_seconds) for name in _names()}

    async def run(self) -> None:
        sim = self._sim
        await sim.node("setup").run(self._prepare)
        bookies = [sim.node(name, partial(self._bookie, name)) for name in _names()]
        await asyncio.sleep(2.0)
        owner = sim.node("owner")
        self._crash_two(bookies)
        loss_at = sim.loop.time() + _LOAD_SECONDS
        try:
            await owner.run(lambda world: self._append_until(world, loss_at))
        except NodeDied:
            raise AssertionError("the owner died") from None
        held = await self._lose(owner, bookies)
        report = await sim.node("operator").run(lambda world: self._rebuild(world, held))
        for node in bookies:
            node.revive()
        await asyncio.sleep(_HELD_BACK_SECONDS)
        await self._final(sim.node("final"), report)
        self._check_kept(report, await self._read_disks(bookies))

    async def _prepare(self, world: World) -> None:
        records = _records(world)
        for path in paths.ROOTS:
            await records.ensure(path)
        await create_topic(records, _NAME, created_ms=world.clock.wall_ms())

    async def _bookie(self, name: str, world: World) -> None:
        if not self._reads_disks:
            await Bookie(world, self._configs[name]).run()

    def _crash_two(self, bookies: Sequence[Node]) -> None:
        """Crash two bookies until the loss, so that ledgers go on with others.

        Shortly before a sudden loss no bookie may have a copy of the record that this changes.
        """
        rng = self._random
        first, second = rng.sample(bookies, 2)
        self._sim.at(rng.uniform(0.5, _LOAD_SECONDS - 1.0), first.crash)
        left_seconds = rng.uniform(0.0, _LOAD_SECONDS if self._is_quiet else 0.8)
        self._sim.at(_LOAD_SECONDS - left_seconds, second.crash)

    async def _append_until(self, world: World, loss_at: float) -> None:
        log, cursor = await self._open(world, self._oracle, Retention(-1, -1))
        rng, loop, oracle = self._random, self._sim.loop, self._oracle
        while loop.time() < loss_at and oracle.over is None:
            for _ in range(rng.randrange(1, 6)):
                payload = b"%d" % self._appended
                self._appended += 1
                log.append(payload, payload)
            await world.clock.sleep(rng.uniform(0.01, 0.2))
            some = [each for each in oracle.confirmed if rng.random() < 0.1]
            oracle.maybe_acknowledged.update(some)
            cursor.acknowledge(some)
        if self._is_quiet:
            while log.pending_entries and oracle.over is None:
                await world.clock.sleep(0.05)
            await world.clock.sleep(_QUIET_SECONDS)
            if self._looks_often:
                ids = sorted({each.ledger_id for each in oracle.confirmed})
                rows = await _records(world).get_many(list(map(paths.ledger, ids)), LedgerMetadata)
                self._before = {row[0].ledger_id: row[0] for row in rows if row is not None}

    async def _open(
        self, world: World, listener: _Oracle, retention: Retention
    ) -> tuple[ManagedLedger, Cursor]:
        ledgers = LedgerClient(world, LOG_LEDGER_OPTIONS)
        await ledgers.start()
        log = await ManagedLedger.open(
            _NAME,
            ledgers,
            _records(world),
            world,
            self._options,
            listener,
            caches=EntryCaches(0, 0),
            retention=retention,
        )
        return log, await log.open_cursor(_SUBSCRIPTION, initial=EARLIEST)

    # -- the loss and the rebuild

    async def _lose(self, owner: Node, bookies: Sequence[Node]) -> list[BookieCopies]:
        """Kill all processes, lose the metadata, and read the bookies' disks."""
        for node in (owner, *bookies):
            node.crash()
        self._sim.metadata.stop()
        self._sim.metadata.start(Tree())
        return await self._read_disks(bookies)

    async def _read_disks(self, bookies: Sequence[Node]) -> list[BookieCopies]:
        self._reads_disks = True
        found: list[BookieCopies] = []
        for node in bookies:
            node.crash()
            node.revive()
            config = self._configs[node.name]
            found.append(await node.run(partial(_copies, config)))
            node.crash()
        self._reads_disks = False
        return found

    async def _rebuild(self, world: World, bookies: Sequence[BookieCopies]) -> RebuildReport:
        records = _records(world)
        if self._has_namespace:
            path = paths.namespace(_NAME.tenant, _NAME.namespace)
            await records.compare_and_set(path, NamespacePolicies(), None)
        report = await Rebuild(records, world.clock, bookies, ledger_id_gap=100).run()
        self.counts.confirmed += len(self._oracle.confirmed)
        self.counts.ledgers += len(report.ledgers)
        confirmed = {each.ledger_id for each in self._oracle.confirmed}
        self.counts.unrecorded += len(confirmed.difference(report.ledgers))
        self.counts.subscriptions += len(report.subscriptions)
        self.counts.changed_ensembles += sum(
            len(each.segments) > 1 for each in report.known.ledgers.values()
        )
        assert not report.known.conflicts, report.known.conflicts
        if self._is_quiet:
            assert not report.known.unrecorded, report.known.unrecorded
        for ledger_id, record in self._before.items():
            found = report.known.ledgers[ledger_id]
            assert found == record, f"the newest record of ledger {ledger_id} was {record}"
        return report

    def _check_kept(self, report: RebuildReport, bookies: Sequence[BookieCopies]) -> None:
        """Check that bookies still have what the tree does not name: it is not confirmed."""
        held = {ledger_id for each in bookies for ledger_id in each.held}
        confirmed = {each.ledger_id for each in self._oracle.confirmed}
        gone = [
            each
            for each in sorted({*confirmed, *report.known.unrecorded})
            if each not in report.ledgers and each not in held
        ]
        assert not gone, f"ledger {gone[0]} is deleted, and the tree is not confirmed"

    # -- the end

    async def _final(self, node: Node, report: RebuildReport) -> None:
        deadline = self._sim.loop.time() + _FINAL_SECONDS
        while True:
            try:
                await node.run(lambda world: self._look(world, report))
            except PulsarishError as error:
                is_over = self._sim.loop.time() > deadline
                if not error.retryable or (is_over and self._is_quiet):
                    raise AssertionError(f"the topic cannot be opened: {error!r}") from error
                if is_over:
                    self.counts.not_opened += 1
                    return
                await asyncio.sleep(1.0)
            else:
                return

    async def _look(self, world: World, report: RebuildReport) -> None:
        records = _records(world)
        topic = await records.get(paths.topic(_NAME), TopicRecord)
        if topic is None:
            assert not self._is_quiet, "the topic is not there"
            return
        had_cursor = bool(report.subscriptions)
        log, cursor = await self._open(world, _Oracle(), await self._retention(records))
        if not had_cursor:
            await log.delete_cursor(_SUBSCRIPTION)  # as long as no client subscribes
        _ = await log.trimmer.trim()
        found: dict[Position, bytes] = {}
        position = log.first_position
        while entries := await log.read(position, max_entries=50, max_bytes=4_096):
            found.update((entry.position, bytes(entry.payload)) for entry in entries)
            position = log.next_position(entries[-1].position)
        named = {link.ledger_id for link in topic[0].ledgers}
        for position, payload in self._oracle.confirmed.items():
            if position.ledger_id in named or self._is_quiet:
                assert found.get(position) == payload, (
                    f"confirmed {payload!r} at {position}, found {found.get(position)!r}"
                )
        for position in found if had_cursor else ():
            assert (
                not cursor.is_acknowledged(position) or position in self._oracle.maybe_acknowledged
            ), f"{position} was skipped: no client acknowledged it"

    async def _retention(self, records: Records) -> Retention:
        """Return the retention of the topic or its namespace, as a broker would apply it."""
        path = paths.namespace(_NAME.tenant, _NAME.namespace)
        found = await records.get(path, NamespacePolicies)
        assert found is not None, "the namespace is not there"
        own = await records.get(paths.topic_policies(paths.topic(_NAME)), TopicPolicies)
        policies = {**found[0].policies, **({} if own is None else own[0].policies)}
        if RETENTION.name not in policies:
            return Retention()
        wanted = msgspec.convert(policies[RETENTION.name], RetentionPolicies)
        return Retention(wanted.minutes, wanted.mb)


def _names() -> list[str]:
    return [f"bookie{number}" for number in range(_BOOKIES)]


def _config(name: str, gc_seconds: float) -> BookieConfig:
    return msgspec.structs.replace(
        bookie_config(name),
        checkpoint_interval_seconds=0.5,
        gc_interval_seconds=gc_seconds,
        gc_second_look_seconds=0.0,
        trash_grace_seconds=0.0,
    )


def _records(world: World) -> Records:
    return Records(world.metadata, world.clock, world.random)


async def _copies(config: BookieConfig, world: World) -> BookieCopies:
    async def open_index(directory: str) -> tuple[KeyValueIndex, str]:
        return await world.open_index(directory), ""

    return await read_copies([(config, directories_of(config, world.files, open_index))])


def run_lost_metadata(seed: int) -> RebuildCounts:
    """Run one seed. Return the counts. Raises ``AssertionError`` when a promise was broken."""
    sim = Simulation(seed)
    run = _Run(sim, has_namespace=seed % 2 == 1)
    sim.run(run.run, max_virtual_seconds=200)
    return run.counts
