"""Why a connection to a metadata server fails, and what an operator changes for it."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from pulsarish.security.tls import is_not_tls, tls_reason

__all__ = ["ConnectFailure", "FailureReader", "HandshakeEnded", "Refusal"]

_PASSING_TLS_ERRORS: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLWantReadError)
"""The connection broke, or nothing has come yet."""
_WRONG_HOST_OR_TIME: Final = frozenset({9, 10, 62, 64})
"""Codes of OpenSSL: not valid yet, expired, another host name, another IP address."""
_CUT_SHORT_MAX: Final = 5
"""When this many connections in a row end without a word, the server wants that: one that stops
does it once.
"""
_WORD_SECONDS: Final = 1.0
_WORD_BYTES: Final = 4096
_NOT_SERVING: Final = b"not currently serving"


class HandshakeEnded(OSError):
    """The server ended a connection in the TLS handshake."""


class Refusal(Enum):
    """Why a server and this node refuse each other until something is changed."""

    LOGIN = auto()
    AUTHORITY = auto()
    SERVER_CERTIFICATE = auto()
    CERTIFICATE = auto()
    NO_TLS = auto()
    TLS = auto()


@dataclass(frozen=True, slots=True)
class ConnectFailure:
    """An attempt to connect that failed.

    Args:
        refusal: why the next one will fail, too; ``None``: it may succeed.
    """

    reason: str
    refusal: Refusal | None = None


class FailureReader:
    """Finds out why attempts of one client fail. It blocks for about two seconds at most.

    Args:
        tls: returns the context of a new connection; ``None``: connections have no TLS.
    """

    def __init__(self, tls: Callable[[], ssl.SSLContext] | None) -> None:
        self._tls = tls
        self._cut_short = 0

    def connected(self) -> None:
        self._cut_short = 0

    def read(
        self,
        error: Exception,
        host: str,
        address: tuple[str, int],
        *,
        was_cut: bool,
        at_login: bool,
    ) -> ConnectFailure:
        """Return why an attempt failed.

        Args:
            error: kazoo's.
            host: the name of the server, as its certificate has it.
            address: its IP address and port.
            was_cut: whether the server ended the connection, after the TLS handshake if any.
            at_login: whether the server had opened a session, and was asked to log in.
        """
        cause = error.__context__
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, _PASSING_TLS_ERRORS):
            return ConnectFailure(tls_reason(cause), _refusal_of(cause))
        if isinstance(cause, HandshakeEnded):
            if self._ask(host, address, tls=None):
                return ConnectFailure("the server speaks no TLS at this port", Refusal.NO_TLS)
            return self._cut(
                "the server ends connections in the TLS handshake: does it speak TLS here?",
                Refusal.NO_TLS,
            )
        if not was_cut:
            self._cut_short = 0
            return ConnectFailure(str(error))
        if at_login:
            return ConnectFailure(
                "the server ends the connection at the login and does not check it: too many "
                "logins from this address have failed lately, or the server stops"
            )
        answer = self._ask(host, address, tls=self._tls)
        if _NOT_SERVING in answer:
            return ConnectFailure(
                "the server runs and does not serve: it has no quorum, or it is starting; see the "
                "logs of the servers"
            )
        if answer or self._tls is None:
            return ConnectFailure(f"{error}; the log of the server says why")
        # Servers need not say that they refuse a certificate.
        return self._cut(
            "the server ends connections after the TLS handshake, as if it refused the "
            "certificate that is shown or missing",
            Refusal.CERTIFICATE,
        )

    def _cut(self, reason: str, refusal: Refusal) -> ConnectFailure:
        self._cut_short += 1
        return ConnectFailure(reason, refusal if self._cut_short >= _CUT_SHORT_MAX else None)

    def _ask(
        self, host: str, address: tuple[str, int], *, tls: Callable[[], ssl.SSLContext] | None
    ) -> bytes:
        """Return the beginning of the answer to ``srvr``, which servers without a quorum give, too.

        Empty when there is none.
        """
        try:
            with socket.create_connection(address, _WORD_SECONDS) as plain:
                if tls is None:
                    return _answer(plain)
                with tls().wrap_socket(plain, server_hostname=host) as secured:
                    return _answer(secured)
        except OSError:
            return b""


def _answer(connection: socket.socket) -> bytes:
    connection.sendall(b"srvr")
    return connection.recv(_WORD_BYTES)


def _refusal_of(error: ssl.SSLError) -> Refusal:
    if isinstance(error, ssl.SSLCertVerificationError):
        is_right_authority = error.verify_code in _WRONG_HOST_OR_TIME
        return Refusal.SERVER_CERTIFICATE if is_right_authority else Refusal.AUTHORITY
    if is_not_tls(error):
        return Refusal.NO_TLS
    words = (error.reason or "").split("_")
    is_about_ours = "ALERT" in words and ("CERTIFICATE" in words or "CA" in words)
    return Refusal.CERTIFICATE if is_about_ours else Refusal.TLS
