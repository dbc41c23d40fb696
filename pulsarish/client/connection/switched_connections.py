"""The connections of a client that may change to others: through a proxy that was found, or of
another cluster with other credentials.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pulsarish.runtime.seams import ClientConnections, Stream
from pulsarish.security.credentials import Credentials

__all__ = ["SwitchedConnections"]


class SwitchedConnections:
    """Passes everything on to ``current``."""

    def __init__(self, current: ClientConnections) -> None:
        self.current = current

    async def open(self, address: str, method: str, *, lane: str = "") -> Stream:
        return await self.current.open(address, method, lane=lane)

    async def call(
        self, address: str, method: str, request: bytes, *, timeout_seconds: float
    ) -> bytes:
        return await self.current.call(address, method, request, timeout_seconds=timeout_seconds)

    async def open_bytes(
        self, address: str, factory: Callable[[], asyncio.Protocol]
    ) -> asyncio.Protocol:
        return await self.current.open_bytes(address, factory)

    async def credentials_now(self) -> Credentials:
        return await self.current.credentials_now()
