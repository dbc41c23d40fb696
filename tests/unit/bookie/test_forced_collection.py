"""Rounds of garbage collection that an operator asks for, and major compaction, in simulation."""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.bookie.compaction_times import is_in_window
from pulsarish.metadata import paths
from pulsarish.wire._pb import bookie_pb2 as pb
from tests.support.bookies import BookieBench, BookieClient
from tests.unit.bookie.test_housekeeping import (
    collect,
    delete_metadata,
    fill,
    make_ledgers,
    present,
)

HOUR_MS = 3_600_000


async def ask(bench: BookieBench, *, begin: bool) -> pb.CollectGarbageResponse:
    async def work(client: BookieClient) -> pb.CollectGarbageResponse:
        request = pb.CollectGarbageRequest(instance_id=client.instance_id, begin=begin)
        return pb.CollectGarbageResponse.FromString(
            await client._call("bookie.collect_garbage", request.SerializeToString())
        )

    return await bench.with_client(work)


async def forced(bench: BookieBench) -> pb.CollectGarbageResponse:
    state = await ask(bench, begin=True)
    wanted = state.wanted
    while state.ended < wanted:
        await asyncio.sleep(0.1)
        state = await ask(bench, begin=False)
    return state


async def log_bytes(bench: BookieBench) -> int:
    """What the entry logs take on the disk."""
    disk = bench.node.disk
    await bench.in_bookie(lambda bookie: bookie.store.checkpoint())
    return disk.used_bytes()


def test_a_forced_round_frees_the_log_that_is_written() -> None:
    bench = BookieBench(1, entry_log_size_bytes=1 << 20)

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1, 2)
        await fill(bench, 1, entries=60)
        await fill(bench, 2, entries=20)
        await delete_metadata(bench, paths.ledger(1))
        await collect(bench)
        before = await log_bytes(bench)
        assert bench.bookie.garbage.logs_deleted == 0, "all lies in the log that is written"
        state = await forced(bench)
        assert (state.ended, state.ledgers_deleted, state.logs_deleted) == (2, 0, 1)
        assert state.freed_bytes > 3 * state.copied_bytes > 0
        assert not state.failure
        assert await log_bytes(bench) < before - 60 * 100
        assert await present(bench, 2, 20)
        logs = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        assert (await forced(bench)).logs_deleted == 0
        assert await bench.in_bookie(lambda bookie: bookie.store.logs.ids()) == logs, (
            "a log in which all is live is not ended"
        )

    bench.sim.run(scenario)


def test_a_forced_round_waives_no_wait() -> None:
    bench = BookieBench(2, gc_second_look_seconds=60.0, trash_grace_seconds=60.0)

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1)
        await fill(bench, 1)
        await delete_metadata(bench, paths.ledger(1))
        assert (await forced(bench)).missing_ledgers == 1
        assert (await forced(bench)).missing_ledgers == 1
        await asyncio.sleep(61.0)
        assert (await forced(bench)).trash_ledgers == 1
        assert await present(bench, 1)
        await asyncio.sleep(61.0)
        state = await forced(bench)
        assert (state.ledgers_deleted, state.trash_ledgers) == (1, 0)
        assert not await present(bench, 1)

    bench.sim.run(scenario)


def test_a_forced_round_says_why_it_could_not() -> None:
    bench = BookieBench(3)

    async def scenario() -> None:
        await bench.client()
        await delete_metadata(bench, paths.CLUSTER)
        assert "is not that of cluster" in (await forced(bench)).failure

    bench.sim.run(scenario)


def test_a_forced_round_says_that_its_session_was_lost() -> None:
    bench = BookieBench(3)

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1)
        await fill(bench, 1)
        await delete_metadata(bench, paths.ledger(1))
        garbage = bench.bookie.garbage
        trusted = garbage._age.check

        async def check() -> None:
            await trusted()
            garbage._stopping = True  # as a session that is not connected any more

        garbage._age.check = check  # type: ignore[method-assign]
        state = await forced(bench)
        assert state.trash_ledgers == 0
        assert "its metadata session is not connected" in state.failure

    bench.sim.run(scenario)


@pytest.mark.parametrize(("threshold", "rewritten"), [(0.8, True), (0.0, False)])
def test_major_compaction_rewrites_more(threshold: float, rewritten: bool) -> None:
    bench = BookieBench(
        4,
        compaction_threshold=0.3,
        major_compaction_threshold=threshold,
        major_compaction_interval_seconds=100.0,
    )

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1, 2)
        await fill(bench, 1, 2, entries=90)
        await delete_metadata(bench, paths.ledger(1))
        await collect(bench)
        assert bench.bookie.garbage.compactions == 0, "about a half is live"
        await asyncio.sleep(101.0)
        await collect(bench)
        count = bench.bookie.garbage.compactions
        assert bool(count) is rewritten
        assert await present(bench, 2, 90)
        await collect(bench)
        assert bench.bookie.garbage.compactions == count

    bench.sim.run(scenario)


@pytest.mark.parametrize(
    ("window", "hour", "inside"),
    [
        ("", 12, True),
        ("22:00-06:00", 23, True),
        ("22:00-06:00", 5, True),
        ("22:00-06:00", 6, False),
        ("22:00-06:00", 21, False),
        ("01:00-05:00", 1, True),
        ("01:00-05:00", 0, False),
        ("00:00-00:00", 13, True),
    ],
)
def test_a_window_is_of_the_day(window: str, hour: int, inside: bool) -> None:
    assert is_in_window(window, 20_000 * 24 * HOUR_MS + hour * HOUR_MS) is inside
