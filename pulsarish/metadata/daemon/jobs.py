"""What ``pulsarish metadata`` does with each kind of request: decide it on the tree, encode its reply, hand it to its connection.

Jobs run in the commit engine, in order of arrival; their replies leave once the batch is durable.
"""

from __future__ import annotations

import hmac
import random
from typing import Final, Protocol

from pulsarish.metadata.daemon.zkwire import (
    ERROR_OF_REFUSAL,
    AuthRequest,
    ConnectRequest,
    ErrorCode,
    OpCode,
    ReadRequest,
    Request,
    SetWatchesRequest,
    SimpleRequest,
    UnsupportedRequest,
    WriteRequest,
    encode_acl_reply,
    encode_buffer,
    encode_connect_reply,
    encode_event,
    encode_multi,
    encode_multi_errors,
    encode_reply,
    encode_stat,
    encode_string,
    encode_strings,
)
from pulsarish.metadata.tree.nodes import Committed, Event, EventKind, Refused, Result, Stat
from pulsarish.metadata.tree.tree import Tree
from pulsarish.runtime.seams import Clock

__all__ = ["ConnectJob", "ExpireJob", "Peer", "RequestJob", "SessionTable"]

PASSWORD_BYTES: Final = 16


class Peer(Protocol):
    """A client's connection, as the jobs see it."""

    session_id: int  # 0 until the handshake is decided, and again when the session has moved to another connection

    def answer(self, frame: bytes) -> None:
        """Queue a frame; everything queued in a batch leaves together. Ignored once the connection is gone."""
        ...

    def answered(self) -> None:
        """One request less is outstanding."""
        ...

    def end(self) -> None:
        """Close after what is queued has left."""
        ...


class SessionTable:
    """Which connection each session is attached to, and how sessions are made."""

    def __init__(self, clock: Clock, rng: random.Random, timeout_min_ms: int, timeout_max_ms: int) -> None:
        self.clock = clock
        self.peers: dict[int, Peer] = {}
        self._random = rng
        self._timeout_min_ms = timeout_min_ms
        self._timeout_max_ms = timeout_max_ms

    def now_ms(self) -> int:
        return int(self.clock.monotonic() * 1000)

    def new_id(self, tree: Tree) -> int:
        while True:
            session_id = self._random.getrandbits(63)
            if session_id and session_id not in tree.sessions:
                return session_id

    def new_password(self) -> bytes:
        return self._random.getrandbits(PASSWORD_BYTES * 8).to_bytes(PASSWORD_BYTES, "big")

    def negotiated_ms(self, asked_ms: int) -> int:
        return min(max(asked_ms, self._timeout_min_ms), self._timeout_max_ms)

    def attach(self, session_id: int, peer: Peer) -> None:
        """From now on the session speaks on ``peer``; the connection it had before is closed, and what waits from it is not done."""
        before = self.peers.get(session_id)
        if before is not None and before is not peer:
            before.session_id = 0
            before.end()
        self.peers[session_id] = peer
        peer.session_id = session_id

    def detach(self, session_id: int, peer: Peer) -> bool:
        """Forget ``peer``, when it still is the session's."""
        if self.peers.get(session_id) is not peer:
            return False
        del self.peers[session_id]
        return True

    def deliver(self, event: Event) -> None:
        peer = self.peers.get(event.session_id)
        if peer is not None:
            peer.answer(encode_event(event))


