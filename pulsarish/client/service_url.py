"""``pulsarish://host:6660[,host2:6660]``: the brokers that a client asks first."""

from __future__ import annotations

from typing import Final

from pulsarish.model.errors import InvalidConfiguration, UnsupportedFeature

__all__ = ["DEFAULT_PORT", "parse_service_url"]

DEFAULT_PORT: Final = 6660
_SCHEME: Final = "pulsarish://"


def parse_service_url(url: object) -> tuple[str, ...]:
    """The ``host:port`` addresses of a service URL, in order.

    Raises ``InvalidConfiguration`` that shows the accepted form.
    """
    form = f"use {_SCHEME}host:{DEFAULT_PORT} or {_SCHEME}host1:{DEFAULT_PORT},host2:{DEFAULT_PORT}"
    if not isinstance(url, str):
        raise InvalidConfiguration(f"service_url is {url!r}, not a string; {form}")
    if url.startswith(("pulsar://", "pulsar+ssl://", "http://", "https://")):
        raise InvalidConfiguration(
            f"service_url {url!r} is an address of Apache Pulsar's protocol or of HTTP; {form}"
        )
    if url.startswith("pulsarish+tls://"):
        raise UnsupportedFeature(f"service_url {url!r}: TLS is not supported yet; {form}")
    if not url.startswith(_SCHEME):
        raise InvalidConfiguration(f"service_url {url!r} does not start with {_SCHEME}; {form}")
    addresses: list[str] = []
    for part in url.removeprefix(_SCHEME).rstrip("/").split(","):
        host, separator, port = part.strip().rpartition(":")
        if not separator or (":" in host and not host.endswith("]")):
            host, port = part.strip(), str(DEFAULT_PORT)
        if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise InvalidConfiguration(
                f"service_url {url!r}: {part!r} is no host:port with a port of 1 to 65535; {form}"
            )
        address = f"{host}:{int(port)}"
        if address not in addresses:
            addresses.append(address)
    return tuple(addresses)
