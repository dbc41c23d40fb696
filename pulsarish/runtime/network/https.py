"""Content behind an https URL, for the keys of token issuers."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPMessage
from typing import IO, Final

from pulsarish.model.errors import ServiceNotReady

__all__ = ["read_https"]

_BYTES_MAX: Final = 1 << 20
_SECONDS_MAX: Final = 10.0


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


def read_https(url: str) -> bytes:
    """Return what is behind a URL, of a server whose certificate the system trusts.

    Blocks for up to ten seconds between two received bytes, so call it in a lane. Raises
    ``ServiceNotReady``.
    """
    if not url.startswith("https://"):
        raise ServiceNotReady(f"{url} is no https URL")
    opener = urllib.request.build_opener(
        _SecureRedirects(), urllib.request.HTTPSHandler(context=ssl.create_default_context())
    )
    try:
        with opener.open(url, timeout=_SECONDS_MAX) as answer:
            content: bytes = answer.read(_BYTES_MAX + 1)
    except (OSError, ValueError, HTTPException) as error:
        raise ServiceNotReady(f"{url} cannot be read: {error}") from None
    if len(content) > _BYTES_MAX:
        raise ServiceNotReady(f"{url} has more than {_BYTES_MAX} bytes")
    return content
