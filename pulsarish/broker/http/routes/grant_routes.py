"""Permissions of roles on namespaces, topics and subscriptions.

Paths and bodies are Apache Pulsar's. Any broker answers from metadata, and all brokers follow a
change at once. A topic does not need to exist: it can be granted before its first use. Grants on a
partition are grants on its topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from pulsarish.broker.clients.authorization import Gate, Permission, Resource
from pulsarish.broker.http.route import Call, Handler, Route, answer, no_content
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.broker.policies.store import grants_of
from pulsarish.model.errors import InvalidTopicName
from pulsarish.model.grants import (
    AuthPolicies,
    grant_on_namespace,
    grant_on_subscription,
    grant_on_topic,
    revoke_on_namespace,
    revoke_on_subscription,
    revoke_on_topic,
)
from pulsarish.model.policy_words import AuthAction
from pulsarish.model.topic_name import TopicName, check_name
from pulsarish.runtime.seams import HttpResponse

__all__ = ["GrantRoutes"]

_NAMESPACES: Final = "/admin/v2/namespaces"
_NAMESPACE: Final = _NAMESPACES + "/{tenant}/{namespace}/permissions"
_TOPIC: Final = "/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}/permissions"

Actions = list[AuthAction]
ActionsByRole = dict[str, Actions]
Change = Callable[[AuthPolicies], AuthPolicies]


class TopicGrantBody(msgspec.Struct, forbid_unknown_fields=True):
    """The actions that a role gets on a topic."""

    topic: str
    role: str
    actions: Actions


class TopicRevokeBody(msgspec.Struct, forbid_unknown_fields=True):
    """A role that loses its actions on a topic."""

    topic: str
    role: str


class GrantRoutes:
    def __init__(self, namespaces: Namespaces, gate: Gate) -> None:
        self._namespaces = namespaces
        self._gate = gate

    def routes(self) -> list[Route]:
        return [
            *self._on_namespaces(),
            *(route for domain in ("persistent", "non-persistent") for route in _on(domain, self)),
            self._on_topics("grantPermissionsOnTopics", self.grant_several, list[TopicGrantBody]),
            self._on_topics(
                "revokePermissionsOnTopics", self.revoke_several, list[TopicRevokeBody]
            ),
        ]

    def _on_namespaces(self) -> list[Route]:
        read, may = Permission.READ_POLICIES, Permission.ADMIN_NAMESPACE
        return [
            Route(
                "GET",
                _NAMESPACE,
                self._show,
                read,
                "Show the permissions on a namespace: the actions of each role.",
                answers=ActionsByRole,
            ),
            Route(
                "POST",
                _NAMESPACE + "/{role}",
                self._grant,
                may,
                "Grant a role these actions on all topics of a namespace, and no others.",
                body=Actions,
                body_required=True,
            ),
            Route(
                "DELETE",
                _NAMESPACE + "/{role}",
                self._revoke,
                may,
                "Revoke the actions of a role on a namespace.",
            ),
            Route(
                "GET",
                _NAMESPACE + "/subscription",
                self._show_subscriptions,
                read,
                "Show the subscriptions of a namespace that are only for some roles.",
                answers=dict[str, list[str]],
            ),
            Route(
                "POST",
                _NAMESPACE + "/subscription/{subscription}",
                self._grant_subscription,
                may,
                "Grant more roles the use of a subscription; other roles cannot use it.",
                body=list[str],
                body_required=True,
            ),
            Route(
                "DELETE",
                _NAMESPACE + "/{subscription}/{role}",
                self._revoke_subscription,
                may,
                "Revoke the use of a subscription; without roles, all that may consume can use it.",
            ),
        ]

    def _on_topics(self, words: str, handler: Handler, body: object) -> Route:
        # The topics stand in the body, so the handler checks each of them.
        return Route(
            "POST",
            f"{_NAMESPACES}/{words}",
            handler,
            Permission.ANY_ROLE,
            "Grant permissions on several topics."
            if words.startswith("grant")
            else "Revoke permissions on several topics.",
            body=body,
            body_required=True,
        )

    # -- namespaces

    async def _grants(self, call: Call) -> AuthPolicies:
        return grants_of(
            (await self._namespaces.effective(call["tenant"], call["namespace"])).namespace
        )

    async def _change(self, call: Call, change: Change) -> HttpResponse:
        await self._namespaces.store.set_grants(call["tenant"], call["namespace"], change)
        return no_content()

    async def _show(self, call: Call) -> HttpResponse:
        return answer((await self._grants(call)).namespace)

    async def _grant(self, call: Call) -> HttpResponse:
        role, actions = call["role"], call.body
        call.change = _grant_text(role, actions)
        return await self._change(call, lambda found: grant_on_namespace(found, role, actions))

    async def _revoke(self, call: Call) -> HttpResponse:
        role = call["role"]
        call.change = _revoke_text(role)
        return await self._change(call, lambda found: revoke_on_namespace(found, role))

    # -- subscriptions

    async def _show_subscriptions(self, call: Call) -> HttpResponse:
        return answer((await self._grants(call)).subscriptions)

    async def _grant_subscription(self, call: Call) -> HttpResponse:
        name, roles = check_name("subscription", call["subscription"]), call.body
        call.change = f"grant subscription {name!r} to roles {', '.join(map(repr, roles))}"
        return await self._change(call, lambda found: grant_on_subscription(found, name, roles))

    async def _revoke_subscription(self, call: Call) -> HttpResponse:
        name, role = call["subscription"], call["role"]
        call.change = f"revoke subscription {name!r} from role {role!r}"
        return await self._change(call, lambda found: revoke_on_subscription(found, name, role))

    # -- topics

    async def show_topic(self, call: Call) -> HttpResponse:
        """Answer with the grants on a topic, those on its namespace included."""
        grants = await self._grants(call)
        found: dict[str, set[AuthAction]] = {}
        for level in (grants.namespace, grants.of_topic(call.topic())):
            for role, actions in level.items():
                found.setdefault(role, set()).update(actions)
        return answer({role: sorted(actions) for role, actions in found.items()})

    async def grant_topic(self, call: Call) -> HttpResponse:
        name, role, actions = call.topic(), call["role"], call.body
        call.change = _grant_text(role, actions)
        return await self._change(call, lambda found: grant_on_topic(found, name, role, actions))

    async def revoke_topic(self, call: Call) -> HttpResponse:
        name, role = call.topic(), call["role"]
        call.change = _revoke_text(role)
        return await self._change(call, lambda found: revoke_on_topic(found, name, role))

    async def grant_several(self, call: Call) -> HttpResponse:
        changes = [
            (name, partial(grant_on_topic, name=name, role=each.role, actions=each.actions))
            for each in call.body
            for name in [_topic(each.topic)]
        ]
        call.change = "; ".join(
            f"{_grant_text(each.role, each.actions)} on {each.topic}" for each in call.body
        )
        return await self._change_several(call, "grantPermissionsOnTopics", changes)

    async def revoke_several(self, call: Call) -> HttpResponse:
        changes = [
            (name, partial(revoke_on_topic, name=name, role=each.role))
            for each in call.body
            for name in [_topic(each.topic)]
        ]
        call.change = "; ".join(f"{_revoke_text(each.role)} on {each.topic}" for each in call.body)
        return await self._change_several(call, "revokePermissionsOnTopics", changes)

    async def _change_several(
        self, call: Call, what: str, changes: Sequence[tuple[TopicName, Change]]
    ) -> HttpResponse:
        """Make all changes of a namespace in one commit, after the permission for each topic.

        Raises ``AuthorizationError``, and the errors of a change.
        """
        by_namespace: dict[tuple[str, str], list[Change]] = {}
        for name, change in changes:
            resource = Resource.of_topic(name)
            await self._gate.permit(Permission.ADMIN_TOPIC, what, call.identity, resource)
            by_namespace.setdefault((name.tenant, name.namespace), []).append(change)

        def all_of(some: list[Change], found: AuthPolicies) -> AuthPolicies:
            for change in some:
                found = change(found)
            return found

        for (tenant, namespace), some in by_namespace.items():
            await self._namespaces.store.set_grants(tenant, namespace, partial(all_of, some))
        return no_content()


def _grant_text(role: str, actions: Sequence[str]) -> str:
    return f"grant {', '.join(actions)} to role {role!r}"


def _revoke_text(role: str) -> str:
    return f"revoke every action from role {role!r}"


def _topic(text: str) -> TopicName:
    try:
        return TopicName.parse(text)
    except InvalidTopicName as error:
        raise InvalidTopicName(f"topic: {error}") from None


def _on(domain: str, grants: GrantRoutes) -> list[Route]:
    """Return the routes for the topics of a domain."""
    path = _TOPIC.format(domain=domain)
    kind = "a topic" if domain == "persistent" else "a non-persistent topic"
    return [
        Route(
            "GET",
            path,
            grants.show_topic,
            Permission.READ_POLICIES,
            f"Show the permissions on {kind}, those on its namespace included.",
            answers=ActionsByRole,
        ),
        Route(
            "POST",
            path + "/{role}",
            grants.grant_topic,
            Permission.ADMIN_TOPIC,
            f"Grant a role these actions on {kind}, and no others there.",
            body=Actions,
            body_required=True,
        ),
        Route(
            "DELETE",
            path + "/{role}",
            grants.revoke_topic,
            Permission.ADMIN_TOPIC,
            f"Revoke the actions of a role on {kind} itself.",
        ),
    ]
