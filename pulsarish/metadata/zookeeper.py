"""``zk://``: the metadata store in ZooKeeper, or in ``pulsarish metadata``, through kazoo. The only importer of kazoo.

What kazoo does not do by itself, and is done here:

* It says that a session is lost only once it reaches a server again. Here the node's own clock decides: one session timeout after the last
  answered request was sent (the seam of the metadata store asks for it). A new client with a new session follows by itself.
* Its answers and watches come on two threads. Here a handler without worker threads posts both from the connection's thread into one
  ordered queue of the loop (``LoopQueue``); nothing ever blocks in a callback,
  because that would hold up the heartbeats too, and the session would be lost.
* ``client._call`` writes one byte into a blocking socket pair for each request, which holds about 270 before it blocks the caller. So
  requests are sent only while connected and at most ``in_flight_max`` at a time.
* It does not keep the negotiated session timeout; that is taken from what the connection computes from it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kazoo.client import KazooClient, KazooState, TransactionRequest
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
    WriterNotClosedException,
)
from kazoo.handlers.threading import SequentialThreadingHandler

from pulsarish.metadata.kazoo_bridge import LoopQueue
from pulsarish.metadata.pipeline import RequestPipeline, Send
from pulsarish.metadata.translate import check_ops
from pulsarish.metadata.watches import Watch, WatchEntry, WatchTable
from pulsarish.model.errors import AuthorizationError, InvalidArgument
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import (
    Clock,
    Conflict,
    ConflictReason,
    Op,
    OutcomeUnknown,
    SessionLost,
    SessionState,
    Tasks,
    Versioned,
)

__all__ = ["ZooKeeperSettings", "ZooKeeperStore"]

_log = get_logger("metadata.zookeeper")
_REASONS: Final[dict[type[Exception], ConflictReason]] = {
    NoNodeError: ConflictReason.NO_NODE,
    NodeExistsError: ConflictReason.EXISTS,
    BadVersionError: ConflictReason.BAD_VERSION,
    NotEmptyError: ConflictReason.NOT_EMPTY,
}
_CONNECTION_ERRORS: Final = (ConnectionLoss, ConnectionClosedError, OperationTimeoutError, SessionMovedError)
_ROLLED_BACK: Final = (RolledBackError, RuntimeInconsistency)
# Of the session timeout: silence after which a heartbeat asks for an answer.
_HEARTBEAT_PART: Final = 0.25
_CLOSE_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """``session_timeout_ms`` is asked of the server; ``in_flight_max`` requests are sent and not answered (at most 200, see above);
    ``reconnect_max_seconds`` is the longest pause between attempts to connect.
    """

    session_timeout_ms: int = 10_000
    in_flight_max: int = 128
    reconnect_max_seconds: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.in_flight_max <= 200:
            raise InvalidArgument(f"in_flight_max is {self.in_flight_max}; 1 to 200 are possible")


class _Inline:
    """Stands for kazoo's completion queue: a completion runs where it arises, on the connection's thread, and only posts."""

    def put(self, call: Callable[[], None]) -> None:
        call()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler without its two worker threads."""

    def __init__(self) -> None:
        super().__init__()
        self.completion_queue = _Inline()

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)


