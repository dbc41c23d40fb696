"""A process with one node that has a session in the metadata store.

Bookies and brokers share it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from pulsarish.metadata.access import NO_ACCESS, MetadataAccess
from pulsarish.metadata.connect import connect
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.loop import NodeProcess
from pulsarish.runtime.seams import Clock, MetadataStore, World
from pulsarish.runtime.world import Production, production
from pulsarish.security.credentials import CredentialsSource, no_credentials
from pulsarish.security.tls import TlsClientConfig

__all__ = ["open_store", "start_node"]


class _Node(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


N = TypeVar("N", bound=_Node)


class _NodeOfProcess(Generic[N]):
    """The running node, its session, and the parts of the world that it was built from."""

    def __init__(
        self, node: N, ready_line: str, parts: Production, metadata: MetadataStore
    ) -> None:
        self.ready_line = ready_line
        self._node = node
        self._parts = parts
        self._metadata = metadata

    async def stop(self) -> None:
        await self._node.stop()
        await self._metadata.close()
        await self._parts.close()


async def open_store(
    url: str,
    parts: Production,
    outside: OutsideWork,
    *,
    session_timeout_ms: int = 10_000,
    connect_timeout_seconds: float | None = 30.0,
    access: MetadataAccess = NO_ACCESS,
) -> MetadataStore:
    """Call ``connect`` with what a process has."""
    return await connect(
        url,
        clock=parts.clock,
        tasks=parts.tasks,
        rng=parts.random,
        files=parts.files,
        open_index=parts.open_index,
        outside=outside,
        session_timeout_ms=session_timeout_ms,
        connect_timeout_seconds=connect_timeout_seconds,
        access=access,
    )


async def start_node(
    process: NodeProcess,
    *,
    metadata_url: str,
    session_timeout_ms: int,
    credentials: Callable[[Clock], CredentialsSource] = lambda _: no_credentials,
    make: Callable[[World, Production], N],
    ready: Callable[[N], str],
    tls: TlsClientConfig | None = None,
    access: MetadataAccess,
) -> _NodeOfProcess[N]:
    """Make the world, connect to the metadata, make the node in it and start it.

    Return when it serves.

    Raises what ``connect`` and the node's ``start`` raise, and ``ConfigError`` for files of keys or
    certificates that cannot be used.

    Args:
        credentials: makes what the node shows to others.
        ready: returns the line to print once the node serves.
        tls: for connections to other processes.
        access: to the metadata servers.
    """
    parts = production(outside=process.outside, credentials=credentials, tls=tls)
    metadata = await open_store(
        metadata_url,
        parts,
        process.outside,
        session_timeout_ms=session_timeout_ms,
        access=access,
    )
    node = make(parts.world(metadata), parts)
    try:
        await node.start()
    except BaseException:
        # Listeners must not outlive the loop: gRPC would complain of each at the end of the
        # process.
        await parts.connections.close()
        raise
    return _NodeOfProcess(node, ready(node), parts, metadata)
