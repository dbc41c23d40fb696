"""States of ledgers that are evicted, or get into limbo, while others are loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from pulsarish.bookie.ledger_index import LedgerIndex, LedgerRow
from pulsarish.bookie.ledger_state import LocalLedgerStates
from pulsarish.bookie.limbo import Limbo
from pulsarish.bookie.write_cache import WriteCache
from pulsarish.runtime.seams import Files


class SlowIndex:
    """An index without rows whose answer for one ledger waits until the test lets it go, and so
    do those about cleared limbos.
    """

    def __init__(self) -> None:
        self.held_ledger = 2
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def ledger_rows(self, ledger_ids: Sequence[int]) -> list[LedgerRow | None]:
        if self.held_ledger in ledger_ids:
            self.asked.set()
            await self.go_on.wait()
        return [None for _ in ledger_ids]

    async def were_deleted(self, ledger_ids: Sequence[int]) -> list[bool]:
        return [False for _ in ledger_ids]

    async def limbos_cleared(self, ledger_ids: Sequence[int]) -> list[int]:
        self.asked.set()
        await self.go_on.wait()
        return [0 for _ in ledger_ids]


def test_all_that_were_asked_for_are_there_afterwards() -> None:
    async def scenario() -> None:
        index = SlowIndex()
        states = LocalLedgerStates(
            cast("LedgerIndex", index), WriteCache(1_024), Limbo(cast("Files", None), ""), 1
        )
        await states.load([1])
        both = asyncio.create_task(states.load([1, 2]))
        await index.asked.wait()
        await states.load([3])
        assert 1 not in states.loaded, "another caller pushed it out"
        index.go_on.set()
        await both
        assert {1, 2} <= states.loaded.keys()

    asyncio.run(scenario())


def test_a_limbo_that_grows_while_the_index_is_read_holds() -> None:
    async def scenario() -> None:
        index = SlowIndex()
        limbo = Limbo(cast("Files", None), "")
        limbo.absent_below, limbo.times = 5, 1
        states = LocalLedgerStates(cast("LedgerIndex", index), WriteCache(1_024), limbo, 10)
        both = asyncio.create_task(states.load([4, 7]))
        await index.asked.wait()
        limbo.absent_below, limbo.times = 10, 2
        states.enter_limbo()
        index.go_on.set()
        await both
        assert states.loaded[4].limbo
        assert states.loaded[7].limbo, "it may have been in the volume that failed just now"

    asyncio.run(scenario())
