"""What the admin client sends and what it makes of answers: redirects, the next broker, and errors
of the one tree.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from pulsarish.admin import Admin
from pulsarish.model.errors import (
    ConnectError,
    InvalidArgument,
    InvalidConfiguration,
    MetadataUnavailable,
    NotEmpty,
    NotFound,
    OperationNotSupported,
    PulsarishError,
    ServiceNotReady,
    Timeout,
    UnknownError,
)
from tests.support.admin_server import AdminServer, admin_server


@pytest.fixture
def server() -> Iterator[AdminServer]:
    with admin_server() as found:
        yield found


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://h:1",
        "http://",
        "http://h:1/path",
        "http://u@h:1",
        "http://h:port",
        "https://h:1/path",
        "http://a:1,,b:2",
    ],
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(InvalidConfiguration, match=r"http://host:8080"):
        Admin(url)


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (400, {}, InvalidArgument),
        (404, {}, NotFound),
        (409, {"X-Pulsarish-Error-Code": "38"}, NotEmpty),
        (412, {}, InvalidArgument),
        (501, {}, OperationNotSupported),
        (503, {}, ServiceNotReady),
        (504, {}, Timeout),
        (500, {}, UnknownError),
        (500, {"X-Pulsarish-Error-Code": "99999"}, UnknownError),
    ],
)
def test_an_answer_becomes_the_error_that_it_names(
    server: AdminServer, status: int, headers: dict[str, str], error: type[PulsarishError]
) -> None:
    server.answer("GET /admin/v2/tenants", status, {"reason": "because"}, headers)
    with pytest.raises(PulsarishError, match="because") as raised:
        Admin(server.url).tenants.list()
    assert type(raised.value) is error


def test_an_error_without_a_reason_names_the_request(server: AdminServer) -> None:
    server.answer("GET /admin/v2/tenants", 500, b"<html>")
    with pytest.raises(UnknownError, match="GET /admin/v2/tenants answered with status 500"):
        Admin(server.url).tenants.list()


def test_a_record_that_is_none(server: AdminServer) -> None:
    server.answer("GET /admin/v2/tenants/t", 200, ["x"])
    with pytest.raises(UnknownError, match="list where a record"):
        Admin(server.url).tenants.get("t")


def test_redirects_lead_to_the_owner_with_method_and_body(server: AdminServer) -> None:
    with admin_server() as owner:
        path = "/admin/v2/persistent/public/default/t/subscription/s"
        server.answer(
            f"PUT {path}", 307, None, {"Location": f"{owner.url}{path}?authoritative=true"}
        )
        Admin(server.url).subscriptions.create("t", "s", position="3:4")
        assert owner.requests == [
            ("PUT", f"{path}?authoritative=true", {"ledgerId": 3, "entryId": 4})
        ]


def test_what_a_broker_without_metadata_cannot_say_is_asked_of_the_next(
    server: AdminServer,
) -> None:
    away = {"X-Pulsarish-Error-Code": str(MetadataUnavailable.code)}
    path = "/admin/v2/persistent/public/default/t/stats"
    server.answer(f"GET {path}", 503, {"reason": "the service is away"}, away)
    with admin_server() as owner:
        admin = Admin(f"{server.url},{owner.url.removeprefix('http://')}")
        owner.answer(f"GET {path}", 503, {"reason": "it is away here, too"}, away)
        with pytest.raises(MetadataUnavailable, match="the service is away"):
            admin.topics.stats("t")
        assert len(owner.requests) == 1
        owner.answer(f"GET {path}", 200, {"msgRateIn": 1.0})
        assert admin.topics.stats("t")["msgRateIn"] == 1.0


def test_what_a_broker_without_metadata_did_not_do_is_not_sent_to_the_next(
    server: AdminServer,
) -> None:
    away = {"X-Pulsarish-Error-Code": str(MetadataUnavailable.code)}
    server.answer("PUT /admin/v2/persistent/public/default/t/unload", 503, {"reason": "r"}, away)
    with admin_server() as other:
        with pytest.raises(MetadataUnavailable):
            Admin(f"{server.url},{other.url.removeprefix('http://')}").topics.unload("t")
        assert other.requests == []


def test_redirects_without_end_are_given_up(server: AdminServer) -> None:
    server.answer(
        "PUT /admin/v2/persistent/public/default/t/unload",
        307,
        None,
        {"Location": f"{server.url}/admin/v2/persistent/public/default/t/unload"},
    )
    with pytest.raises(ServiceNotReady, match="on the move"):
        Admin(server.url).topics.unload("t")
    assert len(server.requests) == 6


def test_the_next_broker_is_asked_when_one_cannot_be_reached_and_first_after_that(
    server: AdminServer,
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{closed.getsockname()[1]}"
        server.answer("GET /admin/v2/tenants", 200, ["a"])
        admin = Admin(f"http://{nobody},{server.url.removeprefix('http://')}")
        assert admin.tenants.list() == ["a"]
        assert admin.tenants.list() == ["a"]
        with pytest.raises(ConnectError, match=rf"{nobody}.*--admin-url \(PULSARISH_ADMIN_URL\)"):
            Admin(f"http://{nobody}").tenants.list()


def test_who_accepts_and_does_not_answer_in_time() -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(Timeout, match=r"within 0\.05 s"):
            Admin(f"http://127.0.0.1:{mute.getsockname()[1]}").with_timeout(0.05).tenants.list()


def test_names_are_encoded(server: AdminServer) -> None:
    Admin(server.url).subscriptions.delete("persistent://a/b/c/d e", "s/1?", force=True)
    assert server.requests == [
        ("DELETE", "/admin/v2/persistent/a/b/c%2Fd%20e/subscription/s%2F1%3F?force=true", None)
    ]


@pytest.mark.parametrize("namespace", ["", "a", "a/", "/b", "a/b/c"])
def test_namespaces_that_are_none(namespace: str) -> None:
    with pytest.raises(InvalidArgument, match="tenant/namespace"):
        Admin("http://127.0.0.1:1").namespaces.get_policies(namespace)


@pytest.mark.parametrize("position", ["", "first", "1", "1:", "a:b", "-1:-1"])
def test_positions_that_are_none(position: str) -> None:
    with pytest.raises(InvalidArgument, match="LEDGER:ENTRY"):
        Admin("http://127.0.0.1:1").subscriptions.reset_cursor("t", "s", position=position)
