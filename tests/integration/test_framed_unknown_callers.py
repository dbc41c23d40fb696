"""Connections of callers that no handler has identified leave room for others."""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.model.errors import AuthenticationError
from pulsarish.runtime.connections import NodeConnections
from pulsarish.runtime.framed import framed_connections
from pulsarish.runtime.seams import CallFailed, Stream, StreamBroken
from pulsarish.runtime.tasks import Supervisor
from pulsarish.security.credentials import Caller, Credentials, Secret
from tests.support.worlds import run_in_production_loop

PLACES = 16
"""A quarter of them is for callers of one address that are not known."""


def test_an_address_takes_a_part_of_the_places_until_it_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(framed_connections, "connections_limit", lambda: 2 * PLACES)
    peers: list[str] = []

    async def serve(_request: bytes, caller: Caller) -> bytes:
        peers.append(caller.address)
        if caller.credentials.data.reveal() != b"good":
            raise AuthenticationError("no token that is known here")
        caller.on_identified()
        return b"served"

    async def scenario() -> None:
        tasks = Supervisor()

        def client(token: str) -> NodeConnections:
            shown = Credentials("token", Secret(token))
            return NodeConnections(tasks=tasks, credentials=lambda: shown)

        server = client("")
        listener = await server.serve_framed("127.0.0.1:0", {}, {"t.ask": serve})
        known, unknown = client("good"), [client("wrong") for _ in range(PLACES // 2)]

        async def call(each: NodeConnections) -> bytes:
            return await each.call(listener.address, "t.ask", b"", timeout_seconds=30.0)

        try:
            assert await call(known) == b"served"
            for each in unknown:
                with pytest.raises(CallFailed, match="no token"):
                    await call(each)
            # The known one keeps its connection, the first unknown one makes a new one.
            assert await call(known) == b"served"
            assert peers[-1] == peers[0]
            with pytest.raises(CallFailed, match="no token"):
                await call(unknown[0])
            assert peers[-1] != peers[1]
            # The last ones are left.
            before = peers[len(unknown)]
            with pytest.raises(CallFailed, match="no token"):
                await call(unknown[-1])
            assert peers[-1] == before
        finally:
            for each in (known, *unknown, server):
                await each.close()

    run_in_production_loop(scenario)


def test_a_stream_leaves_room_until_its_caller_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framed_connections, "connections_limit", lambda: 2 * PLACES)
    part = PLACES // 4
    checked = asyncio.Event()

    async def serve(stream: Stream) -> None:
        assert stream.caller is not None
        if stream.caller.credentials.data.reveal() != b"good":
            await checked.wait()  # as for an issuer that takes its time
        stream.caller.on_identified()
        await stream.send([b"served"])
        await stream.receive()

    async def scenario() -> None:
        tasks = Supervisor()

        def client(token: str) -> NodeConnections:
            shown = Credentials("token", Secret(token))
            return NodeConnections(tasks=tasks, credentials=lambda: shown)

        server, known, unknown = client(""), client("good"), client("slow")
        listener = await server.serve_framed("127.0.0.1:0", {"t.stream": serve}, {})
        try:
            good = await known.open(listener.address, "t.stream")
            assert await good.receive() == b"served"
            slow = [await unknown.open(listener.address, "t.stream") for _ in range(part + 1)]
            with pytest.raises(StreamBroken):
                await slow[0].receive()
            checked.set()
            for stream in slow[1:]:
                assert await stream.receive() == b"served"
            # They are known now: further ones do not end them.
            more = [await unknown.open(listener.address, "t.stream") for _ in range(part + 1)]
            for stream in more:
                assert await stream.receive() == b"served"
            for stream in (good, *slow[1:], *more):
                await stream.finish()
                assert await stream.receive() is None
        finally:
            for each in (known, unknown, server):
                await each.close()

    run_in_production_loop(scenario)
