"""What a client says that cannot reach a broker: each cause has its own words and its remedy."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

import pytest
import trustme

import pulsarish
import pulsarish.asyncio
from tests.support.plain_servers import (
    answers_http,
    closes,
    greets_as,
    is_silent,
    plain_server,
    refused_port,
    speaks_http2,
    speaks_tls,
)

SCHEMES = ("pulsarish", "pulsar", "http")
TLS_SCHEMES = ("pulsarish+ssl", "pulsar+ssl", "https")
Refusal = Callable[..., pulsarish.PulsarishError]


def blocking(url: str, **options: Any) -> pulsarish.PulsarishError:
    client = pulsarish.Client(url, operation_timeout_seconds=1.5, **options)
    with client, pytest.raises(pulsarish.PulsarishError) as raised:
        client.create_producer("orders")
    return raised.value


def awaitable(url: str, **options: Any) -> pulsarish.PulsarishError:
    async def run() -> None:
        made = pulsarish.asyncio.Client(url, operation_timeout_seconds=1.5, **options)
        async with made as client:
            await client.create_producer("orders")

    with pytest.raises(pulsarish.PulsarishError) as raised:
        asyncio.run(run())
    return raised.value


@pytest.fixture(params=[blocking, awaitable])
def error_of(request: pytest.FixtureRequest) -> Refusal:
    found: Refusal = request.param
    return found


@pytest.fixture(scope="module")
def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return context


def check(error: pulsarish.PulsarishError, *words: str) -> None:
    assert type(error) is pulsarish.ConnectError, repr(error)
    for each in words:
        assert each in str(error), str(error)


@pytest.mark.parametrize("scheme", [*SCHEMES, *TLS_SCHEMES])
def test_no_process_listens(error_of: Refusal, scheme: str) -> None:
    port = refused_port()
    check(
        error_of(f"{scheme}://127.0.0.1:{port}"),
        f"no process listens at 127.0.0.1:{port}: start a broker there, or correct host and port",
    )


@pytest.mark.parametrize("scheme", [*SCHEMES, *TLS_SCHEMES])
def test_a_name_that_does_not_resolve(error_of: Refusal, scheme: str) -> None:
    check(
        error_of(f"{scheme}://no-such-host.invalid:7000"),
        "the host name of no-such-host.invalid:7000 cannot be resolved",
        "correct it, or its entry in DNS",
    )


@pytest.mark.parametrize("scheme", [*SCHEMES, *TLS_SCHEMES])
def test_a_peer_that_never_answers(error_of: Refusal, scheme: str) -> None:
    with plain_server(is_silent) as port:
        error = error_of(f"{scheme}://127.0.0.1:{port}")
    check(error, f"127.0.0.1:{port}")
    assert "answer" in str(error) or "did not complete a connection" in str(error)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_port_of_http(error_of: Refusal, scheme: str) -> None:
    with plain_server(answers_http) as port:
        error = error_of(f"{scheme}://127.0.0.1:{port}")
    if scheme == "http":
        check(error, "status 404", "name a broker's http_address")
    else:
        check(error, "it speaks HTTP;", "begin the service URL with http://")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_port_with_tls(error_of: Refusal, scheme: str, server_tls: ssl.SSLContext) -> None:
    with plain_server(speaks_tls(server_tls)) as port:
        error = error_of(f"{scheme}://127.0.0.1:{port}")
    secured = {"pulsarish": "pulsarish+ssl", "pulsar": "pulsar+ssl", "http": "https"}[scheme]
    check(error, "it speaks TLS;", f"begin the service URL with {secured}://")


@pytest.mark.parametrize("serve", [answers_http, closes])
@pytest.mark.parametrize("scheme", TLS_SCHEMES)
def test_a_port_without_tls(error_of: Refusal, scheme: str, serve: Any) -> None:
    with plain_server(serve) as port:
        error = error_of(f"{scheme}://127.0.0.1:{port}")
    check(error, f"127.0.0.1:{port}", "TLS")


@pytest.mark.parametrize("scheme", TLS_SCHEMES)
def test_a_certificate_that_is_not_trusted(
    error_of: Refusal, scheme: str, server_tls: ssl.SSLContext
) -> None:
    with plain_server(speaks_tls(server_tls)) as port:
        error = error_of(f"{scheme}://127.0.0.1:{port}")
    check(error, f"127.0.0.1:{port}", "certificate is refused")


@pytest.mark.parametrize("scheme", ["pulsar", "http"])
def test_a_port_of_grpc(error_of: Refusal, scheme: str) -> None:
    with plain_server(speaks_http2) as port:
        error = error_of(f"{scheme}://127.0.0.1:{port}")
    check(error, "it speaks HTTP/2", "begin the service URL with pulsarish://")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_peer_that_ends_the_connection(error_of: Refusal, scheme: str) -> None:
    with plain_server(closes) as port:
        error = error_of(f"{scheme}://127.0.0.1:{port}")
    check(error, f"127.0.0.1:{port}", "it ends the connection; name a broker's")


def test_a_broker_of_apache_pulsar(error_of: Refusal) -> None:
    with plain_server(greets_as("Pulsar-4.0.6")) as port:
        error = error_of(f"pulsar://127.0.0.1:{port}")
    assert type(error) is pulsarish.OperationNotSupported
    assert f"127.0.0.1:{port} is a broker of Apache Pulsar (Pulsar-4.0.6)" in str(error)
    assert "use Apache Pulsar's client" in str(error)


def test_an_old_server_of_pulsarish(error_of: Refusal) -> None:
    with plain_server(greets_as("Pulsarish")) as port:
        check(error_of(f"pulsar://127.0.0.1:{port}"), "upgrade it")


def test_the_errors_of_all_hosts_are_named(error_of: Refusal) -> None:
    refused = refused_port()
    with plain_server(answers_http) as port:
        for scheme in ("pulsarish", "pulsar"):
            check(
                error_of(f"{scheme}://127.0.0.1:{refused},127.0.0.1:{port}"),
                f"no process listens at 127.0.0.1:{refused}",
                f"127.0.0.1:{port} does not speak",
            )
