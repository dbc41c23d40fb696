"""ZooKeeper's wire protocol (jute records), bytes <-> values, for the server's side.

Pure: no I/O, no state.

Source of the facts: ``zookeeper.jute`` and the server of Apache ZooKeeper 3.9. A frame is a
big-endian length and its content. The first frame in each direction is the handshake. Every other
frame begins with a request header (xid, operation) or a reply header (xid, zxid, error).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from pulsarish.metadata.tree.nodes import (
    Check,
    Create,
    Delete,
    Event,
    Put,
    Refusal,
    Refuse,
    Stat,
    TreeOp,
)

__all__ = [
    "CONNECT_MAX_BYTES",
    "ERROR_OF_REFUSAL",
    "FRAME_MAX_BYTES",
    "MULTI_OPS_MAX",
    "PATH_MAX_BYTES",
    "STRINGS_MAX",
    "AuthRequest",
    "ConnectRequest",
    "ErrorCode",
    "LongReply",
    "Malformed",
    "OpCode",
    "ReadRequest",
    "Request",
    "SetWatchesRequest",
    "SimpleRequest",
    "UnsupportedRequest",
    "WriteRequest",
    "decode_connect",
    "decode_request",
    "encode_acl_reply",
    "encode_children_reply",
    "encode_connect_reply",
    "encode_data_reply",
    "encode_event",
    "encode_multi",
    "encode_multi_errors",
    "encode_reply",
    "encode_stat",
    "encode_string",
    "encode_strings",
]

# ZooKeeper's jute.maxbuffer: a larger request ends the connection.
FRAME_MAX_BYTES: Final = 0xFFFFF
CONNECT_MAX_BYTES: Final = 4096
"""The largest handshake; an ordinary one has about fifty bytes."""
PATH_MAX_BYTES: Final = 16 << 10
STRINGS_MAX: Final = 20_000
"""Paths and access list entries of one request.

