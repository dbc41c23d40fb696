"""The address that a process tells others, from what it was told to say and what it listens on."""

from __future__ import annotations

__all__ = ["advertised_address", "host_of"]


def advertised_address(advertised: str, listening: str) -> str:
    """``host:port`` for others.

    Args:
        advertised: a host, ``host:port``, or empty; an IPv6 address stands in brackets, port 0 is the one that is listened on.
        listening: the ``host:port`` that is listened on; it gives what ``advertised`` leaves out.
    """
    if not advertised:
        return listening
    host, colon, port = advertised.rpartition(":")
    if not colon or not port.isdecimal():
        host, port = advertised, "0"
    return f"{host}:{port if int(port) else listening.rpartition(':')[2]}"


def host_of(address: str) -> str:
    return address.rpartition(":")[0]
