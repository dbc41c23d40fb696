"""The jobs of ``pulsarish metadata``: decide a request on the tree, encode its reply, and pass it
to its connection.

Jobs run in the commit engine, in order of arrival. Their replies leave once the batch is durable.
"""

from __future__ import annotations

import hmac

from pulsarish.metadata.daemon.sessions import PASSWORD_BYTES, Peer, SessionTable
from pulsarish.metadata.daemon.zkwire import (
    ERROR_OF_REFUSAL,
    AuthRequest,
    ConnectRequest,
    ErrorCode,
    LongReply,
    OpCode,
    ReadRequest,
    Request,
    SetWatchesRequest,
    SimpleRequest,
    UnsupportedRequest,
    WriteRequest,
    encode_acl_reply,
    encode_children_reply,
    encode_connect_reply,
    encode_data_reply,
    encode_event,
    encode_multi,
    encode_multi_errors,
    encode_reply,
    encode_stat,
    encode_string,
)
from pulsarish.metadata.tree.nodes import (
    Committed,
    Event,
    EventKind,
    Refused,
    Result,
    Session,
    Stat,
)
from pulsarish.metadata.tree.tree import Tree
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger

__all__ = ["ConnectJob", "EndIdleJob", "ExpireJob", "LeaveJob", "RequestJob"]


_log = get_logger("metadata.sessions")


class _PeerJob:
    """A job that a peer's connection caused."""

    _peer: Peer

    @property
    def scope(self) -> Scope:
        return self._peer.scope


class ConnectJob(_PeerJob):
    """The handshake: a new session, or an old one with its password on a new connection."""

    def __init__(
        self, table: SessionTable, peer: Peer, request: ConnectRequest, size_bytes: int
    ) -> None:
        self.size_bytes = size_bytes
        self._table = table
        self._peer = peer
        self._request = request
        self._reply = b""
        self._refused = ""

    def run(self, tree: Tree) -> Committed | None:
        request, table, peer = self._request, self._table, self._peer
        if peer.gone:
            return None
        if request.last_zxid > tree.zxid:
            # The client has seen transactions that this store does not have: an older tree would
            # contradict what it knows.
            self._refused = (
                f"the client has seen transaction {request.last_zxid}, and this tree has only "
                f"reached {tree.zxid}"
            )
            return None
        if request.session_id == 0:
            return self._open(tree)
        session = tree.sessions.get(request.session_id)
        if session is None or not hmac.compare_digest(session.password, request.password):
            self._reply = self._encode(0, 0, bytes(PASSWORD_BYTES))
            return None
        tree.touch(session.session_id, table.now_ms())
        tree.drop_watches(session.session_id)
        table.attach(session.session_id, peer)
        self._reply = self._encode(session.timeout_ms, session.session_id, session.password)
        return None

    def _open(self, tree: Tree) -> Committed | None:
        table = self._table
        session_id, password = table.new_id(tree), table.new_password()
        self._refused = table.admit(session_id, self._peer.address)
        if self._refused:
            return None
        timeout_ms = table.negotiated_ms(self._request.timeout_ms)
        committed = tree.open_session(session_id, password, timeout_ms, table.now_ms())
        table.attach(session_id, self._peer)
        self._reply = self._encode(timeout_ms, session_id, password)
        return committed

    def _encode(self, timeout_ms: int, session_id: int, password: bytes) -> bytes:
        return encode_connect_reply(
            timeout_ms, session_id, password, with_read_only=self._request.read_only is not None
        )

    def deliver(self) -> None:
        self._peer.answered(self.size_bytes)
        if self._refused:
            self._peer.abort(self._refused)
        elif self._reply:
            self._peer.answer(self._reply)
            if not self._peer.session_id:
                self._peer.end()


class ExpireJob:
    """End a session whose time has passed, unless its client sent something while this job
    waited.
    """

    size_bytes = 0

    def __init__(self, table: SessionTable, session_id: int) -> None:
        self._table = table
        self._session_id = session_id
        self._expired = False

    def run(self, tree: Tree) -> Committed | None:
        session = tree.sessions.get(self._session_id)
        if session is None or not self._is_over(session):
            return None
        self._expired = True
        self._table.closed(self._session_id)
        return tree.close_session(self._session_id)

    @property
    def scope(self) -> Scope:
        return Scope(ScopeKind.TASK, f"session {self._session_id:#x}")

    def _is_over(self, session: Session) -> bool:
        return session.deadline_ms <= self._table.now_ms()

    def deliver(self) -> None:
        if self._expired:
            self._table.end_peer(self._session_id)


class EndIdleJob(ExpireJob):
    """End a session that has to make room for another one, unless its client came back while this
    job waited.
    """

    def _is_over(self, session: Session) -> bool:
        return not session.ephemerals and session.session_id not in self._table.peers


class LeaveJob(_PeerJob):
    """Handle a connection that is gone.

    Requests that its client sent before are done, unless its session is on another connection by
    then.
    """

    size_bytes = 0

    def __init__(self, table: SessionTable, peer: Peer) -> None:
        self._table = table
        self._peer = peer

    def run(self, tree: Tree) -> Committed | None:
        self._table.detach(tree, self._peer.session_id, self._peer)
        return None

    def deliver(self) -> None:
        """Do nothing: no client waits for an answer."""


