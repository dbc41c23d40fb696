"""Deletion only on sure knowledge (rule 12), identity (rule 7), limbo, and life without metadata
(rule 19), in simulation.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import (
    BookieRegistration,
    ClusterRecord,
    Cookie,
    LedgerIds,
    RestoredTree,
)
from pulsarish.model.errors import (
    ConfigError,
    CorruptData,
    EntryUnknown,
    LedgerFenced,
    MetadataUnavailable,
    NoSuchLedger,
)
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, PurposeKind, Segment
from pulsarish.model.position import ID_MAX
from pulsarish.runtime.seams import World
from pulsarish.sim.world.metadata_service import copy_of
from pulsarish.wire.json_record import decode_record
from tests.support.bookies import BookieBench, BookieClient, make_record

OK = 0


class Marker(msgspec.Struct, frozen=True):
    """Stands for a ledger's record: garbage collection only asks whether the node is there."""

    token: str = ""


def records(world: World) -> Records:
    return Records(world.metadata, world.clock, world.random)


async def make_ledgers(bench: BookieBench, *ledger_ids: int) -> None:
    async def work(world: World) -> None:
        for ledger_id in ledger_ids:
            await records(world).compare_and_set(paths.ledger(ledger_id), Marker(), None)

    await bench.client_node.run(work)


async def delete_metadata(bench: BookieBench, path: str) -> None:
    async def work(world: World) -> None:
        assert await records(world).delete(path)

    await bench.client_node.run(work)


async def fill(bench: BookieBench, *ledger_ids: int, entries: int = 30) -> None:
    """Entries of all ledgers, mixed in every log, and flushed."""

    async def work(client: BookieClient) -> None:
        for first in range(0, entries, 5):
            batch = [
                make_record(ledger, entry, b"x" * 100)
                for ledger in ledger_ids
                for entry in range(first, first + 5)
            ]
            assert set((await client.add(batch)).values()) == {OK}
            await client.world.clock.sleep(0.6)

    await bench.with_client(work)


async def collect(bench: BookieBench) -> None:
    await bench.in_bookie(lambda bookie: bookie.garbage.collect())


async def present(bench: BookieBench, ledger_id: int, entries: int = 30) -> bool:
    async def work(client: BookieClient) -> bool:
        code, found = await client.read(ledger_id, 0, entries - 1)
        assert (code, len(found)) in ((OK, entries), (NoSuchLedger.code, 0))
        return code == OK

    return await bench.with_client(work)


def test_ledgers_without_metadata_go_and_their_space_comes_back() -> None:
    bench = BookieBench(1)

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1, 2, 3)
        await fill(bench, 1, 2, 3)
        await collect(bench)
        assert bench.bookie.garbage.ledgers_deleted == 0
        logs = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        assert len(logs) >= 2
        await delete_metadata(bench, paths.ledger(1))
        await delete_metadata(bench, paths.ledger(2))
        await collect(bench)
        assert [await present(bench, ledger) for ledger in (1, 2, 3)] == [False, False, True]
        # A third lives in every log: the full ones were rewritten.
        assert bench.bookie.garbage.logs_deleted >= 1
        bench.node.crash()
        bench.start()
        assert [await present(bench, ledger) for ledger in (1, 2, 3)] == [False, False, True]
        await delete_metadata(bench, paths.ledger(3))
        await collect(bench)
        assert not await present(bench, 3)
        left = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        assert left in ([], [bench.bookie.store.logs.current_id])
        assert bench.bookie.store.states.count == 0
        assert bench.bookie.garbage.unreadable_logs == {}

    bench.sim.run(scenario)


