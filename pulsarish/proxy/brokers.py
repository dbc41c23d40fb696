"""The registered brokers, and those of them that a client may be relayed to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration, ListenerAddresses
from pulsarish.model.errors import (
    CorruptData,
    MetadataUnavailable,
    NotAllowedError,
    ServiceNotReady,
)
from pulsarish.proxy.config import ProxyConfig
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.network.addresses import plain_address
from pulsarish.runtime.seams import TLS, Conflict, World
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
        self._listeners: tuple[ListenerAddresses, ...] = ()  # those that the proxy connects to
        self._binary: tuple[str, ...] = ()  # of the kind that the proxy connects to
        self._grpc_ports: frozenset[str] = frozenset()
        self._binary_ports: frozenset[str] = frozenset()
        self._other_binary_ports: frozenset[str] = frozenset()
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

    def binary(self, address: str) -> str:
        """Return the address to connect to, with ``TLS`` before it where brokers are reached so.

        Raises ``NotAllowedError`` unless an allowed broker serves the binary protocol at this
        ``host:port``, with TLS or without it as ``tls_enabled_with_broker`` says.
        """
        has_tls = self._config.tls_enabled_with_broker
        if address in self._binary_ports:
            return f"{TLS if has_tls else ''}{address}"
        if address in self._other_binary_ports:
            raise NotAllowedError(
                f"{address} has {'no TLS' if has_tls else 'TLS'}, and this proxy connects to "
                f"brokers {'with' if has_tls else 'without'} it (option tls_enabled_with_broker)"
            )
        raise NotAllowedError(
            f"{address} is not an {_RELAYED_TO.format('address of the binary protocol')}"
        )

    def check(self, address: str) -> None:
        """Raise ``NotAllowedError`` unless an allowed broker serves clients at this address, by any
        of its listeners.

        HTTP is for administration: its ports are allowed with ``relay_administration`` only.
        """
        if address in self._grpc_ports | self._binary_ports | self._other_binary_ports:
            return
        if address not in self._http_ports:
            raise NotAllowedError(
                f"{address} is not an {_RELAYED_TO.format('address for clients')}"
            )
        if not self._config.relay_administration:
            raise NotAllowedError(
                f"{address} is a broker's address for administration, which this proxy relays to "
                "only with relay_administration=true"
            )

    def any(self) -> str:
        """Return the ``host:port`` of some broker's binary listener. Raises
        ``ServiceNotReady``.
        """
        if not self._binary:
            kind = " with TLS" if self._config.tls_enabled_with_broker else ""
            raise ServiceNotReady(
                f"no broker is registered with an address of the binary protocol{kind} that this "
                "proxy may use; try again"
            )
        return self._world.random.choice(self._binary)

    def native_urls(self, *, has_tls: bool) -> list[str]:
        """Return the service URLs of brokers' own protocol, for clients that pass this proxy by
        CONNECT of HTTP.

        Raises ``ServiceNotReady`` when there is none.
        """
        urls = ListenerAddresses.native_urls_of(self._listeners, has_tls=has_tls)
        if not urls:
            raise ServiceNotReady(
                f"no broker that this proxy may relay to has an address of its own protocol"
                f"{' with TLS' if has_tls else ''}; try again"
            )
        return urls

    async def _follow(self) -> None:
        while not self._stopped:
            self._changed.clear()
            try:
                brokers = await self._read()
                self._use(brokers)
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
        has_tls = self._config.tls_enabled_with_broker
        binary: list[str] = []
        listeners: list[ListenerAddresses] = []
        ports: list[ListenerAddresses] = []
        chosen = frozenset(self._config.allowed_brokers)
        for broker in brokers:
            told = [
                ListenerAddresses(broker.address, broker.http_address, broker.pulsar_address),
                *broker.listeners.values(),
            ]
            own = _known(
                address
                for each in told
                for address in (
                    *(each.address, each.http_address, each.pulsar_address),
                    *(each.address_tls, each.http_address_tls, each.pulsar_address_tls),
                )
            )
            if chosen and not own & chosen:
                continue
            names.append(broker.broker_id)
            ports += told
            listener = broker.listeners.get(
                self._config.broker_listener_name,
                # The internal one comes first.
                next(iter(broker.listeners.values()), told[0]),
            )
            listeners.append(listener)
            address = listener.pulsar_address_tls if has_tls else listener.pulsar_address
            if address:
                binary.append(address)
        self.names, self._binary = tuple(names), tuple(binary)
        self._listeners = tuple(listeners)
        plain = _known(each.pulsar_address for each in ports)
        secure = _known(each.pulsar_address_tls for each in ports)
        self._binary_ports = secure if has_tls else plain
        self._other_binary_ports = plain if has_tls else secure
        self._grpc_ports = _known(at for each in ports for at in (each.address, each.address_tls))
        self._http_ports = _known(
            at for each in ports for at in (each.http_address, each.http_address_tls)
        )


def _known(addresses: Iterable[str]) -> frozenset[str]:
    """Return the ``host:port`` of addresses; an empty one is a port that the broker does not
    have.
    """
    return frozenset(plain_address(address) for address in addresses if address)
