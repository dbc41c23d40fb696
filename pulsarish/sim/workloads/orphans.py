"""The search for orphans beside programs that make ledgers, name them late or never, and delete
them.

Makers write the records as owners of topics do, without bookies: a ledger's record first, and the
reference after a while, checked against the ledger's version in the same commit. Two leaders
search and delete, with no age and hardly any grace time. Answers are lost, reads fail, and sessions
lag.

    run_orphans(17)

raises ``AssertionError`` when a ledger is deleted that a record has in use, when a search reports a
ledger that was named before it was listed, or when an orphan is left at the end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import msgspec

from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.topics.orphan_search import OrphanSearch
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.managed_ledger.topics_store import create_topic
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import CursorRecord, NamespacePolicies, TopicLedger, TopicRecord
from pulsarish.metadata.tree.tree import Tree
from pulsarish.model.errors import MetadataUnavailable
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, PurposeKind, Segment
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Conflict, Op, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import decode_record

__all__ = ["OrphanCounts", "run_orphans"]

_SECONDS: Final = 10.0
_TIME_LIMIT_SECONDS: Final = 300.0
_PAUSE_SECONDS: Final = 0.02
_NAMED_AFTER_SECONDS: Final = 1.0
_NEVER_NAMED_CHANCE: Final = 0.3
_LOST_ANSWER_CHANCE: Final = 0.02
_FAILED_LISTING_CHANCE: Final = 0.01
_SEARCH_SECONDS: Final = 0.02
_GRACE_SECONDS: Final = 0.05
_MAKERS: Final = 6
_LEADERS: Final = ("leader0", "leader1")
_CURSOR: Final = "s"


@dataclass(slots=True)
class OrphanCounts:
    """Counts of what a run reached."""

    named: int = 0
    refused: int = 0
    """Commits that were to name a ledger that a search had changed or deleted meanwhile."""
    left: int = 0
    """Ledgers whose maker never named them."""
    deleted: int = 0
    """By searches."""


class _Leading:
    """The part of ``Ownership`` that a search asks: this broker leads, and no broker is alive."""

    serving = True

    def __init__(self) -> None:
        self.leader = self
        self.is_leader = True


class _LeadersRecords(Records):
    """Knows when the last listing of ledgers was sent. Some listings fail, while ``fails``."""

    listed_at = 0.0
    fails: Callable[[], bool]

    async def children(self, path: str) -> list[str]:
        if path.startswith(paths.LEDGERS):
            self.listed_at = asyncio.get_running_loop().time()
        if self.fails():
            raise MetadataUnavailable(f"the listing of {path} has no answer")
        return await super().children(path)


class _Run:
    def __init__(self, sim: Simulation) -> None:
        self.counts = OrphanCounts()
        self._sim = sim
        self._random = random.Random(f"{sim.seed}:orphans")
        self._next_id = 0
        self._named_at: dict[int, float] = {}
        self._over = False
        self._searches: list[OrphanSearch] = []
        self.failures: list[str] = []

    async def run(self) -> None:
        sim = self._sim
        await sim.node("founder").run(self._prepare)
        sim.metadata.committed = self._committed
        sim.metadata.lost_answer_chance = _LOST_ANSWER_CHANCE
        makers = [
            sim.node(f"maker{number}").run(partial(self._make, number)) for number in range(_MAKERS)
        ]
        leaders = [sim.node(name).run(self._lead) for name in _LEADERS]
        sim.at(0.5, self._lag)
        sim.at(_SECONDS, self._end_load)
        await asyncio.gather(*makers, *leaders)
        await sim.node("judge").run(self._judge)
        assert not self.failures, self.failures[0]

    def _lag(self) -> None:
        for session_id in list(self._sim.metadata.tree.sessions):
            if self._random.random() < 0.3:
                self._sim.metadata.lag(session_id)
        if not self._over:
            self._sim.at(0.5, self._lag)

    def _end_load(self) -> None:
        self._over = True
        self._sim.metadata.heal()

    async def _prepare(self, world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        for root in paths.ROOTS:
            await records.ensure(root)
        _ = await records.compare_and_set(
            paths.namespace("public", "default"), NamespacePolicies(), None
        )
        for number in range(_MAKERS):
            _ = await create_topic(records, _name(number), created_ms=1)
            _ = await records.compare_and_set(
                paths.cursor(_name(number), _CURSOR), CursorRecord(-1), None
            )

    # -- makers

    async def _make(self, number: int, world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        store = LedgerStore(records, world.clock)
        while not self._over:
            await world.clock.sleep(_PAUSE_SECONDS * world.random.random())
            try:
                if world.random.random() < 0.5:
                    await self._make_one(world, records, store, number)
                else:
                    await self._drop_one(records, store, number)
            except MetadataUnavailable:
                continue

    async def _make_one(
        self, world: World, records: Records, store: LedgerStore, number: int
    ) -> None:
        ledger_id, self._next_id = self._next_id, self._next_id + 1
        of_cursor = world.random.random() < 0.4
        full = _name(number).full
        purpose = (
            LedgerPurpose(PurposeKind.CURSOR, f"{full}#{_CURSOR}")
            if of_cursor
            else LedgerPurpose(PurposeKind.TOPIC, full)
        )
        version = await store.store(
            LedgerMetadata(ledger_id, 1, 1, 1, purpose, (Segment(0, ("bookie~1",)),)), None
        )
        if world.random.random() < _NEVER_NAMED_CHANCE:
            self.counts.left += 1
            return
        await world.clock.sleep(_NAMED_AFTER_SECONDS * world.random.random() ** 2)
        unchanged = [Op("check", paths.ledger(ledger_id), version=version)]
        try:
            if of_cursor:
                await self._name_in_cursor(records, number, ledger_id, unchanged)
            else:
                await self._name_in_topic(records, number, ledger_id, unchanged)
        except Conflict:
            self.counts.refused += 1
        else:
            self.counts.named += 1

    async def _name_in_topic(
        self, records: Records, number: int, ledger_id: int, unchanged: list[Op]
    ) -> None:
        def change(record: TopicRecord | None) -> TopicRecord:
            assert record is not None
            return msgspec.structs.replace(
                record, ledgers=(*record.ledgers, TopicLedger(ledger_id))
            )

        _ = await records.update(
            paths.topic(_name(number)), TopicRecord, change, with_ops=lambda _found: unchanged
        )

    async def _name_in_cursor(
        self, records: Records, number: int, ledger_id: int, unchanged: list[Op]
    ) -> None:
        def change(record: CursorRecord | None) -> CursorRecord:
            assert record is not None
            return msgspec.structs.replace(record, delayed=(*record.delayed, ledger_id))

        _ = await records.update(
            paths.cursor(_name(number), _CURSOR),
            CursorRecord,
            change,
            with_ops=lambda _found: unchanged,
        )

    async def _drop_one(self, records: Records, store: LedgerStore, number: int) -> None:
        """Delete the first ledger of the topic in two phases."""

        def intend(record: TopicRecord | None) -> TopicRecord | None:
            assert record is not None
            if not record.ledgers:
                return None
            first, *rest = record.ledgers
            return msgspec.structs.replace(
                record, ledgers=tuple(rest), deleting=(*record.deleting, first.ledger_id)
            )

        def forget(record: TopicRecord | None) -> TopicRecord | None:
            return None if record is None else msgspec.structs.replace(record, deleting=())

        path = paths.topic(_name(number))
        found = await records.update(path, TopicRecord, intend)
        assert found is not None
        for ledger_id in found[0].deleting:
            await store.delete(ledger_id, -1)
        if found[0].deleting:
            _ = await records.update(path, TopicRecord, forget)

    # -- leaders

    async def _lead(self, world: World) -> None:
        records = _LeadersRecords(world.metadata, world.clock, world.random)
        records.fails = lambda: not self._over and world.random.random() < _FAILED_LISTING_CHANCE
        config = BrokerConfig(
            orphan_min_age_seconds=0.0,
            orphan_grace_seconds=_GRACE_SECONDS,
            orphan_deletion_enabled=True,
            sweeper_page_topics=2,
            sweeper_topics_per_second=10_000.0,
        )
        search = OrphanSearch(world, config, records, cast("Ownership", _Leading()))
        self._searches.append(search)
        rounds_after = 0
        while rounds_after < 4:
            await world.clock.sleep(_SEARCH_SECONDS * (1 + world.random.random()))
            with suppress(MetadataUnavailable):
                await search.round()
                self._judge_found(search, records.listed_at)
                rounds_after += self._over
            if self._over:
                await world.clock.sleep(4 * _NAMED_AFTER_SECONDS)
        self.counts.deleted += search.deleted_count

    def _judge_found(self, search: OrphanSearch, listed_at: float) -> None:
        for orphan in search.notes.found.values():
            named_at = self._named_at.get(orphan.ledger_id)
            if named_at is not None and named_at < listed_at:
                self.failures.append(
                    f"ledger {orphan.ledger_id} is reported as an orphan, and was named before "
                    "ledgers were listed"
                )

    # -- what must hold

    def _committed(self, _touched: Iterable[str]) -> None:
        tree = self._sim.metadata.truth
        in_use = _in_use(tree)
        now = self._sim.loop.time()
        for ledger_id, path in in_use.items():
            self._named_at.setdefault(ledger_id, now)
            if tree.get(paths.ledger(ledger_id)) is None:
                self.failures.append(f"ledger {ledger_id} is gone, and {path} has it in use")
        for ledger_id in [each for each in self._named_at if each not in in_use]:
            del self._named_at[ledger_id]

    async def _judge(self, _world: Any) -> None:
        tree = self._sim.metadata.truth
        named = {
            ledger_id
            for path, node in tree.nodes.items()
            if path.startswith(paths.TOPICS) and node.data
            for ledger_id in _record_of(path, node.data).ledgers_named
        }
        there = [paths.ledger_id_of(path) for path in tree.nodes]
        left = [
            ledger_id for ledger_id in there if ledger_id is not None and ledger_id not in named
        ]
        if left:
            self.failures.append(f"ledgers {left} are named nowhere, and no search deletes them")


def _name(number: int) -> TopicName:
    return TopicName("public", "default", f"t{number}")


def _record_of(path: str, data: bytes) -> TopicRecord | CursorRecord:
    if path.endswith(f"/{_CURSOR}"):
        return decode_record(data, CursorRecord, path)
    return decode_record(data, TopicRecord, path)


def _in_use(tree: Tree) -> dict[int, str]:
    """Return each ledger that a record uses, and the record's path."""
    found: dict[int, str] = {}
    for number in range(_MAKERS):
        for path in (paths.topic(_name(number)), paths.cursor(_name(number), _CURSOR)):
            node = tree.get(path)
            assert node is not None
            record = _record_of(path, node.data)
            ids = (
                record.ledgers_in_use
                if isinstance(record, CursorRecord)
                else [link.ledger_id for link in record.ledgers]
            )
            found.update(dict.fromkeys(ids, path))
    return found


def run_orphans(seed: int) -> OrphanCounts:
    """Run one seed. Return the counts. Raises ``AssertionError``."""
    sim = Simulation(seed)
    run = _Run(sim)
    sim.run(run.run, max_virtual_seconds=_TIME_LIMIT_SECONDS)
    return run.counts
