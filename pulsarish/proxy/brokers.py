"""Which brokers there are, and which of them a client may be relayed to."""

from __future__ import annotations

import asyncio

from pulsarish.metadata import paths
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import CorruptData, ServiceNotReady
from pulsarish.proxy.config import ProxyConfig
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict, OutcomeUnknown, SessionLost, World
from pulsarish.wire.json_record import decode_record

__all__ = ["KnownBrokers"]

_log = get_logger("proxy.brokers")

_RETRY_SECONDS = 1.0


class KnownBrokers:
    """Follows the registrations. What was known stays so while the metadata are away (rule 19)."""

    def __init__(self, world: World, config: ProxyConfig) -> None:
        self.addresses: tuple[str, ...] = ()
        """Of the binary face of each broker that may be relayed to, in the order of their names."""
        self._world = world
        self._config = config
        self._changed = asyncio.Event()
        self._stopped = False

    def start(self) -> None:
        _ = self._world.tasks.spawn(self._follow(), name="brokers")

    def stop(self) -> None:
        self._stopped = True
        self._changed.set()

    def allowed(self, address: str) -> bool:
        return address in self.addresses

    def any(self) -> str:
        """Some broker to ask. Raises ``ServiceNotReady``."""
        if not self.addresses:
            raise ServiceNotReady("no broker is registered with an address of the binary protocol that this proxy may use; try again")
        return self._world.random.choice(self.addresses)

    async def _follow(self) -> None:
        while not self._stopped:
            self._changed.clear()
            try:
                self.addresses = await self._read()
            except (Conflict, OutcomeUnknown, SessionLost) as error:
                _log.debug("brokers not listed", reason=error)
                await self._world.clock.sleep(_RETRY_SECONDS)
                continue
            await self._changed.wait()

    async def _read(self) -> tuple[str, ...]:
        store = self._world.metadata
        names = await store.children(paths.BROKERS, watch=lambda _: self._changed.set())
        nodes = await store.get_many([f"{paths.BROKERS}/{name}" for name in names])
        found: list[str] = []
        for name, node in zip(names, nodes, strict=True):
            if node is None:
                continue
            try:
                broker = decode_record(node.data, BrokerRegistration, f"{paths.BROKERS}/{name}")
            except CorruptData as error:
                _log.warning("registration left out", reason=error)
                continue
            listener = broker.listeners.get(self._config.broker_listener_name) if self._config.broker_listener_name else None
            address = broker.pulsar_address if not self._config.broker_listener_name else listener.pulsar_address if listener else ""
            if address and (not self._config.allowed_brokers or address in self._config.allowed_brokers):
                found.append(address)
        return tuple(found)