def test_a_deleted_ledger_stays_fenced_for_its_deaf_writer() -> None:
    """A writer that slept through recovery, deletion and collection gets no add confirmed into a
    ledger that nobody will ever read.
    """
    bench = BookieBench(5, deleted_ledger_fence_seconds=30.0)

    async def scenario() -> None:
        await make_ledgers(bench, 1, 2)
        await fill(bench, 1, 2)
        await delete_metadata(bench, paths.ledger(1))
        await collect(bench)
        late = make_record(1, 30, b"late")

        async def add(client: BookieClient, recovery: bool = False) -> int:
            return (await client.add([late], recovery=recovery))[(1, 30)]

        assert not await present(bench, 1)
        assert await bench.with_client(add) == LedgerFenced.code
        bench.node.crash()
        bench.start()
        assert await bench.with_client(add) == LedgerFenced.code
        assert await present(bench, 2)

        async def wait(client: BookieClient) -> None:
            await client.world.clock.sleep(40.0)

        await bench.with_client(wait)
        await collect(bench)
        bench.node.crash()
        bench.start()
        await bench.client()
        await collect(bench)  # the crash may have brought the memory back: forgetting is not synced
        assert await bench.with_client(add) == OK, "it is not remembered for ever"

    bench.sim.run(scenario, 300.0)


@pytest.mark.parametrize("millisecond", range(0, 120, 8))
def test_a_crash_during_compaction_loses_nothing(millisecond: int) -> None:
    bench = BookieBench(2)

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1, 2, 3)
        await fill(bench, 1, 2, 3)
        await delete_metadata(bench, paths.ledger(1))
        await delete_metadata(bench, paths.ledger(2))
        bench.sim.at(millisecond / 1000, bench.node.crash)
        bench.node.world.tasks.spawn(bench.bookie.garbage.collect(), name="collect")  # type: ignore[union-attr]
        await bench.client_node.run(lambda world: world.clock.sleep(0.2))
        bench.node.crash()
        bench.start()
        assert await present(bench, 3)
        await collect(bench)
        assert [await present(bench, ledger) for ledger in (1, 2, 3)] == [False, False, True]

    bench.sim.run(scenario)


def test_nothing_is_deleted_when_the_metadata_is_empty_or_strange() -> None:
    bench = BookieBench(3)

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1)
        await fill(bench, 1, entries=5)
        await delete_metadata(bench, paths.ledger(1))
        await delete_metadata(bench, paths.CLUSTER)
        await collect(bench)
        assert await present(bench, 1, 5)

        async def other_cluster(world: World) -> None:
            await records(world).compare_and_set(
                paths.CLUSTER, ClusterRecord("somebody else's", 0), None
            )

        await bench.client_node.run(other_cluster)
        await collect(bench)
        assert await present(bench, 1, 5)
        assert bench.bookie.garbage.rounds == 0

    bench.sim.run(scenario)


def test_a_ledger_that_is_made_during_the_round_stays() -> None:
    """Its metadata are there before its entries: the local list is taken first."""
    bench = BookieBench(4)

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1)
        await fill(bench, 1, entries=5)
        round_of_collection = bench.node.world.tasks.spawn(
            bench.bookie.garbage.collect(), name="collect"
        )  # type: ignore[union-attr]
        await make_ledgers(bench, 2)
        await fill(bench, 2, entries=5)
        await round_of_collection
        assert await present(bench, 2, 5)
        assert bench.bookie.garbage.ledgers_deleted == 0

    bench.sim.run(scenario)


def test_a_log_that_cannot_be_read_is_kept_and_stops_no_other() -> None:
    bench = BookieBench(5)

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1, 2, 3)
        await fill(bench, 1, 2, 3, entries=90)
        first, second, *_ = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        path = bench.bookie.store.logs.path(first)
        bench.node.disk.flip_bit(path, 2)  # its header
        await delete_metadata(bench, paths.ledger(1))
        await delete_metadata(bench, paths.ledger(2))
        await collect(bench)
        assert list(bench.bookie.garbage.unreadable_logs) == [first]
        left = await bench.in_bookie(lambda bookie: bookie.store.logs.ids())
        assert first in left
        assert second not in left
        assert await present(bench, 3, 90)

    bench.sim.run(scenario)


def test_a_log_that_the_index_never_heard_of_is_kept() -> None:
    bench = BookieBench(6)

    async def scenario() -> None:
        await bench.client()

        async def put(world: World) -> None:
            file = await world.files.open("/b1/ledgers/0000000099.log", lane="x", create=True)
            await file.close()

        await bench.node.run(put)
        await collect(bench)
        assert await bench.in_bookie(lambda bookie: bookie.store.logs.ids()) == [99]
        assert list(bench.bookie.garbage.unreadable_logs) == [99]

    bench.sim.run(scenario)


