"""Commands for permissions, and explanations of what is denied."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.admin_server import NEW, SPACE, AdminServer, run


@pytest.mark.parametrize(
    ("arguments", "request_line", "body"),
    [
        (
            "namespaces grant-permission acme/orders --role a/b --action consume --action produce",
            f"POST {SPACE}/permissions/a%2Fb",
            ["consume", "produce"],
        ),
        (
            "namespaces revoke-permission acme/orders --role r",
            f"DELETE {SPACE}/permissions/r",
            None,
        ),
        (
            "namespaces grant-subscription-permission acme/orders s --role a --role b",
            f"POST {SPACE}/permissions/subscription/s",
            ["a", "b"],
        ),
        (
            "namespaces revoke-subscription-permission acme/orders s --role a",
            f"DELETE {SPACE}/permissions/s/a",
            None,
        ),
        (
            "topics grant-permission acme/orders/new --role r --action produce",
            f"POST {NEW}/permissions/r",
            ["produce"],
        ),
        ("topics revoke-permission acme/orders/new --role r", f"DELETE {NEW}/permissions/r", None),
        (
            "topics revoke-permission non-persistent://acme/orders/new --role r",
            f"DELETE {NEW.replace('persistent', 'non-persistent')}/permissions/r",
            None,
        ),
        (
            "tenants create acme --admin-role r",
            "PUT /admin/v2/tenants/acme",
            {"adminRoles": ["r"], "allowedClusters": []},
        ),
    ],
)
@pytest.mark.parametrize("enabled", [True, False, None])
def test_permissions_are_changed_and_a_change_without_effect_is_said_to_be_so(
    server: AdminServer, arguments: str, request_line: str, body: Any, enabled: bool | None
) -> None:
    if enabled is not None:
        server.answer("GET /admin/v2/authorization", 200, {"enabled": enabled})
    server.answer(f"GET {SPACE}/permissions/subscription", 200, {"s": ["b"]})
    done = run(server, *arguments.split())
    assert done.exit_code == 0, done.stderr
    assert (" ".join(server.requests[0][:2]), server.requests[0][2]) == (request_line, body)
    warned = "warning: authorization is off (authorization_enabled is false)" in done.stderr
    assert warned is (enabled is False)


def test_the_last_role_of_a_subscription_opens_it(server: AdminServer) -> None:
    server.answer(f"GET {SPACE}/permissions/subscription", 200, {"other": ["b"]})
    words = "namespaces revoke-subscription-permission acme/orders s --role a"
    assert "s is now for every role that may consume" in run(server, *words.split()).stderr


def test_permissions_are_shown_by_role_and_in_apache_pulsars_form(server: AdminServer) -> None:
    found = {"shop": ["produce"], "bank": ["consume", "produce"]}
    for path, words in (
        (SPACE, "namespaces permissions acme/orders"),
        (NEW, "topics permissions acme/orders/new"),
    ):
        server.answer(f"GET {path}/permissions", 200, found)
        lines = run(server, *words.split()).stdout.split("\n")
        assert [line.split() for line in lines if line] == [
            ["ROLE", "ACTIONS"],
            ["bank", "consume,", "produce"],
            ["shop", "produce"],
        ]
        assert json.loads(run(server, *words.split(), "-o", "json").stdout) == found
    server.answer(f"GET {SPACE}/permissions/subscription", 200, {"s": ["a", "b"]})
    words = "namespaces subscription-permissions acme/orders"
    assert run(server, *words.split()).stdout.split() == ["SUBSCRIPTION", "ROLES", "s", "a,", "b"]
    assert json.loads(run(server, *words.split(), "-o", "json").stdout) == {"s": ["a", "b"]}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("namespaces grant-permission acme/orders --role r", "Missing option '--action'"),
        ("namespaces grant-permission acme/orders --action produce", "Missing option '--role'"),
        ("topics grant-permission t --role r --action fly", "'fly' is not one of 'produce'"),
        ("namespaces grant-subscription-permission acme/orders s", "Missing option '--role'"),
    ],
)
def test_a_permission_needs_a_role_and_known_actions(
    server: AdminServer, arguments: str, text: str
) -> None:
    done = run(server, *arguments.split())
    assert (done.exit_code, server.requests) == (2, [])
    assert text in done.stderr


def test_an_explanation_has_the_rule_and_for_a_denial_the_fix(server: AdminServer) -> None:
    path = "/admin/v2/authorization/explain"
    server.answer(f"GET {path}", 200, {"permitted": True, "reason": "super user", "remedy": ""})
    done = run(server, "auth", "explain", "r", "produce", "acme/orders/new", "-s", "s")
    assert done.stdout.split() == ["permitted", "yes", "reason", "super", "user"]
    query = "role=r&action=produce&resource=acme%2Forders%2Fnew&subscription=s"
    assert server.requests[0][:2] == ("GET", f"{path}?{query}")
    denial = {"permitted": False, "reason": "no grant", "remedy": "pulsarish ..."}
    server.answer(f"GET {path}", 200, denial)
    words = "auth explain r produce acme/orders --proxy-role p -o json"
    assert json.loads(run(server, *words.split()).stdout) == denial
    assert server.requests[1][1].endswith("&proxyRole=p")
