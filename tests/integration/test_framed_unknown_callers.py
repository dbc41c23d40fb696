"""Connections for calls of callers that no handler identifies leave room for others."""

from __future__ import annotations

import pytest

from pulsarish.model.errors import AuthenticationError
from pulsarish.runtime.connections import NodeConnections
from pulsarish.runtime.framed import framed_connections
from pulsarish.runtime.seams import CallFailed
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
