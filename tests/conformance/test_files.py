"""What every ``Files`` and ``File`` promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pulsarish.runtime.seams import Locked, World
from tests.support.worlds import Env, Scenario


async def written_parts_are_read_back(env: Env) -> None:
    # More parts than one system call takes, of every kind of buffer.
    parts = [bytes([index % 251]) * (index % 7) for index in range(3_000)]
    parts[10], parts[11] = bytearray(parts[10]), memoryview(parts[11])
    content = b"".join(parts)

    async def work(world: World) -> None:
        file = await world.files.open(env.path("a", "deep/er/journal"), lane="journal", create=True)
        await file.write(0, parts, sync=True)
        assert await file.size_bytes() == len(content)
        assert await file.read([(0, len(content)), (5, 10), (len(content) - 3, 3)]) == [
            content,
            content[5:15],
            content[-3:],
        ]
        await file.write(4, [b"XY"], sync=False)
        assert await file.read([(0, 8)]) == [content[:4] + b"XY" + content[6:8]]
        await file.close()

    await env.on("a", work)


async def a_large_write_is_whole(env: Env) -> None:
    block = bytes(range(256)) * 4_096  # 1 MB

    async def work(world: World) -> None:
        file = await world.files.open(env.path("a", "log"), lane="log", create=True)
        await file.write(7, [block] * 9, sync=True)
        assert await file.size_bytes() == 7 + 9 * len(block)
        (first, last) = await file.read([(0, 8), (7 + 8 * len(block), len(block))])
        assert first == b"\0" * 7 + block[:1]
        assert last == block
        await file.close()

    await env.on("a", work)


async def spans_past_the_end_are_short(env: Env) -> None:
    async def work(world: World) -> None:
        file = await world.files.open(env.path("a", "f"), lane="x", create=True)
        await file.write(0, [b"0123456789"], sync=False)
        assert await file.read([(8, 5), (10, 5), (50, 5), (0, 0)]) == [b"89", b"", b"", b""]
        assert await file.read([]) == []
        await file.close()

    await env.on("a", work)


async def create_refuses_an_existing_file(env: Env) -> None:
    async def work(world: World) -> None:
        path = env.path("a", "f")
        file = await world.files.open(path, lane="x", create=True)
        await file.write(0, [b"kept"], sync=True)
        with pytest.raises(FileExistsError):
            await world.files.open(path, lane="x", create=True)
        with pytest.raises(FileNotFoundError):
            await world.files.open(env.path("a", "none"), lane="x")
        again = await world.files.open(path, lane="y")
        assert await again.read([(0, 10)]) == [b"kept"]
        await file.close()
        await again.close()

    await env.on("a", work)


async def reserved_space_reads_as_zeroes(env: Env) -> None:
    size_bytes = 3 * 1024 * 1024 + 17

    async def work(world: World) -> None:
        file = await world.files.open(
            env.path("a", "journal"), lane="x", create=True, reserve_bytes=size_bytes
        )
        assert await file.size_bytes() == size_bytes
        assert await file.read([(0, 4), (size_bytes - 4, 10)]) == [bytes(4), bytes(4)]
        await file.write(0, [b"head"], sync=True)
        assert await file.size_bytes() == size_bytes
        await file.close()

    await env.on("a", work)


async def what_is_dropped_from_the_cache_is_still_read(env: Env) -> None:
    async def work(world: World) -> None:
        file = await world.files.open(env.path("a", "f"), lane="x", create=True)
        await file.write(0, [b"0123456789"], sync=True)
        await file.write(10, [b"not synced"], sync=False)
        await file.drop_cached()
        assert await file.read([(0, 100)]) == [b"0123456789not synced"]
        await file.close()

    await env.on("a", work)


async def truncate_cuts_and_extends(env: Env) -> None:
    async def work(world: World) -> None:
        file = await world.files.open(env.path("a", "f"), lane="x", create=True)
        await file.write(0, [b"0123456789"], sync=True)
        await file.truncate(4)
        assert await file.size_bytes() == 4
        await file.truncate(6)
        assert await file.read([(0, 100)]) == [b"0123\0\0"]
        await file.close()

    await env.on("a", work)


async def writes_of_one_file_keep_their_order(env: Env) -> None:
    async def work(world: World) -> None:
        file = await world.files.open(env.path("a", "f"), lane="x", create=True)
        writes = []
        for number in range(50):
            writes.append(
                asyncio.ensure_future(file.write(0, [b"%04d" % number], sync=number % 5 == 0))
            )
            # a task's call happens when it starts, and tasks that are ready start in any order
            await asyncio.sleep(0)
        await asyncio.gather(*writes)
        assert await file.read([(0, 4)]) == [b"0049"]
        await file.close()

    await env.on("a", work)


async def a_closed_file_refuses(env: Env) -> None:
    async def work(world: World) -> None:
        file = await world.files.open(env.path("a", "f"), lane="x", create=True)
        await file.close()
        with pytest.raises(OSError):
            await file.write(0, [b"late"], sync=True)
        with pytest.raises(OSError):
            await file.read([(0, 1)])

    await env.on("a", work)


async def synced_bytes_survive_a_crash(env: Env) -> None:
    path = env.path("a", "dir/journal")

    async def write(world: World) -> None:
        file = await world.files.open(path, lane="x", create=True, reserve_bytes=100)
        await file.write(0, [b"first"], sync=False)
        await file.write(5, [b"second"], sync=False)
        await file.write(0, [], sync=True)  # sync only
        await world.files.replace(env.path("a", "dir/mark"), b"mark")

    async def read(world: World) -> None:
        assert await world.files.list(env.path("a", "dir")) == ["journal", "mark"]
        file = await world.files.open(path, lane="x")
        assert await file.read([(0, 11)]) == [b"firstsecond"]
        await file.close()

    await env.on("a", write)
    await env.crash("a")
    await env.on("a", read)


async def replace_makes_and_overwrites(env: Env) -> None:
    async def work(world: World) -> None:
        path = env.path("a", "new/mark")
        for content in (b"one", b"", b"a longer one"):
            await world.files.replace(path, content)
            file = await world.files.open(path, lane="x")
            assert await file.read([(0, 100)]) == [content]
            await file.close()
        assert await world.files.list(env.path("a", "new")) == ["mark"]

    await env.on("a", work)


async def a_renamed_file_keeps_its_bytes(env: Env) -> None:
    old, new, taken = (env.path("a", f"d/{name}") for name in ("old", "new", "taken"))

    async def rename(world: World) -> None:
        file = await world.files.open(old, lane="x", create=True)
        await file.write(0, [b"0123456789"], sync=True)
        await file.close()
        await world.files.replace(taken, b"taken")
        with pytest.raises(FileExistsError):
            await world.files.rename(old, taken)
        with pytest.raises(FileNotFoundError):
            await world.files.rename(env.path("a", "d/none"), new)
        await world.files.rename(old, new)
        assert await world.files.list(env.path("a", "d")) == ["new", "taken"]
        with pytest.raises(FileNotFoundError):
            await world.files.open(old, lane="x")
        file = await world.files.open(new, lane="x")
        await file.write(2, [b"XY"], sync=True)
        await file.close()

    async def read(world: World) -> None:
        assert await world.files.list(env.path("a", "d")) == ["new", "taken"]
        for path, content in ((new, b"01XY456789"), (taken, b"taken")):
            file = await world.files.open(path, lane="x")
            assert await file.read([(0, 100)]) == [content]
            await file.close()

    await env.on("a", rename)
    await env.crash("a")
    await env.on("a", read)


async def remove_and_list(env: Env) -> None:
    async def work(world: World) -> None:
        directory = env.path("a", "logs")
        assert await world.files.list(directory) == []
        for name in ("c", "a", "b"):
            await world.files.replace(f"{directory}/{name}", b"")
        await world.files.replace(f"{directory}/sub/x", b"")
        assert await world.files.list(directory) == ["a", "b", "c", "sub"]
        await world.files.remove([f"{directory}/b", f"{directory}/missing", f"{directory}/a"])
        assert await world.files.list(directory) == ["c", "sub"]
        await world.files.remove([])

    await env.on("a", work)


async def a_locked_directory_has_one_holder(env: Env) -> None:
    async def lock(world: World) -> None:
        directory = env.path("a", "data")
        await world.files.lock(directory)
        with pytest.raises(Locked, match="data"):
            await world.files.lock(directory)
        await world.files.lock(env.path("a", "other"))
        assert await world.files.list(directory) == []

    await env.on("a", lock)
    await env.crash("a")
    await env.on("a", lock)


async def a_lock_that_was_given_back_can_be_taken(env: Env) -> None:
    async def work(world: World) -> None:
        directory = env.path("a", "data")
        for _ in range(2):
            await world.files.lock(directory)
            await world.files.unlock(directory)
        await world.files.lock(directory)
        with pytest.raises(Locked, match="data"):
            await world.files.lock(directory)
        await world.files.replace(f"{directory}/x", b"x")
        await world.files.unlock(directory)
        assert await world.files.list(directory) == ["x"]

    await env.on("a", work)


async def a_lock_that_is_given_back_removes_what_it_made(env: Env) -> None:
    async def work(world: World) -> None:
        top = env.path("a", "top")
        await world.files.replace(f"{top}/x", b"x")
        for name in ("new/data", "new/more/data"):
            await world.files.lock(f"{top}/{name}")
        await world.files.unlock(f"{top}/new/data")
        assert await world.files.list(f"{top}/new") == ["more"]
        await world.files.unlock(f"{top}/new/more/data")
        assert await world.files.list(f"{top}/new") == []
        assert await world.files.list(top) == ["new", "x"]  # was made by the first lock

    await env.on("a", work)


async def free_space_is_told(env: Env) -> None:
    async def work(world: World) -> None:
        await world.files.replace(env.path("a", "d/x"), b"x")
        assert await world.files.free_bytes(env.path("a", "d")) > 0

    await env.on("a", work)


SCENARIOS = [
    written_parts_are_read_back,
    a_large_write_is_whole,
    spans_past_the_end_are_short,
    create_refuses_an_existing_file,
    reserved_space_reads_as_zeroes,
    what_is_dropped_from_the_cache_is_still_read,
    truncate_cuts_and_extends,
    writes_of_one_file_keep_their_order,
    a_closed_file_refuses,
    synced_bytes_survive_a_crash,
    replace_makes_and_overwrites,
    a_renamed_file_keeps_its_bytes,
    remove_and_list,
    a_locked_directory_has_one_holder,
    a_lock_that_was_given_back_can_be_taken,
    a_lock_that_is_given_back_removes_what_it_made,
    free_space_is_told,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_files(run_world: Callable[[Scenario], None], scenario: Scenario) -> None:
    run_world(scenario)