class ConnectJob:
    """The handshake: a new session, or an old one with its password on a new connection."""

    def __init__(self, table: SessionTable, peer: Peer, request: ConnectRequest) -> None:
        self._table = table
        self._peer = peer
        self._request = request
        self._reply = b""

    def run(self, tree: Tree) -> Committed | None:
        request, table = self._request, self._table
        if request.last_zxid > tree.zxid:
            # The client has seen what this store does not hold: shown an older tree it would take back what it knows.
            return None
        if request.session_id == 0:
            session_id, password = table.new_id(tree), table.new_password()
            timeout_ms = table.negotiated_ms(request.timeout_ms)
            committed = tree.open_session(session_id, password, timeout_ms, table.now_ms())
            table.attach(session_id, self._peer)
            self._reply = self._encode(timeout_ms, session_id, password)
            return committed
        session = tree.sessions.get(request.session_id)
        if session is None or not hmac.compare_digest(session.password, request.password):
            self._reply = self._encode(0, 0, bytes(PASSWORD_BYTES))
            return None
        tree.touch(session.session_id, table.now_ms())
        tree.drop_watches(session.session_id)
        table.attach(session.session_id, self._peer)
        self._reply = self._encode(session.timeout_ms, session.session_id, session.password)
        return None

    def _encode(self, timeout_ms: int, session_id: int, password: bytes) -> bytes:
        return encode_connect_reply(timeout_ms, session_id, password, with_read_only=self._request.read_only is not None)

    def deliver(self) -> None:
        self._peer.answered()
        if self._reply:
            self._peer.answer(self._reply)
        if not self._peer.session_id:
            self._peer.end()


class ExpireJob:
    """A session whose time has passed, unless it was heard from while this job waited."""

    def __init__(self, table: SessionTable, session_id: int) -> None:
        self._table = table
        self._session_id = session_id
        self._expired = False

    def run(self, tree: Tree) -> Committed | None:
        session = tree.sessions.get(self._session_id)
        if session is None or session.deadline_ms > self._table.now_ms():
            return None
        self._expired = True
        return tree.close_session(self._session_id)

    def deliver(self) -> None:
        peer = self._table.peers.pop(self._session_id, None) if self._expired else None
        if peer is not None:
            peer.session_id = 0
            peer.end()


