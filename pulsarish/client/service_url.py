"""The service URL of a client: the hosts that it asks first, and what they speak.

``pulsarish://host:6660[,host2:6660]`` is the own protocol of brokers. ``pulsar://host:6650`` is
Apache Pulsar's binary protocol and ``http://host:8080`` the port for HTTP: of these the client asks
where the own protocol is. With ``+ssl``, or ``https``, every connection of the client uses TLS.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pulsarish.client.errors import InvalidUrl
from pulsarish.runtime.seams import TLS

__all__ = ["DEFAULT_PORT", "DEFAULT_TLS_PORT", "ServiceUrl", "parse_service_url"]

DEFAULT_PORT: Final = 6660
DEFAULT_TLS_PORT: Final = 6661
_PORTS: Final = {
    "pulsarish": DEFAULT_PORT,
    "pulsarish+ssl": DEFAULT_TLS_PORT,
    "pulsar": 6650,
    "pulsar+ssl": 6651,
    "http": 8080,
    "https": 8081,
}
"""The port of a host that names none, by scheme. Those of Apache Pulsar are its client's."""
_FORM: Final = (
    f"use pulsarish://host:{DEFAULT_PORT} or pulsarish://host1:{DEFAULT_PORT},host2:{DEFAULT_PORT},"
    f" with TLS pulsarish+ssl://host:{DEFAULT_TLS_PORT}; pulsar://host:6650, "
    "pulsar+ssl://host:6651, http://host:8080 and https://host:8443 are taken, too"
)
_HOST: Final = re.compile(r"[\w.-]+|\[[0-9A-Fa-f:.]+(%\w+)?\]")
_IPV6: Final = re.compile(r"[0-9A-Fa-f:.]+")
_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """A service URL in its parts."""

    text: str
    scheme: str
    hosts: tuple[str, ...]
    """``host:port`` each, without repetition."""

    @property
    def has_tls(self) -> bool:
        return self.scheme == "https" or self.scheme.endswith("+ssl")

    @property
    def is_native(self) -> bool:
        """Whether the hosts speak the own protocol."""
        return self.scheme in ("pulsarish", "pulsarish+ssl")

    @property
    def is_http(self) -> bool:
        return self.scheme in ("http", "https")

    @property
    def addresses(self) -> tuple[str, ...]:
        """The hosts as addresses of connections: with ``TLS`` before them where they have it."""
        return tuple(f"{TLS}{host}" if self.has_tls else host for host in self.hosts)


def parse_service_url(url: object) -> ServiceUrl:
    """Return the parts of a service URL.

    Raises ``InvalidUrl`` that names the part that is wrong and shows the accepted form.
    """
    if not isinstance(url, str):
        raise _wrong(f"service_url is {url!r} of type {type(url).__name__}, not a string")
    if "@" in url:  # not shown: it may hold a password
        raise _wrong("service_url names a user before '@'; pass an authentication instead")
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise _wrong(f"service_url {url!r} has no scheme: nothing stands before '://'")
    if scheme not in _PORTS:
        known = scheme.strip().lower() in _PORTS
        hint = f"; write {scheme.strip().lower()}" if known else ""
        raise _wrong(f"service_url {url!r} has the unknown scheme {scheme!r}{hint}")
    hosts = rest.removesuffix("/")
    for mark, name in (("?", "query"), ("#", "fragment")):
        if mark in hosts:
            part = hosts[hosts.index(mark) :]
            raise _wrong(f"service_url {url!r} has the {name} {part!r}, which means nothing here")
    if not hosts:
        raise _wrong(f"service_url {url!r} names no host after '://'")
    parts = hosts.split(",")
    return ServiceUrl(
        url,
        scheme,
        tuple(
            dict.fromkeys(
                _host(url, part.strip(), number if len(parts) > 1 else 0, _PORTS[scheme])
                for number, part in enumerate(parts, 1)
            )
        ),
    )


def _host(url: str, part: str, number: int, default_port: int) -> str:
    """Return ``host:port`` of one part. Raises ``InvalidUrl``.

    Args:
        number: which host it is of several, from 1; 0: it is the only one.
    """
    which = f"host {number}" if number else "the host"
    begin = f"service_url {url!r}: {which}"
    if not part:
        raise _wrong(f"{begin} is empty: there is a comma too many")
    if "://" in part:
        raise _wrong(f"{begin}, {part!r}, has a scheme: write the scheme once, before all hosts")
    part, slash, path = part.partition("/")
    if slash:
        raise _wrong(f"{begin} has the path {'/' + path!r}: a service URL ends with its port")
    if part.count(":") > 1 and _IPV6.fullmatch(part):
        raise _wrong(f"{begin}, {part!r}, is an IPv6 address without brackets: write [{part}]")
    host, colon, port = part.rpartition(":")
    if not colon or part.endswith("]"):
        host, port = part, str(default_port)
    if not host:
        raise _wrong(f"{begin} has no name before the port {port!r}")
    if not _HOST.fullmatch(host):
        raise _wrong(
            f"{begin} {host!r} is no host name or IP address; several hosts are separated by commas"
        )
    if not (port.isascii() and port.isdecimal() and 0 < int(port) <= _PORT_MAX):
        raise _wrong(f"{begin} {host!r} has the port {port!r}, not a number of 1 to {_PORT_MAX}")
    return f"{host}:{int(port)}"


def _wrong(problem: str) -> InvalidUrl:
    return InvalidUrl(f"{problem}; {_FORM}")
