"""Start of the bookie's process."""

from __future__ import annotations

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.config import BookieConfig
from pulsarish.metadata.process import start_node
from pulsarish.runtime.loop import NodeProcess, RunningNode

__all__ = ["start_bookie"]


async def start_bookie(config: BookieConfig, process: NodeProcess) -> RunningNode:
    """Start a bookie in this process's event loop, and return when it serves.

    Raises what ``Bookie.start`` and ``connect`` raise.
    """

    def ready(bookie: Bookie) -> str:
        faces = f"grpc={bookie.address}" + (
            f" http={bookie.http_address}" if bookie.http_address else ""
        )
        return f"bookie {bookie.instance_id} ready {faces}"

    return await start_node(
        process,
        metadata_url=config.metadata_url,
        session_timeout_ms=config.metadata_session_timeout_ms,
        make=lambda world: Bookie(world, config, lags=process.care.lags),
        ready=ready,
    )
