"""The read cache behind a bookie's reads: what readers get from it, and that nothing it holds hides
what the disk and the index say.
"""

from __future__ import annotations

import pytest

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.ledger_index import Location
from pulsarish.metadata import paths
from pulsarish.model.errors import BookieIOError, NoSuchEntry, NoSuchLedger
from pulsarish.wire.bookie import ReadAnswer, ReadItem
from pulsarish.wire.record import decode_entry_record
from tests.support.bookies import BookieBench, make_record
from tests.unit.bookie.test_housekeeping import collect, delete_metadata, fill, make_ledgers

ENTRIES = 30


async def read(bench: BookieBench, ledger_id: int, *, may_cache: bool = True) -> ReadAnswer:
    """Read a ledger as a reader does, or as a check of the copy does."""
    item = ReadItem(1, ledger_id, [(0, ENTRIES - 1)], 1 << 20, may_cache)
    (answer,) = await bench.with_client(lambda client: client.read_many([item]))
    for entry_id, record in enumerate(answer.records):
        assert decode_entry_record(record, ledger_id, entry_id).payload == b"x" * 100
    return answer


async def is_whole(bench: BookieBench, ledger_id: int, *, may_cache: bool = True) -> bool:
    answer = await read(bench, ledger_id, may_cache=may_cache)
    return (answer.code, len(answer.records)) == (0, ENTRIES)


async def cached(bench: BookieBench, *ledger_ids: int) -> None:
    """Ledgers whose entries lie in the logs and in the read cache."""
    await bench.client()
    await make_ledgers(bench, *ledger_ids)
    await fill(bench, *ledger_ids, entries=ENTRIES)
    await bench.in_bookie(_flush)
    for ledger_id in ledger_ids:
        assert await is_whole(bench, ledger_id)
    assert not bench.bookie.store.read_cache.entries_count, "a reader that comes once keeps nothing"
    for ledger_id in ledger_ids:
        assert await is_whole(bench, ledger_id)
    assert bench.bookie.store.read_cache.entries_count == ENTRIES * len(ledger_ids)


async def _flush(bookie: Bookie) -> None:
    for _ in range(2):  # both generations of the write cache
        await bookie.store.checkpoint()


async def damage(bench: BookieBench, ledger_id: int, entry_id: int) -> None:
    async def work(bookie: Bookie) -> None:
        ((_, (log_id, offset, _)),) = await bookie.store.index.entry_locations(
            ledger_id, entry_id, 1
        )
        bench.node.disk.flip_bit(bookie.store.logs.path(log_id), offset + 40, bit=3)

    await bench.in_bookie(work)


def reads_of_logs(bench: BookieBench) -> int:
    return bench.bookie.store.logs.reads_count


def test_readers_come_back_without_a_read_of_the_log() -> None:
    bench = BookieBench(1, read_cache_size_bytes=1 << 20)

    async def scenario() -> None:
        await cached(bench, 1)
        before, kept = reads_of_logs(bench), bench.bookie.store.read_cache
        for _ in range(2):
            assert await is_whole(bench, 1)
        assert reads_of_logs(bench) == before
        assert (kept.hits, kept.misses) == (2 * ENTRIES, 2 * ENTRIES)

    bench.sim.run(scenario)


def test_only_reads_that_say_so_use_the_cache() -> None:
    bench = BookieBench(1, read_cache_size_bytes=1 << 20)

    async def scenario() -> None:
        await cached(bench, 1, 2)
        kept = bench.bookie.store.read_cache
        hits, before = kept.hits, reads_of_logs(bench)
        assert await is_whole(bench, 1, may_cache=False)
        assert reads_of_logs(bench) > before
        code, records = await bench.with_client(lambda client: client.recovery_read(1, 0, 0))
        assert (code, records) == (0, [b"x" * 100])
        assert (kept.hits, kept.entries_count) == (hits, 2 * ENTRIES)
        kept.drop(await _places(bench, 2))
        assert await is_whole(bench, 2, may_cache=False)
        assert kept.entries_count == ENTRIES, "a check keeps nothing"

    bench.sim.run(scenario)


async def _places(bench: BookieBench, ledger_id: int) -> list[Location]:
    async def work(bookie: Bookie) -> list[Location]:
        rows = await bookie.store.index.entry_locations(ledger_id, 0, ENTRIES)
        return [location for _, location in rows]

    return await bench.in_bookie(work)


