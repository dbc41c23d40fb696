"""``pulsarish://host:6660[,host2:6660]``: the brokers that a client asks first.

With ``pulsarish+ssl://host:6661`` every connection of the client uses TLS.
"""

from __future__ import annotations

from typing import Final

from pulsarish.client.errors import InvalidUrl
from pulsarish.runtime.seams import TLS

__all__ = ["DEFAULT_PORT", "DEFAULT_TLS_PORT", "parse_service_url"]

DEFAULT_PORT: Final = 6660
DEFAULT_TLS_PORT: Final = 6661
_SCHEME: Final = "pulsarish://"
_TLS_SCHEME: Final = "pulsarish+ssl://"
_PULSAR: Final = ("pulsar://", "pulsar+ssl://", "http://", "https://")


def parse_service_url(url: object) -> tuple[str, ...]:
    """Return the addresses of a service URL, in order: ``host:port``, or ``tls:host:port``.

    Raises ``InvalidUrl`` that shows the accepted form.
    """
    form = (
        f"use {_SCHEME}host:{DEFAULT_PORT} or {_SCHEME}host1:{DEFAULT_PORT},host2:{DEFAULT_PORT}; "
        f"with TLS {_TLS_SCHEME}host:{DEFAULT_TLS_PORT}"
    )
    if isinstance(url, str) and "@" in url:  # not shown: it may hold a password
        raise InvalidUrl(f"service_url names a user; pass an authentication, and {form}")
    if not isinstance(url, str):
        raise InvalidUrl(f"service_url is {url!r}, not a string; {form}")
    if url.startswith(_PULSAR):
        raise InvalidUrl(
            f"service_url {url!r} is an address of Apache Pulsar's protocol or of HTTP; {form}"
        )
    has_tls = url.startswith(_TLS_SCHEME)
    if not has_tls and not url.startswith(_SCHEME):
        raise InvalidUrl(f"service_url {url!r} does not start with {_SCHEME}; {form}")
    addresses: list[str] = []
    default_port = DEFAULT_TLS_PORT if has_tls else DEFAULT_PORT
    for part in url.removeprefix(_TLS_SCHEME).removeprefix(_SCHEME).rstrip("/").split(","):
        host, separator, port = part.strip().rpartition(":")
        if not separator or (":" in host and not host.endswith("]")):
            host, port = part.strip(), str(default_port)
        if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise InvalidUrl(
                f"service_url {url!r}: {part!r} is no host:port with a port of 1 to 65535; {form}"
            )
        address = f"{TLS if has_tls else ''}{host}:{int(port)}"
        if address not in addresses:
            addresses.append(address)
    return tuple(addresses)
