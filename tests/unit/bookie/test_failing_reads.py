"""An index or a disk that cannot be read: every request is answered, as unknown and never as a
negative, and costs nobody else anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.checkpoint import Checkpointer
from pulsarish.bookie.journal.journal_format import FILE_SUFFIX
from pulsarish.bookie.reads import Reader
from pulsarish.bookie.space import SpaceMode
from pulsarish.bookie.store import EntryStore
from pulsarish.model.errors import BookieIOError, ConfigError
from pulsarish.runtime.containment import ScopeKind
from pulsarish.runtime.seams import IndexCorrupt, StreamBroken
from pulsarish.sim.workloads.safeguard import replaced
from pulsarish.wire.bookie import ReadItem, encode_read
from tests.support.bookies import BookieBench, BookieClient, make_record, small_config

IO_ERROR = BookieIOError.code


class Unconverted(Exception):
    """What an index may raise that is not an ``OSError``."""


def _raising(error: Exception) -> Callable[[Any], object]:
    async def fail(*_args: object, **_named: object) -> None:
        raise error

    return lambda _was: fail


async def _unread(bench: BookieBench, client: BookieClient) -> None:
    """From now on nothing of the index can be read; ledger 1 has an entry."""
    assert await client.add([make_record(1, 0, b"x")]) == {(1, 0): 0}
    bench.node.disk.read_failure_chance = 1.0


def test_adds_are_refused_while_the_index_cannot_be_read_and_taken_afterwards() -> None:
    bench = BookieBench(journal_queue_size_bytes=8192)

    async def work(client: BookieClient) -> None:
        await _unread(bench, client)
        for ledger_id in range(2, 40):  # far more bytes than the budget of all connections
            assert await client.add([make_record(ledger_id, 0, bytes(1000))]) == {
                (ledger_id, 0): IO_ERROR
            }
        assert bench.bookie.service.unanswered_bytes == 0
        bench.node.disk.heal()
        assert await client.add([make_record(2, 0, b"x")]) == {(2, 0): 0}

    bench.sim.run(lambda: bench.with_client(work))


def test_a_resend_whose_stored_entry_cannot_be_read_is_unknown_and_no_conflict() -> None:
    bench = BookieBench()

    async def work(client: BookieClient) -> None:
        assert await client.add([make_record(1, 0, b"x")]) == {(1, 0): 0}
        await bench.in_bookie(_checkpoint)
        bench.node.disk.read_failure_chance = 1.0
        assert await client.add([make_record(1, 0, b"x")]) == {(1, 0): IO_ERROR}
        bench.node.disk.heal()
        assert await client.add([make_record(1, 0, b"x")]) == {(1, 0): 0}

    bench.sim.run(lambda: bench.with_client(work))


async def _checkpoint(bookie: Bookie) -> None:
    for _ in range(2):  # both generations of the write cache
        await bookie.store.checkpoint()


def test_calls_and_reads_are_answered_as_unknown() -> None:
    bench = BookieBench()

    async def work(client: BookieClient) -> None:
        await _unread(bench, client)
        assert (await client.fence(7))[0] == IO_ERROR
        assert (await client.read_lac(7))[0] == IO_ERROR
        assert await client.write_lac(7, 3) == IO_ERROR
        assert (await client.recovery_read(7, 0, 0))[0] == IO_ERROR
        assert await client.read(7, 0, 0) == (IO_ERROR, {})

    bench.sim.run(lambda: bench.with_client(work))


def test_what_is_no_error_of_the_disk_is_answered_in_the_same_way() -> None:
    bench = BookieBench()

    async def work(client: BookieClient) -> None:
        assert await client.add([make_record(1, 0, b"x")]) == {(1, 0): 0}
        rows = type(bench.bookie.store.index.rows)
        with replaced(rows, "get_many", _raising(Unconverted("IO error: read of a block"))):
            assert await client.add([make_record(2, 0, b"x")]) == {(2, 0): IO_ERROR}
            assert (await client.fence(7))[0] == IO_ERROR
            assert (await client.read(7, 0, 0))[0] == IO_ERROR
        assert bench.bookie.service.unanswered_bytes == 0

    bench.sim.run(lambda: bench.with_client(work))


def test_a_store_that_raises_costs_its_connection_and_gives_the_bytes_back() -> None:
    bench = BookieBench()
    bench.node.expect(ValueError)

    async def work(client: BookieClient) -> None:
        with (
            replaced(EntryStore, "add", _raising(ValueError("a defect"))),
            pytest.raises(StreamBroken),
        ):
            await client.add([make_record(1, 0, b"x")])
        assert bench.bookie.service.unanswered_bytes == 0
        other = await bench.client()
        assert await other.add([make_record(1, 0, b"x")]) == {(1, 0): 0}

    bench.sim.run(lambda: bench.with_client(work))


def test_a_read_stream_ends_with_its_worker_even_when_its_queue_is_full() -> None:
    bench = BookieBench()
    bench.node.expect(ValueError)

    async def work(client: BookieClient) -> None:
        with replaced(Reader, "read", _raising(ValueError("a defect"))):
            stream = await client.world.connections.open(client.address, "bookie.read", lane="read")
            request = encode_read(client.instance_id, [ReadItem(1, 1, [(0, 0)], 100)])
            with pytest.raises(StreamBroken):
                for _ in range(200):
                    await stream.send([request])
                    await asyncio.sleep(0.001)
                await stream.receive()
        await bench.in_bookie(lambda bookie: bookie.service.wait_idle())
        assert bench.node.world is not None
        assert bench.node.world.tasks.contained_failures[ScopeKind.CONNECTION] == 1

    bench.sim.run(lambda: bench.with_client(work), 60.0)


def test_a_bookie_is_ready_while_it_syncs_adds_of_its_own_or_of_clients() -> None:
    bench = BookieBench(add_probe_interval_seconds=1.0, add_probe_timeout_seconds=3.0)

    async def work(_client: BookieClient) -> None:
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert bench.bookie.is_ready
        assert bench.bookie.add_age_seconds <= 1.5

    bench.sim.run(lambda: bench.with_client(work))


def test_a_bookie_that_takes_no_adds_is_not_ready() -> None:
    bench = BookieBench(add_probe_interval_seconds=1.0, add_probe_timeout_seconds=3.0)

    async def work(_client: BookieClient) -> None:
        service = bench.bookie.service
        lost = bench.config.journal_queue_size_bytes
        service._all_adds.use(lost)  # bytes that nobody gives back
        await asyncio.sleep(5.0)
        assert bench.bookie.serves
        assert not bench.bookie.is_ready
        service._all_adds.release(lost)
        await asyncio.sleep(2.0)
        assert bench.bookie.is_ready

    bench.sim.run(lambda: bench.with_client(work))


def test_a_bookie_that_is_writable_again_is_ready_at_once() -> None:
    bench = BookieBench(
        add_probe_interval_seconds=60.0,
        add_probe_timeout_seconds=90.0,
        disk_check_interval_seconds=0.5,
    )

    async def work(client: BookieClient) -> None:
        disk, clock = bench.node.disk, client.world.clock
        capacity_bytes, disk.capacity_bytes = (
            disk.capacity_bytes,
            disk.used_bytes() + bench.config.read_only_free_bytes * 3 // 4,
        )
        await clock.sleep(200.0)
        assert bench.bookie.store.space is SpaceMode.READ_ONLY
        assert bench.bookie.add_age_seconds > bench.config.add_probe_timeout_seconds
        disk.capacity_bytes = capacity_bytes
        # The next probe by the interval is 40 s away.
        await clock.sleep(1.0)
        assert bench.bookie.store.space is SpaceMode.WRITABLE
        assert bench.bookie.is_ready

    bench.sim.run(lambda: bench.with_client(work), 300.0)


def test_a_bookie_with_a_blocked_probe_stops_gracefully() -> None:
    bench = BookieBench(add_probe_interval_seconds=0.5, add_probe_timeout_seconds=1.0)

    async def scenario() -> None:
        _ = await bench.client()
        bench.bookie.service._all_adds.use(bench.config.journal_queue_size_bytes)
        await asyncio.sleep(3.0)
        await bench.in_bookie(lambda bookie: bookie.stop())

    bench.sim.run(scenario, 60.0)


def test_a_probe_that_is_never_due_in_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="an idle bookie would never be healthy"):
        small_config(add_probe_interval_seconds=5.0, add_probe_timeout_seconds=5.0).validate()


def test_replay_takes_a_probe_for_a_batch_without_entries() -> None:
    bench = BookieBench(add_probe_interval_seconds=0.2, checkpoint_interval_seconds=1000.0)

    async def scenario() -> None:
        client = await bench.client()
        await asyncio.sleep(1.0)
        await bench.client_node.run(lambda _world: client.add([make_record(1, 0, b"x")]))
        bench.node.crash()
        bench.start()
        again = await bench.client()
        assert (await bench.client_node.run(lambda _world: again.read(1, 0, 0))) == (0, {0: b"x"})

    bench.sim.run(scenario, 60.0)


def test_a_write_of_the_index_that_fails_ends_the_bookie() -> None:
    """Other rows may be lost with it, so the mark must not move any more."""
    bench = BookieBench()
    bench.node.expect(OSError)

    async def work(client: BookieClient) -> None:
        assert await client.add([make_record(1, 0, b"x")]) == {(1, 0): 0}
        bench.node.disk.fail_next_sync("/index")

        async def clear(bookie: Bookie) -> None:
            with pytest.raises(OSError, match="cannot sync the index"):
                await bookie.store.clear_limbo(1, bookie.store.limbo.times)
            await asyncio.sleep(1.0)

        life = bench.node.incarnation
        with pytest.raises(Exception, match="died"):
            await bench.in_bookie(clear)
        assert bench.node.incarnation == life
        assert not bench.node.alive

    bench.sim.run(lambda: bench.with_client(work), 60.0)


def test_probes_alone_fill_no_more_than_one_file_of_the_journal() -> None:
    bench = BookieBench(add_probe_interval_seconds=0.2)

    async def work(client: BookieClient) -> None:
        for _ in range(5):
            await asyncio.sleep(40)
            assert len([name for name in bench.node.disk.names if name.endswith(FILE_SUFFIX)]) <= 3

    bench.sim.run(lambda: bench.with_client(work))


def test_a_change_of_the_trash_that_cannot_be_written_ends_the_bookie() -> None:
    """As every other write of the index that fails."""
    bench = BookieBench()
    bench.node.expect(OSError)

    async def work(client: BookieClient) -> None:
        assert await client.add([make_record(1, 0, b"x")]) == {(1, 0): 0}
        await bench.in_bookie(_checkpoint)

        async def restore(bookie: Bookie) -> None:
            trash = bookie.garbage.trash
            assert await trash.put(1)
            bench.node.disk.fail_next_sync("/index")
            with pytest.raises(OSError, match="cannot sync the index"):
                await trash.restore(1)
            await asyncio.sleep(1.0)

        with pytest.raises(Exception, match="died"):
            await bench.in_bookie(restore)
        assert not bench.node.alive

    bench.sim.run(lambda: bench.with_client(work), 60.0)


def test_damage_of_the_index_that_the_replay_meets_is_named_with_what_to_do() -> None:
    bench = BookieBench()
    damage = IndexCorrupt(5, "the index failed: Corruption: block checksum mismatch")

    async def work(client: BookieClient) -> None:
        assert await client.add([make_record(1, 0, b"x")]) == {(1, 0): 0}

    async def scenario() -> None:
        await bench.with_client(work)
        bench.node.crash()
        bench.node.expect(BookieIOError)
        with replaced(Checkpointer, "flush", _raising(damage)):
            bench.start()
            await bench.client_node.run(lambda world: world.clock.sleep(2.0))
        assert not bench.node.alive
        said = str(bench.node.ends[-1])
        assert "the index failed: Corruption: block checksum mismatch. Entries and" in said
        assert "pulsarish storage rebuild-index" in said

    bench.sim.run(scenario)
