"""Compaction of entry logs on a disk that is full, or whose syncs fail."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from pulsarish.bookie.entry_logs.entry_log import EntryLogs
from pulsarish.bookie.entry_logs.entry_log_format import HEADER_SIZE
from pulsarish.bookie.ledger_index import LedgerIndex
from pulsarish.metadata import paths
from pulsarish.runtime.containment import Critical
from pulsarish.sim.workloads.safeguard import replaced
from pulsarish.sim.world.disk import CAPACITY_BYTES, DiskFault
from pulsarish.sim.world.files import SimFile
from tests.support.bookies import BookieBench
from tests.unit.bookie.test_housekeeping import (
    collect,
    delete_metadata,
    fill,
    make_ledgers,
    present,
)

RESERVED_BYTES = 1 << 19
LOOK_SECONDS = 0.5
"""Longer than the time between two looks at the space of the disk."""


async def half_dead(bench: BookieBench) -> list[int]:
    """Entries of three ledgers in every log, of which two are deleted; returns the logs that are
    full.
    """
    await bench.client()
    await make_ledgers(bench, 1, 2, 3)
    await fill(bench, 1, 2, 3, entries=90)
    await delete_metadata(bench, paths.ledger(1))
    await delete_metadata(bench, paths.ledger(2))
    logs = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
    return [log_id for log_id in logs if log_id != bench.bookie.store.logs.current_id]


def with_full_disk(bench: BookieBench, was: Any) -> Callable[..., Awaitable[Any]]:
    """A disk that fills up between the look at the free space and the write."""

    async def write(logs: EntryLogs, chunks: Sequence[Any]) -> Any:
        disk = bench.node.disk
        disk.capacity_bytes = disk.used_bytes()
        return await was(logs, chunks)

    return write


async def scanned_bytes(bench: BookieBench, log_id: int) -> int:
    async def scan(bookie: Any) -> int:
        return sum(
            [
                sum(size for _, _, size in chunk.locations)
                async for chunk in bookie.store.logs.scan(log_id)
            ]
        )

    return await bench.in_bookie(scan)


def test_a_disk_that_is_full_is_not_damage_of_the_log_that_is_read() -> None:
    bench = BookieBench(5)

    async def scenario() -> None:
        full = await half_dead(bench)
        garbage = bench.bookie.garbage
        with replaced(EntryLogs, "write", lambda was: with_full_disk(bench, was)):
            await collect(bench)
        assert garbage.unreadable_logs == {}
        assert garbage.logs_deleted == 0
        assert garbage.logs_postponed == len(full)
        bench.node.disk.capacity_bytes = CAPACITY_BYTES
        await collect(bench)
        assert garbage.logs_postponed == 0
        assert garbage.logs_deleted == len(full), (
            "once there is space they are rewritten, without a restart"
        )
        assert await present(bench, 3, 90)
        # Every log can be scanned to its end, that of the failed writes too, and is deleted when
        # its last ledger is.
        for log_id in await bench.in_bookie(lambda bookie: bookie.store.logs.ids()):
            assert await scanned_bytes(bench, log_id) > 0
        await delete_metadata(bench, paths.ledger(3))
        await fill(bench, 4)
        await collect(bench)
        assert garbage.unreadable_logs == {}
        assert bench.bookie.store.logs.current_id is not None

    bench.sim.run(scenario)


def test_dead_logs_are_deleted_while_the_disk_is_full() -> None:
    bench = BookieBench(6)

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1, 2, 3)
        await fill(bench, 1, 2, entries=90)
        before = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        await fill(bench, 3, entries=90)
        # nothing but the collector has anything to write then
        await bench.in_bookie(lambda bookie: bookie.store.checkpoint())
        await delete_metadata(bench, paths.ledger(1))
        await bench.in_bookie(lambda bookie: bookie.store.checkpoint())
        with replaced(EntryLogs, "write", lambda was: with_full_disk(bench, was)):
            await collect(bench)
            await delete_metadata(bench, paths.ledger(2))
            await collect(bench)
        left = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        assert not set(before[:-1]) & set(left)
        assert await present(bench, 3, 90)

    bench.sim.run(scenario)


def test_a_sync_of_the_copies_that_fails_ends_the_process() -> None:
    bench = BookieBench(7)
    bench.node.expect(OSError)

    async def scenario() -> None:
        await half_dead(bench)
        bench.node.disk.fail_next_sync("/ledgers/")
        assert bench.node.world is not None
        bench.node.world.tasks.spawn(
            bench.bookie.garbage.collect(), name="garbage", critical=Critical.GARBAGE
        )
        await bench.client_node.run(lambda world: world.clock.sleep(2.0))
        assert not bench.node.alive
        assert isinstance(bench.node.ends[-1], OSError)
        bench.start()
        assert await present(bench, 3, 90)

    bench.sim.run(scenario)


def test_a_sync_that_fails_on_a_full_disk_ends_the_process_too() -> None:
    """As of a file system that finds the space for written data late: what is durable is not known,
    and no later sync would say so.
    """
    bench = BookieBench(7)
    bench.node.expect(OSError)

    def no_space(was: Any) -> Callable[..., Awaitable[None]]:
        async def write(
            file: SimFile, offset_bytes: int, parts: Sequence[Any], *, sync: bool
        ) -> None:
            if sync and "/ledgers/" in file.path:
                raise DiskFault(errno.ENOSPC, "no space left", file.path)
            await was(file, offset_bytes, parts, sync=sync)

        return write

    async def scenario() -> None:
        await half_dead(bench)
        # the copies begin a log, and so the one before is synced
        bench.bookie.store.logs._size_bytes = 0
        assert bench.node.world is not None
        with replaced(SimFile, "write", no_space):
            bench.node.world.tasks.spawn(
                bench.bookie.garbage.collect(), name="garbage", critical=Critical.GARBAGE
            )
            await bench.client_node.run(lambda world: world.clock.sleep(2.0))
        assert not bench.node.alive
        bench.start()
        assert await present(bench, 3, 90)

    bench.sim.run(scenario)


@pytest.mark.parametrize(("spare_bytes", "rewritten"), [(0, False), (100_000, True)])
def test_compaction_leaves_the_reserve_alone(spare_bytes: int, rewritten: bool) -> None:
    """The space that is kept for checkpoints and deletion is not there for copies, however much
    they would free.
    """
    bench = BookieBench(8)

    async def scenario() -> None:
        full = await half_dead(bench)
        disk, garbage = bench.node.disk, bench.bookie.garbage
        # Twice: once the bookie sees that its disk is full, it gives up its spare journal files.
        for _ in range(2):
            used = disk.used_bytes()
            disk.capacity_bytes = used + RESERVED_BYTES + spare_bytes
            await bench.client_node.run(lambda world: world.clock.sleep(LOOK_SECONDS))
        await collect(bench)
        assert garbage.logs_deleted == (len(full) if rewritten else 0)
        assert garbage.logs_postponed == (0 if rewritten else len(full))
        if not rewritten:
            assert disk.used_bytes() <= used
        assert await present(bench, 3, 90)

    bench.sim.run(scenario)


def test_a_log_whose_header_could_not_be_written_gets_no_entries() -> None:
    bench = BookieBench(9)

    async def scenario() -> None:
        await bench.client()
        logs, disk = bench.bookie.store.logs, bench.node.disk

        async def fail_once(_bookie: Any) -> int:
            await logs.finish()
            # for the row that says that the log was begun
            disk.capacity_bytes = disk.used_bytes() + 1
            with pytest.raises(OSError, match="no space"):
                await logs.write([(1, [b"x" * 50])])
            disk.capacity_bytes = CAPACITY_BYTES
            log_id, _ = await logs.write([(1, [b"x" * 50])])
            await logs.sync()
            return log_id

        assert await scanned_bytes(bench, await bench.in_bookie(fail_once)) == 50
        await collect(bench)
        assert bench.bookie.garbage.unreadable_logs == {}
        assert await bench.in_bookie(lambda bookie: bookie.store.logs.ids()) == [logs.current_id]

    bench.sim.run(scenario)


def test_a_damaged_count_of_records_asks_for_no_more_than_the_log_holds() -> None:
    """On a real machine a buffer is made of the size that is asked for: one bit would cost 8 GiB,
    or the bookie's life.
    """
    bench = BookieBench(10)
    asked: list[int] = []

    def measured(was: Any) -> object:
        async def read(file: SimFile, spans: Sequence[tuple[int, int]]) -> list[bytes]:
            asked.extend(size_bytes for _, size_bytes in spans)
            found: list[bytes] = await was(file, spans)
            return found

        return read

    async def scenario() -> None:
        first, *others = await half_dead(bench)
        path = bench.bookie.store.logs.path(first)
        # the highest bit of the first chunk's count
        bench.node.disk.flip_bit(path, HEADER_SIZE + 16, 7)
        with replaced(SimFile, "read", measured):
            await collect(bench)
        assert max(asked) < 1 << 20
        assert list(bench.bookie.garbage.unreadable_logs) == [first]
        assert bench.bookie.garbage.logs_deleted == len(others)

    bench.sim.run(scenario)


def test_records_that_the_index_does_not_have_make_up_for_no_damaged_one() -> None:
    """A flush that ended before its rows were written leaves records that nothing points to."""
    bench = BookieBench(12)

    async def scenario() -> None:
        await half_dead(bench)
        store = bench.bookie.store

        async def write_twice(_bookie: Any) -> tuple[int, int, int]:
            await store.checkpoint()
            log_id = store.logs.current_id
            rows = await store.index.entry_locations(3, 0, 90)
            location = next(each for _, each in rows if each[0] == log_id)
            (record,) = await store.logs.read([location])
            assert not isinstance(record, OSError)
            await store.logs.write([(3, [record])])
            await store.logs.finish()
            return location

        log_id, offset, size_bytes = await bench.in_bookie(write_twice)
        bench.node.disk.flip_bit(store.logs.path(log_id), offset + size_bytes - 1, 0)
        await collect(bench)
        assert list(bench.bookie.garbage.unreadable_logs) == [log_id]
        assert log_id in await bench.in_bookie(lambda bookie: bookie.store.logs.ids())

    bench.sim.run(scenario)


def test_a_crash_between_the_deletion_of_a_log_and_of_its_rows_damages_nothing() -> None:
    """The log was rewritten and its file is gone; what the index counts for it says nothing of the
    entries, which are elsewhere.
    """
    bench = BookieBench(11)

    async def scenario() -> None:
        full = await half_dead(bench)

        async def cut(_index: LedgerIndex, _log_id: int) -> None:
            bench.node.crash()
            await asyncio.sleep(0)

        assert bench.node.world is not None
        with replaced(LedgerIndex, "forget_log", lambda _was: cut):
            bench.node.world.tasks.spawn(
                bench.bookie.garbage.collect(), name="garbage", critical=Critical.GARBAGE
            )
            await bench.client_node.run(lambda world: world.clock.sleep(2.0))
        assert not bench.node.alive
        bench.start()
        await bench.client()
        assert await present(bench, 3, 90)
        await collect(bench)
        garbage = bench.bookie.garbage
        assert garbage.unreadable_logs == {}
        assert not set(full) & set(
            await bench.in_bookie(lambda bookie: bookie.store.index.logs_begun())
        )
        assert await present(bench, 3, 90)

    bench.sim.run(scenario)
