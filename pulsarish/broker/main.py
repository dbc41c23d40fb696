"""The broker as a process."""

from __future__ import annotations

from pulsarish.broker.broker import Broker
from pulsarish.broker.config import BrokerConfig
from pulsarish.metadata.process import start_node
from pulsarish.runtime.loop import NodeProcess, RunningNode

__all__ = ["start_broker"]


async def start_broker(config: BrokerConfig, process: NodeProcess) -> RunningNode:
    """Start a broker in this process's event loop.

    Returns when it serves. Raises the errors of ``Broker.start`` and ``connect``.
    """

    def ready(broker: Broker) -> str:
        faces = f"grpc={broker.address}" + (
            f" http={broker.http_address}" if broker.http_address else ""
        )
        faces += f" pulsar={broker.pulsar_address}" if broker.pulsar_address else ""
        for name, listener in broker.listeners.items():
            if listener.address != broker.address:
                faces += f" {name}=pulsarish://{listener.address}" + (
                    f",http://{listener.http_address}" if listener.http_address else ""
                )
                faces += f",pulsar://{listener.pulsar_address}" if listener.pulsar_address else ""
        return f"broker {broker.broker_id} ready {faces}"

    return await start_node(
        process,
        metadata_url=config.metadata_url,
        session_timeout_ms=config.metadata_session_timeout_ms,
        make=lambda world: Broker(
            world,
            config,
            lag_seconds=lambda: process.care.lag_seconds,
            take_lag_max=process.care.take_lag_max,
            lags=process.care.lags,
        ),
        ready=ready,
    )
