"""Reads of one range share one request, and so do those that overlap; what becomes of one of those
who ask is no affair of the others. What was read is kept for others while its ledger is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pulsarish.ledger.reader import LedgerEntry
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.log_reader import LogReader
from pulsarish.metadata.records import TopicLedger
from pulsarish.model.errors import ServiceNotReady
from pulsarish.model.position import Position


class SlowLedger:
    """The reader of an open ledger that answers when it is let."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = asyncio.Event()
        self.error: Exception | None = None

    async def read(self, first: int, last: int, *, max_bytes: int) -> list[LedgerEntry]:
        self.asked += 1
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return [
            LedgerEntry(entry_id, memoryview(b"%d" % entry_id), entry_id)
            for entry_id in range(first, last + 1)
        ]


Read = Callable[[], Awaitable[list[bytes]]]


def play(scenario: Callable[[SlowLedger, Read], Awaitable[None]]) -> None:
    async def main() -> None:
        ledger: Any = SlowLedger()
        chain = Chain([TopicLedger(1)])
        chain.grow(3, 30)
        reader = LogReader(chain, None, EntryCaches(0, 0), lambda: ledger)  # type: ignore[arg-type]

        async def read() -> list[bytes]:
            return [
                bytes(entry.payload)
                for entry in await reader.read(Position(1, 0), max_entries=3, max_bytes=1_000)
            ]

        await scenario(ledger, read)

    asyncio.run(main())


def test_one_request_answers_all_who_ask() -> None:
    async def scenario(ledger: SlowLedger, read: Read) -> None:
        tasks = [asyncio.ensure_future(read()) for _ in range(3)]
        await asyncio.sleep(0)
        ledger.go.set()
        assert await asyncio.gather(*tasks) == [[b"0", b"1", b"2"]] * 3
        assert ledger.asked == 1

    play(scenario)


def test_who_began_may_be_cancelled_and_the_others_read_on() -> None:
    async def scenario(ledger: SlowLedger, read: Read) -> None:
        first, *others = [asyncio.ensure_future(read()) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        ledger.go.set()
        assert await asyncio.gather(*others) == [[b"0", b"1", b"2"]] * 2
        assert ledger.asked == 2

    play(scenario)


def test_who_only_waits_may_be_cancelled() -> None:
    async def scenario(ledger: SlowLedger, read: Read) -> None:
        first, second = [asyncio.ensure_future(read()) for _ in range(2)]
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second])
        assert second.cancelled()
        ledger.go.set()
        assert await first == [b"0", b"1", b"2"]

    play(scenario)


def test_an_error_is_everybodys() -> None:
    async def scenario(ledger: SlowLedger, read: Read) -> None:
        tasks = [asyncio.ensure_future(read()) for _ in range(2)]
        await asyncio.sleep(0)
        ledger.error = ServiceNotReady("not now")
        ledger.go.set()
        for task in tasks:
            with pytest.raises(ServiceNotReady):
                await task

    play(scenario)