def test_cookies_are_made_once_and_a_lost_directory_refuses_the_start() -> None:
    bench = BookieBench(7)
    bench.node.expect(ConfigError)

    async def scenario() -> None:
        client = await bench.client()
        found = await bench.client_node.run(
            lambda world: records(world).get(paths.cookie("b1"), Cookie)
        )
        assert found is not None
        assert found[0].instance_id == client.instance_id
        bench.node.crash()
        bench.start()
        assert (await bench.client()).instance_id == client.instance_id
        bench.node.crash()
        for path in [path for path in bench.node.disk.names if path.startswith("/b1/index/")]:
            bench.node.disk.unlink(path)
            bench.node.disk.sync_directory(path.rpartition("/")[0])
        bench.start()
        await bench.client_node.run(lambda world: world.clock.sleep(2.0))
        assert not bench.node.alive
        assert "/b1/index has no cookie" in str(bench.node.ends[-1])

    bench.sim.run(scenario)


@pytest.mark.parametrize("promised", [True, False])
def test_directories_that_were_emptied_but_for_their_cookies(promised: bool) -> None:
    """Such a bookie would answer "not there" for all it once acknowledged; one that no ledger names
    lost nothing.
    """
    bench = BookieBench(7)
    bench.node.expect(ConfigError)

    async def scenario() -> None:
        client = await bench.client()
        member = client.instance_id if promised else "b2~00000000"
        ledger = LedgerMetadata(
            1, 1, 1, 1, LedgerPurpose(PurposeKind.TOPIC, "t"), (Segment(0, (member,)),)
        )
        await bench.client_node.run(
            lambda world: records(world).compare_and_set(paths.ledger(1), ledger, None)
        )
        bench.node.crash()
        disk = bench.node.disk
        for path in [path for path in disk.names if not path.endswith("/cookie")]:
            disk.unlink(path)
            disk.sync_directory(path.rpartition("/")[0])
        bench.start()
        await bench.client_node.run(lambda world: world.clock.sleep(2.0))
        assert bench.node.alive is not promised
        if promised:
            assert "hold the cookies of" in str(bench.node.ends[-1])

    bench.sim.run(scenario)


def test_a_given_up_journal_means_limbo_for_every_ledger_that_existed() -> None:
    bench = BookieBench(8, checkpoint_interval_seconds=1000.0)

    async def scenario() -> None:
        async def give_out_ids(world: World) -> None:
            await records(world).compare_and_set(paths.LEDGER_IDS, LedgerIds(100), None)

        await bench.client()
        await bench.client_node.run(give_out_ids)

        async def work(client: BookieClient) -> None:
            for entry in range(6):
                await client.add([make_record(1, entry, b"x" * 50)])

        await bench.with_client(work)
        bench.node.crash()
        (path,) = [name for name in bench.node.disk.names if name.endswith("0000000001.journal")]
        bench.node.disk.flip_bit(path, 48 + 2 * 152 + 100)
        bench.node.expect(CorruptData)
        bench.start()
        await bench.client_node.run(lambda world: world.clock.sleep(2.0))
        assert not bench.node.alive
        # the decision is needed once; limbo stays
        for choice, later in (("limbo", 200), ("refuse", 201)):
            bench.config = msgspec.structs.replace(bench.config, journal_corruption=choice)
            bench.start()

            async def look(client: BookieClient, later: int = later) -> None:
                code, found = await client.read(1, 0, 5)
                assert code == EntryUnknown.code
                assert 0 < len(found) < 6
                assert (await client.read(2, 0, 0))[0] == EntryUnknown.code
                assert (await client.read_lac(1))[0] == EntryUnknown.code
                assert (await client.fence(3))[0] == EntryUnknown.code
                assert (await client.recovery_read(1, 5, 5))[0] == EntryUnknown.code
                assert await client.add([make_record(1, 6, b"x")]) == {(1, 6): LedgerFenced.code}
                # A ledger made later is nobody's loss.
                assert (await client.read(later, 0, 0))[0] == NoSuchLedger.code
                assert (await client.add([make_record(later, 0, b"x")])) == {(later, 0): OK}
                assert (await client.read(later, 0, 0))[0] == OK

            await bench.with_client(look)
            await bench.in_bookie(lambda bookie: bookie.stop())
            bench.node.crash()

    bench.sim.run(scenario)


