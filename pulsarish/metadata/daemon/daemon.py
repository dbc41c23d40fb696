"""``pulsarish metadata``: one node that speaks ZooKeeper's wire protocol over the tree, with every
commit on disk before its answer.

Sessions are durable. After a restart or a crash, clients come back with their session id and
password and continue; their timeouts begin again. The daemon is for laptops, demos and CI.
Production needs a real ensemble; the same clients speak to both.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Literal

import msgspec

from pulsarish.metadata.daemon.config import MetadataConfig
from pulsarish.metadata.daemon.connection import Connection
from pulsarish.metadata.daemon.jobs import EndIdleJob, ExpireJob, LeaveJob
from pulsarish.metadata.daemon.limits import Deadlines, PeerLimits
from pulsarish.metadata.daemon.sessions import SessionLimits, SessionTable
from pulsarish.metadata.damage import check_cut_is_finished, open_tree
from pulsarish.metadata.tree.engine import Engine, Job, JobQueue
from pulsarish.metadata.tree.tree import Tree, TreeLimits
from pulsarish.runtime.containment import Critical
from pulsarish.runtime.descriptors import connections_limit
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.metrics import Metrics
from pulsarish.runtime.network.open_ports import is_loopback
from pulsarish.runtime.network.tls_options import tls_of_server
from pulsarish.runtime.network.watch_ports import WatchPorts
from pulsarish.runtime.peer_limits import ConnectionSlots, HeldBytes
from pulsarish.runtime.seams import (
    Clock,
    Connections,
    Files,
    HttpRequest,
    HttpResponse,
    KeyValueIndex,
    Listener,
    Tasks,
)
from pulsarish.runtime.watch_face import answer_watcher
from pulsarish.security.credentials import Certificate
from pulsarish.security.failed_attempts import SALT_BYTES, FailedAttempts
from pulsarish.security.membership import Membership
from pulsarish.security.metadata_login import MetadataLogins

__all__ = ["MetadataDaemon"]

# Clients read the first three numbers to know which operations they may send.
_VERSION: Final = "3.9.0-pulsarish"
_OPEN_WORD: Final = b"ruok"
"""Tells no more than a connection does, so where there are logins it answers every address."""
_log = get_logger("metadata")
_MEANINGS: Final = {
    "zk_packets_received": "Requests received.",
    "zk_packets_sent": "Answers and watch events sent.",
    "zk_num_alive_connections": "Connections of clients.",
    "zk_outstanding_requests": "Requests that wait for their commit.",
    "zk_znode_count": "Nodes of the tree.",
    "zk_watch_count": "Watches that clients have set.",
    "zk_ephemerals_count": "Ephemeral nodes.",
    "zk_approximate_data_size": "Approximate memory of all nodes, in bytes.",
    "zk_global_sessions": "Sessions.",
    "zk_commit_batches": "Groups of commits synced.",
}


def _session_limits(config: MetadataConfig) -> SessionLimits:
    return SessionLimits(
        timeout_min_ms=config.session_timeout_min_ms,
        timeout_max_ms=config.session_timeout_max_ms,
        sessions_max=config.sessions_max,
        per_address_max=config.sessions_per_address_max,
        watch_bytes_max=config.watch_bytes_max,
    )


def _logins(config: MetadataConfig, clock: Clock, rng: random.Random) -> MetadataLogins | None:
    """Return the logins of ``auth_file``. Raises ``ConfigError``."""
    if not config.auth_file:
        return None
    return MetadataLogins(
        "auth_file",
        config.auth_file,
        clock.wall_ms,
        lambda problem: _log.error("changed logins are not used", reason=problem),
        FailedAttempts(
            clock.monotonic,
            rng.randbytes(SALT_BYTES),
            failures_max=config.authentication_failures_max,
            window_seconds=config.authentication_failures_window_seconds,
        ),
    )


def _peer_limits(config: MetadataConfig, clock: Clock) -> PeerLimits:
    return PeerLimits(
        slots=ConnectionSlots(
            connections_limit(config.connections_max), config.connections_per_address_max
        ),
        requests=HeldBytes(config.held_request_bytes_max, "requests"),
        answers=HeldBytes(config.held_answer_bytes_max, "answers that are not received"),
        deadlines=Deadlines(clock, config.peer_timeout_ms / 1000),
    )


class MetadataDaemon:
    """The server.

    ``start`` opens the store and listens. ``stop`` answers what waits and keeps the sessions for
    the next start.
    """

    def __init__(
        self,
        config: MetadataConfig,
        *,
        clock: Clock,
        rng: random.Random,
        tasks: Tasks,
        files: Files,
        connections: Connections,
        open_index: Callable[[str], Awaitable[KeyValueIndex]],
        metrics: Metrics | None = None,
    ) -> None:
        self.request_bytes_max = config.request_bytes_max
        self.outstanding_requests_max = config.outstanding_requests_max
        self.requires_login = bool(config.auth_file) and not config.auth_optional
        self.table = SessionTable(
            clock, rng, _session_limits(config), self._end_idle_session, _logins(config, clock, rng)
        )
        self._membership = (
            Membership(config.tls_cluster_name, config.tls_allowed_roles, clock.wall_ms)
            if config.tls_require_trusted_client_cert_on_connect
            else None
        )
        self.limits = _peer_limits(config, clock)
        self.http = WatchPorts(connections, config, clock.wall_ms)
        self._words: dict[bytes, Callable[[], str]] = {
            _OPEN_WORD: lambda: "imok",
            b"srvr": self._srvr,
            b"mntr": self._mntr,
            b"envi": lambda: f"Environment:\nzookeeper.version={_VERSION}\n",
        }
        self._config = config
        self._clock = clock
        self.tasks = tasks
        self._files = files
        self._network = connections
        self._open_index = open_index
        self._metrics = metrics or Metrics()
        self._engine: Engine | None = None
        self._index: KeyValueIndex | None = None
        self._listeners: list[Listener] = []
        self._connections: dict[int, Connection] = {}
        self._numbers = 0
        self._with_answers: dict[int, Connection] = {}
        self._flush_handle: asyncio.Handle | None = None
        self._received = 0
        self._sent = 0
        self._stopping = False
        self._expiry: asyncio.Task[None] | None = None

    async def start(self, address: str | None = None) -> Listener:
        """Open the data directory and listen on ``address`` (the configured one unless given).

        Return the first listener, the one without TLS unless there is none.

        Raises ``ConfigError`` for certificates that cannot be used, ``Locked`` when another process
        has the directory, ``CorruptData``, ``OSError`` for a port in use.
        """
        await self._files.lock(self._config.data_directory)
        await check_cut_is_finished(self._files, self._config.data_directory)
        self._index, tree = await open_tree(self._open_index, self._config.data_directory)
        # No client could reach the daemon while it was down, so no session is late yet.
        tree.restart_timeouts(self.table.now_ms())
        tree.limits = TreeLimits(
            self._config.tree_bytes_max or None, self._config.ephemeral_nodes_per_session_max
        )
        self.table.take_over(tree)
        self._engine = Engine(
            tree, self._index, self._clock, self.tasks, self.table.deliver, self._flush
        )
        self._expiry = self.tasks.spawn(
            self._expire_sessions(self._engine),
            name="metadata-sessions",
            critical=Critical.METADATA_EXPIRY,
        )
        self._register_metrics(self._metrics, self._engine)
        plain, secured = address or self._config.listen_address, self._config.listen_address_tls
        for where, tls in ((plain, None), (secured, tls_of_server(self._config))):
            if where:
                self._listeners.append(
                    await self._network.serve_bytes(where, self._new_connection, tls=tls)
                )
        await self.http.open(self._http)
        _log.info(
            "ready",
            address=" ".join(self.addresses),
            nodes=len(tree.nodes),
            sessions=len(tree.sessions),
            zxid=tree.zxid,
        )
        _log.warning(
            "this is the only metadata server, on one disk: for production run an ensemble of "
            "ZooKeeper instead"
        )
        return self._listeners[0]

    @property
    def addresses(self) -> list[str]:
        """The addresses for clients, the one without TLS first."""
        return [listener.address for listener in self._listeners]

    async def stop(self) -> None:
        """Accept no more requests, finish and answer those that wait, and close. Sessions stay."""
        self._stopping = True
        for listener in self._listeners:
            await listener.stop(0)
        await self.http.stop(0)
        if self._engine is not None:
            await self._engine.stop()
        for connection in list(self._connections.values()):
            connection.end()
        self._flush()
        if self._index is not None:
            await self._index.close()

    # What connections need (see ``connection.Server``).

    def _new_connection(self) -> Connection:
        self._numbers += 1
        return Connection(self, self._numbers)

    def refusal(self, certificate: Certificate | None) -> str:
        return "" if self._membership is None else self._membership.refusal(certificate)

    def answer_word(self, word: bytes, address: str) -> str | None:
        speak = self._words.get(word)
        if speak is None:
            return None
        if self.requires_login and word != _OPEN_WORD and not is_loopback(address):
            # ZooKeeper's own words.
            return f"{word.decode()} is not executed because it is not in the whitelist.\n"
        return speak()

    def admit(self, connection: Connection) -> str:
        refused = (
            "the daemon is stopping"
            if self._stopping
            else self.limits.slots.take(connection, connection.address)
        )
        if not refused:
            self._connections[connection.number] = connection
        return refused

    def left(self, connection: Connection) -> None:
        self._connections.pop(connection.number, None)
        if connection.session_id and not self._stopping and self._engine is not None:
            self._engine.submit(LeaveJob(self.table, connection), connection.queue)
            self._engine.resume(connection.queue)

    def heard(self, session_id: int) -> None:
        assert self._engine is not None
        self._engine.tree.touch(session_id, self.table.now_ms())

    def submit(self, job: Job, queue: JobQueue | None = None) -> bool:
        if self._stopping or self._engine is None:
            return False
        self._received += 1
        self._engine.submit(job, queue)
        return True

    def resume(self, queue: JobQueue) -> None:
        if self._engine is not None:
            self._engine.resume(queue)

    def drop(self, queue: JobQueue) -> None:
        if self._engine is not None:
            self._engine.drop(queue)

    def has_answers(self, connection: Connection) -> None:
        self._with_answers[connection.number] = connection

    def flush_soon(self, connection: Connection) -> None:
        self._with_answers[connection.number] = connection
        if self._flush_handle is None:
            self._flush_handle = asyncio.get_running_loop().call_soon(self._flush_left)

    def _flush_left(self) -> None:
        self._flush_handle = None
        self._flush()

    def _flush(self) -> None:
        connections, self._with_answers = self._with_answers, {}
        for connection in connections.values():
            try:
                self._sent += connection.flush()
            except Exception as error:  # noqa: BLE001
                # A failure of one connection: the others must get their answers.
                connection.contain("flush", error)

    async def _expire_sessions(self, engine: Engine) -> None:
        tick_seconds = self._config.tick_ms / 1000
        while not self._stopping:
            await self._wait_while_quiet(engine.tree, tick_seconds)
            # Whatever comes due, this loop has run for a whole tick before: pings that came while
            # this process was held up were read.
            before = self._clock.monotonic()
            await self._clock.sleep(tick_seconds)
            late_seconds = self._clock.monotonic() - before
            if late_seconds > 2 * tick_seconds + 0.1:
                # This process was held up (paused, or a busy core), so pings may lie unread in the
                # sockets. To expire a session late is safe, because its holder counts its own
                # deadline. To expire it early would end the session of a healthy client.
                _log.warning(
                    "event loop was late; session timeouts restart",
                    late_seconds=round(late_seconds, 3),
                )
                engine.tree.restart_timeouts(self.table.now_ms())
                self.limits.deadlines.restart_all()
                continue
            for connection in self.limits.deadlines.take_late():
                try:
                    connection.abort_late()
                except Exception as error:  # noqa: BLE001
                    # A failure of one connection: sessions must still end.
                    connection.contain("time-out", error)
            for session_id in engine.tree.expired(self.table.now_ms()):
                _log.info("session expired", session=f"{session_id:#x}")
                self.submit(ExpireJob(self.table, session_id))

    async def _wait_while_quiet(self, tree: Tree, tick_seconds: float) -> None:
        """Wait until a tick before the first time that can pass, or until a client attaches.

        Times of sessions only become longer meanwhile, and connections that begin to wait have the
        whole time of a peer.
        """
        self.table.attached.clear()
        first = min(
            (session.deadline_ms / 1000 for session in tree.sessions.values()), default=math.inf
        )
        wait_seconds = min(first, self.limits.deadlines.first) - self._clock.monotonic()
        wait_seconds = min(wait_seconds, self.limits.deadlines.seconds) - tick_seconds
        if wait_seconds > tick_seconds:
            with suppress(TimeoutError):
                async with self._clock.timeout(wait_seconds):
                    await self.table.attached.wait()

    def _end_idle_session(self, session_id: int) -> None:
        self.submit(EndIdleJob(self.table, session_id))

    # What people and dashboards ask.

    def _numbers_now(self) -> dict[str, int]:
        assert self._engine is not None
        tree = self._engine.tree
        return {
            "zk_packets_received": self._received,
            "zk_packets_sent": self._sent,
            "zk_num_alive_connections": len(self._connections),
            "zk_outstanding_requests": self._engine.waiting,
            "zk_znode_count": len(tree.nodes),
            "zk_watch_count": tree.watch_count,
            "zk_ephemerals_count": tree.ephemeral_count,
            "zk_approximate_data_size": tree.size_bytes,
            "zk_global_sessions": len(tree.sessions),
            "zk_commit_batches": self._engine.batches,
        }

    def _number_now(self, name: str) -> int:
        return self._numbers_now()[name]

    def _srvr(self) -> str:
        assert self._engine is not None
        now = self._numbers_now()
        return (
            f"Zookeeper version: {_VERSION}\nLatency min/avg/max: 0/0/0\nReceived: "
            f"{now['zk_packets_received']}\n"
            f"Sent: {now['zk_packets_sent']}\nConnections: {now['zk_num_alive_connections']}\n"
            f"Outstanding: {now['zk_outstanding_requests']}\nZxid: "
            f"{self._engine.tree.zxid:#x}\nMode: standalone\n"
            f"Node count: {now['zk_znode_count']}\n"
        )

    def _mntr(self) -> str:
        lines = {"zk_version": _VERSION, "zk_server_state": "standalone", **self._numbers_now()}
        return "".join(f"{name}\t{value}\n" for name, value in lines.items())

    def _register_metrics(self, metrics: Metrics, engine: Engine) -> None:
        for name, meaning in _MEANINGS.items():
            kind: Literal["counter", "gauge"] = (
                "counter" if name.startswith(("zk_packets", "zk_commit")) else "gauge"
            )
            metrics.read(name, kind, meaning, partial(self._number_now, name))
        self.limits.register_metrics(metrics)

    async def _http(self, request: HttpRequest) -> HttpResponse:
        return await answer_watcher(request, self._health, self._metrics)

    def _health(self) -> HttpResponse:
        return HttpResponse(
            503 if self._stopping else 200, msgspec.json.encode({"ready": not self._stopping})
        )