class Backlog:
    """A log of one open ledger of ``entries`` entries of 10 bytes, and the ranges that its bookies
    were asked for. Each answer has at most ``answer_max`` entries, and comes when it is let.
    """

    def __init__(
        self, entries: int, cache_bytes: int, answer_max: int = 1_000, tail_bytes: int = 0
    ) -> None:
        self.asked: list[tuple[int, int]] = []
        self.given: list[tuple[int, int]] = []
        self.go = asyncio.Event()
        self.go.set()
        self.answer_max = answer_max
        self.caches = EntryCaches(tail_bytes, cache_bytes)
        chain = Chain([TopicLedger(1)])
        chain.grow(entries, entries * 10)
        self.reader = LogReader(chain, None, self.caches, lambda: self)  # type: ignore[arg-type,return-value]

    async def read(self, first: int, last: int, *, max_bytes: int) -> list[LedgerEntry]:
        self.asked.append((first, last))
        await self.go.wait()
        end = min(last, first + self.answer_max - 1, first + max(0, max_bytes // 10 - 1))
        self.given.append((first, end))
        return [
            LedgerEntry(entry_id, memoryview(b"%010d" % entry_id), 0)
            for entry_id in range(first, end + 1)
        ]

    async def get(self, first: int, count: int, max_bytes: int = 1_000) -> list[int]:
        found = await self.reader.read(Position(1, first), max_entries=count, max_bytes=max_bytes)
        assert [entry.position.entry_id for entry in found] == [
            int(bytes(entry.payload)) for entry in found
        ]
        return [entry.position.entry_id for entry in found]

    async def drain(self, first: int, count: int) -> list[int]:
        found: list[int] = []
        while found_now := await self.get(first + len(found), count):
            found += found_now
        return found


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def test_a_read_that_begins_within_another_one_waits_for_it() -> None:
    async def scenario() -> None:
        log = Backlog(100, 0)
        log.go.clear()
        tasks = [asyncio.ensure_future(log.get(first, 10)) for first in (0, 5, 9)]
        await asyncio.sleep(0)
        log.go.set()
        assert await asyncio.gather(*tasks) == [
            list(range(10)),
            list(range(5, 10)),
            [9],
        ]
        assert log.asked == [(0, 9)]

    run(scenario)


def test_a_read_ends_where_another_one_that_is_under_way_begins() -> None:
    async def scenario() -> None:
        log = Backlog(100, 0)
        log.go.clear()
        tasks = [asyncio.ensure_future(log.get(first, 10)) for first in (8, 0)]
        await asyncio.sleep(0)
        log.go.set()
        assert await asyncio.gather(*tasks) == [list(range(8, 18)), list(range(8))]
        assert log.asked == [(8, 17), (0, 7)]

    run(scenario)


def test_who_waits_for_an_answer_that_ends_before_its_entry_asks_itself() -> None:
    async def scenario() -> None:
        log = Backlog(100, 0, answer_max=3)
        log.go.clear()
        tasks = [asyncio.ensure_future(log.get(first, 10)) for first in (0, 5)]
        await asyncio.sleep(0)
        log.go.set()
        assert await asyncio.gather(*tasks) == [[0, 1, 2], [5, 6, 7]]

    run(scenario)


def test_a_read_that_cannot_reach_an_entry_is_not_waited_for() -> None:
    """Its limit in bytes ends it before."""

    async def scenario() -> None:
        log = Backlog(100, 0)
        log.go.clear()
        tasks = [
            asyncio.ensure_future(log.get(0, 50, max_bytes=100)),
            asyncio.ensure_future(log.get(20, 10)),
        ]
        await asyncio.sleep(0)
        assert log.asked == [(0, 49), (20, 29)]
        log.go.set()
        assert await asyncio.gather(*tasks) == [list(range(10)), list(range(20, 30))]

    run(scenario)


def test_readers_at_different_offsets_read_a_backlog_once() -> None:
    async def scenario() -> None:
        log = Backlog(1_000, 1 << 20)
        found = await asyncio.gather(
            *(log.drain(first, 10 + first % 7) for first in range(0, 200, 10))
        )
        assert found == [list(range(first, 1_000)) for first in range(0, 200, 10)]
        entries = [entry for first, last in log.asked for entry in range(first, last + 1)]
        assert sorted(entries) == list(range(1_000))
        log.caches.reads.check()
        assert log.caches.reads.misses == len(log.asked)

    run(scenario)


def test_what_is_kept_is_limited_by_the_end_of_what_is_asked() -> None:
    async def scenario() -> None:
        log = Backlog(100, 1 << 20)
        assert await log.get(0, 50) == list(range(50))
        assert await log.get(10, 5) == list(range(10, 15))
        assert await log.get(10, 30, max_bytes=35) == [10, 11, 12]
        assert log.asked == [(0, 49)]

    run(scenario)


@pytest.mark.parametrize("end", ["forget", "close"])
@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_nothing_is_kept_of_a_ledger_that_is_gone(end: str, when: str) -> None:
    async def scenario() -> None:
        log = Backlog(100, 1 << 20)

        def finish() -> None:
            log.reader.forget(1) if end == "forget" else log.reader.close()

        if when == "before":
            finish()
        log.go.clear()
        reading = asyncio.ensure_future(log.get(0, 10))
        await asyncio.sleep(0)
        if when == "during":
            finish()
        log.go.set()
        assert await reading == list(range(10))
        if when == "after":
            finish()
        if (end, when) != ("forget", "before"):  # the chain still has it, so it is read again
            assert log.caches.reads.size_bytes == 0
        log.caches.reads.check()

    run(scenario)
