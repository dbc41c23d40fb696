"""Hostile peers at a framed port: each ends its own connection, and the process serves the others
within its memory.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Awaitable, Callable

import pytest

from pulsarish.runtime.framed import framed_connection
from pulsarish.runtime.framed.framed_connections import FramedConnections
from pulsarish.runtime.framed.framed_stream import WINDOW_BYTES
from pulsarish.runtime.framed.frames import Kind, Opening, encode_opening, frame
from pulsarish.runtime.network.dialing import Dialer
from pulsarish.runtime.network.endpoints import ConnectionLimits
from pulsarish.runtime.seams import CallFailed, Stream, StreamBroken
from pulsarish.runtime.tasks import Supervisor
from pulsarish.security.credentials import Caller
from tests.support.worlds import run_in_production_loop

MIB = 1 << 20


def run(
    work: Callable[[FramedConnections], Awaitable[None]], limits: ConnectionLimits | None = None
) -> None:
    async def main() -> None:
        tasks = Supervisor()
        connections = FramedConnections(
            tasks=tasks,
            limits=limits or ConnectionLimits(),
            dialer=Dialer(None, limits or ConnectionLimits()),
        )
        try:
            async with asyncio.timeout(60):
                await work(connections)
        finally:
            await connections.close()
            await tasks.stop()
            assert not any(tasks.contained_failures.values())

    run_in_production_loop(main)


async def echo(stream: Stream) -> None:
    while (message := await stream.receive()) is not None:
        await stream.send([message])


async def length(request: bytes, _caller: Caller) -> bytes:
    return b"%d" % len(request)


async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = address.removeprefix("framed:").rpartition(":")
    return await asyncio.open_connection(host, int(port))


def opening(method: str, window_bytes: int = WINDOW_BYTES) -> bytes:
    return frame(Kind.OPEN, encode_opening(Opening(window_bytes, method, "hostile")))


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Read to the end of the connection."""
    try:
        while await reader.read(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


async def others_are_served(connections: FramedConnections, address: str) -> None:
    stream = await connections.open(address, "t.echo")
    await stream.send([b"x"])
    assert await stream.receive() == b"x"
    await stream.finish()
    assert await connections.call(address, "t.length", b"abc", timeout_seconds=30) == b"3"


@pytest.mark.parametrize(
    "sent",
    [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        frame(Kind.MESSAGE, b"x"),
        frame(Kind.OPEN, b"nothing"),
        struct.pack(">IB", 5_000, Kind.OPEN),
        opening("t.echo") + struct.pack(">IB", 2 * MIB, Kind.MESSAGE),
        opening("t.echo") + opening("t.echo"),
        opening("t.echo") + frame(Kind.FINISH) + frame(Kind.MESSAGE, b"after the end"),
        opening("t.echo") + frame(Kind.CREDIT, b"short"),
        opening("t.echo") + frame(Kind(9), b""),
        opening("t.none"),
        opening("") + frame(Kind.CALL, b"\0\0\0\1"),
        opening("") + frame(Kind.CALL, b"\0\0\0\1\2\xff\xff"),
        opening("") + frame(Kind.MESSAGE, b"x"),
    ],
)
def test_what_breaks_the_rules_ends_its_connection(sent: bytes) -> None:
    async def work(connections: FramedConnections) -> None:
        listener = await connections.serve(
            "127.0.0.1:0", {"t.echo": echo}, {"t.length": length}, message_bytes_max=MIB
        )
        reader, writer = await connect(listener.address)
        writer.write(sent)
        assert await is_closed(reader)
        writer.close()
        await others_are_served(connections, listener.address)

    run(work)


def test_a_connection_that_does_not_begin_is_closed() -> None:
    async def work(connections: FramedConnections) -> None:
        listener = await connections.serve("127.0.0.1:0", {"t.echo": echo}, {"t.length": length})
        for beginning in (b"", opening("t.echo")[:10]):
            reader, writer = await connect(listener.address)
            writer.write(beginning)
            assert await is_closed(reader)
            writer.close()
        await others_are_served(connections, listener.address)

    run(work, ConnectionLimits(handshake_timeout_seconds=0.3))


def test_who_does_not_leave_is_left_at_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is over, and its client keeps the connection open."""

    async def once(stream: Stream) -> None:
        await stream.send([b"x"])

    async def work(connections: FramedConnections) -> None:
        listener = await connections.serve("127.0.0.1:0", {"t.once": once}, {})
        reader, writer = await connect(listener.address)
        writer.write(opening("t.once"))
        assert await reader.read() != b""
        await listener.stop(0)
        with pytest.raises(ConnectionError):
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)

    monkeypatch.setattr(framed_connection, "LINGER_SECONDS", 1_000.0)
    run(work)


def test_more_than_the_window_ends_the_connection() -> None:
    never = asyncio.Event()

    async def deaf(_stream: Stream) -> None:
        await never.wait()

    async def work(connections: FramedConnections) -> None:
        listener = await connections.serve(
            "127.0.0.1:0",
            {"t.deaf": deaf, "t.echo": echo},
            {"t.length": length},
            message_bytes_max=MIB,
        )
        reader, writer = await connect(listener.address)
        writer.write(opening("t.deaf"))
        for _ in range(WINDOW_BYTES // MIB + 3):
            writer.write(frame(Kind.MESSAGE, bytes(MIB)))
        assert await is_closed(reader)
        writer.close()
        # Empty messages count, too.
        reader, writer = await connect(listener.address)
        writer.write(opening("t.deaf"))
        writer.write(frame(Kind.MESSAGE) * ((WINDOW_BYTES + MIB) // 64 + 10))
        assert await is_closed(reader)
        writer.close()
        await others_are_served(connections, listener.address)
        never.set()

    run(work)


def test_who_gives_credit_and_does_not_receive_is_waited_for_within_the_limit() -> None:
    sent_count = 0

    async def flood(stream: Stream) -> None:
        nonlocal sent_count
        while True:
            await stream.send([bytes(MIB)])
            sent_count += 1

    async def work(connections: FramedConnections) -> None:
        listener = await connections.serve(
            "127.0.0.1:0", {"t.flood": flood, "t.echo": echo}, {"t.length": length}
        )
        _reader, writer = await connect(listener.address)
        writer.write(opening("t.flood", (1 << 32) - 1))
        for _ in range(10):
            writer.write(frame(Kind.CREDIT, b"\xff\xff\xff\xff"))
        before = -1
        while sent_count != before or not sent_count:
            before = sent_count
            await asyncio.sleep(0.3)
        assert sent_count < 64
        await others_are_served(connections, listener.address)
        writer.transport.abort()

    run(work)


def test_incomplete_messages_of_all_connections_are_limited() -> None:
    async def work(connections: FramedConnections) -> None:
        listener = await connections.serve("127.0.0.1:0", {"t.echo": echo}, {"t.length": length})
        peers = []
        for _ in range(6):
            reader, writer = await connect(listener.address)
            writer.write(opening("t.echo") + struct.pack(">IB", 8 * MIB, Kind.MESSAGE))
            writer.write(os.urandom(3 * MIB))
            peers.append((reader, writer))
        assert await is_closed(peers[0][0])
        await others_are_served(connections, listener.address)
        assert connections.held.partial_input.used_bytes <= 8 * MIB
        for _, writer in peers:
            writer.transport.abort()

    run(work, ConnectionLimits(partial_input_bytes_max=8 * MIB))


def test_messages_that_wait_of_all_connections_are_limited() -> None:
    never = asyncio.Event()

    async def deaf(_stream: Stream) -> None:
        await never.wait()

    async def work(connections: FramedConnections) -> None:
        listener = await connections.serve(
            "127.0.0.1:0", {"t.deaf": deaf, "t.echo": echo}, {"t.length": length}
        )
        streams = [await connections.open(listener.address, "t.deaf") for _ in range(4)]
        for stream in streams:
            await stream.send([bytes(3 * MIB)])
        ended = [asyncio.ensure_future(stream.receive()) for stream in streams]
        done, _ = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        assert [type(each.exception()) for each in done] == [StreamBroken]
        assert connections.held.untaken.used_bytes <= 10 * MIB
        await others_are_served(connections, listener.address)
        for stream in streams:
            stream.abort("done")
        await asyncio.gather(*ended, return_exceptions=True)
        never.set()

    run(work, ConnectionLimits(untaken_bytes_max=10 * MIB))


def test_answers_that_callers_do_not_receive_are_limited() -> None:
    async def large(_request: bytes, _caller: Caller) -> bytes:
        return bytes(8 * MIB)

    async def work(connections: FramedConnections) -> None:
        listener = await connections.serve(
            "127.0.0.1:0", {"t.echo": echo}, {"t.length": length, "t.large": large}
        )
        call = frame(Kind.CALL, b"\0\0\0\1\7t.large")
        peers = []
        for _ in range(4):
            reader, writer = await connect(listener.address)
            writer.write(opening("") + call * 4)
            peers.append((reader, writer))
        while not connections.held.unread.ended_count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await others_are_served(connections, listener.address)
        for _, writer in peers:
            writer.transport.abort()

    run(work, ConnectionLimits(unread_answers_bytes_max=64 * MIB))


def test_a_caller_may_leave_before_its_answer() -> None:
    asked, may_answer, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(_request: bytes, _caller: Caller) -> bytes:
        asked.set()
        await may_answer.wait()
        answered.set()
        return b"late"

    async def work(connections: FramedConnections) -> None:
        listener = await connections.serve(
            "127.0.0.1:0", {"t.echo": echo}, {"t.length": length, "t.slow": slow}
        )
        _reader, writer = await connect(listener.address)
        writer.write(opening("") + frame(Kind.CALL, b"\0\0\0\1\6t.slow"))
        await asked.wait()
        writer.transport.abort()
        await asyncio.sleep(0.1)
        may_answer.set()
        await answered.wait()
        await others_are_served(connections, listener.address)

    run(work)  # which fails when something was contained


def test_a_message_above_the_limit_is_refused_where_it_is_made() -> None:
    async def work(connections: FramedConnections) -> None:
        listener = await connections.serve("127.0.0.1:0", {"t.echo": echo}, {"t.length": length})
        stream = await connections.open(listener.address, "t.echo")
        with pytest.raises(StreamBroken, match=f"above the limit of {MIB}"):
            await stream.send([bytes(MIB + 1)])
        with pytest.raises(CallFailed, match=f"above the limit of {MIB}"):
            await connections.call(listener.address, "t.length", bytes(MIB + 1), timeout_seconds=30)

    run(work, ConnectionLimits(message_bytes_max=MIB))


def test_a_ports_limit_of_received_messages_is_none_of_its_answers() -> None:
    async def large(stream: Stream) -> None:
        await stream.send([bytes(2 * MIB)])

    async def work(connections: FramedConnections) -> None:
        listener = await connections.serve(
            "127.0.0.1:0", {"t.large": large}, {}, message_bytes_max=MIB
        )
        stream = await connections.open(listener.address, "t.large")
        assert await stream.receive() == bytes(2 * MIB)

    run(work)


def test_refusals_that_callers_do_not_receive_are_limited() -> None:
    async def work(connections: FramedConnections) -> None:
        listener = await connections.serve("127.0.0.1:0", {"t.echo": echo}, {"t.length": length})
        _reader, writer = await connect(listener.address)
        writer.write(opening(""))
        call = frame(Kind.CALL, b"\0\0\0\1\6t.none")
        while not connections.held.unread.ended_count:  # until it is disconnected
            writer.write(call * 10_000)
            await asyncio.sleep(0.01)
        await others_are_served(connections, listener.address)
        writer.transport.abort()

    run(work, ConnectionLimits(unread_answers_bytes_max=4 * MIB))
