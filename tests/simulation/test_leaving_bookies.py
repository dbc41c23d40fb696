"""Bookies that an operator has leave ledgers, dead or alive: what `bookies recover` asks for."""

from __future__ import annotations

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.model.ledger_metadata import LedgerState
from pulsarish.sim.world.world import Simulation
from tests.simulation.test_autorecovery import (
    Repaired,
    lacking,
    metadata,
    read_all,
    until_mended,
    why,
    written,
)
from tests.simulation.test_ledger_scripts import Client, entries, play


async def leave(client: Client, ledger_id: int, *members: str) -> None:
    for member in members:
        await client.do(client.ledgers.publish_leaving(ledger_id, member))


async def names(client: Client, ledger_id: int) -> set[str]:
    record = await metadata(client, ledger_id)
    return {member for segment in record.segments for member in segment.members}


def test_two_bookies_that_run_leave_a_ledger_and_none_of_them_comes_back() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 5)
        client = await cluster.client()
        writer = await written(client)
        first, second, kept = writer.metadata.last_segment.members
        await leave(client, writer.ledger_id, first, second)
        await until_mended(client)
        left = await names(client, writer.ledger_id)
        assert kept in left
        assert len(left) == 3
        assert not {first, second} & left
        for member in (first, second, kept):
            cluster.lose(member)
        assert await read_all(client, writer.ledger_id) == entries(30)

    play(scenario)


def test_one_that_has_no_successor_stays_until_there_is_one() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        writer = await written(client)
        member = writer.metadata.last_segment.members[0]
        await leave(client, writer.ledger_id, member)
        await client.do(client.world.clock.sleep(10.0))
        assert member in await names(client, writer.ledger_id)
        assert "no other writable bookie" in await why(client, writer.ledger_id)
        sim.node("b3", cluster._main("b3"))
        while member in await names(client, writer.ledger_id):
            await client.do(client.world.clock.sleep(0.2))
        assert await read_all(client, writer.ledger_id) == entries(30)

    play(scenario)


def test_an_open_ledger_is_left_when_its_writer_closes_it() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4)
        client = await cluster.client()
        writer, listener = await client.create()
        await client.append(writer, entries(10))
        member = writer.metadata.last_segment.members[0]
        await leave(client, writer.ledger_id, member)
        for count in range(1, 5):
            await client.do(client.world.clock.sleep(5.0))
            await client.append(writer, entries(10, 10 * count))
        assert listener.error is None
        assert member in await names(client, writer.ledger_id)
        assert "once its writer has closed it" in await why(client, writer.ledger_id)
        await client.do(writer.close())
        while member in await names(client, writer.ledger_id):
            await client.do(client.world.clock.sleep(0.2))
        assert await read_all(client, writer.ledger_id) == entries(50)

    play(scenario)


def test_one_that_is_away_leaves_before_it_is_lost() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 5, lost_bookie_recovery_delay_seconds=1_000_000.0)
        client = await cluster.client()
        closed = await written(client)
        idle, _ = await client.create()
        await client.append(idle, entries(10))
        member = closed.metadata.last_segment.members[0]
        cluster.lose(member)
        await client.do(client.world.clock.sleep(10.0))
        assert member in await names(client, closed.ledger_id)
        for ledger in (closed, idle):
            if member in await names(client, ledger.ledger_id):
                await leave(client, ledger.ledger_id, member)
        await until_mended(client)
        assert member not in await names(client, closed.ledger_id)
        assert member not in await names(client, idle.ledger_id)
        assert await read_all(client, closed.ledger_id) == entries(30)

    play(scenario)


def test_what_is_published_besides_keeps_the_request() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        writer = await written(client)
        first, second, _ = writer.metadata.last_segment.members
        await leave(client, writer.ledger_id, first)
        await client.do(
            client.ledgers.publish_found(writer.ledger_id, [second], below_policy=False)
        )
        record = await client.lacking(writer.ledger_id)
        assert record is not None
        assert (record.leaving_members, record.missing_members) == ((first,), (second,))
        records = Records(client.world.metadata, client.world.clock, client.world.random)
        assert await client.do(records.children(paths.UNDERREPLICATED)) == await lacking(client)
        assert (await metadata(client, writer.ledger_id)).state is LedgerState.CLOSED

    play(scenario)
