"""Reads of one range share one request; what becomes of one of those who ask is no affair of the
others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pulsarish.ledger.reader import LedgerEntry
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.log_reader import LogReader
from pulsarish.managed_ledger.tail_cache import TailCache
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
        reader = LogReader(chain, None, TailCache(0), lambda: ledger)  # type: ignore[arg-type]

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
