"""Who may do what at the metadata daemon.

Each way to log in, or not to, is tried with each operation of the protocol and each four-letter
word, at a simulated daemon. Operations and words are read from it. A client that has logged in must
get an answer, and any other must be refused, lose its connection and change nothing.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, cast

from pulsarish.metadata.daemon.config import MetadataConfig
from pulsarish.metadata.daemon.daemon import MetadataDaemon
from pulsarish.metadata.daemon.zkwire import ErrorCode, OpCode, encode_string
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.rights_cases import Matrix
from pulsarish.sim.world.connections import SimConnections
from pulsarish.sim.world.world import Simulation

__all__ = ["run_metadata_rights"]

_LOCKED: Final = "locked:2181"
_OPTIONAL: Final = "optional:2181"
"""Asks for no login, as while a cluster changes over to one."""
_LOGIN: Final = b"pulsarish:the password of the members"
_SECRET: Final = b"what only members know"
_WRONG: Final[Mapping[str, tuple[str, bytes]]] = {
    "a wrong password": ("digest", b"pulsarish:guess"),
    "a longer password": ("digest", _LOGIN + b"s"),
    "a shorter password": ("digest", _LOGIN[:-1]),
    "another user": ("digest", _LOGIN.replace(b"pulsarish", b"root")),
    "an empty login": ("digest", b""),
    "no password": ("digest", b"pulsarish:"),
    "the super user of ZooKeeper": ("digest", b"super:" + _LOGIN.partition(b":")[2]),
    "both lines of a file": ("digest", _LOGIN + b"\n" + _LOGIN),
    "another scheme": ("ip", _LOGIN),
    "no scheme": ("", _LOGIN),
    "everybody": ("world", b"anyone"),
    "SASL": ("sasl", _LOGIN),
    "a certificate": ("x509", _LOGIN),
}
"""Schemes and logins that are none of the daemon's."""
_WORDS: Final = frozenset({b"ruok", b"srvr", b"mntr", b"envi"})
_OTHER_WORDS: Final = (
    b"conf",
    b"cons",
    b"crst",
    b"dirs",
    b"dump",
    b"gtmk",
    b"hash",
    b"isro",
    b"kill",
    b"lsnr",
    b"orst",
    b"obsr",
    b"reqs",
    b"srst",
    b"stat",
    b"stmk",
    b"sysp",
    b"wchc",
    b"wchp",
    b"wchs",
)
"""ZooKeeper's, which name clients, paths or files, or change something."""
_OPEN_LIST: Final = struct.pack(">ii", 1, 31) + encode_string("world") + encode_string("anyone")
_NODE: Final = encode_string("/secret")
_MULTI_END: Final = struct.pack(">i?i", -1, True, -1)


def _long(*values: int) -> bytes:
    return struct.pack(f">{len(values)}q", *values)


def _int(*values: int) -> bytes:
    return struct.pack(f">{len(values)}i", *values)


def _buffer(data: bytes) -> bytes:
    return _int(len(data)) + data


