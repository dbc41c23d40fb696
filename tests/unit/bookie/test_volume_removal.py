"""A drained volume is taken out of a bookie that runs: what refuses it, what stays fenced, and what
the next start finds.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Collection

import msgspec
import pytest

from pulsarish.bookie.volume import Volume
from pulsarish.bookie.volume_homes import VolumeHomes
from pulsarish.bookie.volume_removal import VolumeRemovals
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import ClusterRecord, CordonedVolumes, RestoredTree, UnderReplicated
from pulsarish.model.errors import BookieIOError, LedgerFenced, NoSuchEntry
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)
from pulsarish.runtime.seams import World
from pulsarish.wire.json_record import encode_record
from tests.support.bookies import BookieBench, BookieClient, make_record
from tests.unit.bookie.test_cordoned_volumes import add, sleep, store
from tests.unit.bookie.test_volumes import (
    LEDGERS,
    OK,
    bench_of,
    change,
    codes,
    cookie_of,
    empty,
    fill,
    lists,
    places_of,
    registration_of,
    run,
    serves,
)


async def drain(bench: BookieBench, place: str) -> Volume:
    (volume,) = [
        each for each in bench.bookie.volumes if each.config.ledger_path == f"{place}/ledgers"
    ]
    instance = bench.bookie.instance_id
    record = CordonedVolumes("b1", instance, {volume.name: ""}, draining=(volume.name,))
    await store(bench, paths.cordoned_volumes(instance), encode_record(record))
    while bench.bookie.cordoned_directories != [f"{place}/ledgers"]:
        await sleep(bench, 0.1)
    return volume


async def remove(bench: BookieBench, volume: Volume) -> str:
    """Return why it was not removed; empty: it was."""
    removals = bench.bookie._removals
    assert removals is not None

    async def begin(_bookie: object) -> None:
        removals.begin(volume.config.ledger_path)

    await bench.in_bookie(begin)
    while (state := removals.state(volume.config.ledger_path)) and state.is_running:
        await sleep(bench, 0.1)
    assert state is not None
    assert state.is_removed is not bool(state.refusal)
    return state.refusal


async def name_ledgers(
    bench: BookieBench, ledger_ids: Collection[int], member: str = "other~1"
) -> None:
    for ledger_id in ledger_ids:
        record = LedgerMetadata(
            ledger_id,
            1,
            1,
            1,
            LedgerPurpose(PurposeKind.DIAGNOSTIC, "test"),
            (Segment(0, (member,)),),
            state=LedgerState.CLOSED,
            last_entry=0,
        )
        await store(bench, paths.ledger(ledger_id), encode_record(record))


async def split(bench: BookieBench) -> tuple[list[int], list[int]]:
    """Fill ledgers. Return those in /a, of which the metadata name another bookie, and the rest."""
    await fill(bench, LEDGERS)
    places = await places_of(bench, LEDGERS)
    there = [each for each, place in places.items() if place == "/a/ledgers"]
    rest = [each for each in LEDGERS if each not in there]
    await name_ledgers(bench, there)
    await name_ledgers(bench, rest, bench.bookie.instance_id)
    return there, rest


def test_what_was_removed_stays_fenced_and_its_emptied_directories_are_a_new_volume() -> None:
    bench = bench_of("/a", "/b", "/c")

    async def scenario() -> None:
        there, rest = await split(bench)
        volume = await drain(bench, "/a")
        assert await remove(bench, volume) == ""
        for lists_now in (lists("/a", "/b", "/c"), lists("/b", "/c")):
            # Entries that the metadata do not name here are gone; no writer begins them again.
            assert await codes(bench, range(there[0], there[0] + 1)) == {there[0]: NoSuchEntry.code}
            assert {await add(bench, each, 1) for each in there} == {LedgerFenced.code}
            for each in rest:
                assert await codes(bench, range(each, each + 1)) == {each: OK}
            found = await registration_of(bench)
            assert (found.lost_directories, found.limbo_below_ledger) == ((), 0)
            record = (await cookie_of(bench)).volumes[volume.name]
            assert (record.is_lost, record.is_removed) == (True, True)
            bench.node.crash()
            change(bench, **lists_now)
            bench.start()
            await serves(bench)
        bench.node.crash()
        empty(bench, "/a")
        change(bench, **lists("/b", "/c", "/a", "/d"))
        bench.start()
        await fill(bench, range(40, 60))
        places = set((await places_of(bench, range(40, 60))).values())
        assert {"/a/ledgers", "/d/ledgers"} <= places
        assert {await add(bench, each, 1) for each in there} == {LedgerFenced.code}
        assert len((await cookie_of(bench)).volumes) == 5

    run(bench, scenario)


def test_what_is_not_proved_refuses_and_the_volume_goes_on() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        there, rest = await split(bench)
        volume = await drain(bench, "/a")
        first = there[0]
        await name_ledgers(bench, [first], bench.bookie.instance_id)
        assert f"ledger {first} has copies there" in await remove(bench, volume)
        await store(bench, paths.ledger(first), b"damaged")
        assert "is no valid LedgerMetadata" in await remove(bench, volume)
        await name_ledgers(bench, [first])
        published = paths.underreplicated(first)
        await store(bench, published, encode_record(UnderReplicated(first)))
        assert "are being made: try again" in await remove(bench, volume)
        await delete(bench, published)
        # No volume has it: it may be one that /a has lost.
        await name_ledgers(bench, [90], bench.bookie.instance_id)
        assert "ledger 90 should have copies on this bookie" in await remove(bench, volume)
        await delete(bench, paths.ledger(90))
        await store(bench, paths.RESTORED, encode_record(RestoredTree("b", 1)))
        assert "metadata confirm" in await remove(bench, volume)
        await delete(bench, paths.RESTORED)
        cluster = paths.CLUSTER
        await store(bench, cluster, encode_record(ClusterRecord("another", 1)))
        assert "is not that of cluster" in await remove(bench, volume)
        # Nothing of that has changed anything.
        assert set((await codes(bench, LEDGERS)).values()) == {OK}
        assert await add(bench, rest[0], 1) == OK
        assert await add(bench, first, 1) == OK
        assert not volume.store.takes_no_copies
        assert len(bench.bookie.live) == 2

    run(bench, scenario)


async def delete(bench: BookieBench, path: str) -> None:
    async def work(world: World) -> None:
        await Records(world.metadata, world.clock, world.random).delete(path)

    await bench.client_node.run(work)


def test_a_copy_that_comes_during_the_proof_is_refused() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        there, _ = await split(bench)
        volume = await drain(bench, "/a")
        volume.store.takes_no_copies = True
        assert await add(bench, there[0], 0, recovery=True) != OK
        assert await add(bench, 70, 0, recovery=True) == OK
        assert await places_of(bench, range(70, 71)) == {70: "/b/ledgers"}

        async def fence(client: BookieClient) -> None:
            assert await client.fence(there[0]) == (OK, -1)
            assert await client.add([make_record(71, 0, b"x")]) == {(71, 0): OK}

        await bench.with_client(fence)

    run(bench, scenario)


def test_a_disk_that_dies_while_it_takes_the_fences_is_replaced_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = bench_of("/a", "/b", "/c")
    was = VolumeHomes._fence_in
    killed: list[Volume] = []

    async def dying(volumes: VolumeHomes, target: Volume, ledger_ids: list[int]) -> bool:
        if not killed:
            killed.append(target)
            bench.node.disk.kill(f"{target.config.ledger_path.rpartition('/')[0]}/")
        return await was(volumes, target, ledger_ids)

    monkeypatch.setattr(VolumeHomes, "_fence_in", dying)

    async def scenario() -> None:
        there, _ = await split(bench)
        volume = await drain(bench, "/a")
        assert await remove(bench, volume) == ""
        (left,) = bench.bookie.live
        assert left not in (volume, killed[0])
        assert {await add(bench, each, 1) for each in there} == {LedgerFenced.code}
        assert bench.bookie.lost_directories == killed[0].config.paths

    run(bench, scenario)


def test_a_fence_that_a_removed_volume_takes_last_is_not_answered() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await split(bench)
        volume = await drain(bench, "/a")
        several = bench.bookie._several
        assert several is not None
        several._homes[77] = volume  # its look-up began before the volume was cordoned
        was, may_go_on = volume.store.states.load, asyncio.Event()

        async def slow(ledger_ids: list[int]) -> None:
            if 77 in ledger_ids:
                await may_go_on.wait()
            await was(ledger_ids)

        volume.store.states.load = slow  # type: ignore[assignment, method-assign]

        async def fence(_bookie: object) -> asyncio.Task[tuple[int, int]]:
            return asyncio.ensure_future(several.fence(77))

        fencing = await bench.in_bookie(fence)
        await sleep(bench, 1)
        assert await remove(bench, volume) == ""
        may_go_on.set()
        with pytest.raises(BookieIOError, match="was removed"):
            await fencing
        # Nobody was told that it is fenced.
        assert await add(bench, 77, 0) == OK

    run(bench, scenario)


def test_a_disk_that_dies_during_the_proof_refuses_the_removal_of_the_last_volume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = bench_of("/a", "/b")
    was = VolumeRemovals._prove

    async def proved(removals: VolumeRemovals, volume: Volume) -> None:
        await was(removals, volume)
        if volume.store.takes_no_copies:
            several = removals._volumes
            for other in several.live:
                if other is not volume:
                    assert several.fail(other, OSError(errno.EIO, "the disk is dead"))
            assert several._choose() is volume

    monkeypatch.setattr(VolumeRemovals, "_prove", proved)

    async def scenario() -> None:
        await split(bench)
        volume = await drain(bench, "/a")
        assert "last volume" in await remove(bench, volume)
        assert bench.bookie.live == [volume]
        assert not volume.store.takes_no_copies

    run(bench, scenario)


def test_a_cookie_that_does_not_name_the_removed_volume_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = bench_of("/a", "/b")
    was = VolumeHomes.settle_removed

    async def settled(volumes: VolumeHomes, volume: Volume) -> None:
        await was(volumes, volume)
        # A restore has put an older cookie back, of before the volume was added.
        cookie = await cookie_of(bench)
        older = {name: each for name, each in cookie.volumes.items() if name != volume.name}
        wanted = msgspec.structs.replace(cookie, volumes=older)
        await store(bench, paths.cookie("b1"), encode_record(wanted))

    monkeypatch.setattr(VolumeHomes, "settle_removed", settled)

    async def scenario() -> None:
        _, rest = await split(bench)
        volume = await drain(bench, "/a")
        assert await remove(bench, volume) == ""
        assert await add(bench, rest[0], 1) == OK

    run(bench, scenario)