Clients that come back send their watches in requests of 128 KB.
"""
MULTI_OPS_MAX: Final = 5_000


class Malformed(Exception):
    """Bytes that are not a request. Nothing after them on the connection can be read."""


class _Excessive(Exception):
    """A request that would delay the other clients for too long: it is refused, and the connection
    is still read.
    """


class OpCode(IntEnum):
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    AUTH = 100
    SET_WATCHES = 101
    SET_WATCHES2 = 105
    CLOSE = -11


class ErrorCode(IntEnum):
    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    QUOTA_EXCEEDED = -125


ERROR_OF_REFUSAL: Final = {
    Refusal.NO_NODE: ErrorCode.NO_NODE,
    Refusal.EXISTS: ErrorCode.NODE_EXISTS,
    Refusal.BAD_VERSION: ErrorCode.BAD_VERSION,
    Refusal.NOT_EMPTY: ErrorCode.NOT_EMPTY,
    Refusal.NO_CHILDREN_FOR_EPHEMERALS: ErrorCode.NO_CHILDREN_FOR_EPHEMERALS,
    Refusal.BAD_ARGUMENTS: ErrorCode.BAD_ARGUMENTS,
    Refusal.INVALID_ACL: ErrorCode.INVALID_ACL,
    Refusal.SESSION_EXPIRED: ErrorCode.SESSION_EXPIRED,
    Refusal.QUOTA_EXCEEDED: ErrorCode.QUOTA_EXCEEDED,
}


@dataclass(slots=True)
class ConnectRequest:
    last_zxid: int
    timeout_ms: int
    session_id: int  # 0: a new session
    password: bytes
    read_only: bool | None  # None: a client so old that it neither sends it nor expects it back


@dataclass(slots=True)
class WriteRequest:
    """create, create2, delete, setData and multi: ``ops`` in order; ``kinds`` are their operations
    on the wire.
    """

    kind: OpCode
    kinds: list[OpCode]
    ops: list[TreeOp]


@dataclass(slots=True)
class ReadRequest:
    """exists, getData, getChildren, getChildren2."""

    kind: OpCode
    path: str
    watch: bool


@dataclass(slots=True)
class SimpleRequest:
    """ping, close, sync, getACL and setACL: a kind, at most a path, and the version that setACL
    expects.
    """

    kind: OpCode
    path: str = ""
    version: int = -1


@dataclass(slots=True)
class AuthRequest:
    scheme: str
    login: bytes = field(repr=False)


@dataclass(slots=True)
class SetWatchesRequest:
    relative_zxid: int
    data: list[str]
    exist: list[str]
    child: list[str]


@dataclass(slots=True)
class UnsupportedRequest:
    """An operation or argument that is refused by name, and not silently done in another way."""

    error: ErrorCode
    reason: str = ""
    """For the log, when the error says too little."""


Request = (
    WriteRequest
    | ReadRequest
    | SimpleRequest
    | AuthRequest
    | SetWatchesRequest
    | UnsupportedRequest
)

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_REQUEST_HEADER: Final = struct.Struct(">ii")
_MULTI_HEADER: Final = struct.Struct(">i?i")
_REPLY: Final = struct.Struct(">iiqi")  # frame length, xid, zxid, error
_STAT: Final = struct.Struct(">qqqqiiiqiiq")
_MULTI_END: Final = _MULTI_HEADER.pack(-1, True, -1)
_OPEN_ACL: Final = (31, "world", "anyone")
_DATA_REPLY: Final = struct.Struct(">iiqii")  # the same, and the length of the data
_KINDS: Final[dict[int, OpCode]] = {kind.value: kind for kind in OpCode}
_DATA_PIECE_BYTES: Final = 128 << 10
_NAMES_PIECE: Final = 1000
_NAME_OBJECT_BYTES: Final = 64


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Malformed("a string is not UTF-8") from error


class _Reader:
    """Read fields from a frame; to read past its end raises ``Malformed``."""

    __slots__ = ("_at", "_frame", "_identities", "_listed")

    def __init__(self, frame: bytes, identities: Collection[str] = ()) -> None:
        self._frame = frame
        self._at = 0
        self._identities = identities
        self._listed = 0

    def take(self, form: struct.Struct) -> tuple[int, ...]:
        try:
            values = form.unpack_from(self._frame, self._at)
        except struct.error as error:
            raise Malformed("a record ends early") from error
        self._at += form.size
        return values

    def int32(self) -> int:
        return self.take(_INT)[0]

    def int64(self) -> int:
        return self.take(_LONG)[0]

    def boolean(self) -> bool:
        if self._at >= len(self._frame):
            raise Malformed("a record ends early")
        self._at += 1
        return self._frame[self._at - 1] != 0

    def at_end(self) -> bool:
        return self._at >= len(self._frame)

    def buffer(self) -> bytes:
        size = self.int32()
        if size == -1:  # null; the tree does not distinguish no data from empty data
            return b""
        end = self._at + size
        if size < 0 or end > len(self._frame):
            raise Malformed(f"a field of {size} bytes in a frame of {len(self._frame)}")
        value = self._frame[self._at : end]
        self._at = end
        return value

    def path(self) -> str:
        content = self.buffer()
        if len(content) > PATH_MAX_BYTES:
            raise _Excessive(
                f"a path of {len(content)} bytes; at most {PATH_MAX_BYTES} are accepted"
            )
        return _text(content)

    def string(self) -> str:
        return _text(self.buffer())

    def count(self) -> int:
        count = max(self.int32(), 0)  # -1: null
        if count > len(self._frame):
            raise Malformed(f"a list of {count} in a frame of {len(self._frame)}")
        self._listed += count
        if self._listed > STRINGS_MAX:
            raise _Excessive(
                f"lists of {self._listed} in a request; at most {STRINGS_MAX} are accepted"
            )
        return count

    def paths(self) -> list[str]:
        return [self.path() for _ in range(self.count())]

    def acls_are_open(self) -> bool:
        """Whether all clients that the daemon serves may do everything: what every node's list
        says. Where they log in, a list with all rights for logins of the daemon says the same.
        """
        acls = [(self.int32(), self.string(), self.string()) for _ in range(self.count())]
        return _OPEN_ACL in acls or (
            bool(acls and self._identities)
            and all(
                perms == _OPEN_ACL[0] and scheme == "digest" and who in self._identities
                for perms, scheme, who in acls
            )
        )


def decode_connect(frame: bytes) -> ConnectRequest:
    """Decode a handshake. Raises ``Malformed``."""
    reader = _Reader(frame)
    reader.int32()  # protocol version, always 0
    last_zxid, timeout_ms, session_id, password = (
        reader.int64(),
        reader.int32(),
        reader.int64(),
        reader.buffer(),
    )
    return ConnectRequest(
        last_zxid, timeout_ms, session_id, password, None if reader.at_end() else reader.boolean()
    )


def encode_connect_reply(
    timeout_ms: int, session_id: int, password: bytes, *, with_read_only: bool
) -> bytes:
    """Return a framed answer to the handshake.

    ``timeout_ms`` 0 says that the session has expired.
    """
    content = (
        struct.pack(">iiqi", 0, timeout_ms, session_id, len(password))
        + password
        + (b"\0" if with_read_only else b"")
    )
    return _INT.pack(len(content)) + content


def decode_request(frame: bytes, identities: Collection[str] = ()) -> tuple[int, Request]:
    """Return the xid and the request. Raises ``Malformed``.

    Args:
        identities: of the daemon's logins, to which nodes may be given.
    """
    reader = _Reader(frame, identities)
    xid, number = reader.take(_REQUEST_HEADER)
    try:
        return xid, _decode_body(number, reader)
    except _Excessive as excess:
        return xid, UnsupportedRequest(ErrorCode.BAD_ARGUMENTS, str(excess))


def _decode_body(number: int, reader: _Reader) -> Request:
    kind = _KINDS.get(number)
    match kind:
        case OpCode.EXISTS | OpCode.GET_DATA | OpCode.GET_CHILDREN | OpCode.GET_CHILDREN2:
            return ReadRequest(kind, reader.path(), reader.boolean())
        case OpCode.CREATE | OpCode.CREATE2 | OpCode.DELETE | OpCode.SET_DATA:
            op = _decode_op(kind, reader)
            return (
                UnsupportedRequest(op)
                if isinstance(op, ErrorCode)
                else WriteRequest(kind, [kind], [op])
            )
        case OpCode.MULTI:
            return _decode_multi(reader)
        case OpCode.SYNC | OpCode.GET_ACL:
            return SimpleRequest(kind, reader.path())
        case OpCode.SET_ACL:
            path, is_open = reader.path(), reader.acls_are_open()
            return (
                SimpleRequest(kind, path, reader.int32())
                if is_open
                else UnsupportedRequest(ErrorCode.INVALID_ACL)
            )
        case OpCode.PING | OpCode.CLOSE:
            return SimpleRequest(kind)
        case OpCode.AUTH:
            reader.int32()
            return AuthRequest(reader.string(), reader.buffer())
        case OpCode.SET_WATCHES | OpCode.SET_WATCHES2:
            relative_zxid = reader.int64()
            request = SetWatchesRequest(
                relative_zxid, reader.paths(), reader.paths(), reader.paths()
            )
            persistent = kind is OpCode.SET_WATCHES2 and reader.paths() + reader.paths()
            return UnsupportedRequest(ErrorCode.UNIMPLEMENTED) if persistent else request
        case _:  # an unknown operation, or a check, which is allowed only within a multi
            return UnsupportedRequest(ErrorCode.UNIMPLEMENTED)


def _decode_op(kind: OpCode, reader: _Reader) -> TreeOp | ErrorCode:
    match kind:
        case OpCode.CREATE | OpCode.CREATE2:
            path, data, is_open, flags = (
                reader.path(),
                reader.buffer(),
                reader.acls_are_open(),
                reader.int32(),
            )
            if flags not in (0, 1, 2, 3):  # containers and nodes with a time to live
                return ErrorCode.UNIMPLEMENTED if flags in (4, 5, 6) else ErrorCode.BAD_ARGUMENTS
            if not is_open:
                return Refuse(
                    path,
                    Refusal.INVALID_ACL
                    if "/" in path and "\0" not in path
                    else Refusal.BAD_ARGUMENTS,
                )
            return Create(path, data, bool(flags & 1), bool(flags & 2))
        case OpCode.DELETE:
            return Delete(reader.path(), reader.int32())
        case OpCode.SET_DATA:
            return Put(reader.path(), reader.buffer(), reader.int32())
        case OpCode.CHECK:
            return Check(reader.path(), reader.int32())
        case _:
            return ErrorCode.UNIMPLEMENTED


def _decode_multi(reader: _Reader) -> Request:
    kinds: list[OpCode] = []
    ops: list[TreeOp] = []
    while True:
        number, done, _ = reader.take(_MULTI_HEADER)
        if done:
            return WriteRequest(OpCode.MULTI, kinds, ops)
        if len(ops) == MULTI_OPS_MAX:
            raise _Excessive(f"a transaction of more than {MULTI_OPS_MAX} operations")
        kind = _KINDS.get(number)
        if kind is None:
            return UnsupportedRequest(ErrorCode.UNIMPLEMENTED)
        op = _decode_op(kind, reader)
        if isinstance(op, ErrorCode):
            return UnsupportedRequest(
                ErrorCode.MARSHALLING if op is ErrorCode.BAD_ARGUMENTS else op
            )
        kinds.append(kind)
        ops.append(op)


def encode_reply(xid: int, zxid: int, error: int, body: bytes = b"") -> bytes:
    """Return a framed reply."""
    return _REPLY.pack(16 + len(body), xid, zxid, error) + body


def encode_event(event: Event) -> bytes:
    """Return a framed notification: xid -1, the event's kind, state 3 (connected), the path."""
    return encode_reply(-1, -1, 0, struct.pack(">ii", event.kind, 3) + encode_string(event.path))


