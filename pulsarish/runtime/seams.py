"""The interface between a node and its world.

Bookies, brokers, clients and the ledger code receive everything below as constructor arguments and touch nothing else outside their
own memory. There are two worlds: production (uvloop, gRPC, kazoo, files, RocksDB) and simulation (virtual time, simulated network,
disk and metadata). An implementation promises exactly what is written here; the conformance suites hold both to it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, Protocol

from pulsarish.runtime.containment import Critical, Scope, ScopeKind

__all__ = [
    "BodyLimit",
    "Buffer",
    "CallFailed",
    "CallHandler",
    "ClientConnections",
    "Clock",
    "Conflict",
    "ConflictReason",
    "Connections",
    "File",
    "Files",
    "HttpHandler",
    "HttpRequest",
    "HttpResponse",
    "KeyValueIndex",
    "Listener",
    "Locked",
    "MetadataStore",
    "Op",
    "OpKind",
    "OutcomeUnknown",
    "SessionLost",
    "SessionState",
    "Stream",
    "StreamBroken",
    "StreamHandler",
    "Tasks",
    "Unreachable",
    "Versioned",
    "World",
]

Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Time as the node sees it. Never ``loop.time()``, ``asyncio.sleep``, ``asyncio.timeout`` or ``wait_for`` outside ``runtime/``."""

    def monotonic(self) -> float:
        """Seconds since some instant; a node's own, so it drifts in simulation."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch. May jump: for stamps that users see, never for leases."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Like ``asyncio.timeout``: raises ``TimeoutError`` in the block once ``seconds`` have passed."""
        ...


class Tasks(Protocol):
    """The owner of a node's tasks. A critical task that fails ends the node, loudly; any other ends its scope, and is counted."""

    contained_failures: dict[ScopeKind, int]
    """How often a task that is not critical failed, by what it belonged to."""

    def spawn(
        self, work: Coroutine[object, object, None], *, name: str, critical: Critical | None = None, scope: Scope | None = None
    ) -> asyncio.Task[None]:
        """Start ``work``. Without ``critical`` and ``scope`` its failure ends nothing else."""
        ...

    def contain(self, task: str, error: BaseException, scope: Scope) -> None:
        """Count and log a failure that was caught, and end its scope."""
        ...


class Locked(Exception):
    """A second holder asked for a directory lock that a live process holds."""


