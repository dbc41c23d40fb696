"""Apache Pulsar's paths for features that do not exist here yet.

A request that would change behaviour is refused with 501.

A request that changes nothing is answered as Apache Pulsar does: GET says that nothing is set,
DELETE has nothing to do, and a value that is in force anyway is accepted. Other values are refused
and not stored: a policy that is accepted without an effect is a trap. Remove a row when its feature
is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.route import NOTHING, Call, Route, answer, no_content
from pulsarish.broker.http.routes.topic_policy_routes import TOPIC_PARAMETERS
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.model.errors import OperationNotSupported
from pulsarish.runtime.seams import HttpResponse

__all__ = ["MissingFeatures", "missing_api"]

_CLUSTER: Final = "/admin/v2/clusters/{cluster}"
_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_TOPIC: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

_OFFLOAD: Final = "offloading of ledgers to other storage"
_REPLICATION: Final = "geo-replication"
_FILTERS: Final = "entry filters"
_PAUSING: Final = (
    "a switch for dispatch that waits for acknowledgements to be stored (here it always stops "
    "at a stated limit)"
)

_FUNCTIONS: Final = "functions"
_CONNECTORS: Final = "connectors"

# Paths that begin with these words belong to a part of Apache Pulsar that is missing completely.
_MISSING_APIS: Final = {
    "resource-quotas": "quotas of resources for bundles",
    "functions": _FUNCTIONS,
    "worker": _FUNCTIONS,
    "worker-stats": _FUNCTIONS,
    "sources": _CONNECTORS,
    "sinks": _CONNECTORS,
    "packages": "packages of functions",
    "transactions": "transactions",
}


@dataclass(frozen=True, slots=True)
class _Unset:
    """What Apache Pulsar answers when nothing is set (``None``: an empty answer), and which values
    mean the same.
    """

    answer: Any = None
    is_neutral: Callable[[Any], bool] = lambda _: False


def _says(*values: Any) -> Callable[[Any], bool]:
    return lambda given: any(type(given) is type(value) and given == value for value in values)


def _no_rate(given: Any) -> bool:
    """Return whether all limits of a rate have no effect: zero or below."""
    limits = (
        [value for name, value in given.items() if "rottling" in name]
        if isinstance(given, Mapping)
        else []
    )
    return bool(limits) and all(isinstance(value, int) and value <= 0 for value in limits)


_NOTHING: Final = _Unset()
_NO_SHADOWS: Final = _Unset([])
_RATE: Final = _Unset(None, _no_rate)
_OFF: Final = _Unset(answer=False, is_neutral=_says(False))
_NO_THRESHOLD: Final = _Unset(-1, _says(-1))
# Dispatch always stops at the limit, so switching this on changes nothing either.
_PAUSES: Final = _Unset(answer=True, is_neutral=_says(None, True))
_OWN_CLUSTER: Final = _Unset()
"""Answered and accepted as a list with the only cluster."""
_OWN_CLUSTER_IF_SET: Final = _Unset()
"""Like ``_OWN_CLUSTER``, but answered as not set."""
_NOT_REPLICATED: Final = _Unset(is_neutral=_says(False))
"""Answered for each topic."""
_NEVER_OFFLOADED: Final = _Unset({"status": "NOT_RUN", "lastError": ""})

# Level, words below it, Apache Pulsar's methods there, the missing feature, and the values without
# it.
_MISSING: Final[Sequence[tuple[str, str, str, str, _Unset | None]]] = (
    (_CLUSTER, "migrate", "POST", _REPLICATION, None),
    (_NAMESPACE, "offloadThreshold", "GET PUT", _OFFLOAD, _NO_THRESHOLD),
    (_NAMESPACE, "offloadThresholdInSeconds", "GET PUT", _OFFLOAD, _NO_THRESHOLD),
    (_NAMESPACE, "offloadDeletionLagMs", "GET PUT DELETE", _OFFLOAD, _NOTHING),
    (_NAMESPACE, "offloadPolicies", "GET POST", _OFFLOAD, _NOTHING),
    (_NAMESPACE, "removeOffloadPolicies", "DELETE", _OFFLOAD, _NOTHING),
    (_NAMESPACE, "replication", "GET POST", _REPLICATION, _OWN_CLUSTER),
    (_NAMESPACE, "allowedClusters", "GET POST", _REPLICATION, _OWN_CLUSTER),
    (_NAMESPACE, "replicatorDispatchRate", "GET POST DELETE", _REPLICATION, _RATE),
    (_NAMESPACE, "entryFilters", "GET POST DELETE", _FILTERS, _NOTHING),
    (_NAMESPACE, "dispatcherPauseOnAckStatePersistent", "GET POST DELETE", _PAUSING, _PAUSES),
    (_NAMESPACE, "migration", "POST", _REPLICATION, _OFF),
    (_TOPIC, "offload", "GET PUT", _OFFLOAD, _NEVER_OFFLOADED),
    (_TOPIC, "offloadPolicies", "GET POST DELETE", _OFFLOAD, _NOTHING),
    (_TOPIC, "replication", "GET POST DELETE", _REPLICATION, _OWN_CLUSTER_IF_SET),
    (_TOPIC, "replicatorDispatchRate", "GET POST DELETE", _REPLICATION, _RATE),
    (_TOPIC, "shadowTopics", "GET PUT DELETE", _REPLICATION, _NO_SHADOWS),
    (_TOPIC, "entryFilters", "GET POST DELETE", _FILTERS, _NOTHING),
    (_TOPIC, "dispatcherPauseOnAckStatePersistent", "GET POST DELETE", _PAUSING, _PAUSES),
    (
        _TOPIC,
        "subscription/{subscription}/replicatedSubscriptionStatus",
        "GET POST",
        _REPLICATION,
        _NOT_REPLICATED,
    ),
    (_TOPIC, "getMessageIdByIndex", "GET", "an index that counts the messages of a topic", None),
    (
        _TOPIC,
        "{subscription}/dispatchRate",
        "GET POST DELETE",
        "a dispatch rate for a single subscription",
        None,
    ),
)


class MissingFeatures:
    """Routes of missing features: one for each path and method."""

    def __init__(self, cluster: str, namespaces: Namespaces) -> None:
        self._cluster = cluster
        self._namespaces = namespaces

    def routes(self) -> list[Route]:
        return [
            self._route(level, words, method, feature, unset)
            for level, words, methods, feature, unset in _MISSING
            for method in methods.split()
        ]

    def _route(
        self, level: str, words: str, method: str, feature: str, unset: _Unset | None
    ) -> Route:
        permission = Permission.READ_POLICIES if method == "GET" else Permission.WRITE_POLICIES
        if level is _CLUSTER:
            permission = Permission.SUPER_USER
        body: Any = None if method in ("GET", "DELETE") else Any
        what, known = f"Not there yet: {feature}.", TOPIC_PARAMETERS if level is _TOPIC else ()
        pattern = f"{level}/{words}"
        if unset is None:
            refuse = partial(self._refuse, feature)
            return Route(
                method,
                pattern,
                refuse,
                permission,
                what,
                known,
                body=body,
                statuses=(501,),
                any_parameters=True,
            )
        handler = partial(self._answer, method, feature, self._of_this_cluster(unset))
        answers = Any if method == "GET" else NOTHING
        found = partial(
            Route, method, pattern, handler, permission, what, known, body=body, answers=answers
        )
        return found(statuses=(204, 501), any_parameters=True)

    def _of_this_cluster(self, unset: _Unset) -> _Unset:
        if unset is _OWN_CLUSTER:
            return _Unset([self._cluster], _says([self._cluster], []))
        return _Unset(None, _says([self._cluster], [])) if unset is _OWN_CLUSTER_IF_SET else unset

    async def _refuse(self, feature: str, call: Call) -> HttpResponse:
        raise OperationNotSupported(
            f"this version does not have {feature} yet, so {call.request.path} cannot be read or "
            "set"
        )

    async def _answer(self, method: str, feature: str, unset: _Unset, call: Call) -> HttpResponse:
        """Answer as Apache Pulsar does when nothing is set.

        Raises ``NotFound``, ``TopicNotFound``, ``OperationNotSupported`` for a value that would
        have an effect.
        """
        if method in ("POST", "PUT") and not unset.is_neutral(call.body):
            raise OperationNotSupported(
                f"this version does not have {feature} yet, so {call.request.path} cannot be set "
                "to this"
            )
        _ = await self._namespaces.policies(call["tenant"], call["namespace"])
        if "topic" in call.values:
            name = call.topic()
            if await self._namespaces.partitions(name) is None:
                await self._namespaces.check_known(name)
        if unset is _NOT_REPLICATED and method == "GET":
            return answer({call.topic().full: False})
        return no_content() if method != "GET" or unset.answer is None else answer(unset.answer)


def missing_api(segments: Sequence[str]) -> str | None:
    """Return the missing part of Apache Pulsar's admin interface that a path belongs to; ``None``
    if it belongs to none.
    """
    return _MISSING_APIS.get(segments[2]) if len(segments) > 2 and segments[0] == "admin" else None
