"""Limits on what peers make a broker hold: options that are small enough to be reached, and the
check that the broker keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pulsarish.broker.binary.connection import Connection

if TYPE_CHECKING:
    from pulsarish.broker.broker import Broker
    from pulsarish.sim.cluster.cluster import ClusterSettings, SimCluster

__all__ = ["beyond_peer_limits", "with_small_peer_limits"]

_SMALL: Final = {
    "broker_max_connections": 12,
    "connect_timeout_seconds": 2.0,
    "max_producers_per_connection": 20,
    "max_consumers_per_connection": 20,
    "max_partial_input_bytes": 16 << 10,
    "max_unsent_bytes": 128 << 10,
}
_ANSWERS_MAX: Final = 4_096
"""Answers to what was received in one piece, at most 16 KiB, and to the requests that were open
then.
"""
_WAITING_BYTES_MAX: Final = 512 << 10
"""The same in bytes, with what the transport takes before it says that it is full."""


def with_small_peer_limits(settings: ClusterSettings) -> ClusterSettings:
    """Return the same cluster with Apache Pulsar's protocol, and small limits on what its clients
    may make a broker hold.
    """
    return replace(
        settings,
        binary_face=True,
        limits=replace(settings.limits, broker={**settings.limits.broker, **_SMALL}),
    )


def beyond_peer_limits(cluster: SimCluster) -> Iterator[str]:
    """Yield what a broker holds for peers beyond its options."""
    for name, broker in cluster.brokers_up():
        yield from (f"{name} {what}" for what in _of_broker(broker))
        for connection in broker._binary._connections:
            yield from (
                f"{name} {what} for {connection._peer}" for what in _of_connection(connection)
            )


def _of_broker(broker: Broker) -> Iterator[str]:
    traffic = broker._face._traffic
    slots = traffic.limits.slots
    if len(broker._binary._connections) > slots.connections_max:
        yield f"has {len(broker._binary._connections)} of {slots.connections_max} connections open"
    for held in (traffic.limits.partial_input, traffic.limits.unsent):
        if held.used_bytes > held.limit_bytes:
            yield f"holds {held.used_bytes} of {held.limit_bytes} bytes of {held._what}"


def _of_connection(connection: Connection) -> Iterator[str]:
    config, session, transport = connection._config, connection.session, connection._transport
    for kind, opened, limit in (
        ("producers", session._producers, config.max_producers_per_connection),
        ("consumers", session._consumers, config.max_consumers_per_connection),
    ):
        if len(opened) > limit:
            yield f"has {len(opened)} of {limit} {kind} open"
    if len(connection._outbox.answers) > _ANSWERS_MAX:
        yield f"has {len(connection._outbox.answers)} of {_ANSWERS_MAX} answers waiting"
    waiting_bytes = sum(map(len, connection._replies)) + (
        0 if transport is None else transport.get_write_buffer_size()
    )
    if waiting_bytes > _WAITING_BYTES_MAX:
        yield f"has {waiting_bytes} of {_WAITING_BYTES_MAX} bytes of answers waiting"
