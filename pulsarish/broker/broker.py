"""A broker node: everything put together, started and stopped in order."""

from __future__ import annotations

from collections.abc import Callable

from pulsarish.broker.authorization import Gate
from pulsarish.broker.calls import GrpcCalls
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.grpc_face import GrpcFace
from pulsarish.broker.http.admin import Admin
from pulsarish.broker.http.face import HttpFace, health_routes
from pulsarish.broker.lookup import Lookup
from pulsarish.broker.metrics import BrokerMetrics
from pulsarish.broker.namespaces import Namespaces
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.topics import Topics
from pulsarish.ledger.client import LedgerClient
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.metadata.update import Records
from pulsarish.runtime.addresses import advertised_address, host_of
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Listener, World

__all__ = ["Broker"]

_log = get_logger("broker")

_GRACE_SECONDS = 1.0
# For clients to read that their producers and consumers were closed, before their streams break.
_FAREWELL_SECONDS = 0.1


def _no_lag() -> float:
    return 0.0


class Broker:
    """One broker. ``lag_seconds`` reads its loop's lag, ``take_lag_max`` the worst since it was last called, where somebody measures."""

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        *,
        lag_seconds: Callable[[], float] = _no_lag,
        take_lag_max: Callable[[], float] = _no_lag,
    ) -> None:
        self.address = ""
        self.http_address = ""
        self.broker_id = config.broker_id
        self._world = world
        self._config = config
        self._ready = False
        records = Records(world.metadata, world.clock, world.random)
        gate = Gate()
        self._ledgers = LedgerClient(world, config.ledger)
        self._namespaces = Namespaces(world, records, config)
        self._ownership = Ownership(world, config, records, lost=self._lost, take_lag_max=take_lag_max)
        self._topics = Topics(world, config, records, self._ledgers, self._namespaces, self._ownership)
        lookup = Lookup(self._namespaces, self._ownership)
        self._face = GrpcFace(topics=self._topics, gate=gate, world=world, config=config)
        self.streams = {"broker.publish": self._face.publish, "broker.consume": self._face.consume}
        calls = GrpcCalls(
            config=config,
            gate=gate,
            namespaces=self._namespaces,
            ownership=self._ownership,
            lookup=lookup,
            topics=self._topics,
            lag_seconds=lag_seconds,
        )
        self.calls = calls.handlers()
        admin = Admin(world, config, records, self._namespaces, self._ownership, self._topics, lookup)
        metrics = BrokerMetrics(config.cluster_name, self._topics, self._ownership, self._face, lookup, lag_seconds, world.clock.monotonic)
        self.http = HttpFace(gate, [*admin.routes(), *health_routes(self.unready_reason, metrics.render)])
        self._listeners: list[Listener] = []

    async def start(self) -> None:
        """Returns when this broker serves. Raises ``OSError`` (a port in use), ``MetadataUnavailable``."""
        world, config = self._world, self._config
        await self._namespaces.start()
        await self._ledgers.start()
        listener = await world.connections.serve(config.listen_address, self.streams, self.calls)
        self._listeners.append(listener)
        self.address = advertised_address(config.advertised_address, listener.address)
        if config.http_address:
            web = await world.connections.serve_http(config.http_address, self.http.handle)
            self._listeners.append(web)
            # The port that is told, if one is, is that of the gRPC face.
            host = host_of(self.address) if config.advertised_address else ""
            self.http_address = advertised_address(host, web.address)
        self._topics.start()
        self.broker_id = config.broker_id or self.address
        template = BrokerRegistration(
            broker_id=self.broker_id,
            instance_id="",
            address=self.address,
            http_address=self.http_address,
        )
        await self._ownership.start(template)
        self._ready = True
        _log.info("serving", broker=self.broker_id, address=self.address, http=self.http_address)

    def unready_reason(self) -> str:
        """Why this broker cannot serve now; empty when it can."""
        if not self._ready:
            return "starting or stopping"
        if not self._ownership.serving:
            return "not registered: the metadata session is lost or was taken away"
        return ""

    def _lost(self, reason: str) -> None:
        """The session is gone, or another broker says that this one is: everything may be served elsewhere by now (rule 19)."""
        self._topics.drop_all(reason)

    async def stop(self) -> None:
        """Graceful: close topics, release bundles and unregister, so that others take over at once; then stop listening."""
        self._ready = False
        self._ownership.stop_serving()
        self._topics.stop()
        try:
            async with self._world.clock.timeout(self._config.broker_shutdown_timeout_seconds):
                await self._topics.close_all("the broker stops")
        except TimeoutError:
            _log.warning("topics were not closed in time; their next owners recover them")
        await self._ownership.stop()
        self._face.finish_all()
        await self._world.clock.sleep(_FAREWELL_SECONDS)
        self._face.abort_all("the broker has stopped")
        for listener in self._listeners:
            await listener.stop(_GRACE_SECONDS)
        await self._ledgers.close()
