"""Hostile peers at the gRPC ports: each ends its own calls, streams or connection, and the process
serves the others within its memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio
import pytest

from pulsarish.model.errors import InvalidArgument
from pulsarish.runtime.grpc.connections import GrpcConnections
from pulsarish.runtime.network.endpoints import ConnectionLimits
from pulsarish.runtime.seams import CallFailed, Stream, StreamBroken
from pulsarish.runtime.tasks import Supervisor
from pulsarish.security.credentials import Caller
from tests.support.worlds import run_in_production_loop

MIB = 1 << 20


def channel(address: str, compression: grpc.Compression | None = None) -> grpc.aio.Channel:
    """A client that is not ours, on a connection of its own."""
    sizes = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    return grpc.aio.insecure_channel(address, options=sizes, compression=compression)


def run(
    work: Callable[[GrpcConnections, Supervisor], Awaitable[None]],
    limits: ConnectionLimits | None = None,
) -> None:
    async def main() -> None:
        tasks = Supervisor()
        connections = GrpcConnections(tasks=tasks, limits=limits)
        try:
            async with asyncio.timeout(60):
                await work(connections, tasks)
        finally:
            await connections.close()
            await tasks.stop()

    run_in_production_loop(main)


async def _length(request: bytes, _caller: Caller) -> bytes:
    return b"%d" % len(request)


@pytest.mark.parametrize("compression", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_compressed_call_is_refused_and_not_decoded(compression: grpc.Compression) -> None:
    async def work(connections: GrpcConnections, _tasks: Supervisor) -> None:
        listener = await connections.serve("127.0.0.1:0", {}, {"any.call": _length})
        async with (
            channel(listener.address, compression=compression) as compressed,
            channel(listener.address) as plain,
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="is disabled"):
                await compressed.unary_unary("/pulsarish.any/call")(bytes(MIB))
            assert await plain.unary_unary("/pulsarish.any/call")(bytes(MIB)) == b"%d" % MIB

    run(work)


def test_a_port_has_its_own_limit_of_a_message() -> None:
    async def work(connections: GrpcConnections, _tasks: Supervisor) -> None:
        listener = await connections.serve(
            "127.0.0.1:0", {}, {"any.call": _length}, message_bytes_max=MIB
        )
        async with channel(listener.address) as client:
            call = client.unary_unary("/pulsarish.any/call")
            with pytest.raises(grpc.aio.AioRpcError, match=f"larger than max .* vs. {MIB}"):
                await call(bytes(MIB + 1))
            assert await call(bytes(MIB)) == b"%d" % MIB

    run(work)


def test_a_connection_that_does_not_begin_is_closed() -> None:
    async def work(connections: GrpcConnections, _tasks: Supervisor) -> None:
        listener = await connections.serve("127.0.0.1:0", {}, {"any.call": _length})
        host, _, port = listener.address.rpartition(":")
        for beginning in (
            b"",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(beginning)
            while await reader.read(1_000):
                continue
            writer.close()

    run(work, ConnectionLimits(handshake_timeout_seconds=0.5, connection_idle_seconds=1.0))


def test_a_connection_has_a_limit_of_streams() -> None:
    async def work(connections: GrpcConnections, _tasks: Supervisor) -> None:
        opened: list[Stream] = []
        four = asyncio.Event()

        async def hold(stream: Stream) -> None:
            opened.append(stream)
            if len(opened) == 4:
                four.set()
            with contextlib.suppress(StreamBroken):
                await stream.receive()

        listener = await connections.serve("127.0.0.1:0", {"any.hold": hold}, {"any.call": _length})
        async with channel(listener.address) as greedy, channel(listener.address) as other:
            streams = [greedy.stream_stream("/pulsarish.any/hold")() for _ in range(10)]
            await four.wait()
            assert await other.unary_unary("/pulsarish.any/call")(b"abc") == b"3"
            assert len(opened) == 4
            assert not any(stream.done() for stream in streams)

    run(work, ConnectionLimits(streams_per_connection_max=4))


def test_aborting_a_stream_whose_client_does_not_read_ends_its_connection() -> None:
    """The core would keep the message as long as the connection is open."""

    async def work(connections: GrpcConnections, _tasks: Supervisor) -> None:
        streams: list[Stream] = []

        async def send(stream: Stream) -> None:
            streams.append(stream)
            await stream.send([os.urandom(20 * MIB)])

        listener = await connections.serve("127.0.0.1:0", {"any.send": send}, {"any.call": _length})
        async with channel(listener.address) as silent, channel(listener.address) as other:
            call = silent.stream_stream("/pulsarish.any/send")()
            await call.initial_metadata()
            await asyncio.sleep(0.2)
            streams[0].abort("not read")
            assert await call.code() is grpc.StatusCode.UNAVAILABLE
            assert await other.unary_unary("/pulsarish.any/call")(b"abc") == b"3"

    run(work)


def test_a_refused_request_is_no_failure_of_the_server(capfd: pytest.CaptureFixture[str]) -> None:
    async def work(connections: GrpcConnections, tasks: Supervisor) -> None:
        async def refuse(_request: bytes, _caller: Caller) -> bytes:
            raise InvalidArgument("the request has no field")

        listener = await connections.serve("127.0.0.1:0", {}, {"any.refuse": refuse})
        with pytest.raises(CallFailed, match="InvalidArgument: the request has no field"):
            await connections.call(listener.address, "any.refuse", b"", timeout_seconds=10)
        async with channel(listener.address) as client:
            with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
                await client.unary_unary("/pulsarish.any/unknown")(b"")
        assert not any(tasks.contained_failures.values())

    run(work)
    assert "Traceback" not in "".join(capfd.readouterr())
