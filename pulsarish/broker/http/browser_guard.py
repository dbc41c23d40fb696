"""Refuse requests that a web page makes its reader's browser send.

A browser reaches what its user reaches, such as a broker on loopback. Any page may make it send
requests: a form to a foreign address, or, with a name that resolves to the broker (DNS rebinding),
any request at all. A browser says so in headers that a page cannot change: Host, Origin and
Sec-Fetch-Site (Fetch standard, 3.2; Fetch Metadata, 2.3). And a form has one of three content
types.

A page that rebinds its name needs a name that its author can register, which has a dot. So a name
without one, such as that of a container in its network, is served like an address.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Sequence
from typing import Final

from pulsarish.runtime.seams import HttpRequest

__all__ = ["BrowserGuard"]

_SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
_LOCAL: Final = "localhost"
_ANY: Final = "*"


class BrowserGuard:
    """Checks the headers of admin requests.

    Args:
        addresses: ``host:port`` or hosts under which the broker listens or is advertised.
        allowed_hosts: further names; one that begins with a dot stands for all names that end with
            it, ``*`` for every name.
    """

    def __init__(self, addresses: Iterable[str], allowed_hosts: Sequence[str]) -> None:
        self._names = {_host(address) for address in addresses} | {socket.gethostname().lower()}
        self._names |= {name.lower() for name in allowed_hosts}
        self._suffixes = tuple(name for name in self._names if name.startswith("."))

    def refusal(self, request: HttpRequest) -> tuple[int, str] | None:
        """Return the status and reason for refusing a request that a page of another site may have
        made a browser send.
        """
        headers = request.headers
        host = headers.get("host", "")
        if host and not self._is_own(_host(host)):
            known = ", ".join(sorted(self._names))
            return 403, (
                f"the request is for host {host[:80]!r}, which is no name of this broker; use "
                "an IP address, a name without a dot or"
                f" one of {known}, or add the name to the broker's option http_allowed_hosts"
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != host.lower():
            return (
                403,
                (
                    f"a page of {origin[:80]!r} made the browser send this request; requests of "
                    "other sites are refused"
                ),
            )
        if headers.get("sec-fetch-site") == "cross-site":
            return (
                403,
                (
                    "a page of another site made the browser send this request; such requests are "
                    "refused"
                ),
            )
        return (
            None
            if request.method in _SAFE_METHODS
            else _refused_type(headers.get("content-type", ""))
        )

    def _is_own(self, host: str) -> bool:
        if (
            "." not in host
            or host in self._names
            or host.endswith((f".{_LOCAL}", *self._suffixes))
            or _ANY in self._names
        ):
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True  # a page's name cannot be an address of this broker


def _host(address: str) -> str:
    """Return the host of ``host``, ``host:port``, ``[::1]:port`` or ``::1``."""
    if address.startswith("["):
        return address[1:].partition("]")[0].lower()
    return (
        address.lower()
        if address.count(":") > 1
        else address.partition(":")[0].lower().removesuffix(".")
    )


def _refused_type(content_type: str) -> tuple[int, str] | None:
    """Refuse content types of forms. A form always names one, even with an empty body.

    A script can leave the content type out. Then the browser adds the Origin header.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type in ("", "application/json") or media_type.endswith("+json"):
        return None
    return (
        415,
        (
            f"Content-Type is {media_type[:80]!r}; send JSON, with the header Content-Type: "
            "application/json"
        ),
    )
