"""Build the production world."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pulsarish.runtime.clock import SystemClock
from pulsarish.runtime.connections import NodeConnections
from pulsarish.runtime.files import LocalFiles
from pulsarish.runtime.lanes import Lanes, OutsideWork
from pulsarish.runtime.network.endpoints import ConnectionLimits
from pulsarish.runtime.seams import Clock, KeyValueIndex, MetadataStore, World
from pulsarish.runtime.tasks import Supervisor
from pulsarish.security.credentials import CredentialsSource, no_credentials
from pulsarish.security.tls import TlsClientConfig

__all__ = ["Production", "production"]

_INDEX_LANE = "index"


@dataclass(frozen=True, slots=True)
class Production:
    """What a process builds worlds from: one for each of its nodes, each with its own metadata
    session.
    """

    clock: Clock
    random: random.Random
    tasks: Supervisor
    files: LocalFiles
    connections: NodeConnections
    lanes: Lanes
    open_index: Callable[[str], Awaitable[KeyValueIndex]]

    def world(self, metadata: MetadataStore) -> World:
        return World(
            clock=self.clock,
            random=self.random,
            tasks=self.tasks,
            files=self.files,
            connections=self.connections,
            metadata=metadata,
            open_index=self.open_index,
        )

    async def close(self) -> None:
        """End what is left: tasks, then connections, then lanes after their remaining jobs, then
        directory locks.
        """
        await self.tasks.stop()
        await self.connections.close()
        await self.lanes.close()
        self.files.release()


def production(
    *,
    outside: OutsideWork,
    supervisor: Supervisor | None = None,
    limits: ConnectionLimits | None = None,
    tls: TlsClientConfig | None = None,
    index_write_buffer_bytes: int = 4 << 20,
    index_block_cache_bytes: int = 8 << 20,
    credentials: Callable[[Clock], CredentialsSource] = lambda _: no_credentials,
) -> Production:
    """Return the parts of this process's world. Call it in the event loop that runs the nodes.

    Args:
        outside: the process's count of work in other threads (``NodeProcess.outside``).
        supervisor: owner of the nodes' tasks. The default one ends the process when a critical task
            fails.
        credentials: makes what this process shows to those that it connects to.
        tls: for the addresses with TLS of other processes. Raises ``ConfigError`` for files that
            cannot be used.
    """
    supervisor = supervisor if supervisor is not None else Supervisor()
    lanes = Lanes(outside)
    clock = SystemClock()

    async def open_index(directory: str) -> KeyValueIndex:
        # Imported here: brokers and proxies have no index, and need no RocksDB.
        from pulsarish.runtime.rocks.index import open_rocks_index

        return await open_rocks_index(
            directory,
            # A thread for each index: a slow sync of one must not hold up another's reads.
            lane=lanes.get(f"{_INDEX_LANE}:{directory}"),
            write_buffer_bytes=index_write_buffer_bytes,
            block_cache_bytes=index_block_cache_bytes,
        )

    return Production(
        clock=clock,
        # From the operating system: ids, tokens and passwords are drawn from it, and no peer may
        # guess the next one from earlier ones.
        random=random.SystemRandom(),
        tasks=supervisor,
        files=LocalFiles(lanes),
        connections=NodeConnections(
            tasks=supervisor, limits=limits, credentials=credentials(clock), tls=tls
        ),
        lanes=lanes,
        open_index=open_index,
    )
