"""The interface between a node and its world.

Bookies, brokers, clients and the ledger code receive everything below as constructor arguments.
They use nothing else outside their own memory. There are two worlds: production (uvloop, gRPC,
kazoo, files, RocksDB) and simulation (virtual time, simulated network, disk and metadata). An
implementation promises exactly what is written here. The conformance suites check both.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, Protocol

from pulsarish.runtime.containment import Critical, Scope, ScopeKind
from pulsarish.runtime.wake_signal import WakeSignal
from pulsarish.security.credentials import Caller, Certificate, Credentials
from pulsarish.security.tls import TlsServerConfig

__all__ = [
    "FINISH",
    "FRAMED",
    "TLS",
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
    "IndexCorrupt",
    "KeyValueIndex",
    "Listener",
    "Locked",
    "MetadataStore",
    "NoSuchMethod",
    "NotSpoken",
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
    """Time of the node.

    Code outside ``runtime/`` never uses ``loop.time()``, ``asyncio.sleep``, ``asyncio.timeout`` or
    ``wait_for``.
    """

    def monotonic(self) -> float:
        """Return the seconds since some instant.

        Each node has its own clock, which drifts in simulation.
        """
        ...

    def wall_ms(self) -> int:
        """Return the milliseconds since the epoch.

        May jump: for timestamps that users see, never for leases.
        """
        ...

    async def sleep(self, seconds: float) -> None: ...

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[object]:
        """Like ``asyncio.timeout``: raises ``TimeoutError`` in the block once ``seconds`` have
        passed.
        """
        ...


class Tasks(Protocol):
    """Owner of a node's tasks.

    A critical task that fails ends the node, loudly. Any other failed task ends its scope and is
    counted.
    """

    contained_failures: dict[ScopeKind, int]
    """Failures of tasks that are not critical, by kind of scope."""

    def spawn(
        self,
        work: Coroutine[object, object, None],
        *,
        name: str,
        critical: Critical | None = None,
        scope: Scope | None = None,
    ) -> asyncio.Task[None]:
        """Start ``work``. Without ``critical`` and ``scope``, its failure ends only the task."""
        ...

    def contain(self, task: str, error: BaseException, scope: Scope) -> None:
        """Count and log a failure that the caller caught, and end its scope."""
        ...


class Locked(Exception):
    """A second holder asked for a directory lock that a live process holds."""


class File(Protocol):
    """An open file.

    Writes of one file are issued in call order. An ``OSError`` is raised to the caller and never
    retried here.
    """

    async def write(self, offset_bytes: int, parts: Sequence[Buffer], *, sync: bool) -> None:
        """Write all parts at the offset with ``pwritev``, then ``fdatasync`` when ``sync``.

        One thread hop. Without parts and with ``sync``: sync only.
        """
        ...

    async def read(self, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read many ``(offset, size)`` spans in one hop.

        A span past the end of the file returns fewer bytes.
        """
        ...

    async def truncate(self, size_bytes: int) -> None: ...

    async def size_bytes(self) -> int: ...

    async def drop_cached(self) -> None:
        """Take what is durable of the file out of the page cache: advice, without other effect.

        Raises nothing: where it cannot be done, nothing happens.
        """
        ...

    async def close(self) -> None: ...


class Files(Protocol):
    """A node's directories.

    Paths are strings. A lane is a thread with its own queue; its user names it.
    """

    async def open(
        self, path: str, *, lane: str, create: bool = False, reserve_bytes: int = 0
    ) -> File:
        """Open a file for reading and writing.

        With ``create``: make missing directories and the file (error when it exists), allocate
        ``reserve_bytes`` of zeroes, and sync file and directory before returning. Without it, a
        missing file raises ``FileNotFoundError``.
        """
        ...

    async def replace(self, path: str, content: bytes) -> None:
        """Durably put ``content`` at ``path``: temporary file, fsync, rename, directory fsync.

        Makes missing directories.
        """
        ...

    async def rename(self, path: str, new_path: str) -> None:
        """Durably give a file another name in its directory: rename, directory fsync.

        Raises ``FileNotFoundError`` for a missing file, and ``FileExistsError`` for a name in use.
        """
        ...

    async def remove(self, paths: Sequence[str]) -> None:
        """Delete files, then sync their directories. A missing file is not an error."""
        ...

    async def list(self, directory: str) -> Sequence[str]:
        """Return the sorted names in a directory; empty when it does not exist."""
        ...

    async def free_bytes(self, directory: str) -> int: ...

    async def lock(self, directory: str) -> None:
        """Lock the directory for this node's life.

        Makes a missing directory. Raises ``Locked`` when a live process holds the lock.
        """
        ...

    async def unlock(self, directory: str) -> None:
        """Give the lock back. Removes what ``lock`` made, unless something is in it."""
        ...


