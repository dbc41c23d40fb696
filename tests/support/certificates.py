"""Certificates of a test's own authority, in files."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import time
from pathlib import Path

from pulsarish.security.authority import Authority, Issued
from pulsarish.security.tls import ClientCertificate, TlsClientConfig, TlsServerConfig

__all__ = ["HOSTS", "Certificates", "certificates"]

HOSTS = ("127.0.0.1", "localhost")
_DAY_MS = 86_400_000


class Certificates:
    """A directory with ``ca.pem`` and, for each issued name, ``NAME.pem`` and ``NAME.key``.

    Args:
        authority: signs them; without one, it is a new authority with this name.
    """

    def __init__(
        self, directory: Path, name: str = "test authority", authority: Authority | None = None
    ) -> None:
        self.directory = directory
        self.authority = authority or Authority.create(
            name, now_ms=time.time_ns() // 1_000_000, days=30
        )
        self.trust = str(directory / "ca.pem")
        Path(self.trust).write_bytes(self.authority.certificate)

    def issue(
        self,
        name: str,
        *,
        hosts: tuple[str, ...] = HOSTS,
        uris: tuple[str, ...] = (),
        age_days: int = 0,
        days: int = 30,
        is_server: bool = True,
    ) -> tuple[str, str]:
        """Write a certificate and its key. Return the two paths."""
        now_ms = time.time_ns() // 1_000_000 - age_days * _DAY_MS
        issued = self.authority.issue(
            name, now_ms=now_ms, days=days, hosts=hosts, uris=uris, is_server=is_server
        )
        return self.write(name, issued)

    def write(self, name: str, issued: Issued) -> tuple[str, str]:
        certificate, key = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        certificate.write_bytes(issued.certificate)
        key.write_bytes(issued.key.reveal())
        return str(certificate), str(key)

    def server_config(
        self, name: str = "server", client_certificate: ClientCertificate = "required"
    ) -> TlsServerConfig:
        certificate, key = self._paths(name)
        trust = "" if client_certificate == "none" else self.trust
        return TlsServerConfig(certificate, key, trust, client_certificate)

    def client_config(self, name: str = "client") -> TlsClientConfig:
        """Return the TLS of a client, which shows a certificate unless ``name`` is empty."""
        certificate, key = self._paths(name) if name else ("", "")
        return TlsClientConfig(self.trust, certificate, key)

    def _paths(self, name: str) -> tuple[str, str]:
        certificate = self.directory / f"{name}.pem"
        if not certificate.exists():
            return self.issue(name)
        return str(certificate), str(self.directory / f"{name}.key")


@functools.cache
def certificates() -> Certificates:
    """Return the certificates that all tests of this process share. None changes them."""
    directory = tempfile.mkdtemp(prefix="pulsarish-certificates-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return Certificates(Path(directory))
