"""A limit on received bytes that are not answered yet.

A connection above it stops receiving, which slows down its senders.
"""

from __future__ import annotations

import asyncio

__all__ = ["ByteBudget"]


class ByteBudget:
    """Full once ``limit_bytes`` are used.

    The last message may exceed it: its size is known only after it has arrived.
    """

    __slots__ = ("_limit_bytes", "_room", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.used_bytes = 0
        self._limit_bytes = limit_bytes
        self._room = asyncio.Event()
        self._room.set()

    def limit(self, limit_bytes: int) -> None:
        """Change the limit. Those that wait go on if there is room now."""
        self._limit_bytes = limit_bytes
        if self.full:
            self._room.clear()
        else:
            self._room.set()

    def use(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes
        if self.used_bytes >= self._limit_bytes:
            self._room.clear()

    def release(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "more was released than used"
        if self.used_bytes < self._limit_bytes:
            self._room.set()

    @property
    def full(self) -> bool:
        return self.used_bytes >= self._limit_bytes

    async def wait_for_room(self) -> None:
        await self._room.wait()
