"""A ZooKeeper client that only speaks the wire: one connection, requests one at a time, events as
they come. For tests of servers.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Gone",
    "RawClient",
    "Reply",
    "acl",
    "create",
    "multi_body",
    "read_multi",
    "read_stat",
    "read_string",
    "read_strings",
    "text",
]

STAT = struct.Struct(">qqqqiiiqiiq")


class Gone(Exception):
    """The server closed the connection."""


@dataclass
class Reply:
    xid: int
    zxid: int
    error: int
    body: bytes


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack(">i", len(raw)) + raw


def acl(perms: int = 31, scheme: str = "world", who: str = "anyone") -> bytes:
    return struct.pack(">ii", 1, perms) + text(scheme) + text(who)


def create(path: str, data: bytes = b"", flags: int = 0) -> bytes:
    return text(path) + text(data) + acl() + struct.pack(">i", flags)


def multi_body(ops: list[tuple[int, bytes]]) -> bytes:
    return b"".join(
        struct.pack(">i?i", kind, False, -1) + body for kind, body in ops
    ) + struct.pack(">i?i", -1, True, -1)


def read_string(body: bytes, at: int = 0) -> tuple[str, int]:
    (size,) = struct.unpack_from(">i", body, at)
    return body[at + 4 : at + 4 + size].decode(), at + 4 + max(size, 0)


def read_strings(body: bytes, at: int = 0) -> tuple[list[str], int]:
    (count,) = struct.unpack_from(">i", body, at)
    at += 4
    found = []
    for _ in range(count):
        one, at = read_string(body, at)
        found.append(one)
    return found, at


def read_stat(body: bytes, at: int = 0) -> tuple[tuple[int, ...], int]:
    return STAT.unpack_from(body, at), at + STAT.size


def read_multi(body: bytes) -> list[tuple[int, Any]]:
    """Each operation's kind and what it answered: a path, a path and stat, a stat, nothing or an
    error.
    """
    at = 0
    found: list[tuple[int, Any]] = []
    while True:
        kind, done, _ = struct.unpack_from(">i?i", body, at)
        at += 9
        if done:
            assert at == len(body)
            return found
        value: Any = None
        if kind in (1, 15):
            value, at = read_string(body, at)
        if kind in (5, 15):
            stat, at = read_stat(body, at)
            value = (value, stat)
        if kind == -1:
            (value,) = struct.unpack_from(">i", body, at)
            at += 4
        found.append((kind, value))


class RawClient:
    """One connection of one session."""

    def __init__(self, address: str) -> None:
        self._host, port = address.rsplit(":", 1)
        self._port = int(port)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._xid = 0
        self.session_id = 0
        self.password = bytes(16)
        self.timeout_ms = 0
        self.last_zxid = 0
        self.events: list[tuple[int, str]] = []

    async def connect(
        self, timeout_ms: int = 30_000, session_id: int = 0, password: bytes = bytes(16)
    ) -> bool:
        """Shake hands; False when the session has expired (or the password is wrong)."""
        self.abort()
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        body = (
            struct.pack(">iqiq", 0, self.last_zxid, timeout_ms, session_id) + text(password) + b"\0"
        )
        self._writer.write(text(body))
        frame = await self._frame()
        _, self.timeout_ms, self.session_id, size = struct.unpack_from(">iiqi", frame)
        self.password = frame[20 : 20 + size]
        return self.timeout_ms > 0

    async def reattach(self) -> bool:
        """Come back on a new connection with the same session."""
        return await self.connect(self.timeout_ms, self.session_id, self.password)

    async def request(self, kind: int, body: bytes = b"", xid: int | None = None) -> Reply:
        await self.send(kind, body, xid)
        return await self.reply()

    async def send(self, kind: int, body: bytes = b"", xid: int | None = None) -> int:
        assert self._writer is not None
        if xid is None:
            self._xid += 1
            xid = self._xid
        self._writer.write(text(struct.pack(">ii", xid, kind) + body))
        await self._writer.drain()
        return xid

    async def reply(self) -> Reply:
        """The next reply; events before it are collected."""
        while True:
            frame = await self._frame()
            xid, zxid, error = struct.unpack_from(">iqi", frame)
            if xid == -1:
                kind, _ = struct.unpack_from(">ii", frame, 16)
                self.events.append((kind, read_string(frame, 24)[0]))
                continue
            if zxid > 0:
                self.last_zxid = zxid
            return Reply(xid, zxid, error, frame[16:])

    async def _frame(self) -> bytes:
        assert self._reader is not None
        try:
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise Gone from error

    def abort(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()

    async def at_end(self) -> bool:
        """Whether the server has closed the connection, with nothing more said."""
        assert self._reader is not None
        try:
            return await self._reader.read(1) == b""
        except OSError:
            return True
