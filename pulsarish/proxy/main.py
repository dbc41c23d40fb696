"""Start of the proxy's process."""

from __future__ import annotations

import msgspec

from pulsarish.metadata.process import start_node
from pulsarish.metadata.session_watch import SessionWatch
from pulsarish.proxy.broker_link import BrokerLinks
from pulsarish.proxy.brokers import KnownBrokers
from pulsarish.proxy.config import ProxyConfig
from pulsarish.proxy.http_connect import HttpConnectConnection
from pulsarish.proxy.relay import ClientConnection
from pulsarish.proxy.relayed import RelayedConnection
from pulsarish.runtime.descriptors import connections_limit
from pulsarish.runtime.loop import NodeProcess, RunningNode
from pulsarish.runtime.metrics import Histogram, Metrics
from pulsarish.runtime.peer_limits import ConnectionSlots, HeldBytes, PeerLimits
from pulsarish.runtime.seams import HttpRequest, HttpResponse, Listener, World
from pulsarish.runtime.watch_face import answer_watcher

__all__ = ["Proxy", "start_proxy"]

_GRACE_SECONDS = 1.0


class Proxy:
    """One proxy, which counts its connections (``Counts``)."""

    def __init__(self, world: World, config: ProxyConfig, lags: Histogram | None = None) -> None:
        self.pulsar_address = ""
        self.connect_address = ""
        self.http_address = ""
        self._world = world
        self._config = config
        self._brokers = KnownBrokers(world, config)
        self._links = BrokerLinks(world, config)
        self._connections: dict[RelayedConnection, None] = {}
        self._opened_count = self._relayed_bytes = 0
        # Each connection of a client needs a second one, to its broker.
        connections_max = connections_limit(2 * config.connections_max) // 2
        self.limits = limits = PeerLimits(
            ConnectionSlots(connections_max, config.connections_per_ip_max),
            HeldBytes(config.max_partial_input_bytes, "input that waits"),
            HeldBytes(config.max_unsent_bytes, "data that clients do not receive"),
        )
        self._listeners: list[Listener] = []
        self._session = SessionWatch(world)
        self._metrics = metrics = Metrics(labels={}, lags=lags)
        metrics.read(
            "pulsar_proxy_active_connections",
            "gauge",
            "Connections of clients.",
            lambda: len(self._connections),
        )
        metrics.read(
            "pulsar_proxy_new_connections",
            "counter",
            "Connections of clients since the start.",
            lambda: self._opened_count,
        )
        metrics.read(
            "pulsar_proxy_rejected_connections",
            "counter",
            "Connections refused above connections_max.",
            lambda: limits.slots.refused_count,
        )
        metrics.read(
            "pulsar_proxy_binary_bytes",
            "counter",
            "Bytes relayed, in both directions.",
            lambda: self._relayed_bytes,
        )
        metrics.read(
            "pulsarish_proxy_brokers",
            "gauge",
            "Brokers that clients may be relayed to.",
            lambda: len(self._brokers.names),
        )
        limits.export(metrics)
        self._session.export(metrics)

    async def start(self) -> None:
        """Begin to listen. Raises ``OSError`` (a port in use)."""
        self._brokers.start()
        connections = self._world.connections
        binary = await connections.serve_bytes(self._config.pulsar_address, self._connection)
        self._listeners.append(binary)
        self.pulsar_address = binary.address
        if self._config.connect_address:
            tunnels = await connections.serve_bytes(self._config.connect_address, self._tunnel)
            self._listeners.append(tunnels)
            self.connect_address = tunnels.address
        if self._config.http_address:
            web = await connections.serve_http(self._config.http_address, self._handle)
            self._listeners.append(web)
            self.http_address = web.address

    async def stop(self) -> None:
        for listener in self._listeners:
            await listener.stop(_GRACE_SECONDS)
        for connection in list(self._connections):
            connection.close()
        self._brokers.stop()
        self._links.close()

    def _connection(self) -> ClientConnection:
        return ClientConnection(self._world, self._config, self._brokers, self._links, self)

    def _tunnel(self) -> HttpConnectConnection:
        return HttpConnectConnection(self._world, self._config, self._brokers, self)

    def opened(self, connection: RelayedConnection) -> None:
        self._connections[connection] = None
        self._opened_count += 1

    def ended(self, connection: RelayedConnection) -> None:
        del self._connections[connection]

    def relayed(self, size_bytes: int) -> None:
        self._relayed_bytes += size_bytes

    async def _handle(self, request: HttpRequest) -> HttpResponse:
        return await answer_watcher(request, self._health, self._metrics)

    def _health(self) -> HttpResponse:
        """Return 200 while the proxy knows a broker."""
        reason = (
            "" if self._brokers.names else "no broker is registered that clients may be relayed to"
        )
        body = {
            "status": "unhealthy" if reason else "ok",
            "reason": reason,
            "brokers": list(self._brokers.names),
        }
        return HttpResponse(503 if reason else 200, msgspec.json.encode(body))


def _ready_line(proxy: Proxy) -> str:
    faces = {
        "pulsar": proxy.pulsar_address,
        "connect": proxy.connect_address,
        "http": proxy.http_address,
    }
    return "proxy ready " + " ".join(
        f"{face}={address}" for face, address in faces.items() if address
    )


async def start_proxy(config: ProxyConfig, process: NodeProcess) -> RunningNode:
    """Start a proxy in this process's event loop.

    Raises what ``connect`` and ``Proxy.start`` raise.
    """
    return await start_node(
        process,
        metadata_url=config.metadata_url,
        session_timeout_ms=config.metadata_session_timeout_ms,
        make=lambda world, _: Proxy(world, config, process.care.lags),
        ready=_ready_line,
    )
