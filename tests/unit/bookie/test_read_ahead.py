"""What a bookie reads ahead for readers that go through a ledger in order: how much memory it
takes, when it stops, whom it disturbs, and that it hides nothing of what disk and index say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.read_ahead import ReadAhead
from pulsarish.metadata import paths
from pulsarish.model.errors import BookieIOError, ConfigError, NoSuchEntry, NoSuchLedger
from pulsarish.wire.bookie import ReadAnswer, ReadItem
from pulsarish.wire.record import decode_entry_record
from tests.support.bookies import BookieBench, BookieClient, make_record, small_config
from tests.unit.bookie.test_housekeeping import collect, delete_metadata, make_ledgers
from tests.unit.bookie.test_read_lanes import SOON_SECONDS, occupy, seconds

RECORD = 136
STEP = 4
"""Entries of one read."""
IDLE_SECONDS = 6.0


def bench_of(**settings: object) -> BookieBench:
    values: dict[str, object] = {
        "read_ahead_batch_size_bytes": 8 * RECORD,
        "read_ahead_cache_size_bytes": 64 * RECORD,
        "read_cache_size_bytes": 1 << 20,
        "entry_log_size_bytes": 1 << 20,
    }
    return BookieBench(1, **{**values, **settings})


def ahead_of(bench: BookieBench) -> ReadAhead:
    return bench.bookie.store.ahead


async def _flush(bookie: Bookie) -> None:
    for _ in range(2):  # both generations of the write cache
        await bookie.store.checkpoint()


async def stored(bench: BookieBench, *ledger_ids: int, entries: int = 60) -> None:
    """Ledgers whose entries lie in the logs, each of them together."""
    await make_ledgers(bench, *ledger_ids)
    for ledger_id in ledger_ids:
        records = [make_record(ledger_id, entry, b"x" * 100) for entry in range(entries)]
        codes = await bench.with_client(lambda client, records=records: client.add(records))
        assert not any(codes.values())
    await bench.in_bookie(_flush)


async def read(
    bench: BookieBench, ledger_id: int, first: int, *, count: int = STEP, may_cache: bool = True
) -> ReadAnswer:
    """Read some entries, and let the bookie read ahead until it has nothing to do."""
    item = ReadItem(1, ledger_id, [(first, first + count - 1)], count * RECORD, may_cache)

    async def work(client: BookieClient) -> ReadAnswer:
        (answer,) = await client.read_many([item])
        await client.world.clock.sleep(0.2)
        return answer

    answer = await bench.with_client(work)
    for number, record in enumerate(answer.records):
        assert decode_entry_record(record, ledger_id, first + number).payload == b"x" * 100
    ahead_of(bench).check()
    return answer


async def walk(bench: BookieBench, ledger_id: int, first: int, end: int) -> None:
    for at in range(first, end, STEP):
        answer = await read(bench, ledger_id, at)
        assert (answer.code, len(answer.records)) == (0, STEP)


def run(bench: BookieBench, scenario: Callable[[], Awaitable[None]]) -> None:
    async def checked() -> None:
        await scenario()
        await bench.in_bookie(lambda bookie: bookie.store.ahead.stop())
        ahead_of(bench).check()
        assert not ahead_of(bench).held_bytes

    bench.sim.run(checked)


def test_a_reader_in_order_finds_what_it_wants_next() -> None:
    bench = bench_of()

    async def scenario() -> None:
        await stored(bench, 1)
        await walk(bench, 1, 0, 2 * STEP)
        reads = bench.bookie.store.logs.reads_count
        assert ahead_of(bench).hits == 0
        await walk(bench, 1, 2 * STEP, 60)
        assert ahead_of(bench).hits == ahead_of(bench).read_entries == 60 - 2 * STEP
        assert bench.bookie.store.logs.reads_count - reads <= 60 // 8

    run(bench, scenario)


def test_one_read_is_not_read_ahead_of() -> None:
    bench = bench_of()

    async def scenario() -> None:
        await stored(bench, 1)
        for first in (0, 40, 25, 44):  # 44 follows the second one
            await read(bench, 1, first)
            assert ahead_of(bench).read_entries == (8 if first == 44 else 0)

    run(bench, scenario)


def test_a_reader_that_jumps_has_nothing_more_read_and_its_memory_is_freed() -> None:
    bench = bench_of()

    async def scenario() -> None:
        await stored(bench, 1)
        await walk(bench, 1, 0, 3 * STEP)
        held, read_entries = ahead_of(bench).held_bytes, ahead_of(bench).read_entries
        assert held > 0
        for first in (50, 30, 10, 1):
            await read(bench, 1, first, count=1)
        assert ahead_of(bench).read_entries == read_entries
        assert ahead_of(bench).held_bytes == held

        async def wait(client: BookieClient) -> None:
            await client.world.clock.sleep(IDLE_SECONDS)

        await bench.with_client(wait)
        await read(bench, 1, 0, count=1)
        assert ahead_of(bench).held_bytes == 0
        assert ahead_of(bench).walks_count == 1

    run(bench, scenario)


def test_many_readers_stay_within_the_memory_and_do_not_displace_each_other() -> None:
    bench = bench_of(read_ahead_cache_size_bytes=40 * RECORD)
    ledgers = range(1, 11)

    async def scenario() -> None:
        await stored(bench, *ledgers, entries=40)
        for at in range(0, 40, STEP):
            for ledger_id in ledgers:
                answer = await read(bench, ledger_id, at)
                assert (answer.code, len(answer.records)) == (0, STEP)
        ahead = ahead_of(bench)
        assert 0 < ahead.read_entries < 10 * 40
        assert ahead.hits == ahead.read_entries

    run(bench, scenario)


def test_an_entry_that_is_larger_than_a_piece_needs_room_of_its_own() -> None:
    bench = bench_of(read_ahead_batch_size_bytes=1024, read_ahead_cache_size_bytes=4096)

    async def scenario() -> None:
        for size, fits in ((3_000, True), (5_000, False)):
            records = [make_record(size, entry, bytes(size)) for entry in range(6)]
            for record in records:
                await bench.with_client(lambda client, record=record: client.add([record]))
            await bench.in_bookie(_flush)
            before = ahead_of(bench).read_entries
            for entry in range(6):
                item = ReadItem(1, size, [(entry, entry)], 1, True)
                (answer,) = await bench.with_client(
                    lambda client, item=item: client.read_many([item])
                )
                assert [bytes(each) for each in answer.records] == [records[entry]]
                ahead_of(bench).check()
            assert (ahead_of(bench).read_entries > before) == fits

    run(bench, scenario)


def test_readers_at_the_tail_have_nothing_read_ahead() -> None:
    bench = bench_of(write_cache_size_bytes=200_000, checkpoint_interval_seconds=1000.0)

    async def scenario() -> None:
        records = [make_record(1, entry, b"x" * 100) for entry in range(60)]
        await bench.with_client(lambda client: client.add(records))
        reads = bench.bookie.store.logs.reads_count
        await walk(bench, 1, 0, 60)
        assert ahead_of(bench).read_entries == bench.bookie.store.logs.reads_count - reads == 0
        assert ahead_of(bench).held_bytes == 0

    run(bench, scenario)


def test_a_long_catch_up_drops_nothing_that_others_come_back_to() -> None:
    bench = bench_of(read_cache_size_bytes=32_000)

    async def scenario() -> None:
        await stored(bench, 1, 2, entries=200)
        for _ in range(4):  # until ledger 1 has its place
            await read(bench, 1, 0, count=20)
        reads = bench.bookie.store.logs.reads_count
        kept = bench.bookie.store.read_cache
        entries = kept.entries_count
        assert entries >= 20
        await walk(bench, 2, 0, 200)
        assert kept.entries_count == entries
        assert ahead_of(bench).hits > 150
        reads = bench.bookie.store.logs.reads_count
        assert len((await read(bench, 1, 0, count=20)).records) == 20
        assert bench.bookie.store.logs.reads_count == reads

    run(bench, scenario)


def test_what_the_read_cache_has_is_not_read_ahead() -> None:
    bench = bench_of()

    async def scenario() -> None:
        await stored(bench, 1)
        await walk(bench, 1, 0, 60)
        await walk(bench, 1, 0, 60)
        assert bench.bookie.store.read_cache.entries_count == 60
        before = ahead_of(bench).read_entries
        await walk(bench, 1, 0, 60)
        assert ahead_of(bench).read_entries == before

    run(bench, scenario)


def test_checks_get_nothing_that_was_read_ahead() -> None:
    bench = bench_of()

    async def scenario() -> None:
        await stored(bench, 1)
        for at in range(0, 40, STEP):
            await read(bench, 1, at, may_cache=False)
        assert (ahead_of(bench).read_entries, ahead_of(bench).walks_count) == (0, 0)

    run(bench, scenario)


async def damage(bench: BookieBench, ledger_id: int, entry_id: int) -> None:
    async def work(bookie: Bookie) -> None:
        ((_, (log_id, offset, _)),) = await bookie.store.index.entry_locations(
            ledger_id, entry_id, 1
        )
        bench.node.disk.flip_bit(bookie.store.logs.path(log_id), offset + 40, bit=3)

    await bench.in_bookie(work)


def test_damage_is_found_in_what_was_read_ahead() -> None:
    bench = bench_of()

    async def scenario() -> None:
        await stored(bench, 1)
        await damage(bench, 1, 3 * STEP + 1)
        await walk(bench, 1, 0, 3 * STEP)
        answer = await read(bench, 1, 3 * STEP)
        assert (answer.code, len(answer.records)) == (BookieIOError.code, 1)
        assert ahead_of(bench).hits == 2 * STEP

    run(bench, scenario)


def test_what_recovery_writes_is_read_instead_of_what_was_read_ahead() -> None:
    bench = bench_of()

    async def scenario() -> None:
        await stored(bench, 1)
        await walk(bench, 1, 0, 2 * STEP)
        written = make_record(1, 2 * STEP, b"x" * 100, lac=3)  # recovery stamps a LAC of its own
        await bench.with_client(lambda client: client.add([written], recovery=True))
        await bench.in_bookie(_flush)
        answer = await read(bench, 1, 2 * STEP)
        assert bytes(answer.records[0]) == written
        assert ahead_of(bench).hits == STEP - 1

    run(bench, scenario)


def test_a_deleted_ledger_and_a_lost_row_are_not_answered_from_what_was_read_ahead() -> None:
    bench = bench_of()

    async def scenario() -> None:
        await stored(bench, 1, 2)
        await walk(bench, 1, 0, 2 * STEP)
        await walk(bench, 2, 0, 2 * STEP)
        assert ahead_of(bench).read_entries == 16

        async def lose(bookie: Bookie) -> None:
            keys = await bookie.store.index.entry_keys(2, 60)
            await bookie.store.index.rows.write([], keys[2 * STEP :], sync=True)

        await bench.in_bookie(lose)
        answer = await read(bench, 2, 2 * STEP)
        assert (answer.code, answer.records) == (NoSuchEntry.code, [])
        await delete_metadata(bench, paths.ledger(1))
        await collect(bench)
        answer = await read(bench, 1, 2 * STEP)
        assert (answer.code, answer.records) == (NoSuchLedger.code, [])
        assert ahead_of(bench).hits == 0

    run(bench, scenario)


def test_a_disk_that_failed_while_it_read_ahead_costs_no_answer() -> None:
    bench = bench_of()

    async def scenario() -> None:
        await stored(bench, 1)
        await read(bench, 1, 0)

        async def work(client: BookieClient) -> None:
            item = ReadItem(1, 1, [(STEP, 2 * STEP - 1)], STEP * RECORD, True)
            (answer,) = await client.read_many([item])
            assert len(answer.records) == STEP
            bench.node.disk.read_failure_chance = 1.0
            await client.world.clock.sleep(0.2)
            bench.node.disk.heal()

        # The read after it begins before the disk fails, so the read-ahead is what fails.
        await bench.with_client(work)
        await walk(bench, 1, 2 * STEP, 40)

    run(bench, scenario)


@pytest.mark.parametrize("may_cache", [False, True])
def test_recovery_fences_and_other_readers_do_not_wait_for_what_is_read_ahead(
    may_cache: bool,
) -> None:
    bench = bench_of()

    async def scenario() -> None:
        await stored(bench, 1, 2)
        await walk(bench, 1, 0, 2 * STEP)
        await occupy(bench, "read-ahead")

        async def all_of_them(client: BookieClient) -> None:
            assert await client.recovery_read(1, 7, 7) == (0, [b"x" * 100])
            assert (await client.fence(2))[0] == 0
            item = ReadItem(1, 2, [(0, 59)], 1 << 20, may_cache)
            (answer,) = await client.read_many([item])
            assert len(answer.records) == 60
            assert await client.add([make_record(3, 0, b"x")]) == {(3, 0): 0}

        assert await seconds(bench, all_of_them) < SOON_SECONDS

    run(bench, scenario)


def test_a_request_for_many_small_entries_is_one_read_of_the_log() -> None:
    bench = bench_of(read_ahead_cache_size_bytes=0, entry_log_size_bytes=1 << 20)

    async def scenario() -> None:
        await stored(bench, 1, entries=300)
        await read(bench, 1, 0, count=150)
        before = bench.bookie.store.logs.reads_count
        await read(bench, 1, 150, count=60)
        assert bench.bookie.store.logs.reads_count - before == 1
        assert (ahead_of(bench).walks_count, ahead_of(bench).read_entries) == (0, 0)

    run(bench, scenario)


def test_memory_that_takes_no_piece_is_refused() -> None:
    small_config(read_ahead_cache_size_bytes=0).validate()
    with pytest.raises(
        ConfigError, match="read_ahead_batch_size_bytes for each volume, 2048 bytes"
    ):
        small_config(read_ahead_cache_size_bytes=2047, read_ahead_batch_size_bytes=2048).validate()
    volumes = {
        f"{kind}_directories": (f"/{kind}1", f"/{kind}2") for kind in ("journal", "ledger", "index")
    }
    with pytest.raises(ConfigError, match="4096 bytes: nothing would be read ahead"):
        small_config(
            read_ahead_cache_size_bytes=4095, read_ahead_batch_size_bytes=2048, **volumes
        ).validate()
