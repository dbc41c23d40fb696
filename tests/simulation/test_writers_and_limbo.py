"""Writers and a bookie in limbo, which answers "fenced" to the writer of each ledger that it is in
doubt about. Brokers draw ids in blocks: those that they drew before are in doubt, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import LedgerIds
from pulsarish.sim.world.world import Simulation
from tests.simulation.test_autorecovery import Repaired, written
from tests.simulation.test_ledger_scripts import Client, entries, play


async def into_limbo(
    cluster: Repaired,
    client: Client,
    name: str,
    *,
    more: int = 0,
    meanwhile: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """As after ``storage rebuild-index``: for all ids that were given out, and ``more``."""
    records = Records(client.world.metadata, client.world.clock, client.world.random)
    found = await client.do(records.get(paths.LEDGER_IDS, LedgerIds))
    assert found is not None
    node = cluster.sim.nodes[name]

    async def enter(_world: object) -> None:
        await cluster.running[name].store.limbo.enter(found[0].next_id + more, "a test says so")

    await node.run(enter)
    node.crash()
    if meanwhile is not None:
        await meanwhile()
    node.revive()
    await client.do(client.world.clock.sleep(5.0))
    assert client.ledgers.bookies.may_lack(cluster.running[name].instance_id, 0)


def test_a_new_ledger_gets_an_id_of_which_its_bookies_are_in_no_doubt() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        before = await written(client)
        await into_limbo(cluster, client, "b1")
        for _ in range(3):
            writer, _ = await client.create(3, 3, 2)
            await client.append(writer, entries(30))
            await client.do(client.world.clock.sleep(1.0))
            await client.append(writer, entries(30))
            assert writer.ledger_id > before.ledger_id
            await client.do(writer.close())

    play(scenario)


def test_a_bookie_in_limbo_replaces_no_bookie_in_a_ledger_that_it_is_in_doubt_about() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4)
        client = await cluster.client()
        writer, _ = await client.create(3, 3, 2)
        await client.append(writer, entries(10))
        members = writer.metadata.last_segment.members
        names = {cluster.name_of(member) for member in members}
        (spare,) = set(cluster.running) - names
        await into_limbo(cluster, client, spare)
        cluster.lose(members[0])
        await client.append(writer, entries(10))
        await client.do(client.world.clock.sleep(2.0))
        await client.append(writer, entries(10))
        assert cluster.running[spare].instance_id not in writer.metadata.last_segment.members

    play(scenario)


def test_a_bookie_in_doubt_about_ids_that_were_never_given_out_is_in_no_new_ledger() -> None:
    """One that lost a volume doubts all ids up to the greatest that any peer has fenced there."""

    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4)
        client = await cluster.client()
        await written(client)
        await into_limbo(cluster, client, "b1", more=1 << 40)
        doubtful = cluster.running["b1"].instance_id
        for _ in range(5):
            writer, _ = await client.create(3, 3, 2)
            await client.append(writer, entries(30))
            await client.do(client.world.clock.sleep(1.0))
            await client.append(writer, entries(30))
            assert doubtful not in writer.metadata.last_segment.members
            await client.do(writer.close())

    play(scenario)


def test_a_member_that_comes_back_in_limbo_to_an_idle_writer_is_replaced() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 4)
        client = await cluster.client()
        writer, heard = await client.create(3, 3, 2)
        await client.append(writer, entries(10))
        await client.do(client.world.clock.sleep(5.0))
        doubtful = writer.metadata.last_segment.members[0]
        await into_limbo(cluster, client, cluster.name_of(doubtful))
        for _ in range(3):
            await client.append(writer, entries(10))
            await client.do(client.world.clock.sleep(5.0))
        assert heard.error is None
        assert doubtful not in writer.metadata.last_segment.members
        assert not writer.is_short
        await client.do(writer.close())

    play(scenario)


def test_an_idle_writer_goes_on_without_a_member_in_limbo_that_no_bookie_can_replace() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        writer, heard = await client.create(3, 3, 2)
        await client.append(writer, entries(10))
        await client.do(client.world.clock.sleep(5.0))
        doubtful = writer.metadata.last_segment.members[0]
        await into_limbo(cluster, client, cluster.name_of(doubtful))
        for _ in range(3):
            await client.append(writer, entries(10))
            await client.do(client.world.clock.sleep(20.0))
        assert heard.error is None
        assert writer.is_short
        await client.do(writer.close())

    play(scenario)


def test_a_member_that_comes_back_in_limbo_does_not_end_the_writer() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Repaired(sim, 3)
        client = await cluster.client()
        writer, _ = await client.create(3, 3, 2)
        await client.append(writer, entries(10))
        name = cluster.name_of(writer.metadata.last_segment.members[0])
        await into_limbo(
            cluster, client, name, meanwhile=lambda: client.append(writer, entries(10))
        )
        for _ in range(3):
            await client.do(client.world.clock.sleep(20.0))
            await client.append(writer, entries(10))

    play(scenario)