def test_a_cached_entry_hides_no_damage_from_checks_recovery_and_the_scrubber() -> None:
    bench = BookieBench(1, read_cache_size_bytes=1 << 20)

    async def scenario() -> None:
        await cached(bench, 1)
        await damage(bench, 1, 7)
        assert await is_whole(bench, 1)
        checked = await read(bench, 1, may_cache=False)
        assert (checked.code, len(checked.records)) == (BookieIOError.code, 7)
        recovered = await bench.with_client(lambda client: client.recovery_read(1, 7, 7))
        assert recovered == (BookieIOError.code, [])
        await bench.in_bookie(lambda bookie: bookie.scrubber.scrub())
        assert bench.bookie.scrubber.damaged == 1

    bench.sim.run(scenario)


def test_a_record_that_does_not_match_its_checksum_is_not_kept() -> None:
    bench = BookieBench(1, read_cache_size_bytes=1 << 20)

    async def scenario() -> None:
        await make_ledgers(bench, 1)
        await fill(bench, 1, entries=ENTRIES)
        await bench.in_bookie(_flush)
        await damage(bench, 1, 7)
        for _ in range(3):
            answer = await read(bench, 1)
            assert (answer.code, len(answer.records)) == (BookieIOError.code, 7)
        assert bench.bookie.store.read_cache.get((await _places(bench, 1))[7]) is None

    bench.sim.run(scenario)


@pytest.mark.parametrize("flushed", [False, True])
def test_what_recovery_writes_is_read_instead_of_what_was_cached(flushed: bool) -> None:
    bench = BookieBench(1, read_cache_size_bytes=1 << 20)

    async def scenario() -> None:
        await cached(bench, 1)
        written = make_record(1, 7, b"x" * 100, lac=3)  # recovery stamps a LAC of its own
        await bench.with_client(lambda client: client.add([written], recovery=True))
        if flushed:
            await bench.in_bookie(_flush)
        for _ in range(3):
            answer = await read(bench, 1)
            assert bytes(answer.records[7]) == written

    bench.sim.run(scenario)


def test_a_cached_ledger_is_gone_when_it_is_deleted() -> None:
    bench = BookieBench(1, read_cache_size_bytes=1 << 20)

    async def scenario() -> None:
        await cached(bench, 1, 2)
        await delete_metadata(bench, paths.ledger(1))
        await collect(bench)
        answer = await read(bench, 1)
        assert (answer.code, answer.records) == (NoSuchLedger.code, [])
        assert bench.bookie.store.read_cache.entries_count == ENTRIES
        bench.bookie.store.read_cache.check()

    bench.sim.run(scenario)


def test_a_cached_entry_without_a_row_of_the_index_is_not_there() -> None:
    bench = BookieBench(1, read_cache_size_bytes=1 << 20)

    async def scenario() -> None:
        await cached(bench, 1)

        async def lose(bookie: Bookie) -> None:
            keys = await bookie.store.index.entry_keys(1, ENTRIES)
            await bookie.store.index.rows.write([], keys[7:], sync=True)

        await bench.in_bookie(lose)
        answer = await read(bench, 1)
        assert (answer.code, len(answer.records)) == (NoSuchEntry.code, 7)

    bench.sim.run(scenario)


def test_compaction_moves_what_is_cached() -> None:
    bench = BookieBench(1, read_cache_size_bytes=1 << 20)

    async def scenario() -> None:
        await cached(bench, 1, 2, 3)
        before = await _places(bench, 3)
        for ledger_id in (1, 2):
            await delete_metadata(bench, paths.ledger(ledger_id))
        await collect(bench)
        assert bench.bookie.garbage.logs_deleted >= 1
        moved = [
            old for old, new in zip(before, await _places(bench, 3), strict=True) if old != new
        ]
        kept = bench.bookie.store.read_cache
        assert moved
        assert kept.entries_count == ENTRIES - len(moved)
        assert all(kept.get(place) is None for place in moved)
        for _ in range(2):
            assert await is_whole(bench, 3)
        assert kept.entries_count == ENTRIES
        kept.check()

    bench.sim.run(scenario)


def test_nothing_is_kept_when_the_cache_is_off() -> None:
    bench = BookieBench(1, read_cache_size_bytes=0)

    async def scenario() -> None:
        await make_ledgers(bench, 1)
        await fill(bench, 1, entries=ENTRIES)
        await bench.in_bookie(_flush)
        for _ in range(2):
            before = reads_of_logs(bench)
            assert await is_whole(bench, 1)
            assert reads_of_logs(bench) > before
        kept = bench.bookie.store.read_cache
        assert (kept.size_bytes, kept.hits, kept.misses) == (0, 0, 0)

    bench.sim.run(scenario)
