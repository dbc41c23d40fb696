"""What every ``KeyValueIndex`` promises."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from pulsarish.model.errors import CorruptData
from pulsarish.runtime.seams import KeyValueIndex, World
from tests.support.worlds import Env, Scenario


def _with_index(env: Env, work: Callable[[KeyValueIndex], object]) -> Callable[[World], object]:
    async def run(world: World) -> None:
        index = await world.open_index(env.path("a", "index"))
        await work(index)
        await index.close()

    return run


def _key(number: int) -> bytes:
    return number.to_bytes(8, "big")


async def values_come_back_in_the_order_asked(env: Env) -> None:
    async def work(index: KeyValueIndex) -> None:
        assert await index.get_many([]) == []
        assert await index.get_many([b"none"]) == [None]
        await index.write([(b"a", b"1"), (b"b", b""), (b"c", b"3")], sync=False)
        assert await index.get_many([b"c", b"x", b"a", b"b", b"a"]) == [b"3", None, b"1", b"", b"1"]

    await env.on("a", _with_index(env, work))


async def a_write_puts_and_deletes(env: Env) -> None:
    async def work(index: KeyValueIndex) -> None:
        await index.write([(b"a", b"1"), (b"b", b"1")], sync=True)
        await index.write([(b"b", b"2"), (b"c", b"2"), (b"c", b"3")], [b"a", b"absent"], sync=False)
        assert await index.get_many([b"a", b"b", b"c"]) == [None, b"2", b"3"]
        # In one write the deletion has the last word.
        await index.write([(b"d", b"4")], [b"d"], sync=False)
        assert await index.get_many([b"d"]) == [None]
        await index.write([], sync=True)

    await env.on("a", _with_index(env, work))


async def scans_in_both_directions(env: Env) -> None:
    async def work(index: KeyValueIndex) -> None:
        rows = [(_key(number), b"%d" % number) for number in range(0, 100, 10)]
        await index.write(rows, sync=False)
        # The start is inclusive and the end exclusive, whether or not such keys exist.
        assert await index.scan(_key(20), _key(50), limit=10) == rows[2:5]
        assert await index.scan(_key(15), _key(51), limit=10) == rows[2:6]
        assert await index.scan(_key(20), _key(50), limit=2) == rows[2:4]
        assert await index.scan(_key(20), _key(50), limit=10, reverse=True) == rows[4:1:-1]
        assert await index.scan(_key(15), _key(51), limit=2, reverse=True) == [rows[5], rows[4]]
        assert await index.scan(b"", b"\xff" * 9, limit=100) == rows
        assert await index.scan(b"", b"\xff" * 9, limit=100, reverse=True) == rows[::-1]
        assert await index.scan(_key(91), _key(99), limit=10) == []
        assert await index.scan(_key(50), _key(50), limit=10) == []
        assert await index.scan(_key(50), _key(20), limit=10) == []
        assert await index.scan(_key(20), _key(50), limit=0) == []

    await env.on("a", _with_index(env, work))


async def scans_skip_deleted_rows(env: Env) -> None:
    async def work(index: KeyValueIndex) -> None:
        await index.write([(_key(number), b"v") for number in range(2_000)], sync=False)
        await index.write([], [_key(number) for number in range(5, 1_995)], sync=False)
        expected = [_key(number) for number in (0, 1, 2, 3, 4, 1995, 1996, 1997, 1998, 1999)]
        assert [key for key, _ in await index.scan(_key(0), _key(5_000), limit=100)] == expected
        assert [
            key for key, _ in await index.scan(_key(0), _key(5_000), limit=100, reverse=True)
        ] == expected[::-1]

    await env.on("a", _with_index(env, work))


async def agrees_with_a_dictionary(env: Env) -> None:
    async def work(index: KeyValueIndex) -> None:
        chance = random.Random(4)
        oracle: dict[bytes, bytes] = {}
        for step in range(60):
            puts = [
                (_key(chance.randrange(300)), b"%d.%d" % (step, number))
                for number in range(chance.randrange(40))
            ]
            deletes = [_key(chance.randrange(300)) for _ in range(chance.randrange(10))]
            await index.write(puts, deletes, sync=step % 7 == 0)
            oracle.update(puts)
            for key in deletes:
                oracle.pop(key, None)
            start, end = sorted((chance.randrange(310), chance.randrange(310)))
            limit, reverse = chance.randrange(1, 100), chance.random() < 0.5
            rows = sorted(
                (row for row in oracle.items() if _key(start) <= row[0] < _key(end)),
                reverse=reverse,
            )
            assert (
                await index.scan(_key(start), _key(end), limit=limit, reverse=reverse)
                == rows[:limit]
            )
            asked = [_key(chance.randrange(310)) for _ in range(20)]
            assert await index.get_many(asked) == [oracle.get(key) for key in asked]

    await env.on("a", _with_index(env, work))


async def synced_rows_survive_a_crash(env: Env) -> None:
    async def write(world: World) -> None:
        index = await world.open_index(env.path("a", "index"))
        await index.write([(b"early", b"1")], sync=False)
        # Durable with everything written before it.
        await index.write([(b"late", b"2")], sync=True)
        await index.close()

    async def read(world: World) -> None:
        index = await world.open_index(env.path("a", "index"))
        assert await index.get_many([b"early", b"late"]) == [b"1", b"2"]
        await index.close()

    await env.on("a", write)
    await env.crash("a")
    await env.on("a", read)


async def a_large_write_is_one_write(env: Env) -> None:
    async def work(index: KeyValueIndex) -> None:
        count = 20_000
        await index.write([(_key(number), b"v%d" % number) for number in range(count)], sync=True)
        rows = await index.scan(_key(0), _key(count), limit=count + 1)
        assert len(rows) == count
        assert rows[-1] == (_key(count - 1), b"v%d" % (count - 1))

    await env.on("a", _with_index(env, work))


async def an_open_index_has_one_opener(env: Env) -> None:
    async def work(world: World) -> None:
        index = await world.open_index(env.path("a", "index"))
        other = await world.open_index(env.path("a", "another"))
        with pytest.raises(OSError, match="index"):
            await world.open_index(env.path("a", "index"))
        await index.close()
        await other.close()
        await (await world.open_index(env.path("a", "index"))).close()

    await env.on("a", work)


async def writes_are_numbered_over_all_openings(env: Env) -> None:
    async def first(world: World) -> None:
        index = await world.open_index(env.path("a", "index"))
        assert index.synced == 0
        await index.write([(b"a", b"1")], sync=False)
        assert index.synced == 0
        await index.write([(b"b", b"1")], sync=True)
        assert index.synced == 2
        await index.write([], sync=True)
        assert index.synced == 2
        await index.close()

    async def second(world: World) -> None:
        index = await world.open_index(env.path("a", "index"))
        assert index.synced == 2
        await index.write([(b"c", b"1")], sync=True)
        assert index.synced == 3
        await index.close()

    await env.on("a", first)
    await env.crash("a")
    await env.on("a", second)


async def an_index_with_a_damaged_log_is_refused(env: Env) -> None:
    path = env.path("a", "index")
    held: list[KeyValueIndex] = []  # not closed, as when its process is killed

    async def write(world: World) -> None:
        index = await world.open_index(path)
        held.append(index)
        for number in range(50):
            await index.write([(_key(number), b"v" * 50)], sync=True)

    async def refused(world: World) -> None:
        for _ in range(2):
            with pytest.raises(CorruptData, match="all up to write 50 was synced"):
                await world.open_index(path)

    await env.on("a", write)
    await env.crash_and_rot("a", path, held, log=True)
    await env.on("a", refused)


async def a_damaged_block_is_an_error_and_never_an_absence(env: Env) -> None:
    path = env.path("a", "index")
    keys = [_key(number) for number in range(2_000)]

    async def write(world: World) -> None:
        index = await world.open_index(path)
        await index.write([(key, b"v" * 20) for key in keys], sync=True)
        await index.close()

    async def read(world: World) -> None:
        index = await world.open_index(path)
        failed = 0
        for key in keys:
            try:
                assert await index.get_many([key]) == [b"v" * 20]
            except OSError:
                failed += 1
        assert 0 < failed < len(keys)
        for reverse in (False, True):
            with pytest.raises(OSError, match="index"):
                await index.scan(_key(0), _key(5_000), limit=5_000, reverse=reverse)

    await env.on("a", write)
    await env.crash_and_rot("a", path, [], log=False)
    await env.on("a", read)


async def a_closed_index_answers_with_an_error(env: Env) -> None:
    async def work(world: World) -> None:
        index = await world.open_index(env.path("a", "index"))
        await index.close()
        for call in (
            index.get_many([b"a"]),
            index.scan(b"a", b"b", limit=1),
            index.write([(b"a", b"1")], sync=False),
        ):
            with pytest.raises(OSError, match="index"):
                await call

    await env.on("a", work)


SCENARIOS = [
    values_come_back_in_the_order_asked,
    a_write_puts_and_deletes,
    scans_in_both_directions,
    scans_skip_deleted_rows,
    agrees_with_a_dictionary,
    synced_rows_survive_a_crash,
    a_large_write_is_one_write,
    an_open_index_has_one_opener,
    writes_are_numbered_over_all_openings,
    an_index_with_a_damaged_log_is_refused,
    a_damaged_block_is_an_error_and_never_an_absence,
    a_closed_index_answers_with_an_error,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_index(run_world: Callable[[Scenario], None], scenario: Scenario) -> None:
    run_world(scenario)
