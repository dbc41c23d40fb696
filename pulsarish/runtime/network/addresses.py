"""Addresses: their form, and the one that a process advertises.

``host:port`` is gRPC, ``tls:host:port`` gRPC with TLS, ``framed:host:port`` and
``framed:tls:host:port`` the framed transport. So an address says by itself how its process is
reached.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from pulsarish.runtime.seams import FRAMED, TLS

__all__ = [
    "FramedAdvertisedAddress",
    "FramedPort",
    "advertised_address",
    "host_of",
    "is_tls",
    "plain_address",
    "port_of",
    "split_address",
    "transport_of",
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
        listening: the address of the listener. It completes what ``advertised`` leaves out: host,
            port and transport.
    """
    if not advertised:
        return listening
    transport = transport_of(listening)
    host, colon, port = advertised.rpartition(":")
    if not colon or not port.isdecimal():
        host, port = advertised, "0"
    return f"{transport}{host}:{port if int(port) else listening.rpartition(':')[2]}"


def transport_of(address: str) -> str:
    """Return what an address begins with before its host: ``FRAMED``, ``TLS``, both or nothing."""
    return address[: len(address) - len(plain_address(address))]


def plain_address(address: str) -> str:
    """Return the ``host:port`` of an address of any transport."""
    return address.removeprefix(FRAMED).removeprefix(TLS)


def is_tls(address: str) -> bool:
    """Whether the connections to an address use TLS."""
    return address.removeprefix(FRAMED).startswith(TLS)


def split_address(address: str) -> tuple[str, int]:
    """Return the host and port of an address of any transport."""
    host, _, port = plain_address(address).rpartition(":")
    return host, int(port)


def host_of(address: str) -> str:
    return plain_address(address).rpartition(":")[0]


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])
