"""The broker process."""

from __future__ import annotations

from pulsarish.broker.broker import Broker
from pulsarish.broker.config import BrokerConfig
from pulsarish.metadata.connect import connect
from pulsarish.runtime.loop import NodeProcess, RunningNode
from pulsarish.runtime.seams import MetadataStore
from pulsarish.runtime.world import Production, production

__all__ = ["start_broker"]


class _BrokerNode:
    """A running broker and the world that it was built from."""

    def __init__(self, broker: Broker, parts: Production, metadata: MetadataStore) -> None:
        faces = f"grpc={broker.address}" + (f" http={broker.http_address}" if broker.http_address else "")
        self.ready_line = f"broker {broker.broker_id} ready {faces}"
        self._broker = broker
        self._parts = parts
        self._metadata = metadata

    async def stop(self) -> None:
        await self._broker.stop()
        await self._metadata.close()
        await self._parts.close()


async def start_broker(config: BrokerConfig, process: NodeProcess) -> RunningNode:
    """Start a broker in this process's event loop; returns when it serves. Raises what ``Broker.start`` and ``connect`` raise."""
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
    broker = Broker(parts.world(metadata), config, lag_seconds=lambda: process.care.lag_seconds)
    await broker.start()
    return _BrokerNode(broker, parts, metadata)
