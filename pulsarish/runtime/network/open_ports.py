"""The warning of a server that every program of other machines can use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv6Address, ip_address

from pulsarish.runtime.log import Logger
from pulsarish.runtime.network.addresses import host_of

__all__ = ["is_loopback", "open_options", "warn_of_open_ports"]


def open_options(bound: Iterable[tuple[str, str]]) -> list[str]:
    """Return the options whose ports other machines may reach, each once.

    Args:
        bound: option and ``host:port`` of ports without TLS; an empty address is no port.
    """
    found = (option for option, address in bound if address and not is_loopback(host_of(address)))
    return list(dict.fromkeys(found))


def warn_of_open_ports(log: Logger, options: Sequence[str], remedy: str) -> None:
    """Say in one line that ports are open to every program, unless there are none.

    Args:
        options: those that bind the ports.
        remedy: what closes them, beside binding them to loopback.
    """
    if options:
        log.warning(
            "every program that reaches this process may use it: it listens on other addresses "
            "than loopback without authentication",
            options=", ".join(options),
            remedy=f"{remedy}; or bind to 127.0.0.1 (docs/security.md)",
        )


def is_loopback(host: str) -> bool:
    """Return whether a host or address is of this machine alone."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return False  # a name, or empty for all addresses
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
