"""What is gone for good: it is never skipped by itself, and by an operator only once every bookie
has said so or was given up.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pulsarish.bookie.ledger_index import entry_rows
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.managed_ledger.lost_entries import check_range
from pulsarish.managed_ledger.topics_store import create_topic
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import TopicLedger, TopicRecord
from pulsarish.model.errors import (
    EntryUnknown,
    InvalidArgument,
    NotAllowedError,
    NotEnoughBookies,
    ServiceNotReady,
)
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.world.world import Simulation
from tests.simulation.test_ledger_scripts import Client, Cluster, entries, play


async def lose(cluster: Cluster, member: str, ledger_id: int, *entry_ids: int) -> None:
    """Take entries away from one bookie: from its cache and its index, as if they had never
    come.
    """
    node = next(node for node in cluster.bookies if member.startswith(node.name + "~"))

    async def work(_world: object) -> None:
        bookie = cluster.running[node.name]
        await bookie.store.checkpoint()
        keys = await bookie.store.index.entry_keys(ledger_id, 100)
        gone = [key for number, key in enumerate(keys) if not entry_ids or number in entry_ids]
        await bookie.store.index.rows.write([], gone, sync=True)

    await node.run(work)


async def damage(cluster: Cluster, member: str, ledger_id: int, entry_id: int) -> None:
    """Let one bookie's index point to a log that is not there."""
    node = next(node for node in cluster.bookies if member.startswith(node.name + "~"))

    async def work(_world: object) -> None:
        bookie = cluster.running[node.name]
        await bookie.store.checkpoint()
        await bookie.store.index.rows.write(
            entry_rows(ledger_id, [entry_id], 99, [0], [100]), sync=True
        )

    await node.run(work)


@pytest.mark.parametrize(("closed", "told"), [((), "none"), ((3,), "3"), ((3, 7), "3, 7")])
def test_what_is_no_closed_ledger_of_the_topic_is_refused_with_those_that_are(
    closed: tuple[int, ...], told: str
) -> None:
    name = TopicName.parse("t")
    sim = Simulation(1)

    async def ask(world: World) -> None:
        records = Records(world.metadata, world.clock, world.random)
        links = (*(TopicLedger(ledger_id, 2, 20, 1) for ledger_id in closed), TopicLedger(9))
        await create_topic(records, name, created_ms=1)
        await records.update(paths.topic(name), TopicRecord, lambda _: TopicRecord(ledgers=links))
        ledgers: Any = None  # nothing is asked of the bookies
        with pytest.raises(
            InvalidArgument, match=f"^ledger 9 is no closed ledger of .*/t, which has {told}$"
        ):
            await check_range(name, ledgers, records, 9, 0, None, ())

    async def main() -> None:
        await sim.node("broker0").run(ask)

    sim.run(main, 60.0)


async def written(client: Client, *quorums: int, count: int = 12) -> LedgerWriter:
    writer, _ = await client.create(*quorums)
    await client.append(writer, entries(count))
    await client.do(writer.close())
    return writer


def test_entries_are_lost_only_when_no_member_has_them() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writer = await written(client)
        ledger_id, members = writer.ledger_id, writer.metadata.last_segment.members
        await lose(cluster, members[0], ledger_id, 4, 5, 6)
        await lose(cluster, members[1], ledger_id, 4, 5, 6)
        with pytest.raises(NotAllowedError, match="is not lost"):
            await client.do(client.ledgers.check_lost(ledger_id, 4, 6, ()))
        await lose(cluster, members[2], ledger_id, 4, 5)
        await client.do(client.ledgers.check_lost(ledger_id, 4, 5, ()))
        with pytest.raises(NotAllowedError, match="entry 6"):
            await client.do(client.ledgers.check_lost(ledger_id, 4, 6, ()))
        with pytest.raises(NotAllowedError, match="entry 3"):
            await client.do(client.ledgers.check_lost(ledger_id, 3, 5, ()))
        for first, last in ((5, 4), (0, 12), (-1, 2)):
            with pytest.raises(InvalidArgument):
                await client.do(client.ledgers.check_lost(ledger_id, first, last, ()))

    play(scenario)


