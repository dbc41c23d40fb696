"""Copies of ledgers' records in the index of a bookie, in simulation."""

from __future__ import annotations

import asyncio

import msgspec

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.ledger_index import KeptRecord
from pulsarish.metadata import paths
from pulsarish.metadata.records import AgeRecord, RestoredTree
from pulsarish.metadata.tree_age import confirm_tree
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.runtime.seams import Op, World
from pulsarish.wire.json_record import decode_record, encode_record
from tests.support.bookies import BookieBench
from tests.unit.bookie.test_housekeeping import collect, delete_metadata, fill, records
from tests.unit.bookie.test_stray_copies import HERE, ledger, write, write_record

SOON = 3.0
"""Virtual seconds after which a new ledger's record is copied."""


async def kept(bench: BookieBench, ledger_id: int = 1) -> KeptRecord | None:
    async def work(bookie: Bookie) -> KeptRecord | None:
        return (await bookie.store.index.kept_records([ledger_id]))[0]

    return await bench.in_bookie(work)


async def state(bench: BookieBench) -> LedgerState:
    found = await kept(bench)
    assert found is not None
    return decode_record(found.data, LedgerMetadata, "the copy").state


def test_a_new_ledger_is_copied_soon_and_a_change_at_the_next_round() -> None:
    bench = BookieBench(1)

    async def scenario() -> None:
        await bench.client()
        await write_record(bench, ledger((0, HERE), state=LedgerState.OPEN))
        await fill(bench, 1)
        await asyncio.sleep(SOON)
        found = await kept(bench)
        assert found is not None
        assert (found.epoch, found.version) == (0, 0)
        assert await state(bench) is LedgerState.OPEN
        at = await write_record(bench, ledger((0, HERE)))
        await collect(bench)
        found = await kept(bench)
        assert found is not None
        assert found.version == at
        assert await state(bench) is LedgerState.CLOSED
        written = bench.bookie.garbage.copies.written
        await collect(bench)
        assert bench.bookie.garbage.copies.written == written, "it has not changed"
        await bench.in_bookie(lambda bookie: bookie.store.checkpoint())
        bench.node.crash()
        bench.start()
        await bench.client()
        await collect(bench)
        assert await state(bench) is LedgerState.CLOSED

    bench.sim.run(scenario)


def test_what_the_metadata_could_not_say_is_asked_again() -> None:
    bench = BookieBench(2)

    async def scenario() -> None:
        await bench.client()
        await write_record(bench, ledger((0, HERE), state=LedgerState.OPEN))
        bench.sim.metadata.stop()
        await fill(bench, 1)
        await asyncio.sleep(SOON)
        assert await kept(bench) is None
        bench.sim.metadata.start()
        await asyncio.sleep(60.0)
        assert await state(bench) is LedgerState.OPEN

    bench.sim.run(scenario)


def test_a_record_that_a_lagging_server_does_not_show_yet_is_read_again() -> None:
    bench = BookieBench(5)

    async def scenario() -> None:
        await bench.client()
        await write_record(bench, ledger((0, "other"), state=LedgerState.OPEN))
        await fill(bench, 1, 2, entries=10)  # 1.2 seconds
        found = await kept(bench)
        assert found is not None
        assert found.version == 0, "it does not name the bookie yet"
        assert await kept(bench, 2) is None
        at = await write_record(bench, ledger((0, HERE), state=LedgerState.OPEN))
        await asyncio.sleep(SOON)
        found = await kept(bench)
        assert found is not None
        assert found.version == at

    bench.sim.run(scenario)


def test_the_copy_stays_in_the_trash_and_goes_with_the_ledger() -> None:
    bench = BookieBench(3, trash_grace_seconds=30.0)

    async def scenario() -> None:
        await bench.client()
        await write_record(bench, ledger((0, HERE)))
        await fill(bench, 1)
        await asyncio.sleep(SOON)
        await delete_metadata(bench, paths.ledger(1))
        await collect(bench)
        await collect(bench)
        assert bench.bookie.garbage.trash.count == 1
        assert await kept(bench) is not None
        await asyncio.sleep(40.0)
        await collect(bench)
        assert bench.bookie.garbage.trash.count == 0
        assert await kept(bench) is None

    bench.sim.run(scenario)


def test_a_restored_tree_replaces_no_copy_before_it_is_confirmed() -> None:
    bench = BookieBench(4)
    open_ledger = ledger((0, HERE), state=LedgerState.OPEN)

    async def scenario() -> None:
        await bench.client()
        await write_record(bench, ledger((0, HERE)))
        await fill(bench, 1)
        await asyncio.sleep(SOON)
        mark = encode_record(RestoredTree("0" * 64, 1, 1))
        await write(bench, Op("create", paths.RESTORED, mark))
        await write_record(bench, msgspec.structs.replace(open_ledger, restored=True))
        await collect(bench)
        assert await state(bench) is LedgerState.CLOSED

        async def confirm(world: World) -> None:
            await confirm_tree(records(world))
            assert await records(world).get(paths.AGE, AgeRecord) is not None

        await bench.client_node.run(confirm)
        # The versions of a restored tree may have begun again.
        await delete_metadata(bench, paths.ledger(1))
        await write_record(bench, open_ledger)
        await collect(bench)
        found = await kept(bench)
        assert found is not None
        assert found[:2] == (1, 0)
        assert await state(bench) is LedgerState.OPEN

    bench.sim.run(scenario)


def test_a_restore_in_the_middle_of_a_look_replaces_no_copy() -> None:
    bench = BookieBench(5)
    restored = ledger((0, HERE), state=LedgerState.OPEN)

    async def restore() -> None:
        mark = encode_record(RestoredTree("0" * 64, 1))
        await write(bench, Op("create", paths.RESTORED, mark))
        await write_record(bench, msgspec.structs.replace(restored, restored=True))

    async def scenario() -> None:
        await bench.client()
        await write_record(bench, ledger((0, HERE)))
        await fill(bench, 1)
        await asyncio.sleep(SOON)
        garbage = bench.bookie.garbage
        begin, known_mark = garbage.strays.begin, garbage.copies._age.known_mark

        async def begin_late() -> None:
            await restore()
            await begin()

        garbage.strays.begin = begin_late  # type: ignore[method-assign]
        await collect(bench)
        assert await state(bench) is LedgerState.CLOSED
        garbage.strays.begin = begin  # type: ignore[method-assign]
        await delete_metadata(bench, paths.RESTORED)
        await write_record(bench, ledger((0, HERE)))
        await collect(bench)

        async def known_early() -> RestoredTree | None:
            found = await known_mark()
            await restore()
            return found

        garbage.copies._age.known_mark = known_early  # type: ignore[method-assign]
        await bench.in_bookie(lambda _bookie: garbage.copies.read([1]))
        assert await state(bench) is LedgerState.CLOSED

    bench.sim.run(scenario)
