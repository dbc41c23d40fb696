"""The policies of topics over HTTP: the same rows as for namespaces, with Apache Pulsar's paths and
words for topics.

Policies of a partitioned topic apply to all its partitions. ``?applied=true`` returns what is in
force, from whichever level.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from pulsarish.broker.clients.authorization import Permission
from pulsarish.broker.http.route import AUTHORITATIVE, Call, Parameter, Route, no_content
from pulsarish.broker.http.routes.policy_routes import (
    APPLIED,
    QUOTA_TYPE,
    answer_type,
    policy_value,
    quota_change,
    removed,
    shown,
)
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.policies.store import Change, Effective
from pulsarish.model.errors import Malformed, OperationNotSupported
from pulsarish.model.policies import BACKLOG_QUOTA, POLICIES, BacklogQuota, Policy
from pulsarish.model.values import value_of
from pulsarish.runtime.seams import HttpResponse

__all__ = ["TOPIC_PARAMETERS", "TopicPolicyRoutes"]

_TOPIC: Final = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"

# Official clients send these; any broker answers, and there is one cluster.
_COMMON: Final = (
    AUTHORITATIVE,
    Parameter("isGlobal", "For all clusters of a replicated namespace.", bool, default=False),
)
TOPIC_PARAMETERS: Final = (APPLIED, *_COMMON)
"""Parameters of GET for every policy of a topic."""


class TopicPolicyRoutes:
    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces

    def routes(self) -> list[Route]:
        found = [
            route
            for policy in POLICIES
            if policy.topic and policy is not BACKLOG_QUOTA
            for route in self._policy(policy)
        ]
        what, may = "Back to the namespace's policies, all at once.", Permission.WRITE_POLICIES
        return [
            *found,
            *self._quotas(),
            Route("DELETE", f"{_TOPIC}/policies", self._clear, may, what, _COMMON),
        ]

    async def _clear(self, call: Call) -> HttpResponse:
        _check_local(call)
        await self._namespaces.store.clear_topic(call.topic())
        return no_content()

    def _policy(self, policy: Policy[Any]) -> list[Route]:
        path, what = f"{_TOPIC}/{policy.topic}", policy.meaning
        may, read = Permission.WRITE_POLICIES, Permission.READ_POLICIES
        value = (Parameter(policy.topic, what, int),) if policy.in_query else ()
        body: dict[str, Any] = (
            {} if policy.in_query else {"body": policy.kind, "body_required": True}
        )
        return [
            Route(
                "GET",
                path,
                partial(self._get, policy),
                read,
                what,
                TOPIC_PARAMETERS,
                answers=policy.kind,
                answer_type=answer_type(policy),
                statuses=(204,),
            ),
            Route(
                policy.method,
                path,
                partial(self._set, policy),
                may,
                f"Set: {what}",
                (*value, *_COMMON),
                **body,
            ),
            Route(
                "DELETE",
                path,
                partial(self._remove, policy),
                may,
                f"Back to the namespace's: {what}",
                (*value, *_COMMON),
            ),
        ]

    async def _get(self, policy: Policy[Any], call: Call) -> HttpResponse:
        _check_local(call)
        name = call.topic()
        own = await self._namespaces.store.shown_topic(name)
        if not call.flag("applied"):
            return shown(policy, own.get(policy))
        space = await self._namespaces.effective(name.tenant, name.namespace)
        effective = Effective(space.defaults, space.namespace, own)
        return shown(policy, effective.quotas() if policy is BACKLOG_QUOTA else effective[policy])

    async def _set(self, policy: Policy[Any], call: Call) -> HttpResponse:
        value = call.body
        if policy.in_query:
            given = call.given(policy.topic)
            if given is None:
                raise Malformed(f"the parameter {policy.topic} is needed: {policy.meaning}")
            value = value_of(policy.kind, given, policy.topic)
        return await self._change(call, policy, policy_value(policy, value))

    async def _remove(self, policy: Policy[Any], call: Call) -> HttpResponse:
        return await self._change(call, policy, removed)

    async def _change(self, call: Call, policy: Policy[Any], change: Change) -> HttpResponse:
        _check_local(call)
        await self._namespaces.store.set_topic(call.topic(), policy, change)
        return no_content()

    # -- backlog quotas, set by type

    def _quotas(self) -> list[Route]:
        path, may, quota = (
            f"{_TOPIC}/{BACKLOG_QUOTA.topic}",
            Permission.WRITE_POLICIES,
            (QUOTA_TYPE, *_COMMON),
        )
        get, what = partial(self._get, BACKLOG_QUOTA), "The topic's own backlog quotas."
        return [
            Route(
                "GET",
                path + "Map",
                get,
                Permission.READ_POLICIES,
                what,
                TOPIC_PARAMETERS,
                answers=BACKLOG_QUOTA.kind,
            ),
            Route(
                "POST",
                path,
                self._set_quota,
                may,
                "Set a backlog quota of a topic.",
                quota,
                body=BacklogQuota,
                body_required=True,
            ),
            Route(
                "DELETE", path, self._remove_quota, may, "Remove a backlog quota of a topic.", quota
            ),
        ]

    async def _set_quota(self, call: Call) -> HttpResponse:
        return await self._change(
            call, BACKLOG_QUOTA, quota_change(call.text("backlogQuotaType"), call.body)
        )

    async def _remove_quota(self, call: Call) -> HttpResponse:
        return await self._change(
            call, BACKLOG_QUOTA, quota_change(call.text("backlogQuotaType"), None)
        )


def _check_local(call: Call) -> None:
    if call.flag("isGlobal"):
        raise OperationNotSupported(
            "policies for all clusters need geo-replication, which this version does not have; "
            "leave isGlobal out"
        )
