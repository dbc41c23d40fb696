"""A broker's listeners: the addresses at which each kind of client finds it.

The core: names and addresses, no sockets.

A broker has several addresses when its clients are in several networks. A container is
``broker-1:6660`` for its neighbours and ``localhost:6660`` for its host. Each such address has a
name, the *listener*. A listener may have its own bound port. A client gets addresses of the
listener that it connected to, unless it names another one. Names and meaning are Apache Pulsar's
(``advertisedListeners``, ``internalListenerName``, ``bindAddresses``). Brokers use the internal
listener among themselves.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from pulsarish.metadata.records import BrokerRegistration, ListenerAddresses
from pulsarish.model.errors import ConfigError, InvalidArgument, NotFound, ServiceNotReady

__all__ = [
    "INTERNAL",
    "ListenerPlan",
    "Listeners",
    "SharedAddress",
    "advertised_at",
    "broker_named",
    "http_at",
    "http_url_at",
    "native_urls",
    "plan_listeners",
    "plan_shared",
    "pulsar_at",
]

INTERNAL: Final = "internal"
"""The only listener of a broker that names none."""

_OPTIONS: Final = {
    "pulsarish": "listen_address",
    "http": "http_address",
    "pulsar": "pulsar_address",
    "framed": "framed_port",
    "pulsarish+ssl": "listen_address_tls",
    "https": "http_address_tls",
    "pulsar+ssl": "pulsar_address_tls",
    "framed+ssl": "framed_port_tls",
}
"""The option that binds the port of the internal listener, by scheme."""
_FORM: Final = (
    "name:pulsarish://host:port, name:http://host:port, name:pulsar://host:port or "
    "name:framed://host:port, or with TLS pulsarish+ssl, https, pulsar+ssl or framed+ssl"
)
_ENTRY: Final = re.compile(
    r"([A-Za-z0-9._-]+):([a-z+]+)://(\[[0-9A-Fa-f:.]+\]|[^:/\[\]]+):([0-9]{1,5})/?"
)
_PORT_MAX: Final = 65_535


class ListenerPlan(msgspec.Struct, frozen=True):
    """One listener: what it binds and what clients get.

    Empty: it has no port of its own, or does not serve that protocol.
    """

    name: str
    bind_address: str
    bind_http_address: str
    advertised: str
    """``host:port``, ``host``, or empty for the bound address; port 0 means the bound port."""
    advertised_http: str
    bind_pulsar_address: str = ""
    advertised_pulsar: str = ""
    bind_framed_address: str = ""
    advertised_framed: str = ""
    bind_address_tls: str = ""
    bind_http_address_tls: str = ""
    advertised_tls: str = ""
    advertised_http_tls: str = ""
    bind_pulsar_address_tls: str = ""
    advertised_pulsar_tls: str = ""
    bind_framed_address_tls: str = ""
    advertised_framed_tls: str = ""


def plan_listeners(
    *,
    advertised_listeners: Sequence[str],
    internal_listener_name: str,
    bind_addresses: Sequence[str],
    listen_address: str,
    http_address: str,
    advertised_address: str,
    pulsar_address: str = "",
    framed_address: str = "",
    framed_advertised_address: str = "",
    listen_address_tls: str = "",
    http_address_tls: str = "",
    pulsar_address_tls: str = "",
    framed_address_tls: str = "",
) -> tuple[ListenerPlan, ...]:
    """Return the listeners that the options of these names describe, the internal one first.

    Raises ``ConfigError``.
    """
    advertised_entries = _entries("advertised_listeners", advertised_listeners)
    bound = _entries("bind_addresses", bind_addresses)
    if not advertised_entries:
        if bound:
            raise ConfigError(
                f"bind_addresses names listener {next(iter(bound))[0]!r}, and "
                "advertised_listeners names none: name it there"
            )
        # A port in advertised_address is that of the gRPC protocol.
        host = _host(advertised_address)
        name = internal_listener_name or INTERNAL
        if _port(advertised_address) and not framed_advertised_address:
            # It is the port of a proxy or of a port mapping before the gRPC port. Nothing says
            # where the framed ports are then.
            framed_address = framed_address_tls = ""
        framed_host = _host(framed_advertised_address) or host
        return (
            ListenerPlan(
                name,
                listen_address,
                http_address,
                advertised_address if listen_address else "",
                host if http_address else "",
                pulsar_address,
                host if pulsar_address else "",
                framed_address,
                (framed_advertised_address or host) if framed_address else "",
                listen_address_tls,
                http_address_tls,
                # Without a port for gRPC alone, the port is that of gRPC with TLS.
                (host if listen_address else advertised_address) if listen_address_tls else "",
                host if http_address_tls else "",
                pulsar_address_tls,
                host if pulsar_address_tls else "",
                framed_address_tls,
                framed_host if framed_address_tls else "",
            ),
        )
    for option, address in (
        ("advertised_address", advertised_address),
        ("framed_advertised_address", framed_advertised_address),
    ):
        if address:
            raise ConfigError(
                f"{option} = {address!r} and advertised_listeners exclude each other: leave "
                f"{option} out"
            )
    names = list(dict.fromkeys(name for name, _ in advertised_entries))
    internal = internal_listener_name or names[0]
    if internal not in names:
        raise ConfigError(
            f"internal_listener_name = {internal!r} is none of advertised_listeners: use one of "
            f"{', '.join(names)}"
        )
    _check_bindings(names, internal, advertised_entries, bound)
    own = {
        "pulsarish": listen_address,
        "http": http_address,
        "pulsar": pulsar_address,
        "framed": framed_address,
        "pulsarish+ssl": listen_address_tls,
        "https": http_address_tls,
        "pulsar+ssl": pulsar_address_tls,
        "framed+ssl": framed_address_tls,
    }
    plans: list[ListenerPlan] = []
    for name in sorted(names, key=lambda each: each != internal):
        at = {scheme: advertised_entries.get((name, scheme), "") for scheme in _OPTIONS}
        bind = {scheme: bound.get((name, scheme), "") for scheme in _OPTIONS}
        if name == internal:
            bind = _complete(name, at, own)
        for scheme, address in at.items():
            if _port(address) == 0 and not bind[scheme]:
                raise ConfigError(
                    f"advertised_listeners: port 0 of {name}:{scheme} is the one that is bound: "
                    "bind one in bind_addresses"
                )
        plans.append(
            ListenerPlan(
                name,
                bind["pulsarish"],
                bind["http"],
                at["pulsarish"],
                at["http"],
                bind["pulsar"],
                at["pulsar"],
                bind["framed"],
                at["framed"],
                bind["pulsarish+ssl"],
                bind["https"],
                at["pulsarish+ssl"],
                at["https"],
                bind["pulsar+ssl"],
                at["pulsar+ssl"],
                bind["framed+ssl"],
                at["framed+ssl"],
            )
        )
    return tuple(plans)


class SharedAddress(msgspec.Struct, frozen=True):
    """An address on which several brokers of a machine listen together, and what it speaks."""

    listener: str
    scheme: str
    address: str

    @property
    def is_tls(self) -> bool:
        return self.scheme == "https" or self.scheme.endswith("+ssl")

    @property
    def face(self) -> str:
        """The scheme without TLS."""
        return "http" if self.scheme == "https" else self.scheme.removesuffix("+ssl")


def plan_shared(
    shared_addresses: Sequence[str], plans: Sequence[ListenerPlan]
) -> tuple[SharedAddress, ...]:
    """Return what the entries of the option of this name bind.

    Raises ``ConfigError`` for an entry whose listener does not exist or does not tell clients an
    address of that scheme: lookups that come in there could not be answered.
    """
    told = {
        plan.name: {
            "pulsarish": plan.advertised or plan.bind_address,
            "http": plan.advertised_http or plan.bind_http_address,
            "pulsar": plan.advertised_pulsar or plan.bind_pulsar_address,
            "framed": plan.advertised_framed or plan.bind_framed_address,
            "pulsarish+ssl": plan.advertised_tls or plan.bind_address_tls,
            "https": plan.advertised_http_tls or plan.bind_http_address_tls,
            "pulsar+ssl": plan.advertised_pulsar_tls or plan.bind_pulsar_address_tls,
            "framed+ssl": plan.advertised_framed_tls or plan.bind_framed_address_tls,
        }
        for plan in plans
    }
    found: list[SharedAddress] = []
    for (name, scheme), address in _entries("shared_addresses", shared_addresses).items():
        if name not in told:
            raise ConfigError(
                f"shared_addresses: there is no listener {name!r}; there are {', '.join(told)}"
            )
        if not told[name][scheme]:
            raise ConfigError(
                f"shared_addresses shares {name}:{scheme}, and the broker has no address of its "
                f"own for it: set {_OPTIONS[scheme]}, or advertise {name}:{scheme}://host:port"
            )
        found.append(SharedAddress(name, scheme, address))
    return tuple(found)


def _complete(name: str, at: dict[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return what the internal listener binds, by scheme, and complete what it advertises."""
    bind = dict(own)
    host = _host(at["pulsarish"] or at["pulsarish+ssl"])
    for scheme in ("framed", "framed+ssl"):
        if at[scheme] and not own[scheme]:
            raise ConfigError(
                f"advertised_listeners advertises {name}:{scheme}, and {_OPTIONS[scheme]} is -1, "
                "or there is no gRPC port beside it: give it a port, or leave the entry out"
            )
        if not at[scheme]:
            bind[scheme] = ""
    for scheme in ("http", "pulsar", "pulsarish+ssl", "https", "pulsar+ssl"):
        at[scheme] = at[scheme] or (host if own[scheme] else "")
    return bind