def test_an_older_tree_does_not_say_how_far_limbo_reaches() -> None:
    """It does not know the ledgers that its lost transactions made: the bookie would answer that
    their lost entries were never there.
    """
    bench = BookieBench(8, checkpoint_interval_seconds=1000.0, metadata_check_interval_seconds=0.5)

    async def scenario() -> None:
        async def give_out_ids(world: World) -> None:
            _ = await records(world).update(
                paths.LEDGER_IDS, LedgerIds, lambda _found: LedgerIds(100)
            )

        async def work(client: BookieClient) -> None:
            for entry in range(6):
                await client.add([make_record(1, entry, b"x" * 50)])

        service = bench.sim.metadata
        await bench.with_client(work)
        older = copy_of(service.tree)
        await bench.client_node.run(give_out_ids)
        await asyncio.sleep(2.0)  # the bookie sees it
        bench.node.crash()
        (path,) = [name for name in bench.node.disk.names if name.endswith("0000000001.journal")]
        bench.node.disk.flip_bit(path, 48 + 2 * 152 + 100)
        bench.config = msgspec.structs.replace(bench.config, journal_corruption="limbo")
        bench.node.expect(MetadataUnavailable)
        service.go_back(older)
        bench.start()
        await asyncio.sleep(15.0)
        assert not bench.node.alive
        assert "came back older" in str(bench.node.ends[-1])
        service.bring_back()
        bench.start()

        async def look(client: BookieClient) -> None:
            assert (await client.read(99, 0, 0))[0] == EntryUnknown.code
            assert (await client.read(100, 0, 0))[0] == NoSuchLedger.code

        await bench.with_client(look)

    bench.sim.run(scenario)


def test_a_lost_session_changes_nothing_but_the_registration() -> None:
    bench = BookieBench(9)

    async def registration(world: World) -> BookieRegistration | None:
        (node,) = await world.metadata.get_many([paths.bookie("b1")])
        return None if node is None else decode_record(node.data, BookieRegistration, "")

    async def scenario() -> None:
        await bench.client()
        await bench.client_node.run(lambda world: world.clock.sleep(0.5))
        found = await bench.client_node.run(registration)
        assert found is not None
        assert (found.instance_id, found.address, found.read_only) == (
            bench.bookie.instance_id,
            "b1:3181",
            False,
        )
        assert bench.node.world is not None
        bench.sim.metadata.expire(bench.node.world.metadata.session_id)
        await fill(bench, 1, entries=5)
        await bench.client_node.run(lambda world: world.clock.sleep(30.0))
        assert await bench.client_node.run(registration) == found
        assert bench.bookie.registered
        # A restart takes over at once: the lock on the directories proves that the old life is
        # over.
        bench.node.crash()
        bench.start()
        await bench.client()
        await bench.client_node.run(lambda world: world.clock.sleep(0.5))
        assert bench.bookie.registered
        await bench.in_bookie(lambda bookie: bookie.stop())
        assert await bench.client_node.run(registration) is None

    bench.sim.run(scenario)


def test_free_space_is_registered_when_it_has_changed_much() -> None:
    bench = BookieBench(11)

    async def registered(world: World) -> int:
        await world.clock.sleep(60.0)  # several looks at the disk
        (node,) = await world.metadata.get_many([paths.bookie("b1")])
        assert node is not None
        return decode_record(node.data, BookieRegistration, "").free_bytes

    async def scenario() -> None:
        await bench.client()
        disk, before = bench.node.disk, await bench.client_node.run(registered)
        assert before == pytest.approx(disk.free_bytes(), rel=0.2)
        disk.capacity_bytes -= int(0.1 * before)
        assert await bench.client_node.run(registered) == before
        disk.capacity_bytes -= int(0.4 * before)
        assert await bench.client_node.run(registered) == disk.free_bytes()

    bench.sim.run(scenario)