class ZooKeeperStore:
    """A ``MetadataStore``. Made by ``connect``; ``await start()`` returns once there is a session."""

    def __init__(
        self,
        hosts: str,
        root: str,
        *,
        clock: Clock,
        tasks: Tasks,
        settings: ZooKeeperSettings | None = None,
        outside: OutsideWork | None = None,
    ) -> None:
        """``hosts`` is ``host:port[,host:port]``, ``root`` the path under which everything lies (``/`` for all), made when missing."""
        self.session_id = 0
        self.state = SessionState.LOST
        self._hosts = hosts
        self._root = root.rstrip("/")
        self._clock = clock
        self._tasks = tasks
        self._settings = settings if settings is not None else ZooKeeperSettings()
        self._queue = LoopQueue(asyncio.get_running_loop())
        self._listeners: list[Callable[[SessionState], None]] = []
        self._data_watches = WatchTable()
        self._child_watches = WatchTable()
        # Answers and events of a client that was given up carry an older generation and are dropped.
        self._generation = 0
        self._link = 0  # counts what kazoo says about its connection
        self._settling: asyncio.Task[None] | None = None
        self._client: KazooClient | None = None
        self._timeout_seconds = self._settings.session_timeout_ms / 1000
        self._pipeline = RequestPipeline(clock, self._queue, self._settings.in_flight_max, _seam_error, outside)
        self._connected_once = asyncio.Event()
        self._closed = False
        self._keeper: asyncio.Task[None] | None = None

    # Life

    async def start(self) -> None:
        """Open the first session; waits for a server as long as the caller does."""
        self._open_client()
        self._keeper = self._tasks.spawn(self._keep_session(), name="metadata-session")
        await self._connected_once.wait()

    def listen(self, changed: Callable[[SessionState], None]) -> None:
        self._listeners.append(changed)

    async def close(self) -> None:
        """End the session. When no server can be told within some seconds, its ephemeral nodes stay until the session times out."""
        if self._closed:
            return
        self._closed = True
        stopped = self._drop_client()
        self._change(SessionState.LOST)
        try:
            async with self._clock.timeout(_CLOSE_SECONDS):
                await stopped.wait()
        except TimeoutError:
            _log.warning("the session could not be closed; it ends by its timeout", session=f"{self.session_id:#x}")

    def _open_client(self) -> None:
        self._generation += 1
        generation = self._generation
        pause = {"max_tries": -1, "delay": 0.1, "backoff": 1.5, "max_delay": self._settings.reconnect_max_seconds}
        logger = logging.getLogger("pulsarish.metadata.kazoo")
        logger.setLevel(logging.ERROR)  # each attempt to connect is a warning to kazoo; the changes of state are logged here
        timeout_seconds = self._settings.session_timeout_ms / 1000
        client = KazooClient(self._hosts, timeout_seconds, handler=_Handler(), connection_retry=pause, logger=logger)
        handshake = client._connection._connect

        def connect(host: str, address: str, port: int) -> tuple[float, float]:
            read_timeout_ms, connect_timeout_ms = handshake(host, address, port)
            self._post(generation, partial(self._negotiated, read_timeout_ms * 1.5 / 1000))
            return read_timeout_ms, connect_timeout_ms

        client._connection._connect = connect
        client.add_listener(
            # On the connection's thread, where the session id is still that of this connection.
            lambda state: self._post(generation, partial(self._heard_state, state, client.client_id))
        )
        self._client = client
        self._pipeline.attach(client)
        client.start_async()

    def _drop_client(self) -> asyncio.Event:
        """Give the client up; the event is set once it has closed its session or failed to."""
        client, self._client = self._client, None
        self._generation += 1
        self._link += 1
        self._pipeline.detach(SessionLost("the store was closed" if self._closed else "the session was lost"))
        stopped = asyncio.Event()
        if client is None:
            stopped.set()
            return stopped

        def stop() -> None:
            try:
                client.stop()
                client.close()
            except (WriterNotClosedException, OSError) as problem:
                self._queue.post(partial(_log.warning, "an old connection did not end", reason=str(problem)))
            self._queue.post(stopped.set)

        # stop() waits for the connection's thread, which may hang in a connection attempt; the loop must not.
        client.handler.spawn(stop)
        return stopped

    def _post(self, generation: int, call: Callable[[], None]) -> None:
        def run() -> None:
            if generation == self._generation:
                call()

        self._queue.post(run)

    # The session

    def _negotiated(self, seconds: float) -> None:
        self._timeout_seconds = seconds

    def _heard_state(self, state: str, identity: tuple[int, bytes] | None) -> None:
        self._link += 1
        if state == KazooState.CONNECTED:
            if identity is not None:
                # Announced only when a request was answered: before that nobody knows when the session's time began.
                self._settling = self._tasks.spawn(self._settle(self._link, identity[0]), name="metadata-settle")
        elif state == KazooState.SUSPENDED:
            self._suspend()
        else:
            self._lose("the server says so")

    async def _settle(self, link: int, session_id: int) -> None:
        try:
            if session_id != self.session_id:
                # The root is made by the first session; making it again does no harm.
                parts = self._root.split("/")[1:]
                for depth in range(1, len(parts) + 1):
                    path = "/" + "/".join(parts[:depth])
                    await self._ask(partial(_create_root, path), answers=(NodeExistsError,))
            await self._ask(_heartbeat)
        except (OutcomeUnknown, SessionLost):
            return  # disconnected again: kazoo will say so, and when it is back
        if link != self._link:
            return  # the connection broke, or the session ended, after the answer
        _log.info("connected", session=f"{session_id:#x}", timeout_seconds=self._timeout_seconds)
        self.session_id = session_id
        self._change(SessionState.CONNECTED)
        self._connected_once.set()

    def _suspend(self) -> None:
        self._pipeline.fail_waiting(OutcomeUnknown("the connection to the metadata store broke"))
        if self.state is SessionState.CONNECTED:
            _log.warning("connection lost", session=f"{self.session_id:#x}")
            self._change(SessionState.SUSPENDED)
        # kazoo forgets its watches when the connection breaks.
        self._data_watches.fire_all()
        self._child_watches.fire_all()

    def _lose(self, reason: str) -> None:
        _log.warning("session lost", session=f"{self.session_id:#x}", reason=reason)
        self._drop_client()
        self.session_id = 0
        self._change(SessionState.LOST)
        self._data_watches.fire_all()
        self._child_watches.fire_all()
        if not self._closed:
            self._open_client()

    def _change(self, state: SessionState) -> None:
        if state is self.state:
            return
        self.state = state
        for changed in list(self._listeners):
            changed(state)

    async def _keep_session(self) -> None:
        """Heartbeats while nothing else is asked, and the end of the session by this node's clock."""
        asking: asyncio.Task[None] | None = None
        while not self._closed:
            silence = self._timeout_seconds * _HEARTBEAT_PART
            now = self._clock.monotonic()
            deadline = self._pipeline.answered_sent_at + self._timeout_seconds
            if self.session_id and now >= deadline:
                self._lose(f"no answer to what was sent in the last {self._timeout_seconds:g} s")
                continue
            if (
                self.state is SessionState.CONNECTED
                and now - self._pipeline.answered_sent_at >= silence
                and (asking is None or asking.done())
            ):
                asking = self._tasks.spawn(self._heartbeat(), name="metadata-heartbeat")
            pause = silence / 2
            await self._clock.sleep(min(pause, max(deadline - now, 0.001)) if self.session_id else pause)

    async def _heartbeat(self) -> None:
        try:
            await self._ask(_heartbeat)
        except (OutcomeUnknown, SessionLost):
            return  # the keeper counts the silence

    # Requests

    async def get_many(self, paths: Sequence[str], *, watch: Watch | None = None) -> list[Versioned | None]:
        self._check_connected()
        futures: list[asyncio.Future[Any]] = []
        for path in paths:
            full = self._full(path)
            if watch is not None:
                # exists also waits for a node to be created; it is armed before the read, so nothing is missed between them.
                fired = _Fired(self._queue, self._data_watches, self._data_watches.add(path, watch))
                futures.append(self._pipeline.submit(partial(_exists, full, fired)))
            futures.append(self._pipeline.submit(partial(_get, full)))
        # All are waited for, so that no failure is left behind unheard when the first one raises.
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        found: list[Versioned | None] = []
        for outcome in outcomes if watch is None else outcomes[1::2]:
            if isinstance(outcome, NoNodeError):
                found.append(None)
            elif isinstance(outcome, KazooException):
                raise _refusal(paths[len(found)], outcome) from outcome
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                data, stat = outcome
                found.append(Versioned(data or b"", stat.version, stat.czxid, stat.ephemeralOwner))
        return found

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        self._check_connected()
        full = self._full(path)
        fired = None if watch is None else _Fired(self._queue, self._child_watches, self._child_watches.add(path, watch))
        try:
            names: list[str] = await self._ask(lambda client: client.get_children_async(full, watch=fired))
        except NoNodeError as error:
            if watch is not None:
                self._child_watches.remove(path, watch)
            raise Conflict(0, ConflictReason.NO_NODE, path) from error
        except KazooException as error:
            raise _refusal(path, error) from error
        return sorted(names)

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        check_ops(ops)
        self._check_connected()
        if not ops:
            return []
        single = len(ops) == 1 and ops[0].kind != "check"
        try:
            if single:
                results = [await self._ask(partial(self._send_one, ops[0]))]
            else:
                results = await self._ask(partial(self._send_multi, ops))
        except KazooException as error:
            raise _conflict(ops, 0, error) from error
        for index, result in enumerate(results):
            if isinstance(result, KazooException) and not isinstance(result, _ROLLED_BACK):
                raise _conflict(ops, index, result)
        return [self._answer(op, result) for op, result in zip(ops, results, strict=True)]

    async def sync(self, path: str) -> None:
        self._check_connected()
        try:
            await self._ask(lambda client: client.sync_async(self._full(path)))
        except KazooException as error:
            raise _refusal(path, error) from error

    def _send_one(self, op: Op, client: KazooClient) -> Any:
        full = self._full(op.path)
        match op.kind:
            case "put":
                return client.set_async(full, op.data, op.version)
            case "delete":
                return client.delete_async(full, op.version)
            case kind:
                return client.create_async(full, op.data, ephemeral=kind == "create_ephemeral", sequence=kind == "create_sequential")

    def _send_multi(self, ops: Sequence[Op], client: KazooClient) -> Any:
        transaction: TransactionRequest = client.transaction()
        for op in ops:
            full = self._full(op.path)
            match op.kind:
                case "put":
                    transaction.set_data(full, op.data, op.version)
                case "delete":
                    transaction.delete(full, op.version)
                case "check":
                    transaction.check(full, op.version)
                case kind:
                    transaction.create(full, op.data, ephemeral=kind == "create_ephemeral", sequence=kind == "create_sequential")
        return transaction.commit_async()

    def _answer(self, op: Op, result: Any) -> str | int:
        match op.kind:
            case "put":
                return int(result.version)
            case "check":
                return op.version
            case "delete":
                return -1
            case _:
                path: str = result
                return path.removeprefix(self._root)

    def _full(self, path: str) -> str:
        return (self._root + path if path != "/" else self._root) or "/"

    def _check_connected(self) -> None:
        if self.state is SessionState.LOST:
            raise SessionLost("there is no session with the metadata store")
        if self.state is SessionState.SUSPENDED:
            raise OutcomeUnknown("the metadata store is disconnected")

    async def _ask(self, send: Send, *, answers: tuple[type[Exception], ...] = ()) -> Any:
        """Send one request. Errors that the server answers stay kazoo's; ``answers`` are taken for success."""
        try:
            return await self._pipeline.submit(send)
        except answers as error:
            return error


