"""``pulsarish metadata``: one node that speaks ZooKeeper's wire protocol over the tree, every commit on disk before its answer.

Sessions are durable: after a restart, or a crash, clients come back with their session id and password and go on; their timeouts begin
anew. It is meant for laptops, demos and CI; in production one wants a real ensemble, and the same clients speak to both.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from pulsarish.metadata.daemon.connection import Connection
from pulsarish.metadata.daemon.jobs import ExpireJob, SessionTable
from pulsarish.metadata.daemon.zkwire import FRAME_MAX_BYTES
from pulsarish.metadata.damage import check_cut_is_finished, open_tree
from pulsarish.metadata.tree.engine import Engine, Job
from pulsarish.model.errors import ConfigError
from pulsarish.runtime.containment import Critical
from pulsarish.runtime.log import REPEATS_MAX, LogForm, get_logger
from pulsarish.runtime.metrics import Metrics
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

__all__ = ["MetadataConfig", "MetadataDaemon"]

# Clients look at the first three numbers to know which operations they may send.
_VERSION: Final = "3.9.0-pulsarish"
_log = get_logger("metadata")
_MEANINGS: Final = {
    "zk_packets_received": "Requests received.",
    "zk_packets_sent": "Answers and watch events sent.",
    "zk_num_alive_connections": "Connections of clients.",
    "zk_outstanding_requests": "Requests that wait for their commit.",
    "zk_znode_count": "Nodes of the tree.",
    "zk_watch_count": "Watches that clients have set.",
    "zk_ephemerals_count": "Ephemeral nodes.",
    "zk_global_sessions": "Sessions.",
    "zk_commit_batches": "Groups of commits synced.",
}


class MetadataConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of ``pulsarish metadata``."""

    listen_address: Annotated[str, Meta(description="host:port for clients; port 0 picks a free one")] = "127.0.0.1:2181"
    http_address: Annotated[str, Meta(description="host:port for /health and /metrics; empty: none")] = "127.0.0.1:8100"
    data_directory: Annotated[str, Meta(min_length=1, description="where the tree is kept")] = "data/metadata"
    tick_ms: Annotated[int, Meta(ge=10, le=60_000, description="how often expired sessions are looked for")] = 500
    session_timeout_min_ms: Annotated[int, Meta(ge=100, description="the shortest session timeout a client gets")] = 1_000
    session_timeout_max_ms: Annotated[int, Meta(ge=1_000, description="the longest session timeout a client gets")] = 60_000
    connections_max: Annotated[int, Meta(ge=1, description="connections beyond this are closed at once")] = 2_000
    request_bytes_max: Annotated[
        int, Meta(ge=1_024, le=64 << 20, description="a greater request ends its connection (ZooKeeper's jute.maxbuffer)")
    ] = FRAME_MAX_BYTES
    outstanding_requests_max: Annotated[
        int, Meta(ge=1, description="unanswered requests of one connection at which its socket is not read any more")
    ] = 1_000
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="the least severe event that is logged")] = "info"
    log_form: Annotated[LogForm, Meta(description="text for people, json or logfmt for machines")] = "text"
    log_repeats_max: Annotated[
        int, Meta(ge=0, description="how often one event is written in ten seconds; what is held back is counted; 0: always")
    ] = REPEATS_MAX

    def validate(self) -> None:
        """Raises ``ConfigError``."""
        if self.session_timeout_min_ms > self.session_timeout_max_ms:
            raise ConfigError(
                f"session_timeout_min_ms ({self.session_timeout_min_ms}) is above session_timeout_max_ms ({self.session_timeout_max_ms})"
            )