def test_a_silent_bookie_may_have_them_until_it_is_given_up_by_name() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writer = await written(client)
        ledger_id, members = writer.ledger_id, writer.metadata.last_segment.members
        for member in members[:2]:
            await lose(cluster, member, ledger_id)
        silent = next(node for node in cluster.bookies if members[2].startswith(node.name + "~"))
        silent.crash()
        with pytest.raises(EntryUnknown, match=members[2]):
            await client.do(client.ledgers.check_lost(ledger_id, 0, 11, ()))
        with pytest.raises(InvalidArgument, match="they lie on"):
            await client.do(client.ledgers.check_lost(ledger_id, 0, 11, ("b9~1",)))
        await client.do(client.ledgers.check_lost(ledger_id, 0, 11, (members[2],)))
        silent.start()
        await client.do(client.world.clock.sleep(2.0))
        with pytest.raises(NotAllowedError, match="is not lost"):
            await client.do(client.ledgers.check_lost(ledger_id, 0, 11, (members[2],)))

    play(scenario)


def test_of_a_bookie_that_is_given_up_what_it_still_has_is_not_lost() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writer = await written(client, count=40)
        ledger_id, members = writer.ledger_id, writer.metadata.last_segment.members
        for member in members[:2]:
            await lose(cluster, member, ledger_id)
        await lose(cluster, members[2], ledger_id, *range(35))
        await damage(cluster, members[2], ledger_id, 0)
        with pytest.raises(EntryUnknown, match="entry 0"):
            await client.do(client.ledgers.check_lost(ledger_id, 0, 34, ()))
        await client.do(client.ledgers.check_lost(ledger_id, 0, 34, (members[2],)))
        # Entries are asked for several at a time: any of the five may be the one that is named.
        with pytest.raises(NotAllowedError, match=r"entry 3[5-9] "):
            await client.do(client.ledgers.check_lost(ledger_id, 0, 39, (members[2],)))

    play(scenario)


def test_of_a_striped_ledger_only_the_write_set_is_asked() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 4)
        client = await cluster.client()
        writer = await written(client, 4, 2, 2)
        ledger_id, members = writer.ledger_id, writer.metadata.last_segment.members
        for member in (members[1], members[2]):
            await lose(cluster, member, ledger_id)
        # Entries 1, 5 and 9 lie on members 1 and 2 alone.
        await client.do(client.ledgers.check_lost(ledger_id, 5, 5, ()))
        with pytest.raises(NotAllowedError, match="entry 6"):
            await client.do(client.ledgers.check_lost(ledger_id, 5, 6, ()))

    play(scenario)


async def broken_off(cluster: Cluster, count: int = 12) -> tuple[int, tuple[str, ...]]:
    """An open ledger whose writer is gone, and its members."""
    client = await cluster.client("writer")
    writer, _ = await client.create()
    await client.append(writer, entries(count))
    await client.do(client.world.clock.sleep(1.0))  # its bookies are told what is confirmed
    members = writer.metadata.last_segment.members
    client.node.crash()
    return writer.ledger_id, members


def destroy(cluster: Cluster, member: str) -> None:
    """The machine and its disks are gone for good."""
    node = next(node for node in cluster.bookies if member.startswith(node.name + "~"))
    node.restart_after_seconds = None
    node.crash()


def test_an_open_ledger_whose_bookies_are_gone_is_closed_once_they_are_given_up_by_name() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 5)
        ledger_id, members = await broken_off(cluster)
        client = await cluster.client()
        with pytest.raises(NotAllowedError, match="is registered"):
            await client.do(client.ledgers.recover_without(ledger_id, [members[0]]))
        for member in members[:2]:
            destroy(cluster, member)
        await client.do(client.world.clock.sleep(15.0))
        for given_up in ([], ["b9~1"], [members[0], "b9~1"]):
            with pytest.raises(InvalidArgument, match=members[2]):
                await client.do(client.ledgers.recover_without(ledger_id, given_up))
        with pytest.raises(NotEnoughBookies):
            await client.do(client.ledgers.open(ledger_id))
        with pytest.raises(NotEnoughBookies):
            await client.do(client.ledgers.recover_without(ledger_id, members[:1]))
        closed = await client.do(client.ledgers.recover_without(ledger_id, members[:2]))
        assert closed.given_up == tuple(sorted(members[:2]))
        reader = await client.do(client.ledgers.open(ledger_id))
        assert await client.read_all(reader) == entries(12)
        with pytest.raises(InvalidArgument, match="closed"):
            await client.do(client.ledgers.recover_without(ledger_id, members[:2]))

    play(scenario)


