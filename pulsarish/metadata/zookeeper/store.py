"""``zk://``: the metadata store in ZooKeeper, or in ``pulsarish metadata``, through kazoo.

What kazoo does not do, and this module does:

* kazoo reports a lost session only once it reaches a server again. Here the node's own clock
  decides: one session timeout after the last answered request was sent, as the contract of
  ``MetadataStore`` demands. A new client with a new session follows.
* kazoo's answers and watches come on threads of its own. Here the connection's thread posts them
  into one ordered queue of the loop (``LoopQueue``). That thread never blocks: it would delay the
  heartbeats, too, and the session would be lost.
* kazoo handles one request per turn of its thread; ``kazoo_connection`` makes it handle many.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kazoo.client import KazooState
from kazoo.exceptions import WriterNotClosedException

from pulsarish.metadata.access import NO_ACCESS, MetadataAccess
from pulsarish.metadata.tree.translate import check_ops
from pulsarish.metadata.tree.watches import Watch, WatchEntry, WatchTable
from pulsarish.metadata.zookeeper.access_errors import what_to_change, why_denied
from pulsarish.metadata.zookeeper.connect_failure import ConnectFailure
from pulsarish.metadata.zookeeper.kazoo_bridge import LoopQueue
from pulsarish.metadata.zookeeper.kazoo_connection import Client
from pulsarish.metadata.zookeeper.kazoo_requests import (
    EVERYONE,
    TREE_FULL,
    Refused,
    access_list_request,
    barrier_request,
    children_request,
    commit_answer,
    commit_refusal,
    commit_request,
    exists_request,
    get_request,
    only_for,
    reason_of,
    refusal,
    unanswered,
)
from pulsarish.metadata.zookeeper.pipeline import RequestPipeline
from pulsarish.model.errors import ConfigError, InvalidArgument, MetadataUnavailable
from pulsarish.runtime.containment import Critical
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
from pulsarish.security.metadata_login import identity_of, read_logins
from pulsarish.security.tls import TlsClientConfig

__all__ = ["ZooKeeperSettings", "ZooKeeperStore"]

_log = get_logger("metadata.zookeeper")
# Share of the session timeout: after this much silence a heartbeat asks for an answer.
_HEARTBEAT_PART: Final = 0.25
_CLOSE_SECONDS: Final = 3.0
_DENIED_SECONDS: Final = 1.0
"""The pause before a server that denied everything is asked again."""


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """The settings of a store.

    Args:
        session_timeout_ms: requested from the server.
        in_flight_max: requests that are sent and not answered.
        reconnect_max_seconds: the longest pause between attempts to connect.
    """

    session_timeout_ms: int = 10_000
    in_flight_max: int = 500
    reconnect_max_seconds: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.in_flight_max <= 1000:
            raise InvalidArgument(f"in_flight_max is {self.in_flight_max}; 1 to 1000 are possible")


class ZooKeeperStore:
    """A ``MetadataStore``.

    ``connect`` makes it; ``await start()`` returns once there is a session.
    """

    def __init__(
        self,
        hosts: str,
        root: str,
        *,
        clock: Clock,
        tasks: Tasks,
        settings: ZooKeeperSettings | None = None,
        outside: OutsideWork | None = None,
        access: MetadataAccess = NO_ACCESS,
        has_tls: bool = False,
    ) -> None:
        """Make a store.

        Raises ``ConfigError`` for files of logins and certificates that cannot be used.

        Args:
            hosts: ``host:port[,host:port]``.
            root: the path under which everything lies (``/`` for all), made when it is missing.
            access: the login, and the certificates if the servers have TLS.
        """
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
        # Answers and events of a client that was given up carry an older generation and are
        # dropped.
        self._generation = 0
        self._link = 0  # counts what kazoo reports about its connection
        self._settling: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._last_zxid = 0  # set when the client that was given up has closed
        self._timeout_seconds = self._settings.session_timeout_ms / 1000
        self._pipeline = RequestPipeline(
            clock, self._queue, self._settings.in_flight_max, unanswered, outside
        )
        self.problem = ""
        """Why the last attempt to connect failed; empty once there was a session."""
        self._access = access
        self._logins = read_logins(access.auth_option, access.auth_file) if access.auth_file else ()
        self._own_list: Sequence[Any] = only_for([identity_of(login) for login in self._logins])
        self._access_list = (
            self._own_list if self._logins and not access.makes_open_nodes else EVERYONE
        )
        self._tls = _contexts(access.tls) if has_tls else None
        self._lasting_problems = 0
        self._connected_once: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closed = False
        self._session_task: asyncio.Task[None] | None = None

    @property
    def zxid(self) -> int:
        return self._last_zxid if self._client is None else self._client.seen_zxid

    @property
    def answered_at(self) -> float:
        return self._pipeline.answered_sent_at

    async def start(self) -> None:
        """Open the first session. Wait for a server as long as the caller does.

        Raises ``ConfigError`` when the servers refuse the login or the certificates, or this node
        theirs.
        """
        self._open_client()
        self._session_task = self._tasks.spawn(
            self._keep_session(), name="metadata-session", critical=Critical.METADATA_SESSION
        )
        await self._connected_once

    def listen(self, changed: Callable[[SessionState], None]) -> None:
        self._listeners.append(changed)

    async def close(self) -> None:
        """End the session.

        When no server answers within some seconds, its ephemeral nodes stay until the session times
        out.
        """
        if self._closed:
            return
        self._closed = True
        stopped = self._drop_client()
        self._change(SessionState.LOST)
        try:
            async with self._clock.timeout(_CLOSE_SECONDS):
                await stopped.wait()
        except TimeoutError:
            _log.warning(
                "session not closed; it ends by its timeout", session=f"{self.session_id:#x}"
            )

    def _open_client(self) -> None:
        self._generation += 1
        generation = self._generation
        logger = logging.getLogger("pulsarish.metadata.kazoo")
        # kazoo warns at each attempt to connect; the changes of state are logged here
        logger.setLevel(logging.ERROR)
        client = Client(
            self._hosts,
            self._settings.session_timeout_ms / 1000,
            reconnect_max_seconds=self._settings.reconnect_max_seconds,
            logger=logger,
            came=self._queue.wake,
            connected=lambda seconds: self._post(generation, partial(self._negotiated, seconds)),
            failed=lambda failure: self._post(generation, partial(self._attempt_failed, failure)),
            logins=self._logins,
            tls=self._tls,
        )
        client.add_listener(
            # This runs on the connection's thread, where the session id is still that of this
            # connection.
            lambda state: self._post(
                generation,
                partial(self._state_reported, client, state, client.client_id, client.connections),
            )
        )
        self._client = client
        self._pipeline.attach(client)
        client.start_async()

    def _drop_client(self) -> asyncio.Event:
        """Give the client up.

        Return an event that is set once it has closed its session or failed to.
        """
        client, self._last_zxid, self._client = self._client, self.zxid, None
        self._generation += 1
        self._link += 1
        self._pipeline.detach(
            SessionLost("the store was closed" if self._closed else "the session was lost")
        )
        stopped = asyncio.Event()
        if client is None:
            stopped.set()
            return stopped

        def stop() -> None:
            try:
                client.stop()
                client.close()
            except (WriterNotClosedException, OSError) as problem:
                self._queue.post(
                    partial(_log.warning, "old connection did not end", reason=str(problem))
                )
            self._queue.post(stopped.set)

        # stop() waits for the connection's thread, which may hang in a connection attempt; the loop
        # must not.
        client.handler.spawn(stop)
        return stopped

    def _post(self, generation: int, call: Callable[[], None]) -> None:
        def run() -> None:
            if generation == self._generation:
                try:
                    call()
                except Exception as error:  # noqa: BLE001
                    # A node must not continue without notice of its session's end.
                    self._end_node(error)

        self._queue.post(run)

    def _end_node(self, error: Exception) -> None:
        async def fail() -> None:
            raise error

        _ = self._tasks.spawn(fail(), name="metadata-session", critical=Critical.METADATA_SESSION)

    def _negotiated(self, seconds: float) -> None:
        self._timeout_seconds = seconds

    def _attempt_failed(self, failure: ConnectFailure) -> None:
        """Note why an attempt to connect failed.

        At the start, as many refusals as there are servers end it: what is configured wrongly must
        not be tried without a word.
        """
        reason, refusal = failure.reason, failure.refusal
        if refusal is None:
            if reason != self.problem:
                _log.warning("metadata server not reached", reason=reason)
            self.problem = reason
            return
        self.problem = reason
        if self._connected_once.done():
            _log.error("the metadata server and this node refuse each other", reason=reason)
            return
        self._lasting_problems += 1
        if self._lasting_problems > self._hosts.count(","):
            remedy = what_to_change(refusal, self._access)
            self._fail_start(f"no connection to {self._hosts}: {reason}; {remedy}")

    def _fail_start(self, reason: str) -> None:
        if not self._connected_once.done():
            self._connected_once.set_exception(ConfigError(reason))

    def _state_reported(
        self, client: Client, state: str, identity: tuple[int, bytes] | None, connection: int
    ) -> None:
        self._link += 1
        if state == KazooState.CONNECTED:
            client.follow(connection)
            if identity is not None:
                # Announced only when a request was answered: before that it is not known when the
                # session's time began.
                self._settling = self._tasks.spawn(
                    self._settle(self._link, identity[0]),
                    name="metadata-settle",
                    critical=Critical.METADATA_SESSION,
                )
        elif state == KazooState.SUSPENDED:
            self._suspend()
        else:
            self._lose("the server says so")

    async def _settle(self, link: int, session_id: int) -> None:
        while True:
            try:
                if session_id != self.session_id:
                    await self._enter_root()
                # The server does not know what the former connection has seen; after this, nothing
                # older is read over this one.
                await self._pass_barrier()
            except (OutcomeUnknown, SessionLost):
                return  # disconnected again: kazoo will report it, and when the connection is back
            except (Refused, MetadataUnavailable) as error:
                is_full = isinstance(error, MetadataUnavailable)
                why = str(error) if is_full else why_denied(self._access, self._root or "/", error)
                if not why:
                    raise
                self._fail_start(why)
                _log.error("the metadata cannot be used", reason=why)
                await self._clock.sleep(_DENIED_SECONDS)
                if link != self._link or self._closed:
                    return
            else:
                break
        if link != self._link:
            return  # the connection broke, or the session ended, after the answer
        self.problem = ""
        _log.info("connected", session=f"{session_id:#x}", timeout_seconds=self._timeout_seconds)
        self.session_id = session_id
        self._change(SessionState.CONNECTED)
        if not self._connected_once.done():
            self._connected_once.set_result(None)

    async def _enter_root(self) -> None:
        """Make the root, and check that this node may use it. To make it again does no harm."""
        parts = self._root.split("/")[1:]
        for depth in range(1, len(parts) + 1):
            await self._make_root("/" + "/".join(parts[:depth]))
        await self._pipeline.submit(get_request(self._root or "/"))

    async def _make_root(self, path: str) -> None:
        try:
            await self._pipeline.submit(
                commit_request([Op("create", path)], str, self._access_list)
            )
        except Refused as error:
            if why_denied(self._access, path, error):
                raise
            if reason_of(error) is not ConflictReason.EXISTS:
                raise refusal(path, error, TREE_FULL) from error

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
        """Send heartbeats while there are no other requests, and end the session by this node's
        clock.
        """
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
                asking = self._tasks.spawn(
                    self._heartbeat(), name="metadata-heartbeat", critical=Critical.METADATA_SESSION
                )
            pause = silence / 2
            await self._clock.sleep(
                min(pause, max(deadline - now, 0.001)) if self.session_id else pause
            )

    async def _heartbeat(self) -> None:
        try:
            await self._pipeline.submit(exists_request("/"))
        except (OutcomeUnknown, SessionLost):
            return  # the keeper counts the silence

    async def get_many(
        self, paths: Sequence[str], *, watch: Watch | None = None
    ) -> list[Versioned | None]:
        self._check_connected()
        futures: list[asyncio.Future[Any]] = []
        arming: list[asyncio.Future[Any]] = []
        for path in paths:
            full = self._full(path)
            if watch is not None:
                # exists also waits for a node to be created; it is armed before the read, so
                # nothing is missed between them.
                fired = _Fired(self._queue, self._data_watches, self._data_watches.add(path, watch))
                arming.append(self._pipeline.submit(exists_request(full, fired)))
            futures.append(self._pipeline.submit(get_request(full)))
        # Wait for all, so that no failure stays unretrieved when the first one raises.
        outcomes = await asyncio.gather(*arming, *futures, return_exceptions=True)
        for path, outcome in zip(paths, outcomes[: len(arming)], strict=False):
            if isinstance(outcome, Refused) and reason_of(outcome) is not ConflictReason.NO_NODE:
                # Without the watch the caller would wait for a change that it never hears of.
                raise refusal(path, outcome) from outcome
        found: list[Versioned | None] = []
        for outcome in outcomes[len(arming) :]:
            if not isinstance(outcome, BaseException):
                data, stat = outcome
                found.append(Versioned(data or b"", stat.version, stat.czxid, stat.ephemeralOwner))
            elif not isinstance(outcome, Refused):
                raise outcome
            elif reason_of(outcome) is ConflictReason.NO_NODE:
                found.append(None)
            else:
                raise refusal(paths[len(found)], outcome) from outcome
        return found

    async def children(self, path: str, *, watch: Watch | None = None) -> list[str]:
        self._check_connected()
        full = self._full(path)
        fired = (
            None
            if watch is None
            else _Fired(self._queue, self._child_watches, self._child_watches.add(path, watch))
        )
        try:
            names: list[str] = await self._pipeline.submit(children_request(full, fired))
        except Refused as error:
            if reason_of(error) is not ConflictReason.NO_NODE:
                raise refusal(path, error) from error
            if watch is not None:
                self._child_watches.remove(path, watch)
            raise Conflict(0, ConflictReason.NO_NODE, path) from error
        return sorted(names)

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        check_ops(ops)
        self._check_connected()
        if not ops:
            return []
        try:
            request = commit_request(ops, self._full, self._access_list)
            answer = await self._pipeline.submit(request)
        except Refused as error:
            raise commit_refusal(ops, 0, error) from error
        return commit_answer(ops, answer, self._below)

    async def set_access(self, paths: Sequence[str], *, everyone: bool) -> int:
        """Give nodes to the logins of this store, and to no other, or to everyone.

        Return how many there are. The others were deleted in the meantime.
        """
        self._check_connected()
        access_list = EVERYONE if everyone else self._own_list
        requests = [
            self._pipeline.submit(access_list_request(self._full(path), access_list))
            for path in paths
        ]
        count = 0
        for path, outcome in zip(
            paths, await asyncio.gather(*requests, return_exceptions=True), strict=True
        ):
            if not isinstance(outcome, BaseException):
                count += 1
            elif not isinstance(outcome, Refused):
                raise outcome
            elif reason_of(outcome) is not ConflictReason.NO_NODE:
                raise refusal(path, outcome) from outcome
        return count

    async def sync(self, path: str) -> None:
        self._check_connected()
        try:
            await self._pass_barrier()
        except Refused as error:
            raise refusal(path, error) from error

    async def _pass_barrier(self) -> None:
        (answer,) = await self._pipeline.submit(barrier_request(self._root or "/"))
        if isinstance(answer, Refused):
            raise answer

    def _full(self, path: str) -> str:
        return (self._root + path if path != "/" else self._root) or "/"

    def _below(self, full: str) -> str:
        return full.removeprefix(self._root)

    def _check_connected(self) -> None:
        if self.state is SessionState.LOST:
            raise SessionLost("there is no session with the metadata store")
        if self.state is SessionState.SUSPENDED:
            raise OutcomeUnknown("the metadata store is disconnected")


def _contexts(tls: TlsClientConfig | None) -> Callable[[], ssl.SSLContext]:
    """Return what makes the context of each connection. Raises ``ConfigError``."""
    # Imported here: only a process with TLS needs it.
    from pulsarish.runtime.network.tls_contexts import ClientTls

    return ClientTls(TlsClientConfig() if tls is None else tls).context


class _Fired:
    """The callback that kazoo calls when a watch fires.

    It is equal for the same entry, so kazoo's set holds it once however often it is armed.
    """

    __slots__ = ("_entry", "_queue", "_table")

    def __init__(self, queue: LoopQueue, table: WatchTable, entry: WatchEntry) -> None:
        self._queue = queue
        self._table = table
        self._entry = entry

    def __call__(self, event: object) -> None:
        # This runs on kazoo's thread. Watches that fired in the meantime do not matter: an entry
        # fires once.
        self._queue.post(partial(self._table.fire_entry, self._entry))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Fired) and other._entry is self._entry

    def __hash__(self) -> int:
        return hash(self._entry.path)
