"""A lookup at a server that is no broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pulsarish.client.connection.lookup_batcher import LookupBatcher
from pulsarish.runtime.seams import NoSuchMethod, StreamBroken
from pulsarish.runtime.tasks import Supervisor
from pulsarish.wire._pb import broker_pb2 as pb


class Bookie:
    async def call(self, address: str, method: str, request: bytes, **_: object) -> bytes:
        raise NoSuchMethod(f"{method} at {address}: no such method")


def test_a_bookie_is_named_as_such() -> None:
    async def ask() -> None:
        bookie: Any = Bookie()
        batcher = LookupBatcher(bookie, Supervisor(), 1.0)
        await batcher.ask("tls:bookie-1:3181", pb.LookupRequest(topic="t"))

    with pytest.raises(StreamBroken, match=r"^bookie-1:3181 is no broker: .* as a bookie does not"):
        asyncio.run(ask())