def test_what_the_last_bookie_lacks_is_lost_with_the_others_and_no_more() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 5)
        ledger_id, members = await broken_off(cluster)
        await lose(cluster, members[2], ledger_id, *range(7, 12))
        for member in members[:2]:
            destroy(cluster, member)
        client = await cluster.client()
        await client.do(client.world.clock.sleep(15.0))
        closed = await client.do(client.ledgers.recover_without(ledger_id, members[:2]))
        reader = await client.do(client.ledgers.open(ledger_id))
        # The one that is left knows of more than it has: what was confirmed stays in the ledger,
        # for skip-lost to pass over.
        assert (closed.last_entry, closed.length_bytes) == (11, 0)
        found = await client.do(reader.read(0, 6, max_bytes=1 << 16))
        assert [bytes(entry.payload) for entry in found] == entries(7)
        await client.do(client.ledgers.check_lost(ledger_id, 7, closed.last_entry, members[:2]))

    play(scenario)


def test_a_ledger_of_which_every_bookie_is_gone_is_closed_empty() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 5)
        ledger_id, members = await broken_off(cluster)
        for member in members:
            destroy(cluster, member)
        client = await cluster.client()
        await client.do(client.world.clock.sleep(15.0))
        closed = await client.do(client.ledgers.recover_without(ledger_id, members))
        assert (closed.last_entry, closed.length_bytes) == (-1, 0)

    play(scenario)


@pytest.mark.parametrize("late_ms", range(0, 10, 2))
def test_a_recovery_without_given_up_bookies_and_one_for_a_reader_both_end(
    late_ms: int,
) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 5)
        writing = await cluster.client("writer")
        writer, _ = await writing.create()
        await writing.append(writer, entries(40))
        members = writer.metadata.last_segment.members
        writing.node.crash()
        destroy(cluster, members[0])
        client = await cluster.client()
        await client.do(client.world.clock.sleep(15.0))

        async def recover() -> LedgerMetadata | None:
            await client.world.clock.sleep(late_ms / 1000)
            try:
                return await client.ledgers.recover_without(writer.ledger_id, members[:1])
            except InvalidArgument:
                return None  # the reader's has closed it

        reader, closed = await asyncio.gather(
            client.do(client.ledgers.open(writer.ledger_id)), client.do(recover())
        )
        assert closed is None or closed.last_entry == 39
        assert await client.read_all(reader) == entries(40)

    play(scenario)


def test_a_member_that_is_left_is_waited_for_however_soon_the_others_fail() -> None:
    """Those who are gone refuse at once; the slow one has what was confirmed."""

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 5)
        ledger_id, members = await broken_off(cluster)
        for member in members[:2]:
            destroy(cluster, member)
        client = await cluster.client()
        await client.do(client.world.clock.sleep(15.0))
        left = members[2].partition("~")[0]
        sim.nodes[left].pause()
        waiting = asyncio.ensure_future(
            client.do(client.ledgers.recover_without(ledger_id, members[:2]))
        )
        await client.do(client.world.clock.sleep(0.5))
        assert not waiting.done()
        sim.nodes[left].resume()
        closed = await waiting
        assert closed.last_entry == 11

    play(scenario)


def test_an_open_ledger_is_not_skipped() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 3)
        client = await cluster.client()
        writer, _ = await client.create()
        await client.append(writer, entries(3))
        with pytest.raises(ServiceNotReady, match="not closed"):
            await client.do(client.ledgers.check_lost(writer.ledger_id, 0, 1, ()))

    play(scenario)
