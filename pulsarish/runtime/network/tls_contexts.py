"""TLS contexts that follow their files.

A server or client whose files change uses the new ones for its next connections, without a restart.
Connections that are open stay as they are. New files that cannot be used are reported once, and the
old ones stay in use.
"""

from __future__ import annotations

import os
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from pulsarish.model.errors import ConfigError
from pulsarish.runtime.log import get_logger
from pulsarish.security.tls import (
    TlsClientConfig,
    TlsMaterial,
    TlsServerConfig,
    client_context,
    read_client_material,
    read_server_material,
    server_context,
)

__all__ = ["ClientTls", "ServerTls"]

_log = get_logger("tls")

_LOOK_SECONDS: Final = 1.0
"""How often the files are looked at, at most."""

_Stamp = tuple[int, int, int]
"""Time of change, size and number of a file."""


class _FollowedFiles(ABC):
    """Files that are read again when they have changed.

    May be asked in any thread: gRPC does in its own.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._paths = [path for path in paths if path]
        self._monotonic = monotonic
        self._wall_ms = wall_ms
        self._lock = threading.Lock()
        # Before they are read: a change in between is seen at the next look.
        self._stamps = self._look()
        self._looked_at = monotonic()
        self._read(wall_ms())

    @abstractmethod
    def _read(self, now_ms: int) -> None:
        """Read the files and use them from now on. Raises ``ConfigError`` and keeps the old."""

    def follow(self) -> None:
        """Read the files again if they have changed."""
        with self._lock:
            now = self._monotonic()
            if now - self._looked_at < _LOOK_SECONDS:
                return
            self._looked_at = now
            stamps = self._look()
            if stamps == self._stamps:
                return
            self._stamps = stamps
            try:
                self._read(self._wall_ms())
            except ConfigError as error:
                _log.error(
                    "changed certificate files are not used; the old ones stay in use",
                    reason=error,
                )
            else:
                _log.info("changed certificate files are in use", files=", ".join(self._paths))

    def _look(self) -> list[_Stamp | None]:
        return [_stamp(path) for path in self._paths]


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


class ServerTls(_FollowedFiles):
    """The TLS of a listener. Raises ``ConfigError`` for files that cannot be used."""

    def __init__(
        self,
        config: TlsServerConfig,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.config = config
        self.material = TlsMaterial()
        super().__init__(
            (config.certificate_file, config.key_file, config.trust_file),
            monotonic=monotonic,
            wall_ms=wall_ms,
        )

    def _read(self, now_ms: int) -> None:
        material = read_server_material(self.config, now_ms)
        self._current = server_context(self.config, material)
        self.material = material

    def context(self) -> ssl.SSLContext:
        """Return the TLS of the next handshake, with the files as they are now."""
        self.follow()
        return self._current


class ClientTls(_FollowedFiles):
    """The TLS of a client. Raises ``ConfigError`` for files that cannot be used."""

    def __init__(
        self,
        config: TlsClientConfig,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.config = config
        self.material = TlsMaterial()
        self._contexts: dict[tuple[str, ...], ssl.SSLContext] = {}
        super().__init__(
            (config.certificate_file, config.key_file, config.trust_file),
            monotonic=monotonic,
            wall_ms=wall_ms,
        )

    def context(self, *protocols: str) -> ssl.SSLContext:
        """Return the context for a new connection that speaks one of these protocols."""
        self.follow()
        found = self._contexts.get(protocols)
        if found is None:
            found = client_context(self.config, self.material, protocols=protocols)
            self._contexts[protocols] = found
        return found

    def _read(self, now_ms: int) -> None:
        material = read_client_material(self.config, now_ms)
        contexts = {
            protocols: client_context(self.config, material, protocols=protocols)
            for protocols in {(), *self._contexts}
        }
        self.material, self._contexts = material, contexts