def _check_bindings(
    names: Sequence[str],
    internal: str,
    advertised_entries: Mapping[tuple[str, str], str],
    bound: Mapping[tuple[str, str], str],
) -> None:
    for name in names:
        if not {(name, "pulsarish"), (name, "pulsarish+ssl")} & advertised_entries.keys():
            raise ConfigError(
                f"advertised_listeners: listener {name!r} has no gRPC address: add "
                f"{name}:pulsarish://host:port or {name}:pulsarish+ssl://host:port"
            )
    for name, scheme in bound:
        if name == internal:
            raise ConfigError(
                f"bind_addresses binds the internal listener {name!r}: that is what "
                f"{_OPTIONS[scheme]} is for"
            )
        if (name, scheme) not in advertised_entries:
            raise ConfigError(
                f"bind_addresses binds {name}:{scheme}, which is not advertised: add "
                f"{name}:{scheme}://host:port to it"
            )
    for option, addresses in (
        ("advertised_listeners", advertised_entries),
        ("bind_addresses", bound),
    ):
        seen: dict[str, tuple[str, str]] = {}
        for key, address in addresses.items():
            if _port(address) and address in seen:
                raise ConfigError(
                    f"{option}: {':'.join(seen[address])} and {':'.join(key)} share {address}: "
                    "each needs a port of its own"
                )
            seen[address] = key