class KeyValueIndex(Protocol):
    """An ordered index.

    Writes are batches only; one call is one hop. Keys are below sixteen bytes of 0xff.

    An open index holds everything that was ever synced to it. Opening raises ``CorruptData`` for an
    index that lost synced rows, or whose damage shows at once. A second opener gets ``OSError``.
    Every method raises ``OSError`` and no other error when the disk fails or a row cannot be read.
    The index never answers that an unreadable row is absent, and a scan never ends early for it.
    After a failed write or sync every later one fails too, until the index is opened again.
    """

    @property
    def synced(self) -> int:
        """The number of the last write that is known to be durable.

        Each write with rows has the next number, over all openings.
        """
        ...

    async def write(
        self, puts: Sequence[tuple[bytes, bytes]], deletes: Sequence[bytes] = (), *, sync: bool
    ) -> None:
        """Apply all rows or, at a crash, none.

        With ``sync``, this write and all earlier ones are durable when it returns.

        May wait while the index is behind with its own work.
        """
        ...

    async def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    async def scan(
        self, start: bytes, end: bytes, *, limit: int, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Return at most ``limit`` rows with ``start <= key < end``, in key order; with ``reverse``
        from the end downwards.
        """
        ...

    async def close(self) -> None: ...


class StreamBroken(Exception):
    """The stream is gone. A message that was sent and not answered has an unknown outcome."""


class Unreachable(StreamBroken):
    """The peer refused or reset the connection before it took any message: its process does not
    run.
    """


class CallFailed(Exception):
    """A call's handler raised.

    Carries the text only; handlers answer expected errors in their reply.
    """


class NoSuchMethod(CallFailed):
    """The peer does not serve calls of this name: it is a server of another kind, or an old one."""


class NotSpoken(StreamBroken):
    """The peer takes connections, and does not speak the protocol."""


FINISH: Final[tuple[()]] = ()
"""What a stream's ``next_message`` returns when there are no more messages."""

FRAMED: Final = "framed:"
"""What addresses of the framed transport begin with."""
TLS: Final = "tls:"
"""What addresses with TLS begin with, after ``FRAMED`` where they have it."""


class Stream(Protocol):
    """Whole messages in order, until the stream breaks. Both ends have the same interface.

    One reader task and one writer task own a stream for its life. Neither cancels ``send`` or
    ``receive``, nor sets a timeout on them.
    """

    peer: str
    caller: Caller
    """On the server's end, who the client says it is; ``ANONYMOUS_CALLER`` on the client's."""

    async def send(self, parts: Sequence[Buffer]) -> None:
        """Send one message, the parts joined.

        Returns when the transport has accepted it. Raises ``StreamBroken``.
        """
        ...

    async def receive(self) -> bytes | None:
        """Return the next message; ``None`` after the peer has finished.

        Raises ``StreamBroken``.
        """
        ...

    async def deliver(self, on_message: Callable[[bytes], Awaitable[None] | None]) -> None:
        """Call ``on_message`` with each message until the peer has finished, in place of
        ``receive``.

        ``on_message`` is called in the loop, perhaps outside of every task. What it returns is
        awaited before the next message. Raises ``StreamBroken``, and what ``on_message`` raises.
        """
        ...

    async def feed(
        self, next_message: Callable[[], Sequence[Buffer] | None], signal: WakeSignal
    ) -> None:
        """Send what ``next_message`` returns, in place of ``send``.

        It is called now and whenever ``signal`` was set, in the loop, perhaps outside of every
        task, and only when the peer takes a message: the parts of the next one, ``None`` for
        nothing now, or ``FINISH``. Then this finishes the stream and returns. Raises
        ``StreamBroken``, at the latest when there is something to send, and what
        ``next_message`` raises.
        """
        ...

    async def finish(self) -> None:
        """End the sending direction.

        On the server's end this closes the stream after the messages that were sent.
        """
        ...

    def abort(self, reason: str) -> None:
        """Break the stream now, for both ends.

        Pending ``send`` and ``receive`` raise ``StreamBroken``.
        """
        ...


StreamHandler = Callable[[Stream], Awaitable[None]]
CallHandler = Callable[[bytes, Caller], Awaitable[bytes]]
"""Answers the request of a caller."""


class Listener(Protocol):
    address: str
    """The real ``host:port``, also after a request for port 0."""

    async def stop(self, grace_seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str  # percent-decoded segments joined by "/", no query
    query: Mapping[str, str]
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    segments: tuple[str, ...] = ()  # the decoded path segments, so that "%2F" inside one survives
    peer: str = ""  # host:port
    certificate: Certificate | None = None
    has_tls: bool = False  # it came by HTTPS


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


HttpHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]
BodyLimit = Callable[[str, Sequence[str]], int]
"""Returns the limit of a request's body in bytes, from its method and the decoded segments of its
path.
"""


class ClientConnections(Protocol):
    """The network of a client.

    A lane has its own connection, so traffic of one lane never waits behind another lane's.

    The address says how a process is reached: ``host:port`` is gRPC, ``framed:host:port``
    (``FRAMED``) the framed transport; with ``tls:`` (``TLS``) before the host the connection uses
    TLS, and no other connection is tried.
    """

    async def open(self, address: str, method: str, *, lane: str = "") -> Stream:
        """Open a stream.

        Raises ``Unreachable`` when no process listens, ``StreamBroken`` otherwise.
        """
        ...

    async def call(
        self, address: str, method: str, request: bytes, *, timeout_seconds: float
    ) -> bytes:
        """Send one request and return its answer. Calls have their own lane.

        Raises ``Unreachable``, ``StreamBroken``, ``TimeoutError``, ``CallFailed``.
        """
        ...

    async def open_bytes(
        self, address: str, factory: Callable[[], asyncio.Protocol]
    ) -> asyncio.Protocol:
        """Open a raw byte connection and return its connected protocol.

        The address is ``host:port``, or ``tls:host:port``. Raises ``Unreachable`` when no process
        listens, ``StreamBroken``.
        """
        ...

    async def credentials_now(self) -> Credentials:
        """Return what an opening would show now.

        Raises ``AuthenticationError``, or ``StreamBroken`` when the source does not answer.
        """
        ...


class Connections(ClientConnections, Protocol):
    """The network of a node that also listens.

    A listener with ``tls`` takes only connections with TLS, and its address begins with ``TLS``,
    after ``FRAMED`` where it has that. ``ConfigError`` is raised for certificate files that cannot
    be used. The certificate that TLS verified is in ``Caller`` and ``HttpRequest``.

    With ``is_shared`` other processes of this machine may listen on the same address, if all of
    them share it. The kernel gives each connection to one of them.
    """

    async def serve(
        self,
        address: str,
        streams: Mapping[str, StreamHandler],
        calls: Mapping[str, CallHandler],
        *,
        message_bytes_max: int = 0,
        tls: TlsServerConfig | None = None,
        is_shared: bool = False,
    ) -> Listener:
        """Listen on ``host:port``. Port 0 picks a free port; a port in use raises ``OSError``.

        Args:
            message_bytes_max: the limit of a received message, in bytes; 0: the network's own
                limit.
        """
        ...

    async def serve_framed(
        self,
        address: str,
        streams: Mapping[str, StreamHandler],
        calls: Mapping[str, CallHandler],
        *,
        message_bytes_max: int = 0,
        tls: TlsServerConfig | None = None,
        is_shared: bool = False,
    ) -> Listener:
        """Listen on ``host:port`` for the framed transport, as ``serve`` does for gRPC.

        The listener's address begins with ``FRAMED``.
        """
        ...

    async def serve_bytes(
        self,
        address: str,
        factory: Callable[[], asyncio.Protocol],
        *,
        tls: TlsServerConfig | None = None,
        is_shared: bool = False,
    ) -> Listener:
        """Listen for raw bytes, for Pulsar's binary protocol.

        With TLS a protocol finds the client's certificate with
        ``certificate_of(transport.get_extra_info("ssl_object"))``.
        """
        ...

    async def serve_http(
        self,
        address: str,
        handler: HttpHandler,
        *,
        body_limit: BodyLimit | None = None,
        tls: TlsServerConfig | None = None,
        is_shared: bool = False,
    ) -> Listener:
        """Listen for HTTP requests.

        Without ``body_limit`` no request has a body. Raises ``OSError``.
        """
        ...


@dataclass(frozen=True, slots=True)
class Versioned:
    """A metadata node at the time of the read."""

    data: bytes
    version: int
    created: int  # czxid: distinguishes a node that was created again from the old one
    session_id: int  # 0 unless ephemeral


OpKind = Literal["create", "create_ephemeral", "create_sequential", "put", "delete", "check"]


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of a commit.

    ``create*`` needs the parent to exist. ``put``, ``delete`` and ``check`` compare the node's
    version with ``version`` unless that is -1 (any). ``create_sequential`` makes a persistent node
    whose name is ``path`` plus ten digits.
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
    """A commit was refused, whole: operation ``index`` failed for ``reason``.

    Nothing was written.
    """

    def __init__(self, index: int, reason: ConflictReason, path: str = "") -> None:
        super().__init__(f"operation {index} on {path or '?'}: {reason.value}")
        self.index = index
        self.reason = reason
        self.path = path


class IndexCorrupt(OSError):
    """An index is damaged: what is stored does not match its checksums."""


class SessionLost(Exception):
    """The session of the request has expired; its ephemeral nodes are gone."""


class OutcomeUnknown(Exception):
    """The answer was lost: the commit may or may not have happened. Read the nodes to find out."""


class MetadataStore(Protocol):
    """Versioned nodes in a tree, with ZooKeeper's semantics.

    Requests are pipelined, with a bounded number in flight.

    The node's own clock decides ``LOST``: one session timeout after the last answered request was
    *sent*. Then the store opens a new session and reports ``CONNECTED`` with another
    ``session_id``. The new session inherits nothing. The old ephemeral nodes are gone (or will be),
    all watches have fired, and every unanswered request of the old session raised ``SessionLost``.
    """

    @property
    def session_id(self) -> int: ...

    @property
    def state(self) -> SessionState: ...

    @property
    def zxid(self) -> int:
        """The greatest transaction id that an answer over this connection carried.

        The tree had durably reached it.

        0 before the first answer. After the connection ends, the value stays until there is another
        connection.
        """
        ...

    @property
    def answered_at(self) -> float:
        """When the last answered request was sent, by the node's monotonic clock.

        An idle session sends one each third of its timeout at least.
        """
        ...

    def listen(self, changed: Callable[[SessionState], None]) -> None:
        """Call ``changed`` in the loop at each change of the session's state."""
        ...

    async def get_many(
        self, paths: Sequence[str], *, watch: Callable[[str], None] | None = None
    ) -> list[Versioned | None]:
        """Read nodes; ``None`` for each that does not exist.

        ``watch`` fires at most once per path, with the path. It means only "read again": the node
        was created, changed or deleted, or the connection broke. Raises ``SessionLost``,
        ``OutcomeUnknown`` (disconnected).
        """
        ...

    async def children(self, path: str, *, watch: Callable[[str], None] | None = None) -> list[str]:
        """Return the sorted names of a node's children.

        A missing node raises ``Conflict(0, NO_NODE)``.
        """
        ...

    async def commit(self, ops: Sequence[Op]) -> list[str | int]:
        """Apply all operations or none.

        Returns, for each operation: the created path, the new version of a put, the version that a
        check compared, or -1 for a delete. Raises ``Conflict``, ``SessionLost``,
        ``OutcomeUnknown``.
        """
        ...

    async def sync(self, path: str) -> None:
        """Wait until later reads see everything that any client committed before this call."""
        ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes are deleted."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """What a node is built from.

    In production ``random`` draws from the operating system. Ids, tokens and passwords come from
    it, so no peer can guess the next one.
    """

    clock: Clock
    random: random.Random
    tasks: Tasks
    files: Files
    connections: Connections
    metadata: MetadataStore
    open_index: Callable[[str], Awaitable[KeyValueIndex]]
