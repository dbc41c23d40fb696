"""A budgeted store asks the store behind it at most so many things at a time, in the order in which
it was asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from pulsarish.metadata.limited_store import LimitedStore
from pulsarish.runtime.seams import Conflict, ConflictReason, Op, SessionState, Versioned


class CountingStore:
    """Answers each request after two turns of the loop, and counts how many are under way."""

    session_id = 7
    state = SessionState.CONNECTED

    def __init__(self) -> None:
        self.under_way = self.under_way_max = 0
        self.asked: list[str] = []

    def listen(self, changed: Callable[[SessionState], None]) -> None:
        changed(self.state)

    async def _answer(self, name: str) -> None:
        self.asked.append(name)
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.under_way -= 1

    async def get_many(
        self, paths: Sequence[str], *, watch: Callable[[str], None] | None = None
    ) -> list[Versioned | None]:
        await self._answer(paths[0])
        return [None for _ in paths]

    async def children(self, path: str, *, watch: Callable[[str], None] | None = None) -> list[str]:
        await self._answer(path)
        return [path]

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        await self._answer(ops[0].path)
        raise Conflict(0, ConflictReason.EXISTS)

    async def sync(self, path: str) -> None:
        await self._answer(path)

    async def close(self) -> None:
        raise AssertionError("it is closed by whoever opened it")


def test_the_budget_holds_for_all_kinds_together_and_errors_give_their_place_back() -> None:
    async def main() -> None:
        store = CountingStore()
        budgeted = LimitedStore(store, 3)
        found = await asyncio.gather(
            *(
                work
                for number in range(5)
                for work in (
                    budgeted.get_many([f"/g{number}"]),
                    budgeted.children(f"/c{number}"),
                    budgeted.commit([Op("create", f"/w{number}")]),
                    budgeted.sync(f"/s{number}"),
                )
            ),
            return_exceptions=True,
        )
        assert store.under_way_max == 3
        assert store.asked == [f"/{kind}{number}" for number in range(5) for kind in "gcws"]
        assert found[:2] == [[None], ["/c0"]]
        assert [type(each) for each in found[2::4]] == [Conflict] * 5
        assert (budgeted.session_id, budgeted.state) == (7, SessionState.CONNECTED)
        await budgeted.close()
        with pytest.raises(Conflict):
            await budgeted.commit([Op("create", "/x")])

    asyncio.run(main())
