"""Which requests a web page may have made a browser send, and which come from tools."""

from __future__ import annotations

import pytest

from pulsarish.broker.http.browser_guard import BrowserGuard
from pulsarish.runtime.seams import HttpRequest

GUARD = BrowserGuard(
    ["0.0.0.0:8080", "broker-1.example.org:8080", "", "[::1]:8080"],
    ["gateway.example.org", ".cluster.local"],
)


def refused(
    method: str = "GET", body: bytes = b"", guard: BrowserGuard = GUARD, **headers: str
) -> int:
    """Return the status of the refusal; 0 when there is none."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    refusal = guard.refusal(HttpRequest(method, "/admin/v2/tenants", {}, named, body))
    return 0 if refusal is None else refusal[0]


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8080",
        "[::1]:8080",
        "192.0.2.7",
        "localhost:8080",
        "a.localhost",
        "Broker-1.example.org:8080",
        "broker-1.example.org.",
        "gateway.example.org",
        "broker.ns.svc.cluster.local:80",
        "broker-2:8080",
    ],
)
def test_an_address_or_an_own_name_is_served(host: str) -> None:
    assert not refused(host=host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "broker-1.example.org.evil.example",
        "cluster.local.evil.example",
        "x@127.0.0.1",
        "1.2.3",
    ],
)
def test_another_name_is_refused_as_it_may_be_a_page_that_rebinds_its_name(host: str) -> None:
    assert refused(host=host) == 403
    assert not refused(host=host, guard=BrowserGuard([], ["*"]))


def test_a_tool_that_sends_no_host_is_served() -> None:
    assert not refused("POST")


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", "http://localhost:3000", "http://localhost:8080.evil.example"],
)
def test_a_request_for_a_page_of_another_origin_is_refused(origin: str) -> None:
    assert refused(host="localhost:8080", origin=origin) == 403
    assert refused("POST", host="localhost:8080", origin=origin) == 403


def test_a_request_for_an_own_page_is_served() -> None:
    assert not refused(
        "POST", host="localhost:8080", origin="http://localhost:8080", sec_fetch_site="same-origin"
    )


def test_a_request_of_another_site_is_refused() -> None:
    assert refused(host="localhost:8080", sec_fetch_site="cross-site") == 403
    assert not refused(host="localhost:8080", sec_fetch_site="none")


@pytest.mark.parametrize(
    "content_type",
    ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"],
)
@pytest.mark.parametrize("body", [b"", b"{}"])
def test_what_a_form_can_send_is_refused(content_type: str, body: bytes) -> None:
    for method in ("POST", "PUT", "DELETE"):
        assert refused(method, body, host="localhost", content_type=content_type) == 415


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", "Application/Merge-Patch+JSON", ""],
)
def test_json_is_taken(content_type: str) -> None:
    assert not refused("POST", b"{}", host="localhost", content_type=content_type)
