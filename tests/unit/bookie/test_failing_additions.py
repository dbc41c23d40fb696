"""The addition of a volume when something else fails meanwhile, and calls that come together."""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.bookie.volume import Volume
from pulsarish.bookie.volume_addition import VolumeAdditions
from pulsarish.metadata import paths
from pulsarish.metadata.records import Cookie
from pulsarish.model.errors import BookieIOError, EntryUnknown
from pulsarish.runtime.seams import Op, World
from tests.support.bookies import BookieBench, BookieClient, make_record
from tests.unit.bookie.test_cordoned_volumes import sleep
from tests.unit.bookie.test_volume_addition import add_volume, begin, three
from tests.unit.bookie.test_volumes import (
    LEDGERS,
    bench_of,
    fill,
    give_out_ids,
    places_of,
    run,
    serves,
    volumes_of,
)


def test_two_calls_for_one_volume_with_different_directories_are_not_one_call() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await serves(bench)
        first = await begin(bench, three("/c"))
        assert await begin(bench, three("/c")) is first
        other = await begin(bench, ("/d/journal", "/c/ledgers", "/c/index"))
        assert "another volume is being added" in other.refusal
        while first.is_running:
            await sleep(bench, 0.05)
        assert first.is_added
        other = await begin(bench, ("/d/journal", "/c/ledgers", "/c/index"))
        assert "/c/ledgers is one that the bookie uses already" in other.refusal

    run(bench, scenario)


def test_the_refusals_of_the_last_attempts_are_remembered() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await serves(bench)
        additions = bench.bookie._additions
        assert additions is not None
        bench.node.disk.kill("/c")
        places = [f"/c{number}" for number in range(25)]
        refusals = [await add_volume(bench, three(place)) for place in places]
        states = [additions.state(f"{place}/ledgers").refusal for place in places]
        assert all(refusals)
        assert states == [""] * 5 + refusals[5:]

    run(bench, scenario)


def test_what_fails_in_another_volume_ends_that_one_or_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = bench_of("/a", "/b")
    bench.node.expect(OSError)

    async def scenario() -> None:
        await serves(bench)
        was = VolumeAdditions._note_in_others

        async def fill_disk(self: VolumeAdditions, cookie: Cookie) -> None:
            bench.node.disk.capacity_bytes = bench.node.disk.used_bytes()
            await was(self, cookie)

        monkeypatch.setattr(VolumeAdditions, "_note_in_others", fill_disk)
        await begin(bench, three("/c"))
        await sleep(bench, 1.0)
        assert not bench.node.alive, "a full disk of a volume that serves ends the process"
        bench.node.disk.capacity_bytes = 1 << 40
        monkeypatch.undo()
        bench.start()
        await serves(bench)
        assert len(bench.bookie.live) == 3

    run(bench, scenario)


def test_a_damaged_cookie_of_another_volume_is_named_in_the_refusal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await serves(bench)
        was = VolumeAdditions._note_in_others

        async def damage(self: VolumeAdditions, cookie: Cookie) -> None:
            await self._world.files.replace("/b/ledgers/cookie", b"{")
            await was(self, cookie)

        monkeypatch.setattr(VolumeAdditions, "_note_in_others", damage)
        assert "/b/ledgers/cookie" in await add_volume(bench, three("/c"))
        assert bench.node.alive

    run(bench, scenario)


async def stops(bench: BookieBench, seconds: float = 30.0) -> None:
    """Stop the bookie. Raises ``TimeoutError`` when that takes longer than it may."""
    bookie = bench.bookie

    async def stop(world: World) -> None:
        async with world.clock.timeout(seconds):
            await bookie.stop()

    await bench.node.run(stop)


def test_a_stop_does_not_wait_for_an_addition_beside_a_failed_volume_without_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = bench_of("/a", "/b", "/x")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        additions = bench.bookie._additions
        assert additions is not None
        was = additions._take_in

        async def without_metadata(volume: Volume, cookie: Cookie) -> None:
            bench.sim.metadata.stop()
            lost = bench.bookie.volumes[-1]
            assert volumes_of(bench).fail(lost, OSError("the disk of /x has died"))
            await asyncio.sleep(0.01)
            await was(volume, cookie)

        monkeypatch.setattr(additions, "_take_in", without_metadata)
        state = await begin(bench, three("/c"))
        await sleep(bench, 5.0)
        assert not volumes_of(bench).settled_names
        await stops(bench)
        assert not state.is_running

    run(bench, scenario)


@pytest.mark.parametrize("fails", ["the metadata", "the disk"])
def test_a_stop_ends_an_addition_that_fails(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await fill(bench, LEDGERS)
        additions = bench.bookie._additions
        assert additions is not None
        joins = asyncio.Event()

        async def fail(_volume: Volume, _cookie: Cookie) -> None:
            if fails == "the metadata":
                # What the metadata are told of it waits for them.
                bench.sim.metadata.stop()
                raise OSError("the disk of /c has died")
            bench.node.disk.kill("/c/")
            await joins.wait()
            raise BookieIOError("the bookie stops")

        monkeypatch.setattr(additions, "_take_in", fail)
        state = await begin(bench, three("/c"))
        await sleep(bench, 2.0)
        assert state.is_running

        async def end(world: World) -> None:
            while not volumes_of(bench).is_closing:
                await world.clock.sleep(0.01)
            joins.set()

        ending = asyncio.ensure_future(bench.node.run(end))
        await stops(bench)
        await ending
        assert state.refusal == "the bookie stops"

    run(bench, scenario)


def test_a_damaged_counter_of_ledger_ids_neither_ends_the_bookie_nor_delays_the_doubt() -> None:
    bench = bench_of("/a", "/b")

    async def scenario() -> None:
        await give_out_ids(bench)
        await fill(bench, LEDGERS)
        places = await places_of(bench, LEDGERS)
        lost = [each for each, place in places.items() if place == "/b/ledgers"]

        async def damage(world: World) -> None:
            await world.metadata.commit([Op("put", paths.LEDGER_IDS, b"{")])

        await bench.client_node.run(damage)
        bench.node.disk.kill("/b/")

        async def work(client: BookieClient) -> None:
            await client.add([make_record(lost[0], 1, b"x")])
            while not volumes_of(bench).settled_names:
                await client.world.clock.sleep(0.1)
            assert await client.fence(lost[0]) == (EntryUnknown.code, -1)
            assert (await client.fence(max(lost) + 1))[0] != EntryUnknown.code

        await bench.with_client(work)

    run(bench, scenario)
