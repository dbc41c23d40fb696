"""A bookie that an operator sets read-only: what it refuses, and what goes on."""

from __future__ import annotations

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BookieRegistration, ReadOnlyBookie
from pulsarish.runtime.seams import Op
from pulsarish.sim.world.world import Simulation
from tests.simulation.test_autorecovery import (
    Repaired,
    held,
    lose_entries,
    metadata,
    read_all,
    until_mended,
    written,
)
from tests.simulation.test_ledger_scripts import Client, entries, play


def records_of(client: Client) -> Records:
    return Records(client.world.metadata, client.world.clock, client.world.random)


async def set_read_only(client: Client, member: str, *, wanted: bool = True) -> None:
    """Change the request, and wait until the bookie has followed."""
    records, path = records_of(client), paths.read_only_bookie(member)
    name = member.partition("~")[0]
    if wanted:
        await client.do(records.make_parents(path))
        await client.do(records.compare_and_set(path, ReadOnlyBookie(name, member), None))
    else:
        await client.do(records.delete(path))
    while (await registration(client, name)).read_only is not wanted:
        await client.do(client.world.clock.sleep(0.1))
    await client.do(client.world.clock.sleep(0.5))


async def registration(client: Client, name: str) -> BookieRegistration:
    found = await client.do(records_of(client).get(paths.bookie(name), BookieRegistration))
    return BookieRegistration("", "", "", "") if found is None else found[0]


def test_writers_leave_a_read_only_bookie_and_readers_use_it() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4)
        client = await cluster.client()
        writer, listener = await client.create()
        await client.append(writer, entries(10))
        member = writer.metadata.last_segment.members[0]
        await set_read_only(client, member)
        await client.append(writer, entries(10, 10))
        assert listener.error is None
        assert member not in writer.metadata.last_segment.members
        for _ in range(10):
            other, _ = await client.create()
            assert member not in other.metadata.last_segment.members
        await client.do(writer.close())
        bookie = cluster.running[cluster.name_of(member)]
        assert bookie.is_ready
        assert "pulsarish bookies set-writable" in bookie.read_only_reason
        assert await held(cluster, client, writer.ledger_id, member) == list(range(10))
        assert await read_all(client, writer.ledger_id) == entries(20)
        await set_read_only(client, member, wanted=False)
        assert bookie.read_only_reason == ""
        assert member in client.ledgers.bookies.members()
        assert len(client.ledgers.bookies.candidates()) == 4

    play(scenario)


def test_a_bookie_that_starts_read_only_is_never_registered_as_writable() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4)
        client = await cluster.client()
        writer = await written(client)
        member = writer.metadata.last_segment.members[0]
        name = cluster.name_of(member)
        await set_read_only(client, member)
        sim.nodes[name].crash()
        await client.do(client.world.clock.sleep(1.0))
        sim.nodes[name].revive()
        started = (await registration(client, name)).started_ms
        for _ in range(60):
            found = await registration(client, name)
            assert found.read_only or not found.bookie_id
            await client.do(client.world.clock.sleep(0.05))
        assert found.started_ms != started

    play(scenario)


def test_a_read_only_bookie_gets_back_what_it_lacks() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3, auditor_periodic_check_interval_seconds=4.0)
        client = await cluster.client()
        writer = await written(client)
        member = writer.metadata.last_segment.members[0]
        await set_read_only(client, member)
        await lose_entries(cluster, member, writer.ledger_id, 7)
        await until_mended(client)
        assert 7 in await held(cluster, client, writer.ledger_id, member)

    play(scenario)


def test_the_grace_time_of_the_trash_goes_on() -> None:
    async def scenario(sim: Simulation) -> None:
        settings = {
            "gc_interval_seconds": 0.5,
            "gc_second_look_seconds": 1.0,
            "trash_grace_seconds": 1_000.0,
        }
        cluster = Repaired(sim, 3, settings)
        client = await cluster.client()
        writer = await written(client)
        await set_read_only(client, writer.metadata.last_segment.members[0])
        await metadata(client, writer.ledger_id)
        records, path = records_of(client), paths.ledger(writer.ledger_id)
        (node,) = await client.do(records.nodes([path]))
        await client.do(records.commit([Op("delete", path)]))
        await client.do(client.world.clock.sleep(10.0))
        assert [bookie.garbage.trash.count for bookie in cluster.running.values()] == [1] * 3
        await client.do(records.commit([Op("create", path, node.data)]))
        await client.do(client.world.clock.sleep(3.0))
        for member in writer.metadata.last_segment.members:
            assert await held(cluster, client, writer.ledger_id, member) == list(range(30))

    play(scenario)
