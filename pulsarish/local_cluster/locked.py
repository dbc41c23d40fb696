"""A cluster of this machine that only those who have a credential can use.

``DIR/security`` holds its keys, the token of its administrator, and a file of profiles with which
commands and programs use the cluster as that administrator. Nothing there is read by other users.
"""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pulsarish.admin import Admin
from pulsarish.local_cluster.processes import Cluster, NodePlan, broker_addresses
from pulsarish.runtime.modes import DIRECTORY_MODE
from pulsarish.runtime.profiles import Profile, Profiles

__all__ = ["ADMINISTRATOR", "administrator", "is_locked", "lock_cluster", "profiles_of"]

ADMINISTRATOR: Final = "admin"
"""The role that may do everything."""
_KEY_BYTES: Final = 32
_FILE_MODE: Final = 0o600
_PROVIDERS: Final = "authentication_providers=token"


def profiles_of(cluster: Cluster) -> Path:
    """Return the file of profiles of a locked cluster."""
    return cluster.directory / "security" / "profiles.toml"


def is_locked(nodes: Iterable[NodePlan]) -> bool:
    return any(_PROVIDERS in node.settings for node in nodes)


def lock_cluster(cluster: Cluster, nodes: Iterable[NodePlan]) -> None:
    """Make keys, the administrator's token and profile, and have the nodes ask for credentials.

    The nodes are those of a plan that ``cluster`` does not have yet.
    """
    # They load the libraries for keys, which other commands do not wait for.
    from pulsarish.security.keys import SigningKey, load_secret_key
    from pulsarish.security.token_maker import sign_token

    nodes = list(nodes)
    home = cluster.directory / "security"
    home.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
    token_key, cluster_key, token = home / "token.key", home / "cluster.key", home / "admin.token"
    _write(token_key, os.urandom(_KEY_BYTES))
    _write(cluster_key, b64encode(os.urandom(_KEY_BYTES)) + b"\n")
    key = load_secret_key("token_secret_key", str(token_key))
    _write(token, sign_token({"sub": ADMINISTRATOR}, SigningKey(key.key, key.algorithms)))
    for node in nodes:
        if node.role in ("bookie", "broker"):
            node.settings.append(f"cluster_key_file={cluster_key}")
        if node.role == "broker":
            node.settings += [
                "authentication_enabled=true",
                _PROVIDERS,
                f"token_secret_key={token_key}",
                "authorization_enabled=true",
                f"super_user_roles={ADMINISTRATOR}",
            ]
    profiles = Profiles(profiles_of(cluster), {}, "")
    profile = Profile(
        url=f"pulsarish://{broker_addresses(nodes, 'grpc')}",
        admin_url=f"http://{broker_addresses(nodes, 'http')}",
        auth_plugin="token",
        auth_params=f"token:file://{token}",
    )
    profiles.put(ADMINISTRATOR, profile, replace=True)
    profiles.write()


def administrator(cluster: Cluster) -> Admin:
    """Return an administration client of a cluster, with the rights of its administrator."""
    if not profiles_of(cluster).exists():
        return Admin(cluster.admin_url())
    profile = Profiles.read(profiles_of(cluster)).get(ADMINISTRATOR)
    return Admin(profile.admin_url, **profile.arguments(profile.admin_url))


def _write(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(file.fileno(), _FILE_MODE)
        file.write(content)
