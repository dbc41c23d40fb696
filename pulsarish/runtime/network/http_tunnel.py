"""Connections through an HTTP proxy, by CONNECT.

The environment names the proxy, in the variables that gRPC's C core reads.
"""

from __future__ import annotations

import asyncio
import os
import socket
from base64 import b64encode
from urllib.parse import SplitResult, unquote, urlsplit

__all__ = ["open_tunnel", "proxy_for"]

_VARIABLES = ("grpc_proxy", "https_proxy", "http_proxy")
_EXCEPTIONS = ("no_grpc_proxy", "no_proxy")
_ANSWER_BYTES_MAX = 8 << 10
_PORT = 80


def proxy_for(host: str) -> SplitResult | None:
    """Return the proxy for this host; ``None``: connect directly."""
    named = next((value for name in _VARIABLES if (value := os.environ.get(name))), None)
    if named is None:
        return None
    excepted = next((value for name in _EXCEPTIONS if (value := os.environ.get(name))), "")
    if any(host.endswith(suffix) for name in excepted.split(",") if (suffix := name.strip())):
        return None
    found = urlsplit(named)
    # The C core ignores other kinds of proxies, too.
    return found if found.scheme == "http" and found.hostname else None


async def open_tunnel(proxy: SplitResult, address: str) -> socket.socket:
    """Return a socket that is connected to ``address``. Raises ``OSError``."""
    loop = asyncio.get_running_loop()
    assert proxy.hostname is not None
    found = await loop.getaddrinfo(proxy.hostname, proxy.port or _PORT, type=socket.SOCK_STREAM)
    family, kind, protocol, _, target = found[0]
    tunnel = socket.socket(family, kind, protocol)
    try:
        tunnel.setblocking(False)
        await loop.sock_connect(tunnel, target)
        lines = [f"CONNECT {address} HTTP/1.1", f"Host: {address}"]
        if proxy.username is not None:
            credentials = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
            lines.append(f"Proxy-Authorization: Basic {b64encode(credentials.encode()).decode()}")
        await loop.sock_sendall(tunnel, ("\r\n".join(lines) + "\r\n\r\n").encode())
        answer = await _answer(tunnel)
    except BaseException:
        tunnel.close()
        raise
    status = answer.split(b" ", 2)[1:2]
    if status != [b"200"]:
        tunnel.close()
        raise OSError(
            f"the proxy {proxy.hostname} refused to connect to {address}: "
            f"{answer[:200].decode(errors='replace').strip()}"
        )
    return tunnel


async def _answer(tunnel: socket.socket) -> bytes:
    """Return the head of the answer.

    Reads byte by byte: what follows belongs to the peer's connection.
    """
    loop = asyncio.get_running_loop()
    answer = bytearray()
    while not answer.endswith(b"\r\n\r\n"):
        byte = await loop.sock_recv(tunnel, 1)
        if not byte or len(answer) >= _ANSWER_BYTES_MAX:
            raise OSError("the proxy's answer to CONNECT has no end")
        answer += byte
    return bytes(answer)
