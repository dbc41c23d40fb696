"""The directory ``security`` of a locked cluster or standalone server of this machine.

It has keys, certificates, the administrator's token, and a file of profiles with which commands and
programs use the cluster as that administrator. Other users can read nothing there.
"""

from __future__ import annotations

import os
import shutil
import socket
import time
from base64 import b64encode
from pathlib import Path
from typing import Final

from pulsarish.runtime.modes import DIRECTORY_MODE
from pulsarish.runtime.profiles import Profile, Profiles
from pulsarish.security.membership import member_uri

__all__ = ["ADMINISTRATOR", "SecurityFiles"]

ADMINISTRATOR: Final = "admin"
"""The role that may do everything."""
_CLUSTER: Final = "local"
"""The cluster's name in certificates."""
_MEMBERS: Final = ("broker", "bookie", "autorecovery")
_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_HOST_BYTES_MAX: Final = 253
_METADATA_LOGIN: Final = "metadata.auth"
_KEY_BYTES: Final = 32
_FILE_MODE: Final = 0o600
_VALID_DAYS: Final = 3_650
"""As long as its authority: no process renews what a cluster of one machine uses."""


class SecurityFiles:
    """What lies in ``home``, and the options of servers that use it."""

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self.profiles = self.home / "profiles.toml"
        self.trust = self.home / "ca.pem"
        self.metadata_login = self.home / _METADATA_LOGIN
        self._token_key = self.home / "token.key"
        self._cluster_key = self.home / "cluster.key"
        self._token = self.home / "admin.token"

    def make(self) -> None:
        """Make all files but the profiles, unless they are there.

        All or none: a process that ends meanwhile leaves no half of it. Raises ``OSError``.
        """
        if self.home.exists():
            return
        part = self.home.with_name(f".{self.home.name}.{os.getpid()}")
        part.parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        part.mkdir(DIRECTORY_MODE)
        try:
            for name, content in _contents().items():
                _write(part / name, content)
            part.rename(self.home)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise

    def put_profile(self, url: str, admin_url: str) -> None:
        """Write the administrator's profile; other profiles of the file stay."""
        profiles = Profiles.read(self.profiles)
        profile = Profile(
            url=url,
            admin_url=admin_url,
            auth_plugin="token",
            auth_params=f"token:file://{self._token}",
            tls_trust_certs_file_path=str(self.trust),
        )
        profiles.put(ADMINISTRATOR, profile, replace=True)
        profiles.write()

    def bookie_settings(self) -> list[str]:
        """Return the options of a bookie that serves members of the cluster only, with TLS."""
        return [
            *self._member_settings(),
            *self.credential_settings("bookie"),
            "tls_require_trusted_client_cert_on_connect=true",
            f"tls_cluster_name={_CLUSTER}",
        ]

    def broker_settings(self, home: Path) -> list[str]:
        """Return the options of a broker that asks for tokens and keeps an audit trail below
        ``home``, with no plain port.

        Its ports with TLS are not among them.
        """
        return [
            *self._member_settings(),
            *self.credential_settings("broker"),
            f"audit_log_directory={home / 'audit'}",
            "listen_address=",
            "http_address=",
            "pulsar_address=",
        ]

    def credential_settings(self, role: str) -> list[str]:
        """Return the options of a broker or bookie that asks for credentials, with or without TLS.

        That of other members of the cluster is the cluster key.
        """
        settings = [f"cluster_key_file={self._cluster_key}"]
        if role == "broker":
            settings += [
                "authentication_enabled=true",
                "authentication_providers=token",
                f"token_secret_key={self._token_key}",
                "authorization_enabled=true",
                f"super_user_roles={ADMINISTRATOR}",
            ]
        return settings

    def _member_settings(self) -> list[str]:
        return [
            f"tls_certificate_file_path={self.home / 'server.pem'}",
            f"tls_key_file_path={self.home / 'server.key'}",
            f"tls_trust_certs_file_path={self.trust}",
        ]


def _contents() -> dict[str, bytes]:
    """Return new keys, certificates and the administrator's token, by the names of their files."""
    # They load the libraries for keys, which other commands do not wait for.
    from pulsarish.security.authority import Authority
    from pulsarish.security.keys import SigningKey
    from pulsarish.security.token_maker import sign_token

    now_ms = time.time_ns() // 1_000_000
    authority = Authority.create("Pulsarish development", now_ms=now_ms, days=_VALID_DAYS)
    server = authority.issue(
        "server",
        now_ms=now_ms,
        days=_VALID_DAYS,
        hosts=_hosts(),
        uris=[member_uri(_CLUSTER, kind) for kind in _MEMBERS],
    )
    token_key = os.urandom(_KEY_BYTES)
    return {
        "token.key": token_key,
        "cluster.key": b64encode(os.urandom(_KEY_BYTES)) + b"\n",
        _METADATA_LOGIN: b"pulsarish:" + b64encode(os.urandom(_KEY_BYTES)) + b"\n",
        "admin.token": sign_token({"sub": ADMINISTRATOR}, SigningKey(token_key, ("HS256",))),
        "ca.pem": authority.certificate,
        "ca.key": authority.key.reveal(),
        "server.pem": server.certificate,
        "server.key": server.key.reveal(),
    }


def _hosts() -> list[str]:
    """Return the names and addresses of loopback, and the name of this machine."""
    name = socket.gethostname()
    is_usable = name.isascii() and 0 < len(name) <= _HOST_BYTES_MAX
    return list(dict.fromkeys([*_HOSTS, *([name] if is_usable else [])]))


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), _FILE_MODE)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
