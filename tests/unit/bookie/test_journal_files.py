"""A bookie's journal files over restarts: those of an earlier version, and those that are used
again.
"""

from __future__ import annotations

from typing import Any

from pulsarish.bookie.journal import journal
from pulsarish.bookie.journal.journal_format import RecordType, frame_record, padded_size
from pulsarish.bookie.space import SpaceMode
from pulsarish.sim.workloads.safeguard import replaced
from tests.support.bookies import BookieBench, BookieClient, make_record

OK = 0
LEDGER = 1


async def fill(client: BookieClient, first: int, count: int) -> None:
    for entry_id in range(first, first + count):
        record = make_record(LEDGER, entry_id, b"%d" % entry_id * 100)
        assert await client.add([record]) == {(LEDGER, entry_id): OK}


async def check(client: BookieClient, count: int) -> None:
    code, found = await client.read(LEDGER, 0, count - 1)
    assert (code, found) == (OK, {each: b"%d" % each * 100 for each in range(count)})


def journal_files(bench: BookieBench) -> list[str]:
    return sorted(path for path in bench.node.disk.names if path.endswith(".journal"))


def _header_without_key(_was: object) -> object:
    def frame_header(file_id: int, _key: int, sequence: int, instance_id: bytes) -> list[Any]:
        return frame_record(
            file_id,
            0,
            RecordType.KEYLESS_FILE_HEADER,
            sequence,
            sequence,
            [instance_id],
            len(instance_id),
        )

    return frame_header


def _record_without_key(was: Any) -> object:
    def record(file_id: int, _key: int, *rest: Any) -> list[Any]:
        parts: list[Any] = was(file_id, 0, *rest)
        return parts

    return record


def test_the_journal_of_a_version_without_keys_is_replayed() -> None:
    bench = BookieBench(1, checkpoint_interval_seconds=1000.0)

    async def scenario() -> None:
        with (
            replaced(journal, "frame_header", _header_without_key),
            replaced(journal, "frame_record", _record_without_key),
            replaced(journal, "header_size", lambda _was: lambda name: padded_size(len(name))),
        ):
            await bench.with_client(lambda client: fill(client, 0, 40))
            bench.node.crash()
        assert len(journal_files(bench)) > 2
        for entries in (40, 80):
            bench.start()
            await bench.with_client(lambda client, entries=entries: check(client, entries))  # type: ignore[misc]
            await bench.with_client(lambda client, entries=entries: fill(client, entries, 40))  # type: ignore[misc]
            bench.node.crash()
        bench.start()
        await bench.with_client(lambda client: check(client, 120))

    bench.sim.run(scenario)


def test_a_stop_leaves_no_files_that_wait_to_be_used_again() -> None:
    bench = BookieBench(5)

    async def scenario() -> None:
        await bench.with_client(lambda client: fill(client, 0, 200))
        await bench.in_bookie(lambda bookie: bookie.stop())
        assert len(journal_files(bench)) == 1, "the one that the mark names"

    bench.sim.run(scenario)


def test_a_start_removes_files_that_wait_to_be_used_again() -> None:
    bench = BookieBench(2)

    async def scenario() -> None:
        await bench.with_client(lambda client: fill(client, 0, 200))
        await bench.client_node.run(lambda world: world.clock.sleep(2.0))
        waiting = bench.bookie.store.journal._spares
        assert len(waiting) == 2
        bench.node.crash()
        assert set(waiting) <= set(journal_files(bench))
        bench.start()
        await bench.with_client(lambda client: check(client, 200))
        assert set(waiting).isdisjoint(journal_files(bench))

    bench.sim.run(scenario)


def test_a_start_on_a_full_disk_takes_the_space_of_files_below_the_mark() -> None:
    bench = BookieBench(4)

    async def scenario() -> None:
        await bench.with_client(lambda client: fill(client, 0, 200))
        await bench.client_node.run(lambda world: world.clock.sleep(2.0))
        waiting = bench.bookie.store.journal._spares
        assert len(waiting) == 2
        bench.node.crash()
        disk = bench.node.disk
        disk.capacity_bytes = disk.used_bytes() + bench.config.journal_file_size_bytes - 1
        bench.start()
        await bench.with_client(lambda client: check(client, 200))
        assert bench.bookie.store.space is SpaceMode.RESERVED

    bench.sim.run(scenario)


def test_a_bookie_without_space_keeps_no_files_to_be_used_again() -> None:
    bench = BookieBench(3)

    async def scenario() -> None:
        await bench.with_client(lambda client: fill(client, 0, 200))
        await bench.client_node.run(lambda world: world.clock.sleep(2.0))
        assert len(journal_files(bench)) == 4
        disk = bench.node.disk
        disk.capacity_bytes = disk.used_bytes() + bench.config.read_only_free_bytes // 2
        await bench.client_node.run(lambda world: world.clock.sleep(1.0))
        assert bench.bookie.store.space is SpaceMode.READ_ONLY
        assert len(journal_files(bench)) == 2, "the current one and the next"

    bench.sim.run(scenario)
