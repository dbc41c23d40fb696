"""Requests to the HTTP port of a node of this machine."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["get"]

_HOST = "127.0.0.1"


@contextmanager
def get(
    port: int, path: str, *, trust_file: str, timeout_seconds: float
) -> Iterator[http.client.HTTPResponse]:
    """Ask for a path, and close the connection afterwards.

    Args:
        trust_file: the authority of a port with TLS; empty: the port is plain.

    Raises ``OSError``, ``http.client.HTTPException``.
    """
    connection = (
        http.client.HTTPSConnection(
            _HOST,
            port,
            timeout=timeout_seconds,
            context=ssl.create_default_context(cafile=trust_file),
        )
        if trust_file
        else http.client.HTTPConnection(_HOST, port, timeout=timeout_seconds)
    )
    try:
        connection.request("GET", path)
        yield connection.getresponse()
    finally:
        connection.close()