class RequestJob:
    """Any request after the handshake."""

    def __init__(self, table: SessionTable, peer: Peer, xid: int, request: Request) -> None:
        self._table = table
        self._peer = peer
        self._xid = xid
        self._request = request
        self._frames: list[bytes] = []
        self._ends = False

    def run(self, tree: Tree) -> Committed | None:
        session_id = self._peer.session_id
        if not session_id:
            # The session moved to another connection or ended before this request's turn: nobody waits for the answer here.
            return None
        match self._request:
            case WriteRequest() as request:
                return self._write(tree, session_id, request)
            case ReadRequest() as request:
                self._read(tree, session_id, request)
            case SimpleRequest() as request:
                return self._simple(tree, session_id, request)
            case AuthRequest() as request:
                # A digest only adds an identity, and every node is open to everybody; other schemes would promise what is not kept.
                known = request.scheme == "digest"
                self._reply(tree, ErrorCode.OK if known else ErrorCode.AUTH_FAILED)
                self._ends = not known
            case SetWatchesRequest() as request:
                self._set_watches(tree, session_id, request)
            case UnsupportedRequest() as request:
                self._reply(tree, request.error)
        return None

    def deliver(self) -> None:
        self._peer.answered()
        for frame in self._frames:
            self._peer.answer(frame)
        if self._ends:
            self._peer.end()

    def _reply(self, tree: Tree, error: ErrorCode, body: bytes = b"") -> None:
        self._frames.append(encode_reply(self._xid, tree.zxid, error, body))

    def _write(self, tree: Tree, session_id: int, request: WriteRequest) -> Committed | None:
        outcome = tree.commit(session_id, request.ops, self._table.clock.wall_ms())
        if isinstance(outcome, Refused):
            error = ERROR_OF_REFUSAL[outcome.reason]
            if request.kind is OpCode.MULTI and error is not ErrorCode.SESSION_EXPIRED:
                self._reply(tree, ErrorCode.OK, encode_multi_errors(len(request.ops), outcome.index, error))
            else:
                self._reply(tree, error)
            return None
        bodies = [_write_body(kind, result) for kind, result in zip(request.kinds, outcome.results, strict=True)]
        if request.kind is OpCode.MULTI:
            self._reply(tree, ErrorCode.OK, encode_multi(list(zip(request.kinds, bodies, strict=True))))
        else:
            self._reply(tree, ErrorCode.OK, bodies[0])
        return outcome

    def _read(self, tree: Tree, session_id: int, request: ReadRequest) -> None:
        kind, path = request.kind, request.path
        if kind is OpCode.EXISTS and "\0" in path:
            self._reply(tree, ErrorCode.BAD_ARGUMENTS)
            return
        node = tree.get(path)
        if request.watch and (node is not None or kind is OpCode.EXISTS):
            if kind in (OpCode.EXISTS, OpCode.GET_DATA):
                tree.watch_data(session_id, path)
            else:
                tree.watch_children(session_id, path)
        if node is None:
            self._reply(tree, ErrorCode.NO_NODE)
            return
        match kind:
            case OpCode.EXISTS:
                body = encode_stat(node.stat())
            case OpCode.GET_DATA:
                body = encode_buffer(node.data) + encode_stat(node.stat())
            case _:
                body = encode_strings(tree.children(path) or [])
                if kind is OpCode.GET_CHILDREN2:
                    body += encode_stat(node.stat())
        self._reply(tree, ErrorCode.OK, body)

    def _simple(self, tree: Tree, session_id: int, request: SimpleRequest) -> Committed | None:
        match request.kind:
            case OpCode.CLOSE:
                committed = tree.close_session(session_id)
                self._table.detach(session_id, self._peer)
                self._peer.session_id = 0
                self._ends = True
                self._reply(tree, ErrorCode.OK)
                return committed
            case OpCode.SYNC:
                self._reply(tree, ErrorCode.OK, encode_string(request.path))
            case OpCode.GET_ACL | OpCode.SET_ACL:
                self._acl(tree, request)
            case _:
                self._reply(tree, ErrorCode.OK)
        return None

    def _acl(self, tree: Tree, request: SimpleRequest) -> None:
        """Every node's list is "everybody may do everything"; setting that again changes nothing, its version (0) included."""
        node = tree.get(request.path)
        if node is None:
            self._reply(tree, ErrorCode.NO_NODE)
        elif request.kind is OpCode.GET_ACL:
            self._reply(tree, ErrorCode.OK, encode_acl_reply(node.stat()))
        elif request.version not in (-1, 0):
            self._reply(tree, ErrorCode.BAD_VERSION)
        else:
            self._reply(tree, ErrorCode.OK, encode_stat(node.stat()))

    def _set_watches(self, tree: Tree, session_id: int, request: SetWatchesRequest) -> None:
        """A client that came back waits on again; what it missed since ``relative_zxid`` it is told at once."""
        missed: list[tuple[EventKind, str]] = []
        for path in request.data:
            node = tree.get(path)
            if node is None:
                missed.append((EventKind.DELETED, path))
            elif node.mzxid > request.relative_zxid:
                missed.append((EventKind.CHANGED, path))
            else:
                tree.watch_data(session_id, path)
        for path in request.exist:
            if tree.get(path) is None:
                tree.watch_data(session_id, path)
            else:
                missed.append((EventKind.CREATED, path))
        for path in request.child:
            node = tree.get(path)
            if node is None:
                missed.append((EventKind.DELETED, path))
            elif node.pzxid > request.relative_zxid:
                missed.append((EventKind.CHILD, path))
            else:
                tree.watch_children(session_id, path)
        self._frames += [encode_event(Event(session_id, kind, path)) for kind, path in missed]
        self._reply(tree, ErrorCode.OK)


def _write_body(kind: OpCode, result: Result) -> bytes:
    match kind:
        case OpCode.CREATE:
            return encode_string(result.path)
        case OpCode.CREATE2:
            return encode_string(result.path) + encode_stat(_stat(result))
        case OpCode.DELETE | OpCode.CHECK:
            return b""
        case _:
            return encode_stat(_stat(result))


def _stat(result: Result) -> Stat:
    assert result.stat is not None, "only a delete has no stat"
    return result.stat
