"""The address that a process advertises, from its configuration and the address that it listens
on.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

__all__ = [
    "FramedAdvertisedAddress",
    "FramedPort",
    "advertised_address",
    "host_of",
    "port_of",
]

FramedPort = Annotated[
    int,
    Meta(
        ge=-1,
        le=65_535,
        description=(
            "The port of the framed transport, at the host of listen_address; 0 picks a free one, "
            "-1: gRPC only. Peers are told where it is."
        ),
    ),
]
FramedAdvertisedAddress = Annotated[
    str,
    Meta(
        description=(
            "Host, or host:port, at which clients reach framed_port; empty: the host of "
            "advertised_address. Where that names a port, too, frames are not offered without "
            "this option."
        )
    ),
]
"""The options of a server that speaks frames."""


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
