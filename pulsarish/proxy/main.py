"""Start of the proxy's process."""

from __future__ import annotations

import msgspec

from pulsarish.metadata.access import access_of
from pulsarish.metadata.process import start_node
from pulsarish.metadata.session_watch import SessionWatch
from pulsarish.model.errors import NotAllowedError
from pulsarish.proxy.broker_link import BrokerLinks
from pulsarish.proxy.brokers import KnownBrokers
from pulsarish.proxy.config import ProxyConfig
from pulsarish.proxy.http_connect import HttpConnectConnection
from pulsarish.proxy.relay import ClientConnection
from pulsarish.proxy.relayed import RelayedConnection
from pulsarish.runtime.descriptors import connections_limit
from pulsarish.runtime.loop import NodeProcess, RunningNode
from pulsarish.runtime.metrics import Histogram, Metrics
from pulsarish.runtime.network.addresses import plain_address, port_of
from pulsarish.runtime.network.tls_options import tls_of_client, tls_of_server
from pulsarish.runtime.network.watch_ports import WatchPorts
from pulsarish.runtime.peer_limits import ConnectionSlots, HeldBytes, PeerLimits
from pulsarish.runtime.seams import HttpRequest, HttpResponse, Listener, World
from pulsarish.runtime.watch_face import answer_watcher

__all__ = ["Proxy", "start_proxy"]

_GRACE_SECONDS = 1.0


class Proxy:
    """One proxy, which counts its connections (``Counts``)."""

    def __init__(self, world: World, config: ProxyConfig, lags: Histogram | None = None) -> None:
        self.addresses: dict[str, str] = {}
        """``host:port`` of each port that is open, by what the ready line calls it."""
        self.http = WatchPorts(world.connections, config, world.clock.wall_ms)
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
        """Begin to listen.

        Raises ``OSError`` (a port in use), ``ConfigError`` (a certificate that cannot be used).
        """
        self._brokers.start()
        config = self._config
        secure = tls_of_server(config)
        for name, address, factory, tls in (
            ("pulsar", config.pulsar_address, self._connection, None),
            ("pulsar+ssl", config.pulsar_address_tls, self._connection, secure),
            ("connect", config.connect_address, self._tunnel, None),
            ("connect+ssl", config.connect_address_tls, self._tunnel, secure),
        ):
            if address:
                listener = await self._world.connections.serve_bytes(address, factory, tls=tls)
                self._listeners.append(listener)
                self.addresses[name] = plain_address(listener.address)
        await self.http.open(self._handle)

    async def stop(self) -> None:
        for listener in self._listeners:
            await listener.stop(_GRACE_SECONDS)
        await self.http.stop(_GRACE_SECONDS)
        for connection in list(self._connections):
            connection.close()
        self._brokers.stop()
        self._links.close()

    def _connection(self) -> ClientConnection:
        return ClientConnection(self._world, self._config, self._brokers, self._links, self)

    def _tunnel(self) -> HttpConnectConnection:
        return HttpConnectConnection(self._world, self._config, self._brokers, self)

    def connect_port(self) -> int:
        address = self.addresses.get("connect")
        if address is None:
            raise NotAllowedError(
                "this proxy serves no CONNECT of HTTP, by which Pulsarish's own clients pass it: "
                "set connect_address, or use Apache Pulsar's client"
            )
        return port_of(address)

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
    faces = "".join(f" {name}={address}" for name, address in proxy.addresses.items())
    return f"proxy ready{faces}{proxy.http.ready_words()}"


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
        tls=config.broker_tls(),
        access=access_of(config, tls_of_client(config)),
    )