def _entries(option: str, entries: Sequence[str]) -> dict[tuple[str, str], str]:
    """Return ``host:port`` by listener and scheme, in the given order."""
    found: dict[tuple[str, str], str] = {}
    for entry in entries:
        match = _ENTRY.fullmatch(entry)
        if match is None or int(match[4]) > _PORT_MAX:
            raise ConfigError(f"{option}: {entry!r} is not {_FORM} with a port of 0 to {_PORT_MAX}")
        name, scheme, host, port = match.groups()
        if scheme not in _OPTIONS:
            raise ConfigError(f"{option}: {entry!r} has the scheme {scheme!r}; use {_FORM}")
        if (name, scheme) in found:
            raise ConfigError(f"{option} has two entries for {name}:{scheme}: keep one")
        found[name, scheme] = f"{host}:{int(port)}"
    return found


def _port(address: str) -> int | None:
    _, colon, port = address.rpartition(":")
    return int(port) if colon and port.isdecimal() else None


def _host(address: str) -> str:
    return address if _port(address) is None else address.rpartition(":")[0]


class Listeners:
    """The names of listeners that clients of this broker may use."""

    def __init__(self, plans: Sequence[ListenerPlan]) -> None:
        self._names = tuple(plan.name for plan in plans)
        self._are_ports_shared = any(
            not (plan.bind_pulsar_address or plan.bind_pulsar_address_tls)
            and (plan.advertised_pulsar or plan.advertised_pulsar_tls)
            for plan in plans
        )

    def chosen(self, named: str, came_in_on: str) -> str:
        """Return the listener whose addresses a client gets: the one it names, otherwise the one it
        connected to.

        Raises ``InvalidArgument`` for a name that this broker does not have.
        """
        if not named:
            return came_in_on
        if named not in self._names:
            raise InvalidArgument(
                f"this broker has no advertised listener {named!r}; it has {', '.join(self._names)}"
            )
        return named

    def pulsar_of_next(
        self, broker: BrokerRegistration, came_in_on: str, *, has_tls: bool
    ) -> tuple[str, str]:
        """Return the URLs of ``pulsar_at`` for a client whose topic moves to another broker.

        Both are empty where they are not known: the client may have named a listener in its
        lookups that shares the port of this one.
        """
        if self._are_ports_shared:
            return "", ""
        try:
            return pulsar_at(broker, came_in_on, has_tls=has_tls)
        except ServiceNotReady:
            return "", ""


