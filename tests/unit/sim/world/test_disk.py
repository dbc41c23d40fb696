"""What a crash leaves, and how a disk fails."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pulsarish.runtime.seams import Locked, World
from pulsarish.sim.world.world import Simulation

Work = Callable[[World], Coroutine[Any, Any, Any]]

SECTOR = 512


def crash_after(seed: int, before: Work, after: Work, crash_at_seconds: float | None = None) -> Any:
    """Run ``before`` on a node, crash it at its end or at a time, and answer what ``after``
    finds.
    """

    async def scenario() -> Any:
        node = sim.node("a")
        running = asyncio.get_running_loop().create_task(node.run(before))
        if crash_at_seconds is None:
            await running
        else:
            await asyncio.sleep(crash_at_seconds)
        node.crash()
        await asyncio.gather(running, return_exceptions=True)
        node.start()
        return await node.run(after)

    sim = Simulation(seed)
    return sim.run(scenario, 1_000)


async def read_all(world: World, path: str) -> bytes | None:
    try:
        file = await world.files.open(path, lane="x")
    except FileNotFoundError:
        return None
    return (await file.read([(0, await file.size_bytes())]))[0]


def test_what_was_synced_survives_and_the_rest_is_torn_at_sectors() -> None:
    async def before(world: World) -> None:
        file = await world.files.open("/d/f", lane="x", create=True)
        await file.write(0, [b"s" * 1000], sync=True)
        await file.write(1000, [b"u" * 4000], sync=False)

    async def after(world: World) -> bytes | None:
        return await read_all(world, "/d/f")

    kept = [crash_after(seed, before, after) for seed in range(40)]
    assert all(data is not None and data[:1000] == b"s" * 1000 for data in kept)
    assert b"s" * 1000 in kept, "some crash loses all"
    assert b"s" * 1000 + b"u" * 4000 in kept, "some crash keeps all"
    assert any(b"\0" in data and b"u" in data for data in kept), "some crash leaves a hole"
    for data in kept:
        for start in range(1024, len(data), SECTOR):
            assert len(set(data[start : start + SECTOR])) == 1, "sectors are whole"


def test_a_sync_covers_what_was_written_before_it_began() -> None:
    async def before(world: World) -> None:
        file = await world.files.open("/d/f", lane="x", create=True)
        await file.write(0, [b"a"], sync=False)
        await file.write(1, [b"b"], sync=False)
        await file.write(0, [], sync=True)

    async def after(world: World) -> bytes | None:
        return await read_all(world, "/d/f")

    assert all(crash_after(seed, before, after) == b"ab" for seed in range(10))


def test_reserved_space_reads_as_zeroes_and_is_durable() -> None:
    async def before(world: World) -> None:
        await world.files.open("/d/f", lane="x", create=True, reserve_bytes=10_000)

    async def after(world: World) -> bytes | None:
        return await read_all(world, "/d/f")

    assert all(crash_after(seed, before, after) == bytes(10_000) for seed in range(10))


def test_replace_is_old_or_new_wherever_the_crash_falls() -> None:
    async def before(world: World) -> None:
        await world.files.replace("/d/f", b"old" * 1000)
        await world.files.replace("/d/f", b"new" * 2000)

    async def after(world: World) -> bytes | None:
        assert await world.files.list("/d") in (["f"], [])
        return await read_all(world, "/d/f")

    kept = [crash_after(seed, before, after, crash_at_seconds=0.0002 * seed) for seed in range(100)]
    assert {data if data is None else data[:3] for data in kept} == {None, b"old", b"new"}
    assert all(data in (None, b"old" * 1000, b"new" * 2000) for data in kept)


def test_a_removal_is_durable_when_it_returns_and_may_happen_before() -> None:
    async def before(world: World) -> None:
        await world.files.replace("/d/f", b"x")
        await world.files.remove(["/d/f", "/d/missing"])

    async def after(world: World) -> bytes | None:
        return await read_all(world, "/d/f")

    assert all(crash_after(seed, before, after) is None for seed in range(20))
    assert {crash_after(seed, before, after, 0.0002 * seed) for seed in range(60)} == {None, b"x"}


def test_a_renamed_file_has_its_new_name_only_and_before_that_either_both_or_none() -> None:
    async def before(world: World) -> None:
        file = await world.files.open("/d/old", lane="x", create=True)
        await file.write(0, [b"bytes"], sync=True)
        await world.files.rename("/d/old", "/d/new")

    async def after(world: World) -> tuple[str, ...]:
        names = await world.files.list("/d")
        for name in names:
            assert await read_all(world, f"/d/{name}") in (b"bytes", b"")
        return tuple(names)

    assert all(crash_after(seed, before, after) == ("new",) for seed in range(20))
    found = {crash_after(seed, before, after, 0.00005 * seed) for seed in range(200)}
    assert found == {(), ("old",), ("new",), ("new", "old")}


def test_a_failed_sync_is_told_once_and_its_data_is_lost() -> None:
    async def before(world: World) -> None:
        sim_disk = world.files._disk  # type: ignore[attr-defined]
        file = await world.files.open("/d/f", lane="x", create=True)
        sim_disk.fail_next_sync("/d/f")
        with pytest.raises(OSError, match="sync") as caught:
            await file.write(0, [b"lost"], sync=True)
        assert caught.value.errno == errno.EIO
        assert await file.read([(0, 4)]) == [b"lost"], "the page cache still shows it"
        await file.write(4, [b"kept"], sync=True)

    async def after(world: World) -> bytes | None:
        return await read_all(world, "/d/f")

    assert all(crash_after(seed, before, after) == b"\0\0\0\0kept" for seed in range(10))


def on_disk(work: Callable[[Simulation, World], Coroutine[Any, Any, Any]]) -> None:
    sim = Simulation(0)
    sim.run(lambda: sim.node("a").run(lambda world: work(sim, world)), 1_000)


def test_a_write_that_fails_leaves_nothing_or_a_part_of_itself() -> None:
    async def work(sim: Simulation, world: World) -> None:
        disk = sim.nodes["a"].disk
        file = await world.files.open("/d/f", lane="x", create=True)
        await file.write(0, [b"old" * 100], sync=True)
        disk.write_failure_chance = 1.0
        with pytest.raises(OSError, match="cannot write") as caught:
            await file.write(0, [b"new" * 100], sync=True)
        assert caught.value.errno == errno.EIO
        assert await read_all(world, "/d/f") == b"old" * 100
        disk.write_failure_chance, disk.short_write_chance = 0.0, 1.0
        with pytest.raises(OSError, match="cannot write"):
            await file.write(0, [b"new" * 100], sync=True)
        found = await read_all(world, "/d/f")
        assert found is not None
        part = next(
            size for size in range(301) if found == (b"new" * 100)[:size] + (b"old" * 100)[size:]
        )
        assert 0 < part < 300
        disk.heal()
        await file.write(0, [b"new" * 100], sync=True)

    on_disk(work)


def test_a_full_disk_refuses_growth_only() -> None:
    async def work(sim: Simulation, world: World) -> None:
        disk = sim.nodes["a"].disk
        file = await world.files.open("/d/f", lane="x", create=True, reserve_bytes=1000)
        disk.capacity_bytes = 1500
        assert await world.files.free_bytes("/d") == 500
        await file.write(0, [bytes(1000)], sync=True)
        with pytest.raises(OSError, match="no space") as caught:
            await file.write(900, [bytes(1000)], sync=True)
        assert caught.value.errno == errno.ENOSPC
        with pytest.raises(OSError, match="no space"):
            await world.files.open("/d/g", lane="x", create=True, reserve_bytes=1000)
        assert await world.files.list("/d") == ["f"]
        await world.files.remove(["/d/f"])
        await world.files.open("/d/g", lane="x", create=True, reserve_bytes=1000)

    on_disk(work)


def test_bit_rot_and_bad_sectors() -> None:
    async def work(sim: Simulation, world: World) -> None:
        disk = sim.nodes["a"].disk
        file = await world.files.open("/d/f", lane="x", create=True)
        await file.write(0, [b"a" * 2000], sync=True)
        disk.flip_bit("/d/f", 5, bit=1)
        assert await file.read([(4, 3)]) == [b"aca"]
        disk.spoil_sector("/d/f", 600)
        assert await file.read([(0, 512), (1024, 10)])
        with pytest.raises(OSError, match="cannot read") as caught:
            await file.read([(500, 100)])
        assert caught.value.errno == errno.EIO
        await file.write(512, [b"b" * 512], sync=True)
        assert await file.read([(512, 1)]) == [b"b"]
        place = disk.draw_place("/d")
        assert place is not None
        assert place[0] == "/d/f"

    on_disk(work)


def test_a_slow_disk_takes_its_time() -> None:
    async def work(sim: Simulation, world: World) -> None:
        file = await world.files.open("/d/f", lane="x", create=True)
        sim.nodes["a"].disk.slowness = 1000
        started = sim.loop.time()
        await file.write(0, [b"x"], sync=True)
        assert sim.loop.time() - started > 0.5

    on_disk(work)


def test_a_lock_is_free_again_when_its_holder_is_dead() -> None:
    async def hold(world: World) -> None:
        await world.files.lock("/d")

    async def scenario() -> None:
        node = sim.node("a")
        await node.run(hold)
        with pytest.raises(Locked):
            await node.run(hold)
        node.restart()
        await node.run(hold)

    sim = Simulation(0)
    sim.run(scenario, 100)


def test_lanes_wait_for_themselves_only() -> None:
    async def work(sim: Simulation, world: World) -> None:
        slow = await world.files.open("/d/slow", lane="one", create=True)
        fast = await world.files.open("/d/fast", lane="two", create=True)
        done: list[str] = []

        async def write(name: str, count: int) -> None:
            for _ in range(count):
                await (slow if name == "slow" else fast).write(0, [b"x"], sync=True)
            done.append(name)

        await asyncio.gather(write("slow", 100), write("fast", 1))
        assert done == ["fast", "slow"]

    on_disk(work)


def test_an_index_loses_whole_batches_from_the_end() -> None:
    async def before(world: World) -> None:
        index = await world.open_index("/d/index")
        await index.write([(b"synced", b"1")], sync=True)
        for number in range(5):
            await index.write(
                [(b"a%d" % number, b"x"), (b"b%d" % number, b"x")],
                [b"a%d" % (number - 1)],
                sync=False,
            )

    async def after(world: World) -> tuple[bytes, ...]:
        index = await world.open_index("/d/index")
        rows = await index.scan(b"", b"z", limit=100)
        assert [key for key, _ in reversed(rows)] == [
            key for key, _ in await index.scan(b"", b"z", limit=100, reverse=True)
        ]
        return tuple(key for key, _ in rows)

    def state(count: int) -> tuple[bytes, ...]:
        last = [b"a%d" % (count - 1)] if count else []
        return (*last, *[b"b%d" % number for number in range(count)], b"synced")

    seen = {crash_after(seed, before, after) for seed in range(60)}
    assert seen == {state(count) for count in range(6)}


def test_a_failed_sync_of_an_index_loses_its_batches() -> None:
    async def before(world: World) -> None:
        index = await world.open_index("/d/index")
        world.files._disk.fail_next_sync("index")  # type: ignore[attr-defined]
        with pytest.raises(OSError, match="cannot sync"):
            await index.write([(b"k", b"v")], sync=True)

    async def after(world: World) -> Any:
        return await (await world.open_index("/d/index")).get_many([b"k"])

    assert all(crash_after(seed, before, after) == [None] for seed in range(5))
