"""Backups of a tree that changes meanwhile, and restores that are refused, interrupted and given
again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from pulsarish.metadata import paths
from pulsarish.metadata.backup.backup import TreeReader, back_up, check_not_being_restored
from pulsarish.metadata.backup.file_format import Backup, read_backup
from pulsarish.metadata.backup.restore import Change, Restore, compare, read_tree
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import (
    CursorRecord,
    LedgerIds,
    RestoredTree,
    TopicLedger,
    TopicRecord,
)
from pulsarish.model.errors import NotAllowedError, NotEmpty, ServiceNotReady
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, LedgerState, Segment
from pulsarish.model.position import ID_MAX
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import MetadataStore, Op, SessionState, Versioned, World
from pulsarish.sim.world.world import Simulation
from pulsarish.wire.json_record import encode_record

TOPIC = TopicName.parse("persistent://public/default/t")


def in_world(work: Callable[[World], Awaitable[None]]) -> None:
    sim = Simulation(1)

    async def scenario() -> None:
        await sim.node("a").run(work)  # type: ignore[arg-type]  # a coroutine function

    sim.run(scenario)


def records_of(world: World) -> Records:
    return Records(world.metadata, world.clock, world.random)


def ledger(ledger_id: int, state: LedgerState) -> LedgerMetadata:
    return LedgerMetadata(
        ledger_id, 1, 1, 1, LedgerPurpose("topic", TOPIC.full), (Segment(0, ("b1~1",)),), state
    )


async def put(records: Records, path: str, record: msgspec.Struct) -> None:
    await records.make_parents(path)
    await records.compare_and_set(path, record, None)


async def fill(records: Records, *ledgers: int) -> None:
    """A topic whose last ledger is open, with a cursor in a ledger of its own, 50."""
    chain = [TopicLedger(each, 5, 50, 1) for each in ledgers[:-1]]
    await put(records, paths.topic(TOPIC), TopicRecord((*chain, TopicLedger(ledgers[-1]))))
    await records.ensure(paths.cursors(TOPIC))
    await put(records, paths.cursor(TOPIC, "s"), CursorRecord(ledgers[0], cursor_ledger=50))
    for each in (*ledgers[:-1], 50):
        await put(records, paths.ledger(each), ledger(each, LedgerState.CLOSED))
    await put(records, paths.ledger(ledgers[-1]), ledger(ledgers[-1], LedgerState.OPEN))
    await put(records, paths.LEDGER_IDS, LedgerIds(100))
    await records.ensure(paths.BOOKIES)
    await records.commit([Op("create_ephemeral", paths.bookie("b1"), b"here")])


async def taken(world: World, store: MetadataStore | None = None) -> Backup:
    lines: list[bytes] = []
    await back_up(
        Records(store or world.metadata, world.clock, world.random),
        world.clock,
        lines.append,
        source="test",
    )
    return read_backup(lines, "backup")


async def wipe(world: World) -> None:
    for path in reversed(await read_tree(TreeReader(records_of(world), world.clock))):
        if path != paths.BOOKIES:
            await world.metadata.commit([Op("delete", path)])


class Interfering:
    """A store in which something happens just before the ledgers are listed, or that dies at the
    nth commit.
    """

    def __init__(
        self,
        world: World,
        *,
        before_ledgers: Callable[[], Awaitable[None]] | None = None,
        commits: int = 1 << 30,
    ) -> None:
        self._store = world.metadata
        self._before_ledgers = before_ledgers
        self._commits = commits

    @property
    def session_id(self) -> int:
        return self._store.session_id

    @property
    def state(self) -> SessionState:
        return self._store.state

    def listen(self, changed: Callable[[SessionState], None]) -> None:
        self._store.listen(changed)

    async def get_many(
        self, wanted: list[str], *, watch: Callable[[str], None] | None = None
    ) -> list[Versioned | None]:
        return await self._store.get_many(wanted, watch=watch)

    async def children(self, path: str, *, watch: Callable[[str], None] | None = None) -> list[str]:
        if path == paths.LEDGERS and self._before_ledgers is not None:
            happens, self._before_ledgers = self._before_ledgers, None
            await happens()
        return await self._store.children(path, watch=watch)

    async def commit(self, ops: list[Op]) -> list[str | int]:
        self._commits -= 1
        if self._commits < 0:
            raise KeyboardInterrupt
        return await self._store.commit(ops)

    async def sync(self, path: str) -> None:
        await self._store.sync(path)

    async def close(self) -> None:
        await self._store.close()


def test_a_backup_has_all_but_what_is_ephemeral_and_ends_with_the_ids() -> None:
    async def work(world: World) -> None:
        await fill(records_of(world), 1, 2)
        backup = await taken(world)
        there = await read_tree(TreeReader(records_of(world), world.clock))
        assert backup.nodes == there
        assert paths.bookie("b1") not in backup.nodes
        assert backup.footer.ephemeral_left_out == 1
        paths_in_order = list(backup.nodes)
        assert all(
            paths_in_order.index(parent) < paths_in_order.index(path)
            for path in backup.nodes
            for parent in paths.parents(path)
        )

    in_world(work)


def test_a_ledger_trimmed_and_one_made_during_the_backup_leave_no_name_without_its_ledger() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        await fill(records, 1, 2)

        async def trim_and_roll() -> None:
            now = TopicRecord((TopicLedger(2, 5, 50, 1), TopicLedger(3)))
            await records.update(paths.topic(TOPIC), TopicRecord, lambda _found: now)
            await records.delete(paths.ledger(1))
            await put(records, paths.ledger(3), ledger(3, LedgerState.OPEN))

        backup = await taken(world, Interfering(world, before_ledgers=trim_and_roll))  # type: ignore[arg-type]
        assert (
            msgspec.json.decode(backup.nodes[paths.topic(TOPIC)], type=TopicRecord)
            .ledgers[0]
            .ledger_id
            == 2
        )
        assert paths.ledger(1) not in backup.nodes
        assert {paths.ledger(2), paths.ledger(3)} <= backup.nodes.keys()

    in_world(work)


def test_a_topic_deleted_during_the_backup_is_not_in_it() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        await fill(records, 1, 2)

        async def delete() -> None:
            for path in (paths.cursor(TOPIC, "s"), paths.cursors(TOPIC), paths.topic(TOPIC)):
                await records.delete(path)
            for ledger_id in (1, 2, 50):
                await records.delete(paths.ledger(ledger_id))

        backup = await taken(world, Interfering(world, before_ledgers=delete))  # type: ignore[arg-type]
        assert not [path for path in backup.nodes if path.startswith(paths.topic(TOPIC))]

    in_world(work)


def test_a_restore_brings_everything_back_marks_the_tree_and_goes_on_with_fresh_ids() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        await fill(records, 1, 2)
        backup = await taken(world)
        await wipe(world)
        assert await Restore(
            records, world.clock, backup, ids_held=[7_000, ID_MAX], ledger_id_gap=10
        ).run(force=False) == len(backup.nodes)
        after = await read_tree(TreeReader(records_of(world), world.clock))
        assert list(compare(backup.nodes, after)) == []
        mark = await records.get(paths.RESTORED, RestoredTree)
        assert mark is not None
        assert mark[0].restored_ms > 0
        ids = await records.get(paths.LEDGER_IDS, LedgerIds)
        assert ids is not None
        assert ids[0].next_id == 7_011
        marked = {
            each: msgspec.json.decode(after[paths.ledger(each)], type=LedgerMetadata).restored
            for each in (1, 2, 50)
        }
        assert marked == {1: False, 2: True, 50: False}, "the ledger that was open, and it alone"

    in_world(work)


def test_ids_given_out_by_the_tree_that_is_replaced_are_not_given_out_again() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        await fill(records, 1, 2)
        backup = await taken(world)
        await records.update(paths.LEDGER_IDS, LedgerIds, lambda _found: LedgerIds(9_000))
        await Restore(records, world.clock, backup, ledger_id_gap=0).run(force=True)
        ids = await records.get(paths.LEDGER_IDS, LedgerIds)
        assert ids is not None
        assert ids[0].next_id == 9_000

    in_world(work)


def test_other_data_are_replaced_only_by_force_and_then_whole() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        await fill(records, 1, 2)
        backup = await taken(world)
        await records.update(
            paths.topic(TOPIC), TopicRecord, lambda _found: TopicRecord((TopicLedger(9),))
        )
        await put(records, paths.tenant("new"), RestoredTree("", 0))
        before = await read_tree(TreeReader(records_of(world), world.clock))
        with pytest.raises(NotEmpty, match="nothing was changed"):
            await Restore(records, world.clock, backup).run(force=False)
        assert await read_tree(TreeReader(records_of(world), world.clock)) == before
        await Restore(records, world.clock, backup).run(force=True)
        after = await read_tree(TreeReader(records_of(world), world.clock))
        assert list(compare(backup.nodes, after)) == []
        assert (await world.metadata.get_many([paths.bookie("b1")]))[0] is not None, (
            "ephemeral nodes stay"
        )

    in_world(work)


def test_registered_brokers_refuse_even_a_forced_restore() -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        await fill(records, 1, 2)
        backup = await taken(world)
        await records.ensure(paths.BROKERS)
        await world.metadata.commit([Op("create_ephemeral", paths.broker("broker-1~1"), b"{}")])
        with pytest.raises(NotAllowedError, match="broker-1~1"):
            await Restore(records, world.clock, backup).run(force=True)
        assert await records.get(paths.RESTORED, RestoredTree) is None

    in_world(work)


@pytest.mark.parametrize("commits", range(1, 8))
def test_an_interrupted_restore_keeps_nodes_from_starting_and_goes_on_with_the_same_file_only(
    commits: int,
) -> None:
    async def work(world: World) -> None:
        records = records_of(world)
        await fill(records, 1, 2)
        backup = await taken(world)
        await records.update(
            paths.topic(TOPIC), TopicRecord, lambda _found: TopicRecord((TopicLedger(9),))
        )
        await put(records, paths.tenant("new"), RestoredTree("", 0))
        other = await taken(world)
        dying = Records(Interfering(world, commits=commits), world.clock, world.random)  # type: ignore[arg-type]
        try:
            await Restore(dying, world.clock, backup).run(force=True)
        except KeyboardInterrupt:
            with pytest.raises(ServiceNotReady, match="restore"):
                await check_not_being_restored(records)
            with pytest.raises(NotEmpty):
                await Restore(records, world.clock, other).run(force=False)
            await Restore(records, world.clock, backup).run(force=False)
        await check_not_being_restored(records)
        assert (
            list(compare(backup.nodes, await read_tree(TreeReader(records_of(world), world.clock))))
            == []
        )

    in_world(work)


def test_compare_names_each_kind_of_difference_and_overlooks_only_the_mark_of_a_restore() -> None:
    open_ledger = ledger(1, LedgerState.OPEN)
    marked = msgspec.structs.replace(open_ledger, restored=True)
    left = {
        "/a": b"1",
        "/b": b"2",
        "/same": b"",
        paths.LEDGER_IDS: b"5",
        paths.ledger(1): encode_record(open_ledger),
    }
    right = {
        "/b": b"3",
        "/c": b"4",
        "/same": b"",
        paths.LEDGER_IDS: b"6",
        paths.ledger(1): encode_record(marked),
    }
    assert [(each.path, each.change) for each in compare(left, right)] == [
        ("/a", Change.ONLY_LEFT),
        ("/b", Change.DIFFERENT),
        ("/c", Change.ONLY_RIGHT),
    ]
    right[paths.ledger(1)] = encode_record(msgspec.structs.replace(marked, created_ms=1))
    assert [each.path for each in compare(left, right)] == ["/a", "/b", "/c", paths.ledger(1)]
