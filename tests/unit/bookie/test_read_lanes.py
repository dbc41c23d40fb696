"""Who waits for whom at a bookie's disk: recovery and resent adds never for readers, readers never
for compaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from pulsarish.bookie.bookie import Bookie
from pulsarish.metadata import paths
from pulsarish.sim.world.files import SimFiles
from pulsarish.sim.world.lanes import Job
from pulsarish.wire._pb import bookie_pb2 as pb
from pulsarish.wire.bookie import ReadItem
from tests.support.bookies import BookieBench, BookieClient, make_record
from tests.unit.bookie.test_housekeeping import collect, delete_metadata, fill, make_ledgers

BUSY_SECONDS = 30.0
SOON_SECONDS = 2.0
ENTRIES = 30


async def occupy(bench: BookieBench, lane: str) -> None:
    """Give a lane a job that takes long, as a long catch-up does."""

    def job() -> Job[None]:
        yield BUSY_SECONDS

    async def work(bookie: Bookie) -> None:
        files = bookie._world.files
        assert isinstance(files, SimFiles)
        files._lane(lane).run(job())

    await bench.in_bookie(work)


async def stored(bench: BookieBench, *ledger_ids: int) -> None:
    await bench.client()
    await make_ledgers(bench, *ledger_ids)
    await fill(bench, *ledger_ids, entries=ENTRIES)
    await bench.in_bookie(_flush)


async def _flush(bookie: Bookie) -> None:
    for _ in range(2):
        await bookie.store.checkpoint()


async def seconds(bench: BookieBench, work: Callable[[BookieClient], Awaitable[None]]) -> float:
    async def timed(client: BookieClient) -> float:
        began = client.world.clock.monotonic()
        await work(client)
        return client.world.clock.monotonic() - began

    return await bench.with_client(timed)


async def _recovery_read(client: BookieClient) -> None:
    assert await client.recovery_read(1, 7, 7) == (0, [b"x" * 100])


async def _fence_that_reads(client: BookieClient) -> None:
    request = pb.FenceRequest(
        instance_id=client.instance_id, ledger=1, read_entries=5, max_bytes=1 << 20
    )
    head = await client._call("bookie.fence", request.SerializeToString())
    assert len(head) > 100


async def _resent_add(client: BookieClient) -> None:
    assert await client.add([make_record(1, 7, b"x" * 100)]) == {(1, 7): 0}


@pytest.mark.parametrize("work", [_recovery_read, _fence_that_reads, _resent_add])
@pytest.mark.parametrize("lane", ["entry-read", "compaction"])
def test_recovery_and_resent_adds_do_not_wait_for_readers_or_compaction(
    work: Callable[[BookieClient], Awaitable[None]], lane: str
) -> None:
    bench = BookieBench(1)

    async def scenario() -> None:
        await stored(bench, 1)
        await occupy(bench, lane)
        assert await seconds(bench, work) < SOON_SECONDS

    bench.sim.run(scenario)


async def _read(client: BookieClient) -> None:
    code, found = await client.read(1, 0, ENTRIES - 1)
    assert (code, len(found)) == (0, ENTRIES)


@pytest.mark.parametrize("lane", ["compaction", "recovery-read"])
def test_readers_do_not_wait_for_compaction_or_recovery(lane: str) -> None:
    bench = BookieBench(1)

    async def scenario() -> None:
        await stored(bench, 1)
        await occupy(bench, lane)
        assert await seconds(bench, _read) < SOON_SECONDS
        await occupy(bench, "entry-read")
        assert await seconds(bench, _read) > SOON_SECONDS

    bench.sim.run(scenario)


def test_compaction_does_not_wait_for_readers_and_closes_what_they_have_open() -> None:
    bench = BookieBench(1)

    async def scenario() -> None:
        await stored(bench, 1, 2, 3)
        item = ReadItem(0, 3, [(0, ENTRIES - 1)], 1 << 20)
        await bench.in_bookie(lambda bookie: bookie.store.read([item]))
        await bench.in_bookie(lambda bookie: bookie.store.read_fenced([item], 1 << 20))
        for ledger_id in (1, 2):
            await delete_metadata(bench, paths.ledger(ledger_id))
        await collect(bench)
        logs = bench.bookie.store.logs
        assert bench.bookie.garbage.logs_deleted >= 1
        left = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        assert {log_id for _, log_id in logs._readers} <= set(left)

    bench.sim.run(scenario)
