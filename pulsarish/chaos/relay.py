"""Links between processes that can be cut, silenced one way, slowed and broken: TCP relays in user
space, which work everywhere.

A relay stands before a node and is what the others are told as its address. Who opened a connection
is asked of the kernel: the process that holds the other end of the socket. What differs
from a broken network: a connection through a silenced link is still accepted (by the relay) and
then silent, where SYN packets would be lost; bytes cannot be lost within TCP, so that "loss" is
what the sender of a lost packet sees: a pause, with everything behind it held back.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

__all__ = ["Link", "Relay", "Relays"]

_CHUNK_BYTES: Final = 64 * 1024
_CHUNKS_MAX: Final = 64
"""Chunks on their way in one direction of one connection; beyond that the sender is not read
from.
"""
_RETRANSMIT_SECONDS: Final = 0.2
"""What the first retransmission of a lost packet costs (Linux' least); the second one twice that,
and so on.
"""
_FOLLOW_SECONDS: Final = 0.1
"""A ZooKeeper is refused five times within half a second before it elects again."""
# NETLINK_SOCK_DIAG, see sock_diag(7): one header, one request, one answer or error.
_NETLINK_SOCK_DIAG: Final = 4
_SOCK_DIAG_BY_FAMILY: Final = 20
_NLM_F_REQUEST: Final = 1
_NETLINK_HEAD: Final = struct.Struct("=IHHII")  # length, type, flags, sequence, process
_DIAG_REQUEST: Final = struct.Struct("=BBxxI")  # family, protocol, states
_SOCKET_PORTS: Final = struct.Struct(">HH")  # its own, its peer's
_ANY_SOCKET: Final = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)  # interface, no cookie
_ANY_STATE: Final = 0xFFFFFFFF
_INODE: Final = struct.Struct("=I")
_INODE_AT: Final = _NETLINK_HEAD.size + 4 + 48 + 16
"""Behind family, state and timers (4 bytes), the socket's ends (48), and four numbers."""
_ERRNO: Final = struct.Struct("=i")
_ANSWER_BYTES_MAX: Final = 8_192
_JAVA_TABLE: Final = "/proc/net/tcp6"
_LISTENS: Final = "FFFF00000100007F:{:04X} 00000000000000000000000000000000:0000 0A"
"""In the row of a port of 127.0.0.1 at which a Java program listens."""
_HOST: Final = "127.0.0.1"
_UNKNOWN: Final = ""
"""The source of connections that were closed before it was looked up. They pass to no node that is
cut off from another one.
"""


_End = tuple[str, int]
"""Of a connection: an address of IPv4 and a port."""


def _open_gate() -> asyncio.Event:
    gate = asyncio.Event()
    gate.set()
    return gate


@dataclass(slots=True)
class Link:
    """Connections that ``source`` opens to ``target``.

    Closed gates hold the bytes of one direction, as retransmission would.
    """

    source: str
    target: str
    forth: asyncio.Event = field(default_factory=_open_gate)
    back: asyncio.Event = field(default_factory=_open_gate)
    delay_seconds: float = 0.0
    loss: float = 0.0
    connections: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    connections_count: int = 0
    bytes_held: int = 0  # read while a gate was closed: evidence that the link was wanted

    def sever(self) -> int:
        """Break the connections that are open; new ones are accepted. Returns how many."""
        cut = list(self.connections.values())
        for task in cut:
            task.cancel()
        return len(cut)


class Relay:
    """The address of one node, and the links that lead to it. Lives in one event loop."""

    def __init__(
        self,
        target: str,
        target_port: int,
        links: Callable[[str], Link],
        source_of: Callable[[_End, _End], str | None],
    ) -> None:
        self.target = target
        self.target_port = target_port
        self._links = links
        self._source_of = source_of
        self._server: asyncio.Server | None = None
        self._random = random.Random(target_port)

    async def start(self, host: str = _HOST, port: int = 0) -> int:
        """Listen; returns the port."""
        self._server = await asyncio.start_server(self._accept, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def follow(self, host: str, *, listens: bool) -> None:
        """Listen at the target's port of ``host`` if the target listens, and otherwise not.

        ZooKeepers connect again after a refusal, and elect again after a connection that breaks.
        """
        if listens and self._server is None:
            _ = await self.start(host, self.target_port)
        elif not listens:
            await self.stop()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = self._source_of(
            writer.get_extra_info("peername"), writer.get_extra_info("sockname")
        )
        # One that has closed its end already may have sent something: ZooKeepers do, to be called
        # back.
        link = self._links(source or _UNKNOWN)
        number = link.connections_count
        link.connections_count += 1
        task = asyncio.current_task()
        assert task is not None
        link.connections[number] = task
        try:
            await self._carry(link, reader, writer)
        except asyncio.CancelledError:
            # The link was severed, or the relay ends: not this task's failure, and its server must
            # not see it.
            return
        finally:
            del link.connections[number]
            writer.transport.abort()

    async def _carry(
        self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await link.forth.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(_HOST, self.target_port)
        except OSError:
            return  # no process listens there: the client sees a connection that breaks at once
        try:
            await asyncio.gather(
                self._pump(link, link.forth, reader, far_writer, writer),
                self._pump(link, link.back, far_reader, writer, far_writer),
            )
        finally:
            far_writer.transport.abort()

    async def _pump(
        self,
        link: Link,
        gate: asyncio.Event,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: asyncio.StreamWriter,
    ) -> None:
        """One direction, until its end; then the other one ends too, since both ends are
        aborted.
        """
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_MAX)

        async def deliver() -> None:
            while True:
                due, data = await under_way.get()
                if (wait := due - loop.time()) > 0:
                    await asyncio.sleep(wait)
                if not gate.is_set():
                    link.bytes_held += len(data)
                    await gate.wait()
                if not data:
                    return
                if writer.is_closing():
                    raise ConnectionResetError("the other direction has ended, and with it both")
                writer.write(data)
                await writer.drain()

        async def take() -> None:
            data = b"-"
            while data:
                data = await reader.read(_CHUNK_BYTES)
                await under_way.put(
                    (loop.time() + link.delay_seconds + self._retransmissions(link.loss), data)
                )

        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(take())
                both.create_task(deliver())
        except* OSError:
            pass  # a reset at either end is an end
        # Half-closed connections are of no use to gRPC or ZooKeeper.
        writer.transport.abort()
        source.transport.abort()

    def _retransmissions(self, loss: float) -> float:
        seconds, pause = 0.0, _RETRANSMIT_SECONDS
        while loss and self._random.random() < loss:
            seconds += pause
            pause *= 2
        return seconds


class Relays:
    """One relay before each of several nodes, and what is done to the links between all of them.

    Lives in one event loop.
    """

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        """``pids``: the processes that may open connections, by the name under which their links
        are known.
        """
        self._pids = pids
        self._relays: list[Relay] = []
        self._following: list[tuple[Relay, str]] = []
        self._follower: asyncio.Task[None] | None = None
        self.links: dict[tuple[str, str], Link] = {}

    async def add(self, target: str, port: int) -> int:
        """A relay before a node that listens on ``port``; returns the relay's port."""
        return await self._new(target, port).start()

    async def add_at(self, host: str, target: str, port: int) -> None:
        """A relay at the same port of another address of loopback, as long as the node listens."""
        self._following.append((self._new(target, port), host))
        if self._follower is None:
            self._follower = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            sockets = _sockets_of_java()
            for relay, host in self._following:
                row = _LISTENS.format(relay.target_port)
                await relay.follow(host, listens=row in sockets)
            await asyncio.sleep(_FOLLOW_SECONDS)

    def _new(self, target: str, port: int) -> Relay:
        relay = Relay(target, port, lambda source: self.link(source, target), self._source)
        self._relays.append(relay)
        return relay

    def link(self, source: str, target: str) -> Link:
        return self.links.setdefault((source, target), Link(source, target))

    async def isolate(self, groups: Sequence[Sequence[str]], *, one_way: bool = False) -> None:
        """Silence whatever goes between different groups; ``one_way``: only what the first group
        sends to the others.
        """
        for here, group in enumerate(groups):
            for there, others in enumerate(groups):
                if here == there:
                    continue
                for source in group:
                    for target in others:
                        link = self.link(source, target)
                        if not one_way or here == 0:
                            link.forth.clear()
                        if not one_way or there == 0:
                            link.back.clear()
        for target in (target for group in groups for target in group):
            self.link(_UNKNOWN, target).forth.clear()

    async def heal(self) -> None:
        """Open every gate; what was held goes on its way."""
        for link in self.links.values():
            link.forth.set()
            link.back.set()
            link.delay_seconds = link.loss = 0.0

    async def slow(self, names: Sequence[str], *, delay_seconds: float, loss: float) -> None:
        """Delay and "lose" on all links between these, in each direction."""
        for source in names:
            for target in names:
                link = self.link(source, target)
                link.delay_seconds, link.loss = delay_seconds, loss

    async def sever(self, source: str) -> int:
        """Break all connections that ``source`` has opened; returns how many."""
        return sum(
            link.sever()
            for (opened_by, _target), link in list(self.links.items())
            if opened_by == source
        )

    async def stop(self) -> None:
        """Listen no more, and return when every connection is gone.

        Raises why a relay of ``add_at`` could not follow its node.
        """
        failure: BaseException | None = None
        if self._follower is not None:
            self._follower.cancel()
            (failure,) = await asyncio.gather(self._follower, return_exceptions=True)
        for relay in self._relays:
            await relay.stop()
        left = [task for link in self.links.values() for task in link.connections.values()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left)
        await asyncio.sleep(0)  # an aborted transport closes its socket in the next turn
        if isinstance(failure, Exception):
            raise failure

    def _source(self, end: _End, relay_end: _End) -> str | None:
        inode = _socket_inode(end, relay_end)
        if inode is None:
            return None
        wanted = f"socket:[{inode}]"
        return next((name for name, pid in self._pids().items() if _holds(pid, wanted)), None)


def _socket_inode(end: _End, peer: _End) -> int | None:
    """Ask the kernel for one socket: bound to ``end`` and connected to ``peer``.

    Those of gRPC and Java are of IPv6 with mapped addresses, and are found, too. The tables in
    ``/proc/net`` say the same, but the kernel walks over all sockets of the machine for them: when
    many connections were opened again at once, the relay took longer for each than its client
    waited.
    """
    addresses = b"".join(socket.inet_aton(host).ljust(16, b"\0") for host, _port in (end, peer))
    ends = _SOCKET_PORTS.pack(end[1], peer[1]) + addresses + _ANY_SOCKET
    asked = _DIAG_REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, _ANY_STATE) + ends
    head = _NETLINK_HEAD.pack(
        _NETLINK_HEAD.size + len(asked), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.send(head + asked)
        answer = kernel.recv(_ANSWER_BYTES_MAX)
    kind = _NETLINK_HEAD.unpack_from(answer)[1]
    if kind == _SOCK_DIAG_BY_FAMILY:
        return int(_INODE.unpack_from(answer, _INODE_AT)[0])
    (negative,) = _ERRNO.unpack_from(answer, _NETLINK_HEAD.size)
    if negative != -errno.ENOENT:
        raise OSError(-negative, f"the kernel does not look sockets up: {os.strerror(-negative)}")
    return None


def _sockets_of_java() -> str:
    """Return the table in which the kernel lists the sockets of Java programs."""
    return Path(_JAVA_TABLE).read_text()


def _holds(pid: int, wanted: str) -> bool:
    directory = f"/proc/{pid}/fd"
    try:
        numbers = os.listdir(directory)
    except (FileNotFoundError, ProcessLookupError):
        return False
    for number in numbers:
        # Files come and go while they are looked through.
        with contextlib.suppress(OSError):
            if os.readlink(f"{directory}/{number}") == wanted:
                return True
    return False
