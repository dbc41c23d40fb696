"""The ledger that ``bookies simple-test`` writes: read back whole, and gone afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pulsarish.ledger import trial as module
from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.trial import Trial, write_and_read
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import CorruptData, InvalidArgument, NotEnoughBookies
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.topic_log import LOG_LEDGER_OPTIONS, log_bookie
from pulsarish.sim.world.world import Simulation


async def trial(client: LedgerClient, world: World, **settings: int) -> Trial:
    sizes = {"ensemble_size": 3, "write_quorum": 2, "ack_quorum": 2, **settings}
    return await write_and_read(client, world.clock, entries=50, entry_bytes=700, **sizes)


def run(bookies: int, work: Callable[[LedgerClient, World], Awaitable[None]]) -> None:
    sim = Simulation(1)

    async def main(world: World) -> None:
        client = LedgerClient(world, LOG_LEDGER_OPTIONS)
        await client.start()
        await work(client, world)

    async def scenario() -> None:
        for number in range(bookies):
            sim.node(f"bookie{number}", log_bookie(f"bookie{number}"))
        await asyncio.sleep(2.0)
        await sim.node("operator").run(main)

    sim.run(scenario, max_virtual_seconds=100)


def test_the_ledger_is_written_read_and_deleted() -> None:
    async def work(client: LedgerClient, world: World) -> None:
        found = await trial(client, world)
        assert (found.entries, found.size_bytes, len(found.members)) == (50, 35_000, 3)
        assert found.write_seconds > 0
        assert await client.metadata(found.ledger_id) is None
        with pytest.raises(InvalidArgument, match="quorums must hold"):
            await trial(client, world, write_quorum=4)

    run(3, work)


def test_it_is_deleted_when_another_entry_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    payload, calls = module._payload, list[int]()

    def other(number: int, size_bytes: int) -> bytes:
        calls.append(number)
        return payload(number + (len(calls) > 60), size_bytes)

    monkeypatch.setattr(module, "_payload", other)

    async def work(client: LedgerClient, world: World) -> None:
        with pytest.raises(CorruptData, match="entry 10 of ledger"):
            await trial(client, world)
        assert not await ledgers(world)

    async def ledgers(world: World) -> list[int]:
        records = Records(world.metadata, world.clock, world.random)
        return [each async for branch in ledger_ids(records) for each in branch]

    run(2, work)


def test_too_few_bookies_are_an_error() -> None:
    async def work(client: LedgerClient, world: World) -> None:
        with pytest.raises(NotEnoughBookies):
            await trial(client, world)

    run(1, work)
