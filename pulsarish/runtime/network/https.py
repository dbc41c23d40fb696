"""Content behind an https URL, for the keys of token issuers."""

from __future__ import annotations

import socket
import ssl
import time
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection
from typing import IO, Any, Final

from pulsarish.model.errors import ServiceNotReady

__all__ = ["read_https"]

_BYTES_MAX: Final = 1 << 20
_SECONDS_MAX: Final = 10.0


class _Deadline:
    """The end of one fetch, over all its connections and redirects."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._at = time.monotonic() + seconds

    def left_seconds(self) -> float:
        """Return the rest of the time. Raises ``TimeoutError`` when there is none."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"it did not answer in full within {self._seconds:g} s")
        return left


class _SecureRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not newurl.startswith("https://"):
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _TimedHandler(urllib.request.HTTPSHandler):
    """Opens connections of which every step ends with the deadline.

    A timeout of a socket bounds one wait, so a server that sends a byte every few seconds would
    hold its reader for as long as it likes. Here each wait gets the rest of the time.
    """

    def __init__(self, deadline: _Deadline) -> None:
        class TimedSocket(ssl.SSLSocket):
            def read(self, *arguments: Any) -> Any:
                self.settimeout(deadline.left_seconds())
                return super().read(*arguments)

        class TimedConnection(HTTPSConnection):
            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **options)
                self._create_connection = _connect

        def _connect(address: tuple[str, int], *_: object) -> socket.socket:
            failure: OSError = OSError(f"{address[0]} has no address")
            for family, kind, protocol, _name, target in socket.getaddrinfo(
                *address, type=socket.SOCK_STREAM
            ):
                opened = socket.socket(family, kind, protocol)
                try:
                    opened.settimeout(deadline.left_seconds())
                    opened.connect(target)
                    # The handshake has one limit for all of its messages: this one.
                    opened.settimeout(deadline.left_seconds())
                except OSError as error:
                    opened.close()
                    failure = error
                else:
                    return opened
            raise failure

        self._made_context = context = ssl.create_default_context()
        context.sslsocket_class = TimedSocket
        self._kind = TimedConnection
        super().__init__(context=context)

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(self._kind, req, context=self._made_context)


def read_https(url: str, *, seconds_max: float = _SECONDS_MAX) -> bytes:
    """Return what is behind a URL, of a server whose certificate the system trusts.

    Blocks for at most ``seconds_max`` and what the system takes to look up a name, so call it in a
    lane. Raises ``ServiceNotReady``.
    """
    if not url.startswith("https://"):
        raise ServiceNotReady(f"{url} is no https URL")
    deadline = _Deadline(seconds_max)
    opener = urllib.request.build_opener(_SecureRedirects(), _TimedHandler(deadline))
    try:
        with opener.open(url, timeout=seconds_max) as answer:
            content: bytes = answer.read(_BYTES_MAX + 1)
    except (OSError, ValueError, HTTPException) as error:
        raise ServiceNotReady(f"{url} cannot be read: {error}") from None
    if len(content) > _BYTES_MAX:
        raise ServiceNotReady(f"{url} has more than {_BYTES_MAX} bytes")
    return content
