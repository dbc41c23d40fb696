"""What each process of a group is started with: ports, id and directories of its own.

A group is several brokers, or several bookies, that one command starts on one machine. Process
``i`` has the id ``ID-i``. A *step* is what the ports of one process are beyond those of the
process before it.

Brokers share the addresses that the command was given: any process takes a connection there. Each
has, besides, addresses of its own, which lookups name. Clients find bookies in the metadata, so
these share nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsarish.bookie.config import BookieConfig
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.listeners import ListenerPlan
from pulsarish.model.errors import ConfigError
from pulsarish.runtime.network.addresses import host_of, port_of

__all__ = [
    "Member",
    "bookie_members",
    "broker_members",
    "shared_by_brokers",
]

_PORT_MAX: Final = 65_535
_BROKER_ADDRESSES: Final = tuple(
    f"{face}_address{tls}" for face in ("listen", "http", "pulsar") for tls in ("", "_tls")
)
_ENTRY: Final = re.compile(r"(.*:)([0-9]{1,5})/?")


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a group: its id, and its options beyond those of the command."""

    name: str
    settings: Mapping[str, str]
    bound: Mapping[str, str] = field(default_factory=dict)
    """Its own addresses, by option."""


def broker_members(
    config: BrokerConfig, count: int, step: int, shared: Sequence[str]
) -> list[Member]:
    """Return the processes of a group of brokers.

    Args:
        config: what the command was given.
        shared: what ``shared_by_brokers`` returns, with the real ports.

    Raises ``ConfigError`` for what processes cannot share, and for ports that clash or are too
    great.
    """
    _check_shareable(config.metadata_url)
    if config.shared_addresses:
        raise ConfigError("--processes sets shared_addresses itself: leave that option out")
    name = config.broker_id or _told_address(config, shared[0])
    members: list[Member] = []
    for index in range(count):
        by = step * (index + 1)
        own = {
            option: _moved(address, by)
            for option in _BROKER_ADDRESSES
            if (address := getattr(config, option))
        }
        settings = {
            "broker_id": f"{name}-{index}",
            "shared_addresses": ",".join(shared),
            **own,
            **_told(config, by),
        }
        if config.framed_port_tls > 0:
            settings["framed_port_tls"] = str(_port(config.framed_port_tls + by))
        for option in ("advertised_listeners", "bind_addresses"):
            if entries := getattr(config, option):
                settings[option] = ",".join(_moved_entry(entry, by) for entry in entries)
        if config.audit_log_directory:
            settings["audit_log_directory"] = os.path.join(config.audit_log_directory, str(index))
        bound = dict(own)
        for entry in settings.get("bind_addresses", "").split(","):
            if entry:
                bound[f"bind_addresses {entry}"] = entry.rpartition("://")[2]
        members.append(Member(f"{name}-{index}", settings, _with_framed(bound, settings)))
    _check_clashes(members, {entry: entry.rpartition("://")[2] for entry in shared})
    return members


def bookie_members(config: BookieConfig, count: int, step: int) -> list[Member]:
    """Return the processes of a group of bookies. The first one has the ports of the command.

    All have the same ``host``, so that no two copies of an entry lie on this machine while there
    are others.

    Raises ``ConfigError`` as ``broker_members`` does.
    """
    _check_shareable(config.metadata_url)
    members: list[Member] = []
    for index in range(count):
        by = step * index
        own = {
            option: _moved(address, by)
            for option in ("listen_address", "http_address", "http_address_tls")
            if (address := getattr(config, option))
        }
        settings = {"bookie_id": f"{config.bookie_id}-{index}", **own, **_told(config, by)}
        for option in ("data", "journal", "ledger", "index"):
            if directory := getattr(config, f"{option}_directory"):
                settings[f"{option}_directory"] = os.path.join(directory, str(index))
        for option in ("journal", "ledger", "index"):
            if directories := getattr(config, f"{option}_directories"):
                settings[f"{option}_directories"] = ",".join(
                    os.path.join(directory, str(index)) for directory in directories
                )
        members.append(Member(settings["bookie_id"], settings, _with_framed(own, settings)))
    _check_clashes(members, {})
    return members


