"""Single lost calls.

The links of a simulation carry either everything between two nodes or nothing, so they cannot do
this.
"""

from __future__ import annotations

import random

from pulsarish.runtime.seams import Connections, StreamBroken

__all__ = ["FlakyCalls"]


class FlakyCalls:
    """A network that loses calls: the request or the answer."""

    def __init__(self, inner: Connections, rng: random.Random, chance: float) -> None:
        self.open = inner.open
        self.credentials_now = inner.credentials_now
        self.serve = inner.serve
        self.serve_framed = inner.serve_framed
        self.serve_bytes = inner.serve_bytes
        self.open_bytes = inner.open_bytes
        self.serve_http = inner.serve_http
        self._call = inner.call
        self._rng = rng
        self._chance = chance

    async def call(
        self, address: str, method: str, request: bytes, *, timeout_seconds: float
    ) -> bytes:
        fate = self._rng.random()
        if fate < self._chance:
            raise StreamBroken(f"{address}: {method} was lost")
        answer = await self._call(address, method, request, timeout_seconds=timeout_seconds)
        if fate > 1 - self._chance / 2:
            raise StreamBroken(f"{address}: the answer of {method} was lost")
        return answer
