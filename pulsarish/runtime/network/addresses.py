"""The address that a process advertises, from its configuration and the address that it listens
on.
"""

from __future__ import annotations

__all__ = ["advertised_address", "host_of", "port_of"]


def advertised_address(advertised: str, listening: str) -> str:
    """Return the ``host:port`` that other processes use.

    Args:
        advertised: a host, ``host:port``, or empty. An IPv6 address is in brackets. Port 0 means
            the port of ``listening``.
        listening: the ``host:port`` of the listener. It completes what ``advertised`` leaves out.
    """
    if not advertised:
        return listening
    host, colon, port = advertised.rpartition(":")
    if not colon or not port.isdecimal():
        host, port = advertised, "0"
    return f"{host}:{port if int(port) else listening.rpartition(':')[2]}"


def host_of(address: str) -> str:
    return address.rpartition(":")[0]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])