def encode_stat(stat: Stat) -> bytes:
    return _STAT.pack(*stat)


def encode_string(text: str) -> bytes:
    content = text.encode()
    return _INT.pack(len(content)) + content


def encode_strings(texts: Collection[str]) -> bytes:
    return _INT.pack(len(texts)) + _encode_names(texts)


class LongReply:
    """A framed reply that is encoded piece by piece, while its client receives it."""

    __slots__ = ("pieces", "size_bytes")

    def __init__(self, pieces: Iterator[bytes | memoryview], size_bytes: int) -> None:
        self.pieces = pieces
        self.size_bytes = size_bytes
        """The memory that it holds, about."""


def encode_data_reply(xid: int, zxid: int, data: bytes, stat: Stat) -> bytes | LongReply:
    """Return the reply of getData. Large data are not copied."""
    size_bytes = 16 + _INT.size + len(data) + _STAT.size
    head = _DATA_REPLY.pack(size_bytes, xid, zxid, ErrorCode.OK, len(data))
    if len(data) <= _DATA_PIECE_BYTES:
        return head + data + _STAT.pack(*stat)

    def pieces() -> Iterator[bytes | memoryview]:
        yield head
        view = memoryview(data)
        for start in range(0, len(data), _DATA_PIECE_BYTES):
            yield view[start : start + _DATA_PIECE_BYTES]
        yield _STAT.pack(*stat)

    return LongReply(pieces(), size_bytes)