_NEW: Final = _buffer(b"new") + _OPEN_LIST + _int(0)
_NO_PATHS: Final = _int(0)
_BODIES: Final[Mapping[OpCode, bytes]] = {
    OpCode.EXISTS: _NODE + b"\1",
    OpCode.GET_DATA: _NODE + b"\1",
    OpCode.GET_CHILDREN: encode_string("/") + b"\1",
    OpCode.GET_CHILDREN2: encode_string("/") + b"\1",
    OpCode.GET_ACL: _NODE,
    OpCode.SYNC: _NODE,
    OpCode.PING: b"",
    OpCode.CHECK: _NODE + _int(0),
    OpCode.SET_WATCHES: _long(0) + 3 * _NO_PATHS,
    OpCode.SET_WATCHES2: _long(0) + 5 * _NO_PATHS,
    OpCode.AUTH: _int(0) + encode_string("digest") + _buffer(_LOGIN),
    OpCode.SET_ACL: _NODE + _OPEN_LIST + _int(-1),
    OpCode.SET_DATA: _NODE + _buffer(_SECRET) + _int(-1),
    OpCode.MULTI: struct.pack(">i?i", OpCode.SET_DATA, False, -1)
    + _NODE
    + _buffer(_SECRET)
    + _int(-1)
    + _MULTI_END,
    OpCode.CREATE: encode_string("/new") + _NEW,
    OpCode.CREATE2: encode_string("/newer") + _NEW,
    OpCode.DELETE: encode_string("/new") + _int(-1),
    OpCode.CLOSE: b"",
}
"""A request for each operation, in an order in which all succeed."""
_NEEDS_NO_LOGIN: Final = frozenset({OpCode.PING, OpCode.CLOSE, OpCode.AUTH})
_CHANGES: Final = frozenset(
    {OpCode.CREATE, OpCode.CREATE2, OpCode.DELETE, OpCode.SET_DATA, OpCode.MULTI}
)
_ANSWERS: Final[Mapping[OpCode, ErrorCode]] = {OpCode.CHECK: ErrorCode.UNIMPLEMENTED}
"""Of a client that has logged in; of the others it is OK."""


def _frame(content: bytes) -> bytes:
    return _int(len(content)) + content


def _request(operation: OpCode) -> bytes:
    return _frame(_int(1, operation) + _BODIES[operation])


def _login(scheme: str, login: bytes) -> bytes:
    content = _int(-4, OpCode.AUTH, 0) + encode_string(scheme) + _buffer(login)
    return _frame(content)


def _handshake(session_id: int = 0, password: bytes = bytes(16)) -> bytes:
    return _frame(_int(0) + _long(0) + _int(10_000) + _long(session_id) + _buffer(password) + b"\0")


