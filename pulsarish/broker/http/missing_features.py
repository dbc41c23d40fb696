"""Apache Pulsar's paths whose engine does not exist here yet: each is refused with 501 and the feature that is missing.

A row goes when its feature comes. Refused rather than stored: a policy that is accepted and does nothing is a trap.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from pulsarish.broker.authorization import Permission
from pulsarish.broker.http.routes import Call, Route
from pulsarish.broker.http.topic_policy_routes import TOPIC_PARAMETERS
from pulsarish.model.errors import UnsupportedFeature
from pulsarish.runtime.seams import HttpResponse

__all__ = ["missing_api", "missing_feature_routes"]

_CLUSTER: Final = "/admin/v2/clusters/{cluster}"
_NAMESPACES: Final = "/admin/v2/namespaces"
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPIC: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

_ENCRYPTION: Final = "end-to-end encryption"
_OFFLOAD: Final = "offloading of ledgers to other storage"
_REPLICATION: Final = "geo-replication"
_PERMISSIONS: Final = "authentication and permissions"
_GROUPS: Final = "resource groups"
_FILTERS: Final = "entry filters"
_PLACEMENT: Final = "affinity of bookies and brokers"
_SUBSCRIBE: Final = "a limit on how often consumers subscribe"
_PAUSING: Final = "a switch for dispatch that waits for acknowledgements to be stored (here it always stops at a stated limit)"

_SPLITTING: Final = "splitting of bundles"
_FUNCTIONS: Final = "functions"
_CONNECTORS: Final = "connectors"

# What begins with these words is of a part of Apache Pulsar that is missing altogether.
_MISSING_APIS: Final = {
    "resourcegroups": _GROUPS,
    "resource-quotas": "quotas of resources for bundles",
    "functions": _FUNCTIONS,
    "worker": _FUNCTIONS,
    "worker-stats": _FUNCTIONS,
    "sources": _CONNECTORS,
    "sinks": _CONNECTORS,
    "packages": "packages of functions",
    "transactions": "transactions",
}

# Level, the words below it, the methods that Apache Pulsar has there, what is missing.
_MISSING: Final = (
    (_CLUSTER, "migrate", "POST", _REPLICATION),
    (_NAMESPACES, "grantPermissionsOnTopics", "POST", _PERMISSIONS),
    (_NAMESPACES, "revokePermissionsOnTopics", "POST", _PERMISSIONS),
    (_NAMESPACE, "encryptionRequired", "GET POST", _ENCRYPTION),
    (_NAMESPACE, "offloadThreshold", "GET PUT", _OFFLOAD),
    (_NAMESPACE, "offloadThresholdInSeconds", "GET PUT", _OFFLOAD),
    (_NAMESPACE, "offloadDeletionLagMs", "GET PUT DELETE", _OFFLOAD),
    (_NAMESPACE, "offloadPolicies", "GET POST", _OFFLOAD),
    (_NAMESPACE, "removeOffloadPolicies", "DELETE", _OFFLOAD),
    (_NAMESPACE, "replication", "GET POST", _REPLICATION),
    (_NAMESPACE, "allowedClusters", "GET POST", _REPLICATION),
    (_NAMESPACE, "replicatorDispatchRate", "GET POST DELETE", _REPLICATION),
    (_NAMESPACE, "subscriptionAuthMode", "GET POST", _PERMISSIONS),
    (_NAMESPACE, "permissions", "GET", _PERMISSIONS),
    (_NAMESPACE, "permissions/{role}", "POST DELETE", _PERMISSIONS),
    (_NAMESPACE, "permissions/subscription", "GET", _PERMISSIONS),
    (_NAMESPACE, "permissions/{subscription}/{role}", "POST DELETE", _PERMISSIONS),
    (_NAMESPACE, "resourcegroup", "GET DELETE", _GROUPS),
    (_NAMESPACE, "resourcegroup/{group}", "POST", _GROUPS),
    (_NAMESPACE, "entryFilters", "GET POST DELETE", _FILTERS),
    (_NAMESPACE, "persistence/bookieAffinity", "GET POST DELETE", _PLACEMENT),
    (_NAMESPACE, "antiAffinity", "GET POST DELETE", _PLACEMENT),
    (_NAMESPACE, "subscribeRate", "GET POST DELETE", _SUBSCRIBE),
    (_NAMESPACE, "dispatcherPauseOnAckStatePersistent", "GET POST DELETE", _PAUSING),
    (_NAMESPACE, "migration", "POST", _REPLICATION),
    (_NAMESPACE, "{bundle}/split", "PUT", _SPLITTING),
    (_NAMESPACE, "{bundle}/topicHashPositions", "GET", _SPLITTING),
    (_TOPIC, "offload", "GET PUT", _OFFLOAD),
    (_TOPIC, "offloadPolicies", "GET POST DELETE", _OFFLOAD),
    (_TOPIC, "replication", "GET POST DELETE", _REPLICATION),
    (_TOPIC, "replicatorDispatchRate", "GET POST DELETE", _REPLICATION),
    (_TOPIC, "shadowTopics", "GET PUT DELETE", _REPLICATION),
    (_TOPIC, "permissions", "GET", _PERMISSIONS),
    (_TOPIC, "permissions/{role}", "POST DELETE", _PERMISSIONS),
    (_TOPIC, "resourceGroup", "GET POST DELETE", _GROUPS),
    (_TOPIC, "entryFilters", "GET POST DELETE", _FILTERS),
    (_TOPIC, "subscribeRate", "GET POST DELETE", _SUBSCRIBE),
    (_TOPIC, "dispatcherPauseOnAckStatePersistent", "GET POST DELETE", _PAUSING),
    (_TOPIC, "subscription/{subscription}/replicatedSubscriptionStatus", "GET POST", _REPLICATION),
    (_TOPIC, "getMessageIdByIndex", "GET", "an index that counts the messages of a topic"),
    (_TOPIC, "{subscription}/dispatchRate", "GET POST DELETE", "a dispatch rate for a single subscription"),
)


_PERMITTED: Final = {_CLUSTER: Permission.ADMIN_TENANT, _TOPIC: Permission.ADMIN_TOPIC}


async def _refuse(feature: str, call: Call) -> HttpResponse:
    raise UnsupportedFeature(f"this version does not have {feature} yet, so {call.request.path} cannot be read or set")


def missing_feature_routes() -> list[Route]:
    """One for each path and method."""
    found = []
    for level, words, methods, feature in _MISSING:
        may = _PERMITTED.get(level, Permission.ADMIN_NAMESPACE)
        for method in methods.split():
            permission = Permission.ADMIN_READ if method == "GET" else may
            refuse = partial(_refuse, feature)
            body: Any = None if method in ("GET", "DELETE") else Any
            what, known = f"Not there yet: {feature}.", TOPIC_PARAMETERS if level is _TOPIC else ()
            route = Route(method, f"{level}/{words}", refuse, permission, what, known, body=body, statuses=(501,), any_parameters=True)
            found.append(route)
    return found


def missing_api(segments: Sequence[str]) -> str | None:
    """What is missing, if a path is of a part of Apache Pulsar's administration that is."""
    return _MISSING_APIS.get(segments[2]) if len(segments) > 2 and segments[0] == "admin" else None
