"""A metadata store with a bounded number of operations in progress, so that one user of the store
cannot crowd out the others.

Administration goes through such a store. The data path goes to the store itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pulsarish.runtime.seams import MetadataStore, Op, SessionState, Versioned

__all__ = ["LimitedStore"]


class LimitedStore:
    """A ``MetadataStore`` in front of another one. Operations without a place wait in order."""

    def __init__(self, store: MetadataStore, operations_max: int) -> None:
        self._store = store
        self._places = asyncio.Semaphore(operations_max)

    @property
    def session_id(self) -> int:
        return self._store.session_id

    @property
    def state(self) -> SessionState:
        return self._store.state

    @property
    def zxid(self) -> int:
        return self._store.zxid

    @property
    def answered_at(self) -> float:
        return self._store.answered_at

    def listen(self, changed: Callable[[SessionState], None]) -> None:
        self._store.listen(changed)

    async def get_many(
        self, paths: Sequence[str], *, watch: Callable[[str], None] | None = None
    ) -> list[Versioned | None]:
        async with self._places:
            return await self._store.get_many(paths, watch=watch)

    async def children(self, path: str, *, watch: Callable[[str], None] | None = None) -> list[str]:
        async with self._places:
            return await self._store.children(path, watch=watch)

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        async with self._places:
            return await self._store.commit(ops)

    async def sync(self, path: str) -> None:
        async with self._places:
            await self._store.sync(path)

    async def close(self) -> None:
        """Do nothing: the code that opened the inner store closes it."""
