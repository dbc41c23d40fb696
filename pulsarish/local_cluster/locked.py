"""A cluster of this machine that only those who have a credential can use, over TLS.

``DIR/security`` has its keys and certificates and the administrator's profile.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pulsarish.admin import Admin
from pulsarish.local_cluster.plan import HOST, NodePlan, service_urls
from pulsarish.local_cluster.processes import Cluster
from pulsarish.local_cluster.security_files import ADMINISTRATOR, SecurityFiles
from pulsarish.runtime.profiles import Profiles

__all__ = [
    "administrator",
    "is_locked",
    "lock_cluster",
    "lock_node",
    "locked_settings",
    "profiles_of",
    "put_profile",
]

_LOCKED: Final = "authentication_enabled=true"


def profiles_of(cluster: Cluster) -> Path:
    """Return the file of profiles of a locked cluster."""
    return _files(cluster).profiles


def is_locked(nodes: Iterable[NodePlan]) -> bool:
    return any(_LOCKED in node.settings for node in nodes)


def lock_cluster(cluster: Cluster, nodes: Iterable[NodePlan]) -> None:
    """Make keys, certificates and the administrator's profile, and have the nodes use them.

    The nodes are those of a plan that ``cluster`` does not have yet.
    """
    nodes = list(nodes)
    _files(cluster).make()
    for node in nodes:
        lock_node(cluster, node)
    put_profile(cluster, nodes)


def lock_node(cluster: Cluster, node: NodePlan) -> None:
    """Have a node that the cluster does not have yet use its keys and certificates."""
    if node.role == "broker":
        node.trust_file = str(_files(cluster).trust)
    # After those of the plan: of two values the last one counts.
    node.settings += [each for each in locked_settings(cluster, node) if each not in node.settings]


def locked_settings(cluster: Cluster, node: NodePlan) -> list[str]:
    """Return the options of a node that uses the cluster's keys and certificates."""
    files = _files(cluster)
    if node.role == "metadata":
        return [f"auth_file={files.metadata_login}"]
    login = f"metadata_auth_file={files.metadata_login}"
    if node.role == "bookie":
        return [login, *files.bookie_settings()]
    if node.role == "broker":
        return [
            login,
            *files.broker_settings(cluster.directory / node.name),
            f"listen_address_tls={HOST}:{node.ports['grpc']}",
            f"http_address_tls={HOST}:{node.ports['http']}",
            f"pulsar_address_tls={HOST}:{node.ports['pulsar']}",
            f"framed_port_tls={node.ports['framed']}",
        ]
    return []


def put_profile(cluster: Cluster, nodes: Iterable[NodePlan]) -> None:
    """Write the administrator's profile of a locked cluster with the addresses of these nodes."""
    urls = service_urls(nodes)
    _files(cluster).put_profile(urls["pulsarish"], urls["http"])


def administrator(cluster: Cluster) -> Admin:
    """Return an administration client of a cluster, with the rights of its administrator."""
    if not profiles_of(cluster).exists():
        return Admin(cluster.admin_url())
    profile = Profiles.read(profiles_of(cluster)).get(ADMINISTRATOR)
    return Admin(profile.admin_url, **profile.arguments(profile.admin_url))


def _files(cluster: Cluster) -> SecurityFiles:
    return SecurityFiles(cluster.directory / "security")