def encode_children_reply(
    xid: int, zxid: int, children: Collection[str], stat: Stat | None
) -> bytes | LongReply:
    """Return the reply of getChildren, and of getChildren2 with a ``stat``."""
    end = b"" if stat is None else _STAT.pack(*stat)
    if len(children) <= _NAMES_PIECE:
        return encode_reply(xid, zxid, ErrorCode.OK, encode_strings(children) + end)
    names = list(children)
    size_bytes = 16 + _INT.size + _INT.size * len(names) + len("".join(names).encode()) + len(end)

    def pieces() -> Iterator[bytes | memoryview]:
        yield _DATA_REPLY.pack(size_bytes, xid, zxid, ErrorCode.OK, len(names))
        for start in range(0, len(names), _NAMES_PIECE):
            yield _encode_names(names[start : start + _NAMES_PIECE])
        yield end

    return LongReply(pieces(), size_bytes + _NAME_OBJECT_BYTES * len(names))


def _encode_names(names: Collection[str]) -> bytes:
    return b"".join([encode_string(name) for name in names])


def encode_acl_reply(stat: Stat) -> bytes:
    perms, scheme, who = _OPEN_ACL
    return (
        struct.pack(">ii", 1, perms)
        + encode_string(scheme)
        + encode_string(who)
        + encode_stat(stat)
    )


def encode_multi(results: Sequence[tuple[OpCode, bytes]]) -> bytes:
    """Return the body of a multi that happened: each operation's kind and its own body."""
    return (
        b"".join([_MULTI_HEADER.pack(kind, False, 0) + body for kind, body in results]) + _MULTI_END
    )


def encode_multi_errors(count: int, failed: int, error: ErrorCode) -> bytes:
    """Return the body of a multi that did not happen: OK before the operation that failed, and
    "inconsistent" after it.
    """
    codes = (
        [ErrorCode.OK] * failed + [error] + [ErrorCode.RUNTIME_INCONSISTENCY] * (count - failed - 1)
    )
    return (
        b"".join([_MULTI_HEADER.pack(-1, False, code) + _INT.pack(code) for code in codes])
        + _MULTI_END
    )