class File(Protocol):
    """An open file. Writes of one file are issued in call order; any ``OSError`` is raised to the caller and never retried here."""

    async def write(self, offset_bytes: int, parts: Sequence[Buffer], *, sync: bool) -> None:
        """One thread hop: ``pwritev`` of all parts at the offset, then ``fdatasync`` when ``sync``. No parts and ``sync``: sync only."""
        ...

    async def read(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read many ``(offset, size)`` spans in one hop. A span past the end gives fewer bytes."""
        ...

    async def truncate(self, size_bytes: int) -> None: ...

    async def size_bytes(self) -> int: ...

    async def close(self) -> None: ...


class Files(Protocol):
    """A node's directories. Paths are strings; a lane is a thread of its own with a queue, named by its user."""

    async def open(self, path: str, *, lane: str, create: bool = False, reserve_bytes: int = 0) -> File:
        """Open for reading and writing. ``create`` makes missing directories and the file (error when it exists), allocates
        ``reserve_bytes`` of zeroes, and syncs file and directory before it returns. Without it a missing file is ``FileNotFoundError``.
        """
        ...

    async def replace(self, path: str, content: bytes) -> None:
        """Durably put ``content`` at ``path``: temporary file, fsync, rename, directory fsync. Makes missing directories."""
        ...

    async def remove(self, paths: Sequence[str]) -> None:
        """Delete files (missing ones are no error), then sync their directories."""
        ...

    async def list(self, directory: str) -> Sequence[str]:
        """The sorted names in a directory; empty when there is no such directory."""
        ...

    async def free_bytes(self, directory: str) -> int: ...

    async def lock(self, directory: str) -> None:
        """Hold the directory for this node's life. A second live holder gets ``Locked``. Makes the directory."""
        ...


class KeyValueIndex(Protocol):
    """An ordered index. Batches only; one call is one hop. Keys are below sixteen bytes of 0xff.

    An index that is open holds everything that was ever synced to it: opening one that does not, or whose damage shows at once, raises
    ``CorruptData``; a second opener gets ``OSError``. Every method raises ``OSError`` and nothing else when the disk fails or a row cannot
    be read: such a row is never answered as absent and a scan never ends early for it. After a write or sync that failed every later one
    fails too, until the index is opened again.
    """

    @property
    def synced(self) -> int:
        """The number of the last write that is known to be durable. Each write with rows has the next number, over all openings."""
        ...

    async def write(self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (), *, sync: bool) -> None:
        """Apply all or nothing at a crash; ``sync``: durable (with everything written before) when it returns. May wait while the index is
        behind with its own work.
        """
        ...

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    async def scan(self, start: bytes, end: bytes, *, limit: int, reverse: bool = False) -> list[tuple[bytes, bytes]]:
        """Rows with ``start <= key < end`` in key order; with ``reverse`` from the end downwards. At most ``limit``."""
        ...

    async def close(self) -> None: ...


class StreamBroken(Exception):
    """The stream is gone; what was sent and not answered has an unknown outcome."""


class Unreachable(StreamBroken):
    """The peer refused or reset the connection before anything was taken: the process is not there."""


class CallFailed(Exception):
    """A call's handler raised. Carries the text only; handlers answer expected errors in their reply."""


class Stream(Protocol):
    """Ordered whole messages until broken; the same face on both ends.

    One reader task and one writer task own a stream for its life; neither ``send`` nor ``receive`` is ever cancelled or timed out.
    """

    peer: str
    peer_program: str
    """On the server's end what the client calls itself, as ``program_name``; empty: it does not say, and on the client's end."""

    async def send(self, parts: Sequence[Buffer]) -> None:
        """Send one message, the parts joined. Returns when the transport took it. Raises ``StreamBroken``."""
        ...

    async def receive(self) -> bytes | None:
        """The next message; ``None`` once the peer has finished. Raises ``StreamBroken``."""
        ...

    async def finish(self) -> None:
        """Say that nothing more will be sent. On the server end this closes the stream after what was sent."""
        ...

    def abort(self, reason: str) -> None:
        """Break the stream now, for both ends; pending ``send`` and ``receive`` raise ``StreamBroken``."""
        ...


StreamHandler = Callable[[Stream], Awaitable[None]]
CallHandler = Callable[[bytes], Awaitable[bytes]]


class Listener(Protocol):
    address: str
    """The real ``host:port``, also when port 0 was asked for."""

    async def stop(self, grace_seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str  # percent-decoded segments joined by "/", no query
    query: Mapping[str, str]
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    segments: tuple[str, ...] = ()  # the decoded path segments, so that "%2F" inside one survives


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


HttpHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]
BodyLimit = Callable[[str, Sequence[str]], int]
"""Returns the greatest body of a request, in bytes, by its method and the decoded segments of its path."""


class ClientConnections(Protocol):
    """The network of a client. A lane is a connection of its own, so that traffic of one lane never waits behind another's."""

    async def open(self, address: str, method: str, *, lane: str = "") -> Stream:
        """Open a stream. Raises ``Unreachable`` when nobody listens, ``StreamBroken`` otherwise."""
        ...

    async def call(self, address: str, method: str, request: bytes, *, timeout_seconds: float) -> bytes:
        """One request and its answer, on a lane of its own. Raises ``Unreachable``, ``StreamBroken``, ``TimeoutError``, ``CallFailed``."""
        ...


class Connections(ClientConnections, Protocol):
    """The network of a node that also listens."""

    async def serve(
        self, address: str, streams: Mapping[str, StreamHandler], calls: Mapping[str, CallHandler], *, message_bytes_max: int = 0
    ) -> Listener:
        """Listen on ``host:port``; port 0 picks a free one; a port in use raises ``OSError``.

        Args:
            message_bytes_max: the greatest message that is received here; 0: the network's own limit.
        """
        ...

    async def serve_bytes(self, address: str, factory: Callable[[], asyncio.Protocol]) -> Listener:
        """A raw byte listener, for Pulsar's binary face."""
        ...

    async def open_bytes(self, address: str, factory: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        """The client's side of it: the protocol once it is connected. Raises ``Unreachable`` when nobody listens, ``StreamBroken``."""
        ...

    async def serve_http(self, address: str, handler: HttpHandler, *, body_limit: BodyLimit | None = None) -> Listener:
        """Listen for HTTP requests. Without ``body_limit`` no request has a body. Raises ``OSError``."""
        ...


@dataclass(frozen=True, slots=True)
class Versioned:
    """A metadata node as it was read."""

    data: bytes
    version: int
    created: int  # czxid: tells a re-created node from the old one
    session_id: int  # 0 unless ephemeral


OpKind = Literal["create", "create_ephemeral", "create_sequential", "put", "delete", "check"]


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of a commit.

    ``create*`` needs the parent to exist. ``put``, ``delete`` and ``check`` compare the node's version with ``version`` unless that is
    -1 (any). ``create_sequential`` makes a persistent node whose name is ``path`` plus ten digits.
    """

    kind: OpKind
    path: str
    data: bytes = b""
    version: int = -1


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class ConflictReason(Enum):
    BAD_VERSION = "bad_version"
    EXISTS = "exists"
    NO_NODE = "no_node"
    NOT_EMPTY = "not_empty"


class Conflict(Exception):
    """A commit was refused, whole: operation ``index`` failed for ``reason``. Nothing was written."""

    def __init__(self, index: int, reason: ConflictReason, path: str = "") -> None:
        super().__init__(f"operation {index} on {path or '?'}: {reason.value}")
        self.index = index
        self.reason = reason
        self.path = path


class SessionLost(Exception):
    """The session in which the request was made has expired; its ephemeral nodes are gone."""


class OutcomeUnknown(Exception):
    """The answer was lost: the commit may or may not have happened. Read back to find out."""


class MetadataStore(Protocol):
    """Versioned nodes in a tree, with ZooKeeper's meaning. Requests are pipelined, with a bounded number in flight.

    ``LOST`` is decided by the node's own clock: one session timeout after the last answered request was *sent*. After it the store opens
    a new session by itself and reports ``CONNECTED`` with another ``session_id``. Nothing is carried over: the old ephemeral nodes are
    gone (or will be), all watches have fired, and every request of the old session that had no answer raised ``SessionLost``.
    """

    @property
    def session_id(self) -> int: ...

    @property
    def state(self) -> SessionState: ...

    @property
    def zxid(self) -> int:
        """The greatest transaction id that an answer over this connection has carried: the tree had come so far, durably. 0 before the
        first answer; after the connection ends it stays until there is another one."""
        ...

    def listen(self, changed: Callable[[SessionState], None]) -> None:
        """Call ``changed`` in the loop at each change of the session's state."""
        ...

    async def get_many(self, paths: Sequence[str], *, watch: Callable[[str], None] | None = None) -> list[Versioned | None]:
        """Read nodes; ``None`` where there is none. ``watch`` fires at most once per path, with the path, and means only "read again"
        (the node was created, changed or deleted, or the connection broke). Raises ``SessionLost``, ``OutcomeUnknown`` (disconnected).
        """
        ...

    async def children(self, path: str, *, watch: Callable[[str], None] | None = None) -> list[str]:
        """Sorted names of a node's children. A missing node raises ``Conflict(0, NO_NODE)``."""
        ...

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        """All or nothing. Answers, per operation: the path created, the new version of a put, or the version checked or -1 deleted.
        Raises ``Conflict``, ``SessionLost``, ``OutcomeUnknown``.
        """
        ...

    async def sync(self, path: str) -> None:
        """Reads after this see all that was committed, by anybody, before it."""
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes are deleted."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """What a node is built from.

    In production ``random`` draws from the operating system: ids, tokens and passwords come from it, and no peer can guess the next one.
    """

    clock: Clock
    random: random.Random
    tasks: Tasks
    files: Files
    connections: Connections
    metadata: MetadataStore
    open_index: Callable[[str], Awaitable[KeyValueIndex]]
