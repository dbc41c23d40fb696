"""What follows in a backlog is asked for before its reader wants it: in order and within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pulsarish.managed_ledger.read_ahead import ReadAhead
from pulsarish.managed_ledger.read_cache import ReadCache
from pulsarish.model.errors import PulsarishError, ServiceNotReady
from pulsarish.model.position import Position
from pulsarish.runtime.containment import Scope, ScopeKind
from tests.unit.managed_ledger.test_log_reader import Backlog

CACHE_BYTES = 1 << 20


class Failing(Backlog):
    """One read of an entry fails."""

    fails_at = -1

    async def read(self, first: int, last: int, *, max_bytes: int) -> Any:
        if first <= self.fails_at <= last:
            self.fails_at = -1
            self.asked.append((first, last))
            raise ServiceNotReady("not now")
        return await super().read(first, last, max_bytes=max_bytes)


class Tasks:
    def __init__(self) -> None:
        self.running: list[asyncio.Task[None]] = []

    def spawn(self, work: Any, **_: object) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self.running.append(task)
        return task


class Subscription:
    """Reads ``log`` with read-ahead, ten entries at a time."""

    def __init__(self, log: Backlog, bytes_max: int = 21_000) -> None:
        self.log = log
        self.tasks = Tasks()
        scope = Scope(ScopeKind.TOPIC, "t", _fail)
        self.ahead = ReadAhead(log.reader, self.tasks, bytes_max, scope)  # type: ignore[arg-type]

    async def read(self, first: int) -> list[int]:
        entries = await self.log.reader.read(Position(1, first), max_entries=10, max_bytes=1_000)
        self.ahead.follow(Position(1, first), entries)
        return [entry.position.entry_id for entry in entries]

    async def settle(self) -> None:
        """Let the requests under way come in, as while consumers take what they got."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def drain(self, first: int = 0) -> list[int]:
        found: list[int] = []
        while now := await self.read(first + len(found)):
            found += now
            await self.settle()
        return found


def _fail(error: BaseException) -> None:
    raise AssertionError(error)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def test_a_reader_in_order_finds_what_follows_in_memory() -> None:
    async def scenario() -> None:
        log = Backlog(1_000, CACHE_BYTES)
        reader = Subscription(log)
        assert await reader.drain() == list(range(1_000))
        asked = [entry for first, last in log.given for entry in range(first, last + 1)]
        assert asked == list(range(1_000)), "each entry once"
        assert log.caches.reads.misses == 2, "the reader itself waited for bookies twice"
        sizes = [last - first + 1 for first, last in log.given]
        assert sizes[:5] == [10, 10, 20, 40, 80]
        assert max(sizes) == 100, "no request exceeds the limit in bytes"
        assert log.caches.reads.ahead_bytes == 9_800
        assert log.caches.reads.ahead_unused_bytes == log.caches.ahead_bytes == 0

    run(scenario)


def test_no_more_than_the_next_request_lies_in_memory() -> None:
    async def scenario() -> None:
        log = Backlog(10_000, CACHE_BYTES)
        reader = Subscription(log)
        for first in range(0, 1_000, 10):
            assert await reader.read(first) == list(range(first, first + 10))
            await reader.settle()
            assert log.given[-1][1] <= first + 10 + 2 * 100
        # The consumers take nothing more.
        given = list(log.given)
        await reader.settle()
        assert log.given == given

    run(scenario)


def test_random_reads_bring_nothing_but_themselves() -> None:
    async def scenario() -> None:
        log = Backlog(1_000, CACHE_BYTES)
        reader = Subscription(log)
        for first in (500, 20, 700, 720, 0, 300, 100, 980):
            assert len(await reader.read(first)) == 10
            await reader.settle()
        assert log.caches.reads.ahead_bytes == 0
        assert len(log.asked) == 8

    run(scenario)


def test_a_seek_gives_up_what_is_under_way() -> None:
    async def scenario() -> None:
        log = Backlog(1_000, CACHE_BYTES)
        reader = Subscription(log)
        _ = await reader.read(0)
        _ = await reader.read(10)
        log.go.clear()
        await reader.settle()
        (fetching,) = reader.tasks.running
        assert log.asked[-1][0] == 20
        assert await reader.read(0) == list(range(10)), "it is in memory"
        await reader.settle()
        assert fetching.cancelled()
        assert log.caches.ahead_bytes == log.caches.reads.ahead_bytes == 0

    run(scenario)


def test_closing_gives_up_what_is_under_way_and_asks_for_nothing_more() -> None:
    async def scenario() -> None:
        log = Backlog(1_000, CACHE_BYTES)
        reader = Subscription(log)
        _ = await reader.read(0)
        _ = await reader.read(10)
        log.go.clear()
        await reader.settle()
        reader.ahead.close()
        await reader.settle()
        assert reader.tasks.running[0].cancelled()
        assert log.caches.ahead_bytes == 0
        log.go.set()
        asked = len(log.asked)
        assert await reader.read(20) == list(range(20, 30))
        assert await reader.read(30) == list(range(30, 40))
        await reader.settle()
        assert len(log.asked) == asked + 2

    run(scenario)


