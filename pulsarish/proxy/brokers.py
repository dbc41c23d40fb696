"""The registered brokers, and those of them that a client may be relayed to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration, ListenerAddresses
from pulsarish.model.errors import CorruptData, MetadataUnavailable, NotAllowed, ServiceNotReady
from pulsarish.proxy.config import ProxyConfig
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.network.addresses import plain_address
from pulsarish.runtime.seams import Conflict, World
from pulsarish.wire.json_record import decode_record

__all__ = ["KnownBrokers"]

_log = get_logger("proxy.brokers")

_RETRY_SECONDS = 1.0
_RELAYED_TO = (
    "{} of a registered broker that this proxy may relay to (option allowed_brokers; empty: all)"
)


class KnownBrokers:
    """Follow the registrations of brokers.

    While the metadata are away the last known ones stay (rule 19).
    """

    def __init__(self, world: World, config: ProxyConfig) -> None:
        self.names: tuple[str, ...] = ()
        """The names of the brokers that clients may be relayed to."""
        self._binary: tuple[str, ...] = ()
        self._grpc_ports: frozenset[str] = frozenset()
        self._binary_ports: frozenset[str] = frozenset()
        self._http_ports: frozenset[str] = frozenset()
        self._world = world
        self._records = Records(world.metadata, world.clock, world.random)
        self._config = config
        self._changed = asyncio.Event()
        self._stopped = False

    def start(self) -> None:
        _ = run_in_background(self._world.tasks, self._world.clock, "brokers", self._follow)

    def stop(self) -> None:
        self._stopped = True
        self._changed.set()

    def check_binary(self, address: str) -> None:
        """Raise ``NotAllowed`` unless an allowed broker serves the binary protocol at this
        address.
        """
        if address not in self._binary_ports:
            raise NotAllowed(
                f"{address} is not an {_RELAYED_TO.format('address of the binary protocol')}"
            )

    def check(self, address: str) -> None:
        """Raise ``NotAllowed`` unless an allowed broker serves clients at this address, by any of
        its listeners.

        HTTP is for administration: its ports are allowed with ``relay_administration`` only.
        """
        if address in self._grpc_ports or address in self._binary_ports:
            return
        if address not in self._http_ports:
            raise NotAllowed(f"{address} is not an {_RELAYED_TO.format('address for clients')}")
        if not self._config.relay_administration:
            raise NotAllowed(
                f"{address} is a broker's address for administration, which this proxy relays to "
                "only with relay_administration=true"
            )

    def any(self) -> str:
        """Return the address of some broker's binary listener. Raises ``ServiceNotReady``."""
        if not self._binary:
            raise ServiceNotReady(
                "no broker is registered with an address of the binary protocol that this proxy "
                "may use; try again"
            )
        return self._world.random.choice(self._binary)

    async def _follow(self) -> None:
        while not self._stopped:
            self._changed.clear()
            try:
                self._use(await self._read())
            except (Conflict, MetadataUnavailable) as error:
                _log.debug("brokers not listed", reason=error)
                await self._world.clock.sleep(_RETRY_SECONDS)
                continue
            await self._changed.wait()

    async def _read(self) -> list[BrokerRegistration]:
        records = self._records
        names = await records.watch_children(paths.BROKERS, lambda _: self._changed.set())
        nodes = await records.nodes([f"{paths.BROKERS}/{name}" for name in names])
        found: list[BrokerRegistration] = []
        for name, node in zip(names, nodes, strict=True):
            if node is None:
                continue
            try:
                found.append(
                    decode_record(node.data, BrokerRegistration, f"{paths.BROKERS}/{name}")
                )
            except CorruptData as error:
                _log.warning("broker registration ignored", reason=error)
        return found

    def _use(self, brokers: Sequence[BrokerRegistration]) -> None:
        """Use these registrations.

        A broker is allowed with all its ports if one of its addresses is.
        """
        names: list[str] = []
        binary: list[str] = []
        ports: list[ListenerAddresses] = []
        chosen = frozenset(self._config.allowed_brokers)
        for broker in brokers:
            told = [
                ListenerAddresses(
                    plain_address(broker.address), broker.http_address, broker.pulsar_address
                ),
                *broker.listeners.values(),
            ]
            own = {
                address
                for each in told
                for address in (each.address, each.http_address, each.pulsar_address)
                if address
            }
            if chosen and not own & chosen:
                continue
            names.append(broker.broker_id)
            ports += told
            listener = broker.listeners.get(self._config.broker_listener_name, told[0])
            if listener.pulsar_address:
                binary.append(listener.pulsar_address)
        self.names, self._binary = tuple(names), tuple(binary)
        # An empty address is a port that the broker does not have.
        self._grpc_ports = frozenset(each.address for each in ports) - {""}
        self._binary_ports = frozenset(each.pulsar_address for each in ports) - {""}
        self._http_ports = frozenset(each.http_address for each in ports) - {""}
