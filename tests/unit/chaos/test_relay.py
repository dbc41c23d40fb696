"""The relay of the chaos tests: bytes pass, are held one way or both, and go on when healed;
connections break when severed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop

from pulsarish.chaos import relay
from pulsarish.chaos.relay import Relays

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """Answers each byte with itself, and remembers what it got."""

    def __init__(self) -> None:
        self.got = b""
        self.hears = asyncio.Event()
        self.served: list[asyncio.Task[None] | None] = []
        self.ends = asyncio.Event()
        """Set: it closes what is open."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.served.append(asyncio.current_task())
        closing = asyncio.ensure_future(self._close_at_the_end(writer))
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(100):
                self.got += data
                self.hears.set()
                writer.write(data)
        closing.cancel()
        writer.transport.abort()

    async def _close_at_the_end(self, writer: asyncio.StreamWriter) -> None:
        await self.ends.wait()
        writer.close()


@asynccontextmanager
async def relayed() -> AsyncIterator[tuple[Relays, Echo, Streams]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    relays = Relays(lambda: {"here": os.getpid()})
    port = await relays.add("echo", server.sockets[0].getsockname()[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield relays, echo, (reader, writer)
    finally:
        writer.transport.abort()
        await relays.stop()
        await asyncio.gather(*(task for task in echo.served if task is not None))
        server.close()
        await asyncio.sleep(0)


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        await asyncio.wait_for(reader.readexactly(1), 0.3)
    except TimeoutError:
        return True
    return False


async def exchange(streams: Streams, data: bytes) -> None:
    streams[1].write(data)
    assert await asyncio.wait_for(streams[0].readexactly(len(data)), 30) == data


def test_bytes_pass_and_the_source_is_the_process_that_connected() -> None:
    async def main() -> None:
        async with relayed() as (relays, _echo, streams):
            await exchange(streams, b"hello")
            assert [(link.source, len(link.connections)) for link in relays.links.values()] == [
                ("here", 1)
            ]

    asyncio.run(main())


@pytest.mark.parametrize(("one_way", "groups", "request_arrives"), [
    (False, [["here"], ["echo"]], False),
    (True, [["here"], ["echo"]], False),
    (True, [["echo"], ["here"]], True),
])  # fmt: skip
def test_isolated_groups_hear_nothing_until_they_are_healed(
    one_way: bool, groups: list[list[str]], request_arrives: bool
) -> None:
    async def main() -> None:
        async with relayed() as (relays, echo, streams):
            await exchange(streams, b"before")
            await relays.isolate(groups, one_way=one_way)
            echo.hears.clear()
            streams[1].write(b"during")
            if request_arrives:
                await asyncio.wait_for(echo.hears.wait(), 30)
            assert await is_silent(streams[0])
            assert (b"during" in echo.got) is request_arrives
            await relays.heal()
            assert await asyncio.wait_for(streams[0].readexactly(6), 30) == b"during"

    asyncio.run(main())


def test_others_are_not_isolated() -> None:
    async def main() -> None:
        async with relayed() as (relays, _echo, streams):
            await relays.isolate([["somebody"], ["echo"]])
            await exchange(streams, b"hello")

    asyncio.run(main())


async def hang_up(relays: Relays, port: int, data: bytes) -> None:
    """Send something and close the connection before the relay has looked who that was."""
    relays._relays[0]._source_of = lambda _end, _relay_end: None
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    writer.close()


def test_what_a_process_sent_that_has_closed_its_end_arrives_unless_the_node_is_cut_off() -> None:
    async def main() -> None:
        async with relayed() as (relays, echo, streams):
            port = streams[1].get_extra_info("peername")[1]
            await hang_up(relays, port, b"call me")
            await asyncio.wait_for(echo.hears.wait(), 30)
            assert echo.got == b"call me"
            await relays.isolate([["somebody"], ["echo"]])
            await hang_up(relays, port, b"again")
            await exchange(streams, b"hello")
            assert echo.got == b"call mehello"

    asyncio.run(main())


def test_a_relay_at_another_address_listens_only_while_the_node_does() -> None:
    async def is_open(port: int) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.1.77", port)
        except ConnectionRefusedError:
            return False
        writer.transport.abort()
        return True

    async def until(port: int, *, open_: bool) -> None:
        async with asyncio.timeout(30):
            while await is_open(port) is not open_:  # noqa: ASYNC110 - the kernel has no event
                await asyncio.sleep(0.02)

    async def main() -> None:
        # As Java listens.
        listener = socket.socket(socket.AF_INET6)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::ffff:127.0.0.1", 0))
        port = listener.getsockname()[1]
        relays = Relays(lambda: {"here": os.getpid()})
        await relays.add_at("127.0.1.77", "echo", port)
        assert not await is_open(port)
        echo = Echo()
        server = await asyncio.start_server(echo.serve, sock=listener)
        await until(port, open_=True)
        streams = await asyncio.open_connection("127.0.1.77", port)
        await exchange(streams, b"hello")
        assert [link.source for link in relays.links.values() if link.connections] == ["here"]
        streams[1].close()
        server.close()
        await until(port, open_=False)
        await relays.stop()
        await asyncio.gather(*(task for task in echo.served if task is not None))

    asyncio.run(main())


def test_a_relay_that_cannot_listen_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        # No address of this machine.
        relays = Relays(dict)
        monkeypatch.setattr(relay, "_sockets_of_java", lambda: relay._LISTENS.format(80))
        await relays.add_at("192.0.2.1", "echo", 80)
        assert relays._follower is not None
        _ = await asyncio.wait([relays._follower])
        with pytest.raises(OSError, match=r"192\.0\.2\.1"):
            await relays.stop()

    asyncio.run(main())


def test_severed_connections_break_and_new_ones_work() -> None:
    async def main() -> None:
        async with relayed() as (relays, _echo, streams):
            await exchange(streams, b"hello")
            port = streams[1].get_extra_info("peername")[1]
            assert await relays.sever("here") == 1
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await asyncio.wait_for(streams[0].readexactly(1), 30)
            again = await asyncio.open_connection("127.0.0.1", port)
            await exchange(again, b"again")
            again[1].transport.abort()

    asyncio.run(main())


def test_slow_links_keep_the_order_of_bytes() -> None:
    async def main() -> None:
        async with relayed() as (relays, _echo, streams):
            await exchange(streams, b"x")
            await relays.slow(["here", "echo"], delay_seconds=0.02, loss=0.1)
            began = asyncio.get_running_loop().time()
            await exchange(streams, bytes(range(100)))
            assert asyncio.get_running_loop().time() - began >= 0.04

    asyncio.run(main())


def test_bytes_that_come_after_the_other_directions_end_are_nobodys() -> None:
    said: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: said.append(context))
        async with relayed() as (relays, echo, streams):
            await exchange(streams, b"x")
            await relays.slow(["here", "echo"], delay_seconds=0.2, loss=0.0)
            # The end of this direction is due before the bytes of the other one.
            echo.ends.set()
            await asyncio.sleep(0.1)
            streams[1].write(b"late")
            assert await asyncio.wait_for(streams[0].read(), 30) == b""
            await asyncio.sleep(0.2)

    # The loop that the harness has: it does not take such bytes in silence.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert said == []


# The relays of an ensemble have addresses of their own.
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.77"])
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_names_the_other_end_of_a_connection(
    family: socket.AddressFamily, host: str
) -> None:
    with socket.create_server((host, 0)) as server, socket.socket(family) as client:
        peer = server.getsockname()
        client.connect(peer if family == socket.AF_INET else (f"::ffff:{host}", peer[1]))
        accepted, end = server.accept()
        accepted.close()
        inode = relay._socket_inode(end, peer)
        assert os.readlink(f"/proc/self/fd/{client.fileno()}") == f"socket:[{inode}]"
        assert relay._socket_inode(end, end) is None
