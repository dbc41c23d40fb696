"""Several processes on one address: each protocol shares it when both ends say so, and only then.

Two networks of one process stand for two processes: the kernel does not tell them apart.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from pulsarish.runtime.connections import NodeConnections
from pulsarish.runtime.network.addresses import plain_address
from pulsarish.runtime.seams import HttpRequest, HttpResponse, Listener
from pulsarish.runtime.tasks import Supervisor
from pulsarish.security.credentials import Caller
from tests.support.certificates import certificates
from tests.support.worlds import run_in_production_loop

KINDS = ("grpc", "framed", "http", "bytes")
_CONNECTIONS_MAX = 200
_NAMES: dict[NodeConnections, bytes] = {}


async def _serve(
    kind: str, node: NodeConnections, address: str, *, is_shared: bool, has_tls: bool = False
) -> Listener:
    """Listen, and answer every client with the name of the node."""
    tls = certificates().server_config() if has_tls else None

    async def call(_request: bytes, _caller: Caller) -> bytes:
        return _NAMES[node]

    async def web(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, _NAMES[node], "text/plain")

    class Name(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            writing = cast(asyncio.Transport, transport)
            writing.write(_NAMES[node])
            writing.close()

    if kind == "grpc":
        return await node.serve(address, {}, {"t.name": call}, tls=tls, is_shared=is_shared)
    if kind == "framed":
        return await node.serve_framed(address, {}, {"t.name": call}, tls=tls, is_shared=is_shared)
    if kind == "http":
        return await node.serve_http(address, web, tls=tls, is_shared=is_shared)
    return await node.serve_bytes(address, Name, tls=tls, is_shared=is_shared)


def _ask_plainly(address: str, request: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(request)
        answered = b""
        while some := connection.recv(4_096):
            answered += some
    return answered


async def _ask(kind: str, address: str) -> bytes:
    """Return the name of whichever node a new connection reaches."""
    if kind in ("grpc", "framed"):
        client = NodeConnections(tasks=Supervisor())
        try:
            return await client.call(address, "t.name", b"", timeout_seconds=20)
        finally:
            await client.close()
    request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" if kind == "http" else b""
    return (await asyncio.to_thread(_ask_plainly, address, request))[-1:]


def _run(work: Callable[[NodeConnections, NodeConnections], Awaitable[None]]) -> None:
    async def working() -> None:
        nodes = [NodeConnections(tasks=Supervisor()) for _ in range(2)]
        _NAMES.update(zip(nodes, (b"1", b"2"), strict=True))
        try:
            await work(*nodes)
        finally:
            for node in nodes:
                await node.close()

    run_in_production_loop(working)


@pytest.mark.parametrize("kind", KINDS)
def test_each_of_those_that_share_an_address_gets_connections(kind: str) -> None:
    async def work(first: NodeConnections, second: NodeConnections) -> None:
        one = await _serve(kind, first, "127.0.0.1:0", is_shared=True)
        two = await _serve(kind, second, plain_address(one.address), is_shared=True)
        assert two.address == one.address
        reached: set[bytes] = set()
        for _ in range(_CONNECTIONS_MAX):
            reached.add(await _ask(kind, one.address))
            if len(reached) == 2:
                break
        assert reached == {b"1", b"2"}
        await one.stop(0)
        assert [await _ask(kind, two.address) for _ in range(8)] == [b"2"] * 8
        await two.stop(0)

    _run(work)


@pytest.mark.parametrize("has_tls", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_an_address_is_shared_only_if_both_share_it(kind: str, has_tls: bool) -> None:
    async def work(first: NodeConnections, second: NodeConnections) -> None:
        for one_shares, two_shares in ((True, True), (True, False), (False, True)):
            one = await _serve(kind, first, "127.0.0.1:0", is_shared=one_shares, has_tls=has_tls)
            address = plain_address(one.address)
            if one_shares and two_shares:
                two = await _serve(kind, second, address, is_shared=True, has_tls=has_tls)
                assert two.address == one.address
                await two.stop(0)
            else:
                with pytest.raises(OSError, match=f"cannot listen on {address}") as refused:
                    await _serve(kind, second, address, is_shared=two_shares, has_tls=has_tls)
                assert refused.value.errno == errno.EADDRINUSE
            await one.stop(0)

    _run(work)