class MetadataDaemon:
    """The server. ``start`` opens the store and listens; ``stop`` answers what waits and leaves the sessions for the next start."""

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
        self.table = SessionTable(clock, rng, config.session_timeout_min_ms, config.session_timeout_max_ms)
        self.http_listener: Listener | None = None
        self.words: dict[bytes, Callable[[], str]] = {
            b"ruok": lambda: "imok",
            b"srvr": self._srvr,
            b"mntr": self._mntr,
            b"envi": lambda: f"Environment:\nzookeeper.version={_VERSION}\n",
        }
        self._config = config
        self._clock = clock
        self._tasks = tasks
        self._files = files
        self._network = connections
        self._open_index = open_index
        self._metrics = metrics or Metrics()
        self._engine: Engine | None = None
        self._index: KeyValueIndex | None = None
        self._listener: Listener | None = None
        self._connections: dict[int, Connection] = {}
        self._numbers = 0
        self._with_frames: dict[int, Connection] = {}
        self._received = 0
        self._sent = 0
        self._stopping = False
        self._expiry: asyncio.Task[None] | None = None

    async def start(self, address: str | None = None) -> Listener:
        """Open the data directory and listen on ``address`` (the configured one unless given).

        Raises ``Locked`` when another process has the directory, ``CorruptData``, ``OSError`` for a port in use.
        """
        await self._files.lock(self._config.data_directory)
        await check_cut_is_finished(self._files, self._config.data_directory)
        self._index, tree = await open_tree(self._open_index, self._config.data_directory)
        # Nobody could be heard while there was no daemon, so nobody is late yet.
        tree.restart_timeouts(self.table.now_ms())
        self._engine = Engine(tree, self._index, self._tasks, self.table.deliver, self._flush)
        self._expiry = self._tasks.spawn(self._expire_sessions(self._engine), name="metadata-sessions", critical=Critical.METADATA_EXPIRY)
        self._register_metrics(self._metrics, self._engine)
        self._listener = await self._network.serve_bytes(address or self._config.listen_address, self._new_connection)
        if self._config.http_address:
            self.http_listener = await self._network.serve_http(self._config.http_address, self._http)
        _log.info("ready", address=self._listener.address, nodes=len(tree.nodes), sessions=len(tree.sessions), zxid=tree.zxid)
        return self._listener

    async def stop(self) -> None:
        """Take no more requests, finish and answer those that wait, close. Sessions stay."""
        self._stopping = True
        if self._listener is not None:
            await self._listener.stop(0)
        if self.http_listener is not None:
            await self.http_listener.stop(0)
        if self._engine is not None:
            await self._engine.stop()
        for connection in list(self._connections.values()):
            connection.end()
        self._flush()
        if self._index is not None:
            await self._index.close()

    # What connections need (see ``daemon_connection.Server``)

    def _new_connection(self) -> Connection:
        self._numbers += 1
        return Connection(self, self._numbers)

    def admit(self, connection: Connection) -> bool:
        if self._stopping or len(self._connections) >= self._config.connections_max:
            _log.warning("connection not admitted", connections=len(self._connections), connections_max=self._config.connections_max)
            return False
        self._connections[connection.number] = connection
        return True

    def left(self, connection: Connection) -> None:
        self._connections.pop(connection.number, None)
        self._with_frames.pop(connection.number, None)
        session_id = connection.session_id
        if session_id and self.table.detach(session_id, connection) and self._engine is not None:
            # The session lives on until its timeout; its watches do not: the client registers them again.
            self._engine.tree.drop_watches(session_id)

    def heard(self, session_id: int) -> None:
        assert self._engine is not None
        self._engine.tree.touch(session_id, self.table.now_ms())

    def submit(self, job: Job) -> bool:
        if self._stopping or self._engine is None:
            return False
        self._received += 1
        self._engine.submit(job)
        return True

    def has_frames(self, connection: Connection) -> None:
        self._with_frames[connection.number] = connection

    def _flush(self) -> None:
        connections, self._with_frames = self._with_frames, {}
        for connection in connections.values():
            self._sent += connection.flush()

    # Sessions

    async def _expire_sessions(self, engine: Engine) -> None:
        tick_seconds = self._config.tick_ms / 1000
        woke = self._clock.monotonic()
        while not self._stopping:
            await self._clock.sleep(tick_seconds)
            before, woke = woke, self._clock.monotonic()
            if woke - before > 2 * tick_seconds + 0.1:
                # This process was held up (paused, a full core): pings may lie unread in the sockets. Expiring a session late is
                # safe, because its holder counts its own deadline; expiring it early is not kind.
                _log.warning("the loop was late; session timeouts begin anew", late_seconds=round(woke - before, 3))
                engine.tree.restart_timeouts(self.table.now_ms())
                continue
            for session_id in engine.tree.expired(self.table.now_ms()):
                _log.info("session expires", session=f"{session_id:#x}")
                self.submit(ExpireJob(self.table, session_id))

    # What people and dashboards ask

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
            "zk_ephemerals_count": sum(len(session.ephemerals) for session in tree.sessions.values()),
            "zk_global_sessions": len(tree.sessions),
            "zk_commit_batches": self._engine.batches,
        }

    def _number_now(self, name: str) -> int:
        return self._numbers_now()[name]

    def _srvr(self) -> str:
        assert self._engine is not None
        now = self._numbers_now()
        return (
            f"Zookeeper version: {_VERSION}\nLatency min/avg/max: 0/0/0\nReceived: {now['zk_packets_received']}\n"
            f"Sent: {now['zk_packets_sent']}\nConnections: {now['zk_num_alive_connections']}\n"
            f"Outstanding: {now['zk_outstanding_requests']}\nZxid: {self._engine.tree.zxid:#x}\nMode: standalone\n"
            f"Node count: {now['zk_znode_count']}\n"
        )

    def _mntr(self) -> str:
        lines = {"zk_version": _VERSION, "zk_server_state": "standalone", **self._numbers_now()}
        return "".join(f"{name}\t{value}\n" for name, value in lines.items())

    def _register_metrics(self, metrics: Metrics, engine: Engine) -> None:
        for name, meaning in _MEANINGS.items():
            kind: Literal["counter", "gauge"] = "counter" if name.startswith(("zk_packets", "zk_commit")) else "gauge"
            metrics.read(name, kind, meaning, partial(self._number_now, name))

    async def _http(self, request: HttpRequest) -> HttpResponse:
        return await answer_watcher(request, self._health, self._metrics)

    def _health(self) -> HttpResponse:
        return HttpResponse(503 if self._stopping else 200, msgspec.json.encode({"ready": not self._stopping}))
