"""HTTP's CONNECT, with which gRPC clients, this project's own included, and HTTP tools pass a proxy
(RFC 9110, section 9.3.6).

Such clients know the brokers' own addresses from lookups, but cannot reach them.
"""

from __future__ import annotations

import re
from typing import Final

from pulsarish.model.errors import NotAllowedError, PulsarishError
from pulsarish.proxy.relayed import RelayedConnection
from pulsarish.runtime.log import get_logger

__all__ = ["HttpConnectConnection"]

_log = get_logger("proxy.connect")

_HEAD_BYTES_MAX: Final = 16 * 1024
_REQUEST: Final = re.compile(rb"CONNECT ([A-Za-z0-9._\-\[\]:]+:[0-9]{1,5}) HTTP/1\.[01]\r\n")


class HttpConnectConnection(RelayedConnection):
    """One accepted connection of an HTTP client."""

    def begun(self) -> None:
        self._head = bytearray()

    def received(self, data: bytes) -> None:
        if self._started:
            return  # the connection was refused
        self._head += data
        self.input_waits(len(self._head))
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) <= _HEAD_BYTES_MAX:
            return
        self.started()
        self.input_waits(0)
        head = bytes(self._head)
        self._head.clear()
        request = _REQUEST.match(head)
        if request is None or end < 0:
            self._refuse(
                b"405 Method Not Allowed", b"only CONNECT of a broker's host:port is served here\n"
            )
            return
        address, rest = request[1].decode(), head[end + 4 :]
        self.hold(rest)
        self.watch(self._connect(address), "relay")

    async def _connect(self, address: str) -> None:
        try:
            self._brokers.check(address)
            await self.pass_on(address, greeting=b"HTTP/1.1 200 Connection Established\r\n\r\n")
        except PulsarishError as error:
            _log.warning("not relayed", peer=self.peer, broker=address, reason=error)
            self._refuse(
                b"403 Forbidden" if isinstance(error, NotAllowedError) else b"502 Bad Gateway",
                f"{error}\n".encode(),
            )

    def _refuse(self, status: bytes, reason: bytes) -> None:
        head = (
            b"HTTP/1.1 %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: "
            b"close\r\n\r\n"
        ) % (status, len(reason))
        self.write(head + reason)
        self.close()