class _Client(asyncio.Protocol):
    """A connection that keeps what comes, until it ends."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False
        self._changed = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.data += data
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._changed.set()

    def eof_received(self) -> bool:
        return False

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def frame(self, world: World) -> bytes:
        """Return the next frame; empty: the connection ends before it. Raises ``TimeoutError``."""
        async with world.clock.timeout(20.0):
            while True:
                if len(self.data) >= 4:
                    end = 4 + struct.unpack_from(">i", self.data)[0]
                    if len(self.data) >= end:
                        found = bytes(self.data[4:end])
                        del self.data[:end]
                        return found
                if self.ended:
                    return b""
                self._changed.clear()
                await self._changed.wait()

    async def code(self, world: World) -> int | None:
        """Return the error code of the next reply; ``None``: there is none."""
        frame = await self.frame(world)
        return struct.unpack_from(">i", frame, 12)[0] if frame else None

    async def until_ended(self, world: World) -> bytes:
        """Return what comes until the connection ends. Raises ``TimeoutError``."""
        async with world.clock.timeout(20.0):
            while not self.ended:
                self._changed.clear()
                await self._changed.wait()
        return bytes(self.data)


def run_metadata_rights() -> Matrix:
    """Try each operation and word for each way to log in."""
    matrix, sim = Matrix(), Simulation(1)

    async def main() -> None:
        with TemporaryDirectory() as directory:
            logins = Path(directory) / "logins"
            logins.touch(0o600)
            logins.write_bytes(_LOGIN + b"\n")
            daemons = {
                address: await sim.node(address.partition(":")[0]).run(
                    partial(_serve, address, str(logins), is_optional=address == _OPTIONAL)
                )
                for address in (_LOCKED, _OPTIONAL)
            }
            client = sim.node("client")
            await client.run(lambda world: _Run(world, daemons, matrix).run())

    sim.run(main, 3_600.0)
    return matrix


async def _serve(address: str, logins: str, world: World, *, is_optional: bool) -> MetadataDaemon:
    config = MetadataConfig(
        listen_address=address,
        http_address="",
        data_directory="/data",
        auth_file=logins,
        auth_optional=is_optional,
        authentication_failures_max=0,  # this client shows many wrong ones
    )
    daemon = MetadataDaemon(
        config,
        clock=world.clock,
        rng=world.random,
        tasks=world.tasks,
        files=world.files,
        connections=world.connections,
        open_index=world.open_index,
    )
    await daemon.start()
    return daemon


class _Run:
    def __init__(self, world: World, daemons: Mapping[str, MetadataDaemon], matrix: Matrix) -> None:
        assert isinstance(world.connections, SimConnections)
        self._world = world
        self._connections = world.connections
        self._daemons = daemons
        self._matrix = matrix

    async def run(self) -> None:
        self._matrix.expect("operations", found=sorted(_BODIES), wanted=sorted(OpCode))
        words = set(self._daemons[_LOCKED]._words)
        self._matrix.expect("words", found=sorted(words), wanted=sorted(_WORDS))
        for address in self._daemons:
            await self._make_node(address)
        before = self._kept(_LOCKED)
        for operation in OpCode:
            await self._try_without_handshake(operation)
            await self._try_without_login(operation)
            for name, (scheme, login) in _WRONG.items():
                await self._try_wrong_login(operation, name, _login(scheme, login))
            await self._try_session_of_a_member(operation)
        for word in (*sorted(_WORDS), *_OTHER_WORDS):
            await self._try_word(word)
        kept = self._kept(_LOCKED)
        self._matrix.expect("what is denied changes nothing", found=kept, wanted=before)
        for address, logs_in in ((_LOCKED, True), (_OPTIONAL, True), (_OPTIONAL, False)):
            await self._try_permitted(address, logs_in=logs_in)
        for name, (scheme, login) in _WRONG.items():
            await self._try_wrong_where_none_is_needed(name, _login(scheme, login))

    def _kept(self, address: str) -> dict[str, tuple[bytes, int]]:
        engine = self._daemons[address]._engine
        assert engine is not None
        return {path: (node.data, node.version) for path, node in engine.tree.nodes.items()}

    def _watches(self) -> int:
        engine = self._daemons[_LOCKED]._engine
        assert engine is not None
        return engine.tree.watch_count

    async def _opened(self, address: str = _LOCKED) -> _Client:
        return cast("_Client", await self._connections.open_bytes(address, _Client))

    async def _member(self, address: str = _LOCKED) -> tuple[_Client, bytes]:
        """Return a client that has logged in, and the answer to its handshake."""
        client = await self._opened(address)
        client.send(_handshake() + _login("digest", _LOGIN))
        answer = await client.frame(self._world)
        assert await client.code(self._world) == ErrorCode.OK
        return client, answer

    async def _make_node(self, address: str) -> None:
        client, _ = await self._member(address)
        create = _NODE + _buffer(_SECRET) + _OPEN_LIST + _int(0)
        client.send(_frame(_int(1, OpCode.CREATE) + create))
        assert await client.code(self._world) == ErrorCode.OK
        client.close()

    # -- what is denied

    def _expect_refused(self, case: str, client: _Client, code: int | None, wanted: object) -> None:
        said = _SECRET in client.data or self._watches() > 0
        self._matrix.expect(case, found=(code, said), wanted=(wanted, False))

    async def _try_without_handshake(self, operation: OpCode) -> None:
        client = await self._opened()
        client.send(_request(operation))
        case = f"{operation.name} before the handshake"
        async with self._world.clock.timeout(60.0):
            said = await client.until_ended(self._world)
        self._expect_refused(case, client, len(said) or None, None)

    async def _try_without_login(self, operation: OpCode) -> None:
        client = await self._opened()
        client.send(_handshake())
        await client.frame(self._world)
        client.send(_request(operation))
        code = await client.code(self._world)
        wanted = ErrorCode.OK if operation in _NEEDS_NO_LOGIN else ErrorCode.NO_AUTH
        self._expect_refused(f"{operation.name} without a login", client, code, wanted)
        if operation not in _NEEDS_NO_LOGIN:
            # A login after that is too late.
            client.send(_login("digest", _LOGIN) + _request(operation))
            said = await client.until_ended(self._world)
            self._matrix.expect(f"{operation.name}, then a login", found=said, wanted=b"")
        client.close()

    async def _try_wrong_login(self, operation: OpCode, name: str, login: bytes) -> None:
        """Send a request right behind a wrong login."""
        client = await self._opened()
        client.send(_handshake() + login + _request(operation))
        await client.frame(self._world)
        case = f"{operation.name} after {name}"
        code = await client.code(self._world)
        self._expect_refused(case, client, code, ErrorCode.AUTH_FAILED)
        code = await client.code(self._world)
        wanted = ErrorCode.OK if operation in _NEEDS_NO_LOGIN else ErrorCode.NO_AUTH
        self._expect_refused(f"{case}, the request", client, code, wanted)
        said = await client.until_ended(self._world)
        self._matrix.expect(f"{case}, the end", found=said, wanted=b"")

    async def _try_wrong_where_none_is_needed(self, name: str, login: bytes) -> None:
        client = await self._opened(_OPTIONAL)
        client.send(_handshake() + login)
        await client.frame(self._world)
        code = await client.code(self._world)
        said = await client.until_ended(self._world)
        case = f"{name} where no login is needed"
        self._matrix.expect(case, found=(code, said), wanted=(ErrorCode.AUTH_FAILED, b""))

    async def _try_session_of_a_member(self, operation: OpCode) -> None:
        """Take over the session of a member, whose login was that of its connection."""
        member, answer = await self._member()
        session_id, size = struct.unpack_from(">qi", answer, 8)
        password = answer[20 : 20 + size]
        client = await self._opened()
        client.send(_handshake(session_id, password))
        await client.frame(self._world)
        client.send(_request(operation))
        code = await client.code(self._world)
        wanted = ErrorCode.OK if operation in _NEEDS_NO_LOGIN else ErrorCode.NO_AUTH
        self._expect_refused(f"{operation.name} in a member's session", client, code, wanted)
        client.close()
        guess = await self._opened()
        guess.send(_handshake(session_id, bytes(size)) + _request(operation))
        found = struct.unpack_from(">q", await guess.frame(self._world), 8)[0]
        self._matrix.expect(f"{operation.name}: a guessed session", found=found, wanted=0)
        member.close()

    async def _try_word(self, word: bytes) -> None:
        """Ask by a four-letter word: it must end the connection, and name no node."""
        client = await self._opened()
        client.send(word)
        said = await client.until_ended(self._world)
        self._matrix.expect(f"{word!r} answers", found=bool(said), wanted=word in _WORDS)
        if word in _WORDS:
            is_open = b"whitelist" not in said
            self._matrix.expect(f"{word!r} is open", found=is_open, wanted=word == b"ruok")
        is_told = b"secret" in said or b"session" in said.replace(b"zk_global_sessions", b"")
        self._matrix.expect(f"{word!r} tells of nodes", found=is_told, wanted=False)
        member, _ = await self._member()
        member.send(word + bytes(8))
        said = await member.until_ended(self._world)
        self._matrix.expect(f"{word!r} after the handshake", found=said, wanted=b"")

    # -- what is permitted

    async def _try_permitted(self, address: str, *, logs_in: bool) -> None:
        who = f"{address} {'with' if logs_in else 'without'} a login"
        for operation in _BODIES:
            client = await self._opened(address)
            client.send(_handshake() + (_login("digest", _LOGIN) if logs_in else b""))
            await client.frame(self._world)
            if logs_in:
                found = await client.code(self._world)
                self._matrix.expect(f"{who}: {operation.name}", found=found, wanted=ErrorCode.OK)
            before = self._kept(address)
            client.send(_request(operation))
            found = await client.code(self._world)
            wanted = _ANSWERS.get(operation, ErrorCode.OK)
            self._matrix.expect(f"{who}: {operation.name} is done", found=found, wanted=wanted)
            changes = operation in _CHANGES
            is_changed = self._kept(address) != before
            self._matrix.expect(f"{who}: {operation.name} acts", found=is_changed, wanted=changes)
            client.close()
        member, _ = await self._member(address)
        member.send(_frame(_int(1, OpCode.DELETE) + encode_string("/newer") + _int(-1)))
        assert await member.code(self._world) == ErrorCode.OK
        member.close()
