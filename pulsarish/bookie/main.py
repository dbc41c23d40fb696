"""The bookie as a process."""

from __future__ import annotations

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.config import BookieConfig
from pulsarish.metadata.connect import connect
from pulsarish.runtime.loop import NodeProcess, RunningNode
from pulsarish.runtime.seams import MetadataStore
from pulsarish.runtime.world import Production, production

__all__ = ["start_bookie"]


class _BookieNode:
    """A running bookie and the world that it was built from."""

    def __init__(self, bookie: Bookie, parts: Production, metadata: MetadataStore) -> None:
        faces = f"grpc={bookie.address}" + (f" http={bookie.http_address}" if bookie.http_address else "")
        self.ready_line = f"bookie {bookie.instance_id} ready {faces}"
        self._bookie = bookie
        self._parts = parts
        self._metadata = metadata

    async def stop(self) -> None:
        await self._bookie.stop()
        await self._metadata.close()
        await self._parts.close()


async def start_bookie(config: BookieConfig, process: NodeProcess) -> RunningNode:
    """Start a bookie in this process's event loop; returns when it serves. Raises what ``Bookie.start`` and ``connect`` raise."""
    parts = production(outside=process.outside)
    metadata = await connect(
        config.metadata_url,
        clock=parts.clock,
        tasks=parts.tasks,
        rng=parts.random,
        files=parts.files,
        open_index=parts.open_index,
        outside=process.outside,
        session_timeout_ms=config.metadata_session_timeout_ms,
    )
    bookie = Bookie(parts.world(metadata), config)
    await bookie.start()
    return _BookieNode(bookie, parts, metadata)
