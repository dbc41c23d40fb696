"""The policies of namespaces over HTTP: routes made from the rows of ``model/policies.py``, and
Apache Pulsar's form of a namespace.

POST of a value sets a policy, GET returns it (204 when nothing is set), and DELETE removes it.
Backlog quotas are set one type at a time. Any broker answers from metadata. Loaded topics follow a
change wherever they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, get_args

import msgspec

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.route import Call, Parameter, Route, answer, no_content
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.policies.store import Change
from pulsarish.metadata.records import NamespacePolicies
from pulsarish.model.errors import NotFound
from pulsarish.model.policies import (
    BACKLOG_QUOTA,
    DEDUPLICATION_SNAPSHOT_INTERVAL,
    POLICIES,
    SCHEMA_COMPATIBILITY_STRATEGY,
    STORED_POLICIES,
    BacklogQuota,
    Policy,
)
from pulsarish.model.policy_words import QuotaType, SchemaStrategy, SchemaStrategyOldName
from pulsarish.runtime.seams import HttpResponse

__all__ = [
    "APPLIED",
    "QUOTA_TYPE",
    "NamespacePolicyRoutes",
    "answer_type",
    "namespace_body",
    "policy_value",
    "quota_change",
    "removed",
    "shown",
]

_NAMESPACE: Final = "/admin/v2/namespaces/{tenant}/{namespace}"
_TEXT: Final = "text/plain"
_JSON: Final = "application/json"
_NEW_STRATEGIES: Final[Mapping[SchemaStrategyOldName, SchemaStrategy]] = dict(
    zip(get_args(SchemaStrategyOldName), get_args(SchemaStrategy), strict=True)
)
_PROPERTY: Final = _NAMESPACE + "/property/{key}"

APPLIED: Final = Parameter(
    "applied", "Return the value in force, whichever level sets it.", bool, default=False
)
QUOTA_TYPE: Final = Parameter(
    "backlogQuotaType", "Which quota.", choices=get_args(QuotaType), default="destination_storage"
)


def removed(_stored: Any) -> None:
    """Remove a policy; a change."""
    return


def put_value(value: Any) -> Change:
    """Return the change that sets a policy."""
    raw = msgspec.to_builtins(value)
    return lambda _stored: raw


def policy_value(policy: Policy[Any], value: Any) -> Change:
    """Return the change that sets a policy, or removes it if the value means that nothing is
    set.
    """
    return (
        removed
        if policy.says_nothing is not None and value == policy.says_nothing
        else put_value(value)
    )


def quota_change(kind: str, quota: BacklogQuota | None) -> Change:
    """Return the change that sets or removes the quota of one type."""
    raw = None if quota is None else msgspec.to_builtins(quota)

    def change(stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
        rest = {name: each for name, each in (stored or {}).items() if name != kind}
        return ({**rest, kind: raw} if raw is not None else rest) or None

    return change


def shown(policy: Policy[Any], value: Any) -> HttpResponse:
    """Return the answer to GET of a policy. ``value`` ``None``: it is not set."""
    found = policy.unset if value is None else value
    if policy.is_name:
        return _text(found) if found else no_content()
    return no_content() if found is None else answer(found)


def answer_type(policy: Policy[Any]) -> str:
    """Return the media type of the answer to GET of a policy."""
    return _TEXT if policy.is_name else _JSON


class NamespacePolicyRoutes:
    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces

    def routes(self) -> list[Route]:
        found = [
            route
            for policy in POLICIES
            if policy.namespace and policy is not BACKLOG_QUOTA
            for route in self._policy(policy)
        ]
        return [*found, *self._quotas(), *self._old_strategy(), *self._properties()]

    def _policy(self, policy: Policy[Any]) -> list[Route]:
        path, may = f"{_NAMESPACE}/{policy.namespace}", _may_change(policy)
        what = policy.meaning
        return [
            Route(
                "GET",
                path,
                partial(self._get, policy),
                Permission.READ_POLICIES,
                what,
                (APPLIED,) if policy.shows_applied else (),
                answers=policy.kind,
                answer_type=answer_type(policy),
                statuses=(204,),
            ),
            self._setting(policy, path),
            Route(
                "DELETE",
                path,
                partial(self._remove, policy),
                may,
                f"Back to the broker's default: {what}",
            ),
        ]

    def _setting(self, policy: Policy[Any], path: str) -> Route:
        what, may = f"Set: {policy.meaning}", _may_change(policy)
        if policy.is_name:
            return Route("POST", f"{path}/{{name}}", partial(self._set_name, policy), may, what)
        return Route(
            policy.namespace_method or policy.method,
            path,
            partial(self._set, policy),
            may,
            what,
            body=policy.kind,
            # Apache Pulsar's clients remove this policy by setting it without a body.
            body_required=policy is not DEDUPLICATION_SNAPSHOT_INTERVAL,
        )

    async def _get(self, policy: Policy[Any], call: Call) -> HttpResponse:
        effective = await self._namespaces.effective(call["tenant"], call["namespace"])
        return shown(
            policy,
            effective[policy] if call.flag(APPLIED.name) else effective.namespace.get(policy),
        )

    async def _set(self, policy: Policy[Any], call: Call) -> HttpResponse:
        change = removed if call.body is None else policy_value(policy, call.body)
        await self._namespaces.store.set_namespace(
            call["tenant"], call["namespace"], policy, change
        )
        return no_content()

    async def _set_name(self, policy: Policy[Any], call: Call) -> HttpResponse:
        change = put_value(policy.value(call["name"]))
        await self._namespaces.store.set_namespace(
            call["tenant"], call["namespace"], policy, change
        )
        call.change = f"{policy.name} {call['name']}"
        return no_content()

    async def _remove(self, policy: Policy[Any], call: Call) -> HttpResponse:
        await self._namespaces.store.set_namespace(
            call["tenant"], call["namespace"], policy, removed
        )
        return no_content()

    # -- backlog quotas, set by type

    def _quotas(self) -> list[Route]:
        path, may, quota = (
            f"{_NAMESPACE}/{BACKLOG_QUOTA.namespace}",
            Permission.WRITE_POLICIES,
            (QUOTA_TYPE,),
        )
        get = partial(self._get, BACKLOG_QUOTA)
        return [
            Route(
                "GET",
                path + "Map",
                get,
                Permission.READ_POLICIES,
                "Show the backlog quotas of a namespace.",
                answers=BACKLOG_QUOTA.kind,
            ),
            Route(
                "POST",
                path,
                self._set_quota,
                may,
                "Set a backlog quota of a namespace.",
                quota,
                body=BacklogQuota,
                body_required=True,
            ),
            Route(
                "DELETE",
                path,
                self._remove_quota,
                may,
                "Remove a backlog quota of a namespace.",
                quota,
            ),
        ]

    async def _set_quota(self, call: Call) -> HttpResponse:
        change = quota_change(call.text("backlogQuotaType"), call.body)
        await self._namespaces.store.set_namespace(
            call["tenant"], call["namespace"], BACKLOG_QUOTA, change
        )
        return no_content()

    async def _remove_quota(self, call: Call) -> HttpResponse:
        change = quota_change(call.text("backlogQuotaType"), None)
        await self._namespaces.store.set_namespace(
            call["tenant"], call["namespace"], BACKLOG_QUOTA, change
        )
        return no_content()

    # -- the older form of schemaCompatibilityStrategy

    def _old_strategy(self) -> list[Route]:
        path, what = (
            _NAMESPACE + "/schemaAutoUpdateCompatibilityStrategy",
            "The older form of schemaCompatibilityStrategy",
        )
        return [
            Route(
                "GET",
                path,
                self._get_old_strategy,
                Permission.READ_POLICIES,
                f"{what}: what is in force.",
                answers=SchemaStrategyOldName,
            ),
            Route(
                "PUT",
                path,
                self._set_old_strategy,
                Permission.WRITE_POLICIES,
                f"{what}.",
                body=SchemaStrategyOldName,
                body_required=True,
            ),
        ]

    async def _get_old_strategy(self, call: Call) -> HttpResponse:
        strategy = (await self._namespaces.effective(call["tenant"], call["namespace"]))[
            SCHEMA_COMPATIBILITY_STRATEGY
        ]
        return answer(next(old for old, new in _NEW_STRATEGIES.items() if new == strategy))

    async def _set_old_strategy(self, call: Call) -> HttpResponse:
        change = put_value(_NEW_STRATEGIES[call.body])
        await self._namespaces.store.set_namespace(
            call["tenant"], call["namespace"], SCHEMA_COMPATIBILITY_STRATEGY, change
        )
        return no_content()

    # -- properties

    def _properties(self) -> list[Route]:
        path, read, may, properties = (
            _NAMESPACE + "/properties",
            Permission.READ_POLICIES,
            Permission.WRITE_POLICIES,
            dict[str, str],
        )
        return [
            Route(
                "GET",
                path,
                self._get_properties,
                read,
                "Show the properties of a namespace.",
                answers=properties,
            ),
            Route(
                "PUT",
                path,
                self._put_properties,
                may,
                "Set several properties of a namespace.",
                body=properties,
                body_required=True,
            ),
            Route(
                "DELETE", path, self._clear_properties, may, "Delete all properties of a namespace."
            ),
            Route(
                "GET",
                _PROPERTY,
                self._get_property,
                read,
                "Show a property of a namespace.",
                answers=str,
                answer_type=_TEXT,
            ),
            Route(
                "PUT",
                _PROPERTY + "/{value}",
                self._put_property,
                may,
                "Set a property of a namespace.",
            ),
            Route(
                "DELETE",
                _PROPERTY,
                self._remove_property,
                may,
                "Delete a property of a namespace, and return its value.",
                answers=str,
                answer_type=_TEXT,
            ),
        ]

    async def _get_properties(self, call: Call) -> HttpResponse:
        return answer(
            (await self._namespaces.policies(call["tenant"], call["namespace"])).properties
        )

    async def _put_properties(self, call: Call) -> HttpResponse:
        given: dict[str, str] = call.body
        await self._namespaces.store.set_properties(
            call["tenant"], call["namespace"], lambda found: {**found, **given}
        )
        return no_content()

    async def _clear_properties(self, call: Call) -> HttpResponse:
        await self._namespaces.store.set_properties(call["tenant"], call["namespace"], lambda _: {})
        return no_content()

    async def _get_property(self, call: Call) -> HttpResponse:
        found = (await self._namespaces.policies(call["tenant"], call["namespace"])).properties
        if call["key"] not in found:
            raise NotFound(
                f"namespace {call['tenant']}/{call['namespace']} has no property {call['key']!r}"
            )
        return _text(found[call["key"]])

    async def _put_property(self, call: Call) -> HttpResponse:
        key, value = call["key"], call["value"]
        await self._namespaces.store.set_properties(
            call["tenant"], call["namespace"], lambda found: {**found, key: value}
        )
        return no_content()

    async def _remove_property(self, call: Call) -> HttpResponse:
        key = call["key"]
        was: list[str] = []

        def change(found: dict[str, str]) -> dict[str, str]:
            if key not in found:
                raise NotFound(
                    f"namespace {call['tenant']}/{call['namespace']} has no property {key!r}"
                )
            was[:] = [found.pop(key)]
            return found

        await self._namespaces.store.set_properties(call["tenant"], call["namespace"], change)
        return _text(was[0])


def _text(value: str) -> HttpResponse:
    """Return a property as Apache Pulsar does: without quotes."""
    return HttpResponse(200, value.encode(), _TEXT)


def namespace_body(record: NamespacePolicies, cluster: str) -> dict[str, Any]:
    """Return a namespace in the form of Apache Pulsar's Policies, without its bundles.

    Fields of missing features have Pulsar's default value, so that its tools can read the answer.
    Fields that are not set are left out, as in Pulsar.
    """
    body: dict[str, Any] = {
        "auth_policies": {
            "namespace_auth": {},
            "destination_auth": {},
            "subscription_auth_roles": {},
        },
        "replication_clusters": [cluster],
        "allowed_clusters": [],
        "backlog_quota_map": {},
        "clusterDispatchRate": {},
        "topicDispatchRate": {},
        "subscriptionDispatchRate": {},
        "replicatorDispatchRate": {},
        "clusterSubscribeRate": {},
        "publishMaxMessageRate": {},
        "latency_stats_sample_rate": {},
        "deleted": False,
        "encryption_required": False,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "is_allow_auto_update_schema": True,
        "schema_validation_enforced": False,
        "subscription_types_enabled": [],
        "properties": record.properties,
    }
    for policy in STORED_POLICIES:
        raw = record.policies.get(policy.name)
        if raw is not None and policy.field:
            body[policy.field] = {cluster: raw} if policy.by_cluster else raw
    return body


def _may_change(policy: Policy[Any]) -> Permission:
    return Permission.SUPER_USER if policy.is_for_operators else Permission.WRITE_POLICIES