def test_nothing_is_asked_for_beyond_the_last_confirmed_entry() -> None:
    async def scenario() -> None:
        log = Backlog(35, CACHE_BYTES)
        reader = Subscription(log)
        assert await reader.drain() == list(range(35))
        assert max(last for _, last in log.asked) == 34
        assert len(log.asked) == 3
        log.reader._chain.grow(5, 50)
        assert await reader.drain(35) == list(range(35, 40))
        assert max(last for _, last in log.asked) == 39

    run(scenario)


def test_what_the_tail_cache_has_is_not_asked_for() -> None:
    async def scenario() -> None:
        log = Backlog(100, CACHE_BYTES, tail_bytes=CACHE_BYTES)
        log.caches.tail.insert(1, 50, [b"%010d" % entry for entry in range(50, 100)])
        reader = Subscription(log)
        assert await reader.drain() == list(range(100))
        assert max(last for _, last in log.asked) == 49
        at_the_tail = len(log.asked)
        assert await reader.drain(60) == list(range(60, 100))
        assert len(log.asked) == at_the_tail

    run(scenario)


def test_entries_that_another_read_brings_are_not_asked_for_again() -> None:
    async def scenario() -> None:
        log = Backlog(1_000, CACHE_BYTES)
        readers = [Subscription(log) for _ in range(5)]
        found = await asyncio.gather(*(reader.drain() for reader in readers))
        assert found == [list(range(1_000))] * 5
        asked = [entry for first, last in log.given for entry in range(first, last + 1)]
        assert sorted(asked) == list(range(1_000))

    run(scenario)


def test_requests_of_all_topics_share_a_part_of_the_cache() -> None:
    async def scenario() -> None:
        log = Backlog(1_000, 100_000)  # a tenth: 10,000 bytes
        log.go.clear()
        fetches = [
            asyncio.ensure_future(log.reader.fetch(Position(1, first - 1), 4_200))
            for first in (100, 300, 500, 700)
        ]
        await asyncio.sleep(0)
        assert log.caches.ahead_bytes == 8_400
        log.go.set()
        assert await asyncio.gather(*fetches) == [(1, 100, 119), (1, 300, 319), None, None]
        assert log.caches.ahead_bytes == 0
        assert log.caches.reads.ahead_bytes == 400

    run(scenario)


def test_read_ahead_pauses_when_others_need_the_cache() -> None:
    async def scenario() -> None:
        log = Backlog(10_000, 100_000)
        reader = Subscription(log)
        for first in (0, 10, 20):
            _ = await reader.read(first)
            await reader.settle()
        assert log.caches.reads.ahead_bytes > 0
        for other in range(100):
            log.caches.reads.insert(2, other * 64, [b"x" * 100] * 64)
        assert await reader.drain(30) == list(range(30, 10_000))
        assert log.caches.reads.ahead_unused_bytes > 0
        assert 100 <= log.caches.reads.misses < 120, "a pause, then it begins again"

    run(scenario)


def test_large_reads_are_left_alone() -> None:
    async def scenario() -> None:
        log = Backlog(200, 20_000)  # 1,000 bytes for one request; a read has 2,100
        reader = Subscription(log)
        assert await reader.drain() == list(range(200))
        assert len(log.asked) == 20

    run(scenario)


def test_an_error_of_a_request_ahead_is_the_readers_when_it_comes_there() -> None:
    async def scenario() -> None:
        log = Failing(100, CACHE_BYTES)
        reader = Subscription(log)
        _ = await reader.read(0)
        log.fails_at = 25
        _ = await reader.read(10)
        await reader.settle()
        assert log.fails_at == -1, "the request ahead failed"
        assert await reader.drain(20) == list(range(20, 100))
        log.fails_at = 35
        log.caches.reads.forget(1)
        with pytest.raises(PulsarishError, match="not now"):
            _ = await reader.read(30)

    run(scenario)


@pytest.mark.parametrize(("bytes_max", "cache_bytes"), [(0, CACHE_BYTES), (21_000, 0)])
def test_it_is_off_without_room(bytes_max: int, cache_bytes: int) -> None:
    async def scenario() -> None:
        log = Backlog(200, cache_bytes)
        reader = Subscription(log, bytes_max)
        assert await reader.drain() == list(range(200))
        assert len(log.asked) == 20

    run(scenario)


def test_what_was_read_ahead_for_one_reader_does_not_count_as_shared() -> None:
    """So a long backlog does not push out what several readers use."""
    cache = ReadCache(100_000)
    cache.insert(1, 0, [b"s" * 1_000] * 50)
    for _ in range(2):
        assert cache.read(1, 0, 49, 1 << 20)
    for first in range(0, 64 * 50, 64):
        cache.insert(2, first, [b"x"] * 64, is_ahead=True)
        assert len(cache.read(2, first, first + 63, 1 << 20)) == 64
        cache.check()
    assert len(cache.read(1, 0, 49, 1 << 20)) == 50
