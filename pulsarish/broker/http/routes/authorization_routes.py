"""What authorization decides, and why."""

from __future__ import annotations

from typing import Final

import msgspec

from pulsarish.broker.clients.authorization import CLUSTER, Gate, Permission, Resource
from pulsarish.broker.http.route import Call, Parameter, Route, answer
from pulsarish.model.grants import check_role
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.runtime.seams import HttpResponse
from pulsarish.security.identity import Identity

__all__ = ["AuthorizationRoutes"]

_PATH: Final = "/admin/v2/authorization"
_NOT_ASKED: Final = (Permission.NONE, Permission.OPENED, Permission.ANY_ROLE)
_ACTIONS: Final = tuple(each.value for each in Permission if each not in _NOT_ASKED)
_CLUSTER: Final = "cluster"


class AuthorizationBody(msgspec.Struct, rename="camel", omit_defaults=True):
    """Whether the broker checks permissions."""

    enabled: bool
    report_only: bool = False
    """Whether denials are only reported."""


class DecisionBody(msgspec.Struct):
    """Whether a role has a permission, which rule decides, and how to change a denial."""

    permitted: bool
    reason: str
    remedy: str


class AuthorizationRoutes:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def routes(self) -> list[Route]:
        asked = (
            Parameter("role", "The role to explain.", required=True),
            Parameter("action", "What it would do.", choices=_ACTIONS, required=True),
            Parameter(
                "resource",
                "A topic (persistent://tenant/namespace/topic), a namespace (tenant/namespace), a "
                "tenant, or cluster: without a slash it is the name of a tenant, but for cluster.",
                required=True,
            ),
            Parameter("subscription", "Of the topic or of the topics of the namespace."),
            Parameter("proxyRole", "The role of the proxy through which it would do so."),
        )
        return [
            Route(
                "GET",
                _PATH,
                self._enabled,
                Permission.ANY_ROLE,
                "Show whether permissions are checked.",
                answers=AuthorizationBody,
            ),
            Route(
                "GET",
                _PATH + "/explain",
                self._explain,
                Permission.ANY_ROLE,
                "Explain whether a role has a permission, by which rule, and what to change.",
                parameters=asked,
                answers=DecisionBody,
            ),
        ]

    async def _enabled(self, call: Call) -> HttpResponse:
        return answer(AuthorizationBody(not self._gate.is_open, self._gate.report_only))

    async def _explain(self, call: Call) -> HttpResponse:
        """Explain to administrators of the resource, and to each role what it has itself.

        Raises ``AuthorizationError``, ``InvalidArgument``, ``InvalidTopicName``.
        """
        identity = Identity(check_role(call.text("role")), proxy_role=call.text("proxyRole"))
        resource = _resource(call.text("resource"), call.text("subscription"))
        if (identity.role, identity.proxy_role) != (call.identity.role, call.identity.proxy_role):
            needed = Permission.READ_POLICIES if resource.tenant else Permission.READ_CLUSTER
            await self._gate.permit(needed, "explain", call.identity, resource)
        else:
            identity = call.identity  # with the limits of its token
        decision = await self._gate.decide(Permission(call.text("action")), identity, resource)
        return answer(DecisionBody(decision.permitted, decision.reason, decision.remedy))


def _resource(text: str, subscription: str) -> Resource:
    if text == _CLUSTER:
        return CLUSTER
    if subscription:
        check_name("subscription", subscription)
    parts = text.split("/")
    if len(parts) > 2:
        return Resource.of_topic(TopicName.parse(text), subscription)
    check_name("tenant", parts[0])
    if len(parts) == 1:
        return Resource(parts[0])
    return Resource(parts[0], check_name("namespace", parts[1]), subscription=subscription)
