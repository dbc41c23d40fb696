"""Deleted ledgers: two looks at the metadata, then the trash, then their space (rule 12), in
simulation.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.garbage import GarbageCollector
from pulsarish.bookie.ledger_index import LedgerIndex, entry_key, ledger_key
from pulsarish.bookie.trash import Trash
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import RestoredTree
from pulsarish.model.errors import CorruptData, InvalidArgument, LedgerFenced, NotAllowedError
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.safeguard import replaced
from pulsarish.sim.world.metadata_service import copy_of
from tests.support.bookies import BookieBench, BookieClient, make_record
from tests.unit.bookie.test_housekeeping import (
    collect,
    delete_metadata,
    fill,
    make_ledgers,
    present,
)

OK = 0


async def in_trash(bench: BookieBench) -> list[int]:
    async def work(bookie: Bookie) -> list[int]:
        return [each.ledger_id for each in await bookie.garbage.trash.ledgers()]

    return await bench.in_bookie(work)


async def delete_ledgers(bench: BookieBench, *ledger_ids: int) -> None:
    """Ledgers with entries whose metadata are deleted: they are in the trash."""
    await make_ledgers(bench, *ledger_ids)
    await fill(bench, *ledger_ids)
    for ledger_id in ledger_ids:
        await delete_metadata(bench, paths.ledger(ledger_id))
    await collect(bench)
    assert await in_trash(bench) == list(ledger_ids)


async def held(bench: BookieBench) -> list[int]:
    return await bench.with_client(lambda client: client.ledgers())


def test_many_ledgers_that_are_deleted_together_share_the_syncs_of_metadata() -> None:
    bench = BookieBench(1, trash_grace_seconds=0.0)
    ledger_ids = range(1, 101)

    async def scenario() -> None:
        await make_ledgers(bench, *ledger_ids)
        await fill(bench, *ledger_ids, entries=5)
        for ledger_id in ledger_ids:
            await delete_metadata(bench, paths.ledger(ledger_id))
        syncs: list[str] = []

        def counting(was: Any) -> Any:
            async def sync(records: Records, path: str) -> None:
                syncs.append(path)
                await was(records, path)

            return sync

        with replaced(Records, "sync", counting):
            await collect(bench)
        assert bench.bookie.garbage.ledgers_deleted == 100
        assert len(syncs) <= 10

    bench.sim.run(scenario)


def test_what_the_metadata_answered_is_not_believed_for_long() -> None:
    """A ledger that the tree has again when it is the turn of that ledger stays."""
    bench = BookieBench(1, trash_grace_seconds=60.0)

    async def scenario() -> None:
        await make_ledgers(bench, 1, 2, 3)
        await fill(bench, 1, 2, 3)
        for ledger_id in (1, 2, 3):
            await delete_metadata(bench, paths.ledger(ledger_id))

        def slow(was: Any) -> Any:
            async def put(trash: Any, ledger_id: int) -> bool:
                done: bool = await was(trash, ledger_id)
                if ledger_id == 1:
                    await make_ledgers(bench, 3)
                    await asyncio.sleep(3.0)
                return done

            return put

        with replaced(Trash, "put", slow):
            await collect(bench)
        assert await in_trash(bench) == [1, 2]

    bench.sim.run(scenario)


def test_a_ledger_that_is_missing_once_is_not_touched() -> None:
    bench = BookieBench(1, gc_second_look_seconds=60.0, trash_grace_seconds=0.0)

    async def scenario() -> None:
        await make_ledgers(bench, 1, 2)
        await fill(bench, 1, 2)
        await delete_metadata(bench, paths.ledger(1))
        await collect(bench)
        await asyncio.sleep(30.0)
        await collect(bench)
        assert await held(bench) == [1, 2]
        # It was there again in between: the looks begin again.
        await make_ledgers(bench, 1)
        await collect(bench)
        await delete_metadata(bench, paths.ledger(1))
        await asyncio.sleep(40.0)
        await collect(bench)
        await asyncio.sleep(40.0)
        await collect(bench)
        assert await held(bench) == [1, 2]
        await asyncio.sleep(25.0)
        await collect(bench)
        assert await held(bench) == [2]
        assert not await present(bench, 1)

    bench.sim.run(scenario)


def test_a_deleted_ledger_is_kept_for_its_grace_and_its_bytes_with_it() -> None:
    bench = BookieBench(1, trash_grace_seconds=100.0)

    async def scenario() -> None:
        await make_ledgers(bench, 1, 2)
        await fill(bench, 1, 2)
        await delete_metadata(bench, paths.ledger(1))
        await collect(bench)
        assert (await held(bench), await in_trash(bench)) == ([2], [1])
        assert bench.bookie.garbage.ledgers_deleted == bench.bookie.garbage.logs_deleted == 0
        (size,) = await bench.in_bookie(lambda bookie: bookie.garbage.trash.sizes())
        assert size.size_bytes > 30 * 100
        # To writers it is deleted.
        late = make_record(1, 30, b"late")
        assert await bench.with_client(lambda client: client.add([late])) == {
            (1, 30): LedgerFenced.code
        }
        await asyncio.sleep(60.0)
        await collect(bench)
        assert await in_trash(bench) == [1]
        await asyncio.sleep(45.0)
        await collect(bench)
        assert await in_trash(bench) == []
        assert bench.bookie.garbage.ledgers_deleted == 1
        assert [await present(bench, ledger) for ledger in (1, 2)] == [False, True]

    bench.sim.run(scenario)


def test_the_grace_begins_anew_with_the_process_and_no_calendar_shortens_it() -> None:
    bench = BookieBench(1, trash_grace_seconds=100.0)

    async def scenario() -> None:
        await delete_ledgers(bench, 1)
        bench.node.clock.wall_offset_ms += 10**9
        await collect(bench)
        assert await in_trash(bench) == [1]
        await asyncio.sleep(90.0)
        bench.node.crash()
        bench.start()
        await bench.client()
        await collect(bench)
        await asyncio.sleep(90.0)
        await collect(bench)
        assert await in_trash(bench) == [1]
        await asyncio.sleep(20.0)
        await collect(bench)
        assert await in_trash(bench) == []

    bench.sim.run(scenario)


def test_the_trash_survives_crashes_and_compaction() -> None:
    bench = BookieBench(3, trash_grace_seconds=1_000.0, compaction_threshold=0.9)

    async def scenario() -> None:
        await make_ledgers(bench, 1, 2, 3)
        await fill(bench, 1, 2, 3)
        await delete_metadata(bench, paths.ledger(1))
        await collect(bench)
        # Another ledger goes for good: what lies between its entries is copied, the trash too.
        await delete_metadata(bench, paths.ledger(2))
        await collect(bench)
        assert await bench.in_bookie(lambda bookie: bookie.garbage.trash.empty(2))
        await collect(bench)
        assert bench.bookie.garbage.logs_deleted >= 1
        bench.node.crash()
        bench.start()
        assert (await held(bench), await in_trash(bench)) == ([3], [1])
        assert await bench.in_bookie(lambda bookie: bookie.garbage.trash.restore(1))
        assert await held(bench) == [1, 3]
        assert [await present(bench, ledger) for ledger in (1, 2, 3)] == [True, False, True]
        assert bench.bookie.store.states.count == 2

    bench.sim.run(scenario)


@pytest.mark.parametrize("fenced", [True, False])
def test_what_comes_out_of_the_trash_is_as_it_was(fenced: bool) -> None:
    bench = BookieBench(1, trash_grace_seconds=1_000.0)

    async def scenario() -> None:
        await make_ledgers(bench, 1)
        await fill(bench, 1)
        if fenced:
            assert await bench.with_client(lambda client: client.fence(1)) == (OK, 28)
        await delete_metadata(bench, paths.ledger(1))
        await collect(bench)
        assert await held(bench) == []
        assert await bench.in_bookie(lambda bookie: bookie.garbage.trash.restore(1))
        assert not await bench.in_bookie(lambda bookie: bookie.garbage.trash.restore(1))
        for _ in range(2):
            assert await held(bench) == [1]
            assert await bench.with_client(lambda client: client.read_lac(1)) == (OK, 28)
            again = make_record(1, 29, b"x" * 100)
            code = await bench.with_client(lambda client, again=again: client.add([again]))
            assert code == {(1, 29): LedgerFenced.code if fenced else OK}
            bench.node.crash()
            bench.start()

    bench.sim.run(scenario)


def test_a_fence_that_came_while_a_ledger_was_in_the_trash_stays() -> None:
    bench = BookieBench(1, trash_grace_seconds=1_000.0)

    async def scenario() -> None:
        await delete_ledgers(bench, 1)
        assert (await bench.with_client(lambda client: client.fence(1)))[0] == OK
        # What recovery reads is found: a "no" would be wrong once the ledger is back.
        code, found = await bench.with_client(lambda client: client.recovery_read(1, 0, 29))
        assert (code, len(found)) == (OK, 30)
        assert not await bench.in_bookie(lambda bookie: bookie.garbage.trash.empty(1))
        assert await bench.in_bookie(lambda bookie: bookie.garbage.trash.restore(1))
        for _ in range(2):
            assert await bench.with_client(lambda client: client.fence(1)) == (OK, 28)
            assert await bench.with_client(
                lambda client: client.add([make_record(1, 30, b"x")])
            ) == {(1, 30): LedgerFenced.code}
            bench.node.crash()
            bench.start()

    bench.sim.run(scenario)


def test_a_ledger_that_the_metadata_name_again_comes_out_by_itself() -> None:
    bench = BookieBench(1, trash_grace_seconds=1_000.0)

    async def scenario() -> None:
        await delete_ledgers(bench, 1)
        await make_ledgers(bench, 1)
        await collect(bench)
        assert (await in_trash(bench), await held(bench)) == ([], [1])
        assert await present(bench, 1)

    bench.sim.run(scenario)


def test_entries_that_are_in_no_log_yet_are_not_lost_to_the_trash() -> None:
    bench = BookieBench(1, trash_grace_seconds=1_000.0, checkpoint_interval_seconds=500.0)

    async def scenario() -> None:
        await make_ledgers(bench, 1)

        async def add(client: BookieClient) -> None:
            records = [make_record(1, entry, b"x" * 100) for entry in range(15, 30)]
            assert set((await client.add(records)).values()) == {OK}

        await fill(bench, 1, entries=15)
        await bench.in_bookie(lambda bookie: bookie.store.checkpoint())
        await bench.with_client(add)
        assert bench.bookie.store.cache.holds(1)
        await delete_metadata(bench, paths.ledger(1))
        await collect(bench)
        assert await in_trash(bench) == [1]
        bench.node.crash()
        bench.start()
        await bench.client()
        assert await bench.in_bookie(lambda bookie: bookie.garbage.trash.restore(1))
        assert await present(bench, 1)

    bench.sim.run(scenario)


def test_on_a_full_disk_the_grace_is_over_at_once() -> None:
    bench = BookieBench(1, trash_grace_seconds=10_000.0)

    async def scenario() -> None:
        await delete_ledgers(bench, 1)
        bench.node.disk.capacity_bytes = (
            bench.node.disk.used_bytes() + bench.config.read_only_free_bytes * 3 // 4
        )
        await asyncio.sleep(1.0)
        await collect(bench)
        assert await in_trash(bench) == []

    bench.sim.run(scenario)


def test_an_operator_empties_the_trash_only_of_what_the_metadata_do_not_name() -> None:
    bench = BookieBench(1, trash_grace_seconds=10_000.0)

    async def scenario() -> None:
        await delete_ledgers(bench, 1, 2)
        # As when the newer tree is put back, and no round has come since.
        await make_ledgers(bench, 1)
        assert await bench.with_client(
            lambda client: client.change_trash([1, 2], restore=False)
        ) == (OK, "", [2])
        await collect(bench)
        assert (await in_trash(bench), await held(bench)) == ([], [1])
        assert await present(bench, 1)

    bench.sim.run(scenario)


def test_an_operator_empties_no_trash_on_metadata_that_are_not_confirmed() -> None:
    bench = BookieBench(1, trash_grace_seconds=10_000.0)

    async def scenario() -> None:
        await delete_ledgers(bench, 1)

        async def mark(world: World) -> None:
            records = Records(world.metadata, world.clock, world.random)
            _ = await records.update(
                paths.RESTORED, RestoredTree, lambda _found: RestoredTree("", 0, 1)
            )

        await bench.client_node.run(mark)
        code, reason, emptied = await bench.with_client(
            lambda client: client.change_trash([1], restore=False)
        )
        assert (code, emptied) == (NotAllowedError.code, [])
        assert "metadata confirm" in reason
        assert await in_trash(bench) == [1]

    bench.sim.run(scenario)


def test_nothing_is_deleted_on_an_older_tree_also_after_a_restart() -> None:
    """The bookie and the service are down at once: only the bookie's file knows that the tree was
    newer.
    """
    bench = BookieBench(1, metadata_check_interval_seconds=0.5)

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1)
        older = copy_of(bench.sim.metadata.tree)
        await make_ledgers(bench, 2)
        await fill(bench, 1, 2)
        await asyncio.sleep(2.0)
        bench.node.crash()
        bench.sim.metadata.stop()
        bench.sim.metadata.start(older)
        await asyncio.sleep(15.0)
        bench.start()
        await bench.client()
        for _ in range(3):
            await collect(bench)
            await asyncio.sleep(1.0)
        assert [await present(bench, ledger) for ledger in (1, 2)] == [True, True]
        assert bench.bookie.garbage.ledgers_held_back == 1
        assert bench.bookie.age.is_older

        async def mark(world: World) -> RestoredTree:
            found = await Records(world.metadata, world.clock, world.random).get(
                paths.RESTORED, RestoredTree
            )
            assert found is not None
            return found[0]

        assert (await bench.client_node.run(mark)).found_by == "bookie b1"

    bench.sim.run(scenario)


def test_a_damaged_memory_of_the_tree_is_no_start() -> None:
    bench = BookieBench(1, metadata_check_interval_seconds=0.5)

    async def scenario() -> None:
        await bench.client()
        await asyncio.sleep(2.0)
        bench.node.crash()
        bench.node.expect(CorruptData)
        place = bench.node.disk.draw_place("metadata-seen")
        assert place is not None
        bench.node.disk.flip_bit(*place, bit=0)
        bench.start()
        await asyncio.sleep(2.0)
        assert not bench.node.alive
        assert "sure that the metadata service has its newest data" in str(bench.node.ends[-1])

    bench.sim.run(scenario)


def test_a_ledger_whose_emptying_was_cut_short_does_not_come_back_in_part() -> None:
    """What is missing in it would be taken for never written."""
    bench = BookieBench()
    bench.node.expect(InterruptedError)

    async def cut_short(_index: LedgerIndex, _ledger_id: int) -> None:
        raise InterruptedError

    async def empty(bookie: Bookie) -> None:
        await bookie.store.checkpoint()
        assert await bookie.garbage.trash.put(1)
        with (
            replaced(LedgerIndex, "forget_trashed", lambda _was: cut_short),
            pytest.raises(InterruptedError),
        ):
            _ = await bookie.garbage.trash.empty(1)
        await bookie.store.index.rows.write([], sync=True)
        await asyncio.sleep(1.0)  # a write of the index that failed ends the bookie

    async def scenario() -> None:
        client = await bench.client()
        added = [make_record(1, entry_id, b"x") for entry_id in range(3)]
        _ = await bench.client_node.run(lambda _world: client.add(added))
        with pytest.raises(Exception, match="died"):
            await bench.in_bookie(empty)
        bench.start()
        _ = await bench.client()
        assert not await bench.in_bookie(lambda bookie: bookie.garbage.trash.restore(1))
        assert await bench.in_bookie(lambda bookie: bookie.garbage.trash.empty(1))

    bench.sim.run(scenario, 60.0)


def test_a_ledger_with_the_greatest_id_is_collected_as_any_other() -> None:
    """Bookies took every id once, and garbage collection failed at the one that has no successor,
    after each start again.
    """
    bench = BookieBench(1, trash_grace_seconds=0.0)
    greatest = 2**63 - 1

    async def store(bookie: Bookie) -> None:
        _, row = (await bookie.store.index.ledgers(-1, 1))[0]
        entries = [(entry_key(greatest, entry), b"\0" * 16) for entry in (0, greatest)]
        await bookie.store.index.rows.write(
            [(ledger_key(greatest), row.encode()), *entries], sync=True
        )

    async def scenario() -> None:
        await make_ledgers(bench, 1, 2)
        await fill(bench, 1, 2)
        await asyncio.sleep(30.0)
        await bench.in_bookie(store)
        assert await held(bench) == [1, 2, greatest]
        await delete_metadata(bench, paths.ledger(2))
        for _ in range(3):
            await collect(bench)
        assert (await held(bench), await in_trash(bench)) == ([1], [])
        assert (
            await bench.in_bookie(
                lambda bookie: bookie.store.index.entry_ids(greatest, 0, greatest)
            )
            == []
        )
        assert await present(bench, 1)

    bench.sim.run(scenario)


def test_a_bookie_refuses_to_fence_an_id_that_has_no_successor() -> None:
    bench = BookieBench(1)

    async def scenario() -> None:
        for ledger_id in (2**63 - 1, -1):
            assert (
                await bench.with_client(lambda client, ledger_id=ledger_id: client.fence(ledger_id))
            )[0] == InvalidArgument.code
        assert await held(bench) == []

    bench.sim.run(scenario)


def test_a_round_that_fails_is_no_end_of_the_bookie() -> None:
    bench = BookieBench(1, gc_interval_seconds=10.0)
    bench.node.expect(ValueError)
    rounds: list[object] = []

    def failing(was: Any) -> object:
        async def collect_once(this: GarbageCollector) -> object:
            rounds.append(this)
            if len(rounds) == 1:
                raise ValueError("a row that nobody has thought of")
            return await was(this)

        return collect_once

    async def scenario() -> None:
        with replaced(GarbageCollector, "collect", failing):
            await asyncio.sleep(35.0)
        assert len(rounds) >= 3
        assert rounds[0] is rounds[-1], "the same process"

    bench.sim.run(scenario)