def shared_by_brokers(config: BrokerConfig) -> list[str]:
    """Return the addresses that the command was given, as entries of ``shared_addresses``."""
    return [
        f"{plan.name}:{scheme}://{address}"
        for plan in config.listener_plans()
        for scheme, address in _binds(plan)
        # Clients learn the port of frames by a lookup. One that was not chosen is not known.
        if address and not (scheme.startswith("framed") and port_of(address) == 0)
    ]


def _binds(plan: ListenerPlan) -> Iterator[tuple[str, str]]:
    yield "pulsarish", plan.bind_address
    yield "http", plan.bind_http_address
    yield "pulsar", plan.bind_pulsar_address
    yield "framed", plan.bind_framed_address
    yield "pulsarish+ssl", plan.bind_address_tls
    yield "https", plan.bind_http_address_tls
    yield "pulsar+ssl", plan.bind_pulsar_address_tls
    yield "framed+ssl", plan.bind_framed_address_tls


def _told_address(config: BrokerConfig, shared: str) -> str:
    """Return the gRPC address of the group, which no other group of the cluster has."""
    plan, bound = config.listener_plans()[0], shared.rpartition("://")[2]
    told = plan.advertised or plan.advertised_tls or bound
    return f"{host_of(told) if _has_port(told) else told}:{port_of(bound)}"


def _told(config: BrokerConfig | BookieConfig, by: int) -> dict[str, str]:
    """Return the options about addresses that brokers and bookies have, where they have ports."""
    found = {
        option: _moved(address, by)
        for option in ("advertised_address", "framed_advertised_address")
        if _has_port(address := getattr(config, option))
    }
    if config.framed_port > 0:
        found["framed_port"] = str(_port(config.framed_port + by))
    return found


def _with_framed(bound: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    found = dict(bound)
    for port, beside in (
        ("framed_port", "listen_address"),
        ("framed_port_tls", "listen_address_tls"),
    ):
        if port in settings and beside in bound:
            found[port] = f"{host_of(bound[beside])}:{settings[port]}"
    return found


def _has_port(address: str) -> bool:
    return address.rpartition(":")[2].isdecimal() and ":" in address


def _port(port: int) -> int:
    if port > _PORT_MAX:
        raise ConfigError(
            f"--processes: a port of the last process would be {port}, beyond {_PORT_MAX}: choose "
            "lower ports, fewer processes or a smaller --port-step"
        )
    return port


def _moved(address: str, by: int) -> str:
    """Return an address with a port that is greater by ``by``; port 0 stays: any free one."""
    port = port_of(address)
    return f"{host_of(address)}:{_port(port + by) if port else 0}"


def _moved_entry(entry: str, by: int) -> str:
    """Return an entry of ``advertised_listeners`` or ``bind_addresses`` with another port."""
    match = _ENTRY.fullmatch(entry)
    assert match is not None  # the configuration was checked
    port = int(match[2])
    return f"{match[1]}{_port(port + by) if port else 0}"


def _check_shareable(metadata_url: str) -> None:
    if not metadata_url.startswith("zk://"):
        raise ConfigError(
            f"--processes: metadata_url = {metadata_url!r} is of one process alone: use the "
            "address of a metadata service, zk://host:port/pulsarish"
        )


def _check_clashes(members: Sequence[Member], shared: Mapping[str, str]) -> None:
    """Raise ``ConfigError`` when two sockets would have the same port."""
    taken: dict[int, str] = {}
    for what, address in _named(members, shared):
        port = port_of(address)
        if port and port in taken:
            raise ConfigError(
                f"--processes: {what} and {taken[port]} would both have port {port}: choose "
                "another --port-step"
            )
        taken[port] = what


def _named(members: Iterable[Member], shared: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from shared.items()
    for member in members:
        for option, address in member.bound.items():
            yield f"{option} of {member.name}", address