@pytest.mark.parametrize(
    ("advertised", "told"),
    [
        ("", ("b1:3181", "b1:8000", "b1", "framed:b1:3281")),
        ("outside", ("outside:3181", "outside:8000", "outside", "framed:outside:3281")),
        # What is before the gRPC port may not be before the framed port.
        ("outside:9", ("outside:9", "outside:8000", "outside", "")),
    ],
)
def test_others_are_told_the_advertised_address(
    advertised: str, told: tuple[str, str, str, str]
) -> None:
    bench = BookieBench(10, advertised_address=advertised, http_address="b1:8000", framed_port=3281)

    async def look(world: World) -> None:
        await world.clock.sleep(1.0)
        (node,) = await world.metadata.get_many([paths.bookie("b1")])
        assert node is not None
        found = decode_record(node.data, BookieRegistration, "")
        assert (found.address, found.http_address, found.host, found.framed_address) == told

    async def scenario() -> None:
        await bench.client()
        await bench.client_node.run(look)

    bench.sim.run(scenario)


@pytest.mark.parametrize(
    ("port", "outside", "told"),
    [(-1, "", ""), (3281, "outside", "framed:outside:3281"), (3281, "o:9", "framed:o:9")],
)
def test_the_framed_port_has_an_advertised_address_of_its_own(
    port: int, outside: str, told: str
) -> None:
    bench = BookieBench(10, framed_port=port, framed_advertised_address=outside)

    async def look(world: World) -> None:
        await world.clock.sleep(1.0)
        (node,) = await world.metadata.get_many([paths.bookie("b1")])
        assert node is not None
        assert decode_record(node.data, BookieRegistration, "").framed_address == told

    async def scenario() -> None:
        await bench.client()
        await bench.client_node.run(look)

    bench.sim.run(scenario)


def test_nothing_is_deleted_on_the_word_of_restored_metadata_until_they_are_confirmed() -> None:
    bench = BookieBench(1)

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1, 2)
        await fill(bench, 1, 2)
        await delete_metadata(bench, paths.ledger(1))

        async def mark(world: World) -> None:
            await records(world).compare_and_set(paths.RESTORED, RestoredTree("sum", 1, 2), None)

        await bench.client_node.run(mark)
        await collect(bench)
        assert [await present(bench, ledger) for ledger in (1, 2)] == [True, True]
        assert bench.bookie.garbage.ledgers_held_back == 1
        await delete_metadata(bench, paths.RESTORED)
        await collect(bench)
        assert [await present(bench, ledger) for ledger in (1, 2)] == [False, True]
        assert bench.bookie.garbage.ledgers_held_back == 0

    bench.sim.run(scenario)


def test_a_bookie_raises_the_ids_above_what_it_holds_before_it_registers() -> None:
    """After a restore from an old backup the allocator is behind: an id given out again would mix
    two ledgers' entries.
    """
    bench = BookieBench(1)

    async def next_id(world: World) -> int:
        while not bench.bookie.registered:
            await world.clock.sleep(0.01)
        found = await records(world).get(paths.LEDGER_IDS, LedgerIds)
        return 0 if found is None else found[0].next_id

    async def scenario() -> None:
        await bench.client()
        await make_ledgers(bench, 1, 70)
        await fill(bench, 1)
        await delete_metadata(bench, paths.ledger(1))
        await fill(bench, 70, entries=5)  # in the journal only
        bench.node.crash()
        bench.start()
        await bench.client()
        assert await bench.client_node.run(next_id) == 71
        await delete_metadata(bench, paths.ledger(70))
        await collect(bench)
        await bench.client_node.run(lambda world: records(world).delete(paths.LEDGER_IDS))
        bench.node.crash()
        bench.start()
        await bench.client()
        assert await bench.client_node.run(next_id) == 71, (
            "a deleted ledger is remembered, and its id too"
        )
        _ = await bench.bookie.store.fence(ID_MAX)
        bench.node.crash()
        bench.start()
        await bench.client()
        assert await bench.client_node.run(next_id) == 71, (
            "a peer may fence any id, but the metadata never gave it out"
        )

    bench.sim.run(scenario)
