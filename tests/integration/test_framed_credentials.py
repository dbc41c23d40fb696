"""Framed connections for calls show credentials once: they are replaced when these change."""

from __future__ import annotations

import asyncio

import pytest

from pulsarish.runtime.connections import NodeConnections
from pulsarish.runtime.framed import framed_connections
from pulsarish.runtime.tasks import Supervisor
from pulsarish.security.credentials import Caller, Credentials, Secret
from tests.support.worlds import run_in_production_loop


def test_a_call_shows_what_its_source_gives_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framed_connections, "_CREDENTIALS_SECONDS", 0.05)
    heard: list[bytes] = []
    shown = [Credentials("token", Secret("first"))]

    async def note(_request: bytes, caller: Caller) -> bytes:
        heard.append(caller.credentials.data.reveal())
        return b""

    async def scenario() -> None:
        connections = NodeConnections(tasks=Supervisor(), credentials=lambda: shown[0])
        listener = await connections.serve_framed("127.0.0.1:0", {}, {"t.note": note})
        try:
            for credentials in ("first", "first", "second", "second"):
                shown[0] = Credentials("token", Secret(credentials))
                await connections.call(listener.address, "t.note", b"", timeout_seconds=30.0)
                await asyncio.sleep(0.1)
        finally:
            await connections.close()

    run_in_production_loop(scenario)
    assert heard == [b"first", b"first", b"second", b"second"]
