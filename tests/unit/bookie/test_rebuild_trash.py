"""What was in the trash when an index was rebuilt from the entry logs, which know nothing of the
trash.
"""

from __future__ import annotations

import asyncio

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.ledger_index import entry_key
from pulsarish.bookie.rebuild import rebuild_bookie
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import LedgerIds
from pulsarish.model.errors import EntryUnknown, LedgerFenced
from pulsarish.runtime.seams import World
from tests.support.bookies import BookieBench, BookieClient, make_record
from tests.unit.bookie.test_housekeeping import (
    collect,
    delete_metadata,
    fill,
    make_ledgers,
    present,
)
from tests.unit.bookie.test_trash import held, in_trash

OK = 0
LIVING, TRASHED, HALF_EMPTIED = 1, 2, 3
GRACE_SECONDS = 100.0


async def rebuild(bench: BookieBench) -> None:
    """Stop the bookie, rebuild its index, and start it again."""
    disk = bench.node.disk
    rebuilt = asyncio.Event()

    async def given_out() -> int:
        return 10

    async def work(world: World) -> None:
        await rebuild_bookie(
            world.files,
            world.open_index,
            bench.config,
            given_out=given_out,
            remove=lambda path: disk.indexes.pop(path, None),
            replace=disk.replace_index,
            progress=lambda _logs, _of, _entries: None,
        )
        rebuilt.set()

    bench.node.crash()
    bench.node.start(work)
    await rebuilt.wait()
    bench.node.crash()
    bench.start()
    await bench.client()


async def trash_two_of_three(bench: BookieBench) -> None:
    async def give_out(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        await records.update(paths.LEDGER_IDS, LedgerIds, lambda _found: LedgerIds(10))

    async def begin_emptying(bookie: Bookie) -> None:
        index = bookie.store.index
        (found,) = await index.trashed_rows([HALF_EMPTIED])
        assert found is not None
        await index.begin_emptying(HALF_EMPTIED, found.row)
        await index.rows.write(
            [], [entry_key(HALF_EMPTIED, entry_id) for entry_id in range(10)], sync=True
        )

    await bench.client_node.run(give_out)
    await bench.client()
    await make_ledgers(bench, LIVING, TRASHED, HALF_EMPTIED)
    await fill(bench, LIVING, TRASHED, HALF_EMPTIED)
    for ledger_id in (TRASHED, HALF_EMPTIED):
        await delete_metadata(bench, paths.ledger(ledger_id))
    await collect(bench)
    assert await in_trash(bench) == [TRASHED, HALF_EMPTIED]
    await bench.in_bookie(begin_emptying)


def test_it_goes_through_the_trash_once_more_and_its_space_comes_back() -> None:
    bench = BookieBench(1, trash_grace_seconds=GRACE_SECONDS)

    async def scenario() -> None:
        await trash_two_of_three(bench)
        logs = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        await rebuild(bench)
        assert await held(bench) == [LIVING, TRASHED, HALF_EMPTIED]
        await collect(bench)
        assert (await held(bench), await in_trash(bench)) == ([LIVING], [TRASHED, HALF_EMPTIED])
        await asyncio.sleep(GRACE_SECONDS + 1.0)
        await collect(bench)
        assert (await held(bench), await in_trash(bench)) == ([LIVING], [])
        await collect(bench)
        left = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        assert not [log_id for log_id in logs if log_id in left], (
            "the logs were rewritten without what was deleted"
        )
        assert bench.bookie.garbage.unreadable_logs == {}
        assert await present(bench, LIVING)

    bench.sim.run(scenario)


def test_to_writers_it_is_no_ledger_that_takes_adds_and_to_readers_nothing_is_missing() -> None:
    bench = BookieBench(1, trash_grace_seconds=GRACE_SECONDS)

    async def look(client: BookieClient) -> None:
        for ledger_id in (TRASHED, HALF_EMPTIED):
            (code,) = (await client.add([make_record(ledger_id, 30, b"late")])).values()
            assert code in (LedgerFenced.code, EntryUnknown.code)
            assert (await client.read(ledger_id, 30, 30))[0] == EntryUnknown.code

    async def scenario() -> None:
        await trash_two_of_three(bench)
        await rebuild(bench)
        await bench.with_client(look)
        await collect(bench)
        await bench.with_client(look)

    bench.sim.run(scenario)


def test_one_that_the_metadata_name_again_comes_out_of_it_with_all_its_entries() -> None:
    bench = BookieBench(1, trash_grace_seconds=GRACE_SECONDS)

    async def scenario() -> None:
        await trash_two_of_three(bench)
        await rebuild(bench)
        await collect(bench)
        await make_ledgers(bench, TRASHED)
        await asyncio.sleep(GRACE_SECONDS + 1.0)
        await collect(bench)
        assert (await held(bench), await in_trash(bench)) == ([LIVING, TRASHED], [])
        assert await present(bench, TRASHED)

    bench.sim.run(scenario)