class RequestJob(_PeerJob):
    """Any request after the handshake."""

    def __init__(
        self, table: SessionTable, peer: Peer, xid: int, request: Request, size_bytes: int
    ) -> None:
        self.size_bytes = size_bytes
        self._table = table
        self._peer = peer
        self._xid = xid
        self._request = request
        self._answers: list[bytes | LongReply] = []
        self._ends = False

    def run(self, tree: Tree) -> Committed | None:
        session_id = self._peer.session_id
        if not session_id:
            # The session moved to another connection or ended before this request's turn: no client
            # waits for the answer here.
            return None
        if not self._peer.is_admitted and not _needs_no_login(self._request):
            self._reply(tree, ErrorCode.NO_AUTH)
            self._refuse("a request without a login")
            return None
        match self._request:
            case WriteRequest() as request:
                return self._write(tree, session_id, request)
            case ReadRequest() as request:
                self._read(tree, session_id, request)
            case SimpleRequest() as request:
                return self._simple(tree, session_id, request)
            case AuthRequest() as request:
                self._log_in(tree, request)
            case SetWatchesRequest() as request:
                self._set_watches(tree, session_id, request)
            case UnsupportedRequest() as request:
                self._reply(tree, request.error)
        return None

    def deliver(self) -> None:
        self._peer.answered(self.size_bytes)
        for answer in self._answers:
            self._peer.answer(answer)
        if self._ends:
            self._peer.end()

    def _reply(self, tree: Tree, error: ErrorCode, body: bytes = b"") -> None:
        self._add(encode_reply(self._xid, tree.zxid, error, body))

    def _add(self, answer: bytes | LongReply) -> None:
        self._answers.append(answer)
        self._peer.expect(answer)

    def _log_in(self, tree: Tree, request: AuthRequest) -> None:
        """Admit the client if it shows a login of the daemon.

        Where the daemon has none, a digest only adds an identity, and every node is open to all
        clients. Other schemes would promise what is not kept.
        """
        logins, host = self._table.logins, self._peer.address
        refusal = None if logins is None else logins.refusal(host, request.login)
        if refusal is not None:
            # Without an answer: a member that shows a good login must try again, not give up.
            self._ends = True
            if refusal.is_first:
                _log.warning("logins not checked", address=host, reason=refusal.text)
            return
        if request.scheme == "digest" and (logins is None or logins.accepts(host, request.login)):
            self._peer.admit()
            self._reply(tree, ErrorCode.OK)
            return
        self._reply(tree, ErrorCode.AUTH_FAILED)
        self._refuse("a login that auth_file does not have")

    def _refuse(self, reason: str) -> None:
        self._ends = True
        _log.warning("client refused", address=self._peer.address, reason=reason)

    def _write(self, tree: Tree, session_id: int, request: WriteRequest) -> Committed | None:
        outcome = tree.commit(session_id, request.ops, self._table.clock.wall_ms())
        if isinstance(outcome, Refused):
            error = ERROR_OF_REFUSAL[outcome.reason]
            if request.kind is OpCode.MULTI and error is not ErrorCode.SESSION_EXPIRED:
                self._reply(
                    tree, ErrorCode.OK, encode_multi_errors(len(request.ops), outcome.index, error)
                )
            else:
                self._reply(tree, error)
            return None
        bodies = [
            _write_body(kind, result)
            for kind, result in zip(request.kinds, outcome.results, strict=True)
        ]
        if request.kind is OpCode.MULTI:
            self._reply(
                tree, ErrorCode.OK, encode_multi(list(zip(request.kinds, bodies, strict=True)))
            )
        else:
            self._reply(tree, ErrorCode.OK, bodies[0])
        return outcome

    def _read(self, tree: Tree, session_id: int, request: ReadRequest) -> None:
        kind, path = request.kind, request.path
        if self._peer.gone:
            return
        if kind is OpCode.EXISTS and "\0" in path:
            self._reply(tree, ErrorCode.BAD_ARGUMENTS)
            return
        node = tree.get(path)
        if request.watch and (node is not None or kind is OpCode.EXISTS):
            if not self._table.may_watch(tree, session_id, len(path)):
                self._reply(tree, ErrorCode.QUOTA_EXCEEDED)
                return
            if kind in (OpCode.EXISTS, OpCode.GET_DATA):
                tree.watch_data(session_id, path)
            else:
                tree.watch_children(session_id, path)
        if node is None:
            self._reply(tree, ErrorCode.NO_NODE)
            return
        match kind:
            case OpCode.EXISTS:
                self._reply(tree, ErrorCode.OK, encode_stat(node.stat()))
            case OpCode.GET_DATA:
                self._add(encode_data_reply(self._xid, tree.zxid, node.data, node.stat()))
            case _:
                stat = node.stat() if kind is OpCode.GET_CHILDREN2 else None
                self._add(encode_children_reply(self._xid, tree.zxid, node.children or {}, stat))

    def _simple(self, tree: Tree, session_id: int, request: SimpleRequest) -> Committed | None:
        match request.kind:
            case OpCode.CLOSE:
                committed = tree.close_session(session_id)
                self._table.closed(session_id)
                self._table.detach(tree, session_id, self._peer)
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
        """Answer about access lists.

        Every node's list is "everyone may do everything", and only that list can be set.

        Setting it changes nothing, its version (0) included.
        """
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
        """Register the watches of a client that came back.

        It gets the events missed since ``relative_zxid`` at once.
        """
        paths = (*request.data, *request.exist, *request.child)
        if not self._table.may_watch(tree, session_id, sum(map(len, paths)), len(paths)):
            self._reply(tree, ErrorCode.QUOTA_EXCEEDED)
            return
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
        for kind, path in missed:
            self._add(encode_event(Event(session_id, kind, path)))
        self._reply(tree, ErrorCode.OK)


def _needs_no_login(request: Request) -> bool:
    """Whether a client that has not logged in may ask for it: no node is read or changed.

    Closing the session ends what the client itself has made.
    """
    return isinstance(request, AuthRequest) or (
        isinstance(request, SimpleRequest) and request.kind in (OpCode.PING, OpCode.CLOSE)
    )


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
