"""``pulsarish topics list`` with the options that choose names."""

from __future__ import annotations

import json

import pytest

from tests.support.admin_server import AdminServer, run

LIST = "GET /admin/v2/persistent/acme/shop"
NAMES = [
    f"persistent://acme/shop/{name}"
    for name in ("orders", "orders.eu", "orders.eu.created", "orders.us.created-partition-0")
]


@pytest.mark.parametrize(
    ("option", "text", "places"),
    [
        ("--wildcard", "orders.*", [1]),
        ("--wildcard", "orders.*.created", [2, 3]),
        ("--wildcard", "orders.>", [1, 2, 3]),
        ("--pattern", "orders.*", [0, 1, 2, 3]),
    ],
)
def test_names_that_match_are_listed(
    server: AdminServer, option: str, text: str, places: list[int]
) -> None:
    server.answer(LIST, body=NAMES)
    done = run(server, "topics", "list", "acme/shop", option, text, "-o", "json")
    assert json.loads(done.stdout) == [{"topic": NAMES[place]} for place in places]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--wildcard", "orders..created"), "a token between dots is empty"),
        (("--wildcard", "orders.>", "--pattern", "a"), "either --pattern or --wildcard"),
        (("--wildcard", "orders.>", "--limit", "3"), "--wildcard is for all topics"),
        (("--pattern", "orders", "--limit", "3"), "--pattern is for all topics"),
        (("--pattern", "(orders"), "missing )"),
    ],
)
def test_what_is_refused(server: AdminServer, options: tuple[str, ...], said: str) -> None:
    done = run(server, "topics", "list", "acme/shop", *options)
    assert done.exit_code != 0
    assert said in done.stderr
    assert server.requests == []