class _Fired:
    """What kazoo calls when a watch comes back. Equal for the same entry, so that kazoo's set holds it once however often it is armed."""

    __slots__ = ("_entry", "_queue", "_table")

    def __init__(self, queue: LoopQueue, table: WatchTable, entry: WatchEntry) -> None:
        self._queue = queue
        self._table = table
        self._entry = entry

    def __call__(self, event: object) -> None:
        # On kazoo's thread. Whatever has fired since is no matter: an entry fires once.
        self._queue.post(partial(self._table.fire_entry, self._entry))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Fired) and other._entry is self._entry

    def __hash__(self) -> int:
        return hash(self._entry.path)


def _create_root(path: str, client: KazooClient) -> Any:
    return client.create_async(path)


def _exists(path: str, fired: Callable[[object], None], client: KazooClient) -> Any:
    return client.exists_async(path, watch=fired)


def _get(path: str, client: KazooClient) -> Any:
    return client.get_async(path)


def _heartbeat(client: KazooClient) -> Any:
    return client.exists_async("/")


def _seam_error(error: Exception) -> OutcomeUnknown | SessionLost | None:
    if isinstance(error, SessionExpiredError):
        return SessionLost("the session has expired")
    if isinstance(error, _CONNECTION_ERRORS):
        return OutcomeUnknown("the connection to the metadata store broke before the answer")
    return None


def _conflict(ops: Sequence[Op], index: int, error: KazooException) -> Exception:
    reason = _REASONS.get(type(error))
    path = ops[index].path
    return Conflict(index, reason, path) if reason is not None else _refusal(path, error)


def _refusal(path: str, error: Exception) -> Exception:
    """The seam's error for an answer that is no conflict."""
    what = f"the metadata store refuses {path}: {type(error).__name__}"
    if isinstance(error, BadArgumentsError | NoChildrenForEphemeralsError | InvalidACLError):
        return InvalidArgument(what)
    if isinstance(error, NoAuthError):
        return AuthorizationError(what)
    return OutcomeUnknown(what)
