"""When a client's stream counts as accepted: gRPC tells of its metadata and of its status one after
the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import pytest

from pulsarish.runtime.grpc.grpc_streams import ClientStream
from pulsarish.runtime.seams import StreamBroken

ADDRESS = "127.0.0.1:1"


class _Call:
    """What gRPC has of a call. ``status``: none before it is set."""

    def __init__(self, metadata: tuple[tuple[str, str], ...]) -> None:
        self._metadata = metadata
        self.status: asyncio.Future[grpc.StatusCode] = asyncio.get_running_loop().create_future()

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        """Nothing: no test looks at the end."""

    def done(self) -> bool:
        return self.status.done()

    async def initial_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    async def code(self) -> grpc.StatusCode:
        return await asyncio.shield(self.status)

    async def details(self) -> str:
        return "Method not found!"


def stream_of(call: _Call) -> ClientStream:
    return ClientStream(call, ADDRESS, lambda _suspect: None)


def test_a_stream_is_refused_though_its_status_comes_after_its_metadata() -> None:
    async def work() -> None:
        call = _Call(())
        asyncio.get_running_loop().call_later(
            0.01, call.status.set_result, grpc.StatusCode.UNIMPLEMENTED
        )
        with pytest.raises(StreamBroken, match=r"Method not found! \(UNIMPLEMENTED\)"):
            await stream_of(call).accepted(5.0)

    asyncio.run(work())


def test_a_stream_that_was_accepted_and_has_ended_was_accepted() -> None:
    async def work() -> None:
        call = _Call((("pulsarish-accepted", "1"),))
        call.status.set_result(grpc.StatusCode.OK)
        await stream_of(call).accepted(5.0)

    asyncio.run(work())


def test_a_handler_had_a_stream_that_has_ended_well() -> None:
    """gRPC gives no metadata once it has set the status, which may come first."""

    async def work() -> None:
        call = _Call(())
        call.status.set_result(grpc.StatusCode.OK)
        await stream_of(call).accepted(5.0)

    asyncio.run(work())


def test_a_server_of_an_older_version_accepts_without_a_word() -> None:
    async def work() -> None:
        await stream_of(_Call(())).accepted(5.0)

    asyncio.run(work())
