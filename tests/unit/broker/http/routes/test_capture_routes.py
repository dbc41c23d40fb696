"""Who may set a rule of capture."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from pulsarish.broker.clients.authorization import Decision, Gate, Permission, Resource
from pulsarish.broker.http.route import Call
from pulsarish.broker.http.routes.capture_routes import CaptureRoutes
from pulsarish.broker.policies.namespaces import Namespaces
from pulsarish.model.captures import CaptureRule
from pulsarish.model.errors import AuthorizationError
from pulsarish.runtime.seams import HttpRequest
from pulsarish.security.identity import Identity


class NamespaceAdministrator:
    """Grants everything but publishing."""

    changes_count = 0

    def __init__(self) -> None:
        self.asked: list[tuple[Permission, str]] = []

    async def decide(
        self, permission: Permission, _identity: Identity, resource: Resource
    ) -> Decision:
        self.asked.append((permission, str(resource)))
        return Decision(permission is not Permission.PRODUCE, "a test")

    async def visible(self, _identity: Identity, _resource: Resource) -> None:
        return None


def test_who_sets_a_rule_must_be_allowed_to_publish_to_its_topic() -> None:
    policy = NamespaceAdministrator()
    # Nothing is read or written before the permission.
    routes = CaptureRoutes(cast("Namespaces", None), Gate(policy)).routes()
    (setting,) = (each for each in routes if each.method == "POST")
    assert setting.permission is Permission.ADMIN_NAMESPACE
    request = HttpRequest("POST", "/", {}, {}, b"", ())
    values = {"tenant": "acme", "namespace": "live", "rule": "r"}
    rule = CaptureRule("*", "persistent://other/space/stored")
    call = Call(request, "internal", values, rule, Identity("ann"))
    with pytest.raises(AuthorizationError):
        _ = asyncio.run(setting.handler(call))  # type: ignore[arg-type]
    assert policy.asked == [(Permission.PRODUCE, "topic persistent://other/space/stored")]