def advertised_at(broker: BrokerRegistration, listener: str) -> ListenerAddresses:
    """Return the addresses at which clients of a listener find a broker.

    Raises ``ServiceNotReady`` when the broker has no such listener. The other brokers have it, so
    its configuration is incomplete or about to change.
    """
    found = broker.listeners.get(listener)
    if found is None:
        raise ServiceNotReady(
            f"broker {broker.broker_id} has no listener {listener!r}: every broker needs it in "
            "advertised_listeners"
        )
    return found


def broker_named(
    brokers: Collection[BrokerRegistration], text: str, listener: str
) -> BrokerRegistration:
    """Return the broker with this id, instance id or HTTP address.

    Raises ``NotFound``, which names those that there are.
    """
    for broker in brokers:
        advertised = advertised_at(broker, listener)
        if text and text in (
            broker.broker_id,
            broker.instance_id,
            broker.http_address,
            advertised.http_address,
            advertised.http_address_tls,
        ):
            return broker
    ids = ", ".join(sorted(broker.broker_id for broker in brokers))
    raise NotFound(f"there is no broker {text!r}; there are {ids}")


def http_at(broker: BrokerRegistration, listener: str) -> str:
    """Return the ``host:port`` of a broker's HTTP port: with TLS where there is no other.

    Raises as ``http_url_at``.
    """
    return http_url_at(broker, listener).partition("://")[2]


def http_url_at(broker: BrokerRegistration, listener: str, *, has_tls: bool = False) -> str:
    """Return the URL of a broker's HTTP port, with the scheme that this port speaks.

    A client that came by HTTPS gets no other. One that came by HTTP gets HTTPS where the broker
    has nothing else.

    Raises ``ServiceNotReady`` when the broker has no such listener or port.
    """
    advertised = advertised_at(broker, listener)
    if advertised.http_url and not has_tls:
        return advertised.http_url
    if advertised.http_url_tls:
        return advertised.http_url_tls
    scheme = "https" if has_tls else "http"
    raise ServiceNotReady(
        f"broker {broker.broker_id} has no {scheme.upper()} address on listener {listener!r}: "
        f"advertise {listener}:{scheme}://host:port"
    )


def pulsar_at(
    broker: BrokerRegistration, listener: str, *, has_tls: bool = False
) -> tuple[str, str]:
    """Return the URLs of a broker's binary port without and with TLS; one may be empty.

    A client that came by TLS gets no URL without it.

    Raises ``ServiceNotReady`` when the broker has no such listener or port.
    """
    advertised = advertised_at(broker, listener)
    plain = "" if has_tls else advertised.pulsar_url
    tls = advertised.pulsar_url_tls
    if not plain and not tls:
        kind, scheme = (" with TLS", "pulsar+ssl") if has_tls else ("", "pulsar")
        raise ServiceNotReady(
            f"broker {broker.broker_id} has no address of the binary protocol{kind} on listener "
            f"{listener!r}: set {'pulsar_address_tls' if has_tls else 'pulsar_address'}, and "
            f"advertise {listener}:{scheme}://host:port"
        )
    return plain, tls


def native_urls(
    brokers: Iterable[BrokerRegistration], listener: str, *, has_tls: bool = False
) -> list[str]:
    """Return the service URLs of the own protocol, of brokers that have one on this listener.

    Raises ``ServiceNotReady`` when there is none.
    """
    told = (broker.listeners.get(listener) for broker in brokers)
    found = ListenerAddresses.native_urls_of(
        (each for each in told if each is not None), has_tls=has_tls
    )
    if not found:
        kind, option = (" with TLS", "_tls") if has_tls else ("", "")
        raise ServiceNotReady(
            f"no broker has an address of its own protocol{kind} on listener {listener!r}: set "
            f"listen_address{option}, or use Apache Pulsar's client"
        )
    return found
