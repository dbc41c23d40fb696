"""A ledger whose record came out of an old backup is not closed short of what bookies hold that the
record does not name.
"""

from __future__ import annotations

import msgspec
import pytest

from pulsarish.ledger.repair.inventory import take_inventory
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import RestoredTree
from pulsarish.model.errors import NoSuchLedger, NotEnoughBookies, ServiceNotReady
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.sim.world.world import Simulation
from tests.simulation.test_ledger_scripts import Client, Cluster, play


def records_of(client: Client) -> Records:
    return Records(client.world.metadata, client.world.clock, client.world.random)


def test_members_that_joined_after_the_backup_are_asked_before_a_ledger_is_closed() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 5)
        client = await cluster.client()
        writer, _ = await client.create(3, 3, 2)
        await client.append(writer, [b"one", b"two"])
        backed_up = writer.metadata
        old = backed_up.last_segment.members
        first, second, third = (
            next(node for node in cluster.bookies if member.startswith(node.name + "~"))
            for member in old
        )
        for number, gone in enumerate((first, second)):
            gone.crash()
            await client.append(writer, [b"three %d" % number, b"four"])
        held = cluster.running[third.name].store
        while (await third.run(lambda _world: held.read_lac(writer.ledger_id, -1, 0)))[
            1
        ] < writer.last_add_confirmed:
            # Two copies were enough; the one that stays behind is to have all of it, and learns
            # that from the writer's LAC.
            await client.do(client.world.clock.sleep(0.1))
        joined = [member for member in writer.metadata.last_segment.members if member not in old]
        assert len(joined) == 2
        await put_back(client, backed_up)
        first.start()
        second.start()
        third.crash()
        recoverer = await cluster.client("recoverer")
        # Two of the recorded three say that there is nothing after what they got: without the mark
        # that is the end.
        with pytest.raises(NotEnoughBookies, match="cannot be decided"):
            await recoverer.do(recoverer.ledgers.open(writer.ledger_id))
        pool = recoverer.ledgers._pool
        stock = await recoverer.do(take_inventory(records_of(recoverer), pool.control, joined))
        assert stock.elsewhere == {writer.ledger_id: sorted(joined)}
        third.start()
        await recoverer.do(recoverer.world.clock.sleep(2.0))
        reader = await recoverer.do(recoverer.ledgers.open(writer.ledger_id))
        assert await recoverer.read_all(reader) == [
            b"one",
            b"two",
            b"three 0",
            b"four",
            b"three 1",
            b"four",
        ]
        found = await recoverer.do(recoverer.ledgers.metadata(writer.ledger_id))
        assert found is not None
        assert not found.restored, "its end is certain now"

    play(scenario)


def test_what_only_those_hold_that_joined_later_keeps_a_ledger_open() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 6)
        client = await cluster.client()
        writer, _ = await client.create(3, 3, 2)
        await client.append(writer, [b"one", b"two"])
        backed_up = writer.metadata
        gone = [
            next(node for node in cluster.bookies if member.startswith(node.name + "~"))
            for member in backed_up.last_segment.members
        ]
        for node in gone:
            node.crash()
            await client.append(writer, [b"between"])
        await client.append(writer, [b"later"] * 5)
        await put_back(client, backed_up)
        for node in gone:
            node.start()
        recoverer = await cluster.client("recoverer")
        await client.do(client.world.clock.sleep(2.0))
        with pytest.raises(ServiceNotReady, match="metadata audit"):
            await recoverer.do(recoverer.ledgers.open(writer.ledger_id))

    play(scenario)


def test_an_operator_may_give_up_what_the_others_hold() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 4)
        client = await cluster.client()
        writer, _ = await client.create(3, 3, 2)
        await client.append(writer, [b"one"])
        backed_up = writer.metadata
        await put_back(client, backed_up)
        stranger = next(
            node
            for node in cluster.bookies
            if not any(each.startswith(node.name + "~") for each in backed_up.segments[0].members)
        )
        stranger.crash()
        recoverer = await cluster.client("recoverer")
        with pytest.raises(ServiceNotReady, match="did not answer"):
            await recoverer.do(recoverer.ledgers.open(writer.ledger_id))
        await recoverer.do(records_of(recoverer).delete(paths.RESTORED))
        reader = await recoverer.do(recoverer.ledgers.open(writer.ledger_id))
        assert await recoverer.read_all(reader) == [b"one"]

    play(scenario)


def test_stock_taking_names_what_only_one_side_knows() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writers = [(await client.create(3, 3, 2))[0] for _ in range(3)]
        for writer in writers:
            await client.append(writer, [b"one"])
            await client.do(writer.close())
        lost, kept, _ = writers
        members = list(kept.metadata.last_segment.members)
        await client.do(records_of(client).delete(paths.ledger(lost.ledger_id)))
        named = msgspec.structs.replace(
            await client.do(client.ledgers.metadata(kept.ledger_id)), ledger_id=500
        )
        await client.do(records_of(client).compare_and_set(paths.ledger(500), named, None))
        stock = await client.do(
            take_inventory(records_of(client), client.ledgers._pool.control, members)
        )
        assert stock.unknown == {lost.ledger_id: sorted(members)}
        assert stock.unheld == [500]
        assert (stock.silent, stock.elsewhere, stock.is_clean) == ({}, {}, False)
        cluster.bookies[0].crash()
        await client.do(client.world.clock.sleep(1.0))
        stock = await client.do(
            take_inventory(records_of(client), client.ledgers._pool.control, members)
        )
        assert len(stock.silent) == 1
        assert stock.unheld == [], "a bookie that does not answer may hold it"

    play(scenario)


async def put_back(client: Client, record: LedgerMetadata) -> None:
    """The ledger's record and the mark, as a restore leaves them."""
    restored = msgspec.structs.replace(record, restored=True)

    async def work() -> None:
        found = await client.ledgers.metadata(record.ledger_id)
        if found is None:
            raise NoSuchLedger(f"{record.ledger_id}")
        await records_of(client).update(
            paths.ledger(record.ledger_id), LedgerMetadata, lambda _found: restored
        )
        await records_of(client).compare_and_set(paths.RESTORED, RestoredTree("sum", 1, 2), None)

    await client.do(work())
