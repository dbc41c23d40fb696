"""Start of the bookie's process."""

from __future__ import annotations

from pulsarish.bookie.bookie import Bookie
from pulsarish.bookie.config import BookieConfig
from pulsarish.metadata.process import start_node
from pulsarish.runtime.loop import NodeProcess, RunningNode
from pulsarish.runtime.network.tls_options import tls_of_client
from pulsarish.security.cluster_key import member_credentials

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
        credentials=lambda clock: member_credentials(
            config.cluster_key_file, "bookie", clock.wall_ms
        ),
        make=lambda world, _: Bookie(world, config, lags=process.care.lags),
        ready=ready,
        tls=tls_of_client(config),
    )
