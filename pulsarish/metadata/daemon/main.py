"""Start of the metadata daemon's process."""

from __future__ import annotations

from pulsarish.metadata.daemon.config import MetadataConfig
from pulsarish.metadata.daemon.daemon import MetadataDaemon
from pulsarish.runtime.loop import NodeProcess, RunningNode
from pulsarish.runtime.metrics import Metrics
from pulsarish.runtime.world import Production, production

__all__ = ["start_metadata"]


class _MetadataNode:
    """The running daemon and what it was built from."""

    def __init__(self, daemon: MetadataDaemon, parts: Production) -> None:
        addresses = ",".join(daemon.addresses)
        self.ready_line = f"metadata ready address={addresses}{daemon.http.ready_words()}"
        self._daemon = daemon
        self._parts = parts

    async def stop(self) -> None:
        await self._daemon.stop()
        await self._parts.close()


async def start_metadata(config: MetadataConfig, process: NodeProcess) -> RunningNode:
    """Start the daemon in this process's event loop, and return when it serves.

    Raises what ``MetadataDaemon.start`` raises.
    """
    parts = production(outside=process.outside)
    daemon = MetadataDaemon(
        config,
        clock=parts.clock,
        rng=parts.random,
        tasks=parts.tasks,
        files=parts.files,
        connections=parts.connections,
        open_index=parts.open_index,
        metrics=Metrics(lag_seconds=lambda: process.care.lag_seconds, lags=process.care.lags),
    )
    await daemon.start()
    return _MetadataNode(daemon, parts)
