"""What a client says of a connection that it could not make: who has refused it, and what helps."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable

import pytest

from pulsarish.runtime.network import dialing
from pulsarish.runtime.network.dialing import Dialer
from pulsarish.runtime.network.endpoints import ConnectionLimits
from pulsarish.runtime.seams import StreamBroken, Unreachable
from pulsarish.security.tls import TlsClientConfig
from tests.support.plain_servers import closes, plain_server, refused_port

LIMITS = ConnectionLimits(handshake_timeout_seconds=2.0)
BROKER = "broker.example:6651"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "no_grpc_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def failure_of(address: str, *, tunnel: str = "") -> StreamBroken:
    async def work() -> StreamBroken:
        with pytest.raises(StreamBroken) as raised:
            await Dialer(None, LIMITS, tunnel=tunnel).connect_through(address, asyncio.Protocol)
        return raised.value

    return asyncio.run(work())


def second_look(address: str, *, tunnel: str = "") -> StreamBroken:
    return asyncio.run(Dialer(None, LIMITS, tunnel=tunnel).failure(address))


def forbids(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")


def ends_tunnel(connection: socket.socket) -> None:
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    connection.recv(4096)


def test_a_process_that_is_not_there_is_unreachable() -> None:
    for scheme in ("", "tls:"):
        found = failure_of(f"{scheme}127.0.0.1:{refused_port()}")
        assert isinstance(found, Unreachable)


@pytest.mark.parametrize("look", [failure_of, second_look])
def test_a_proxy_that_is_not_there_is_named_and_not_the_broker(
    look: Callable[..., StreamBroken],
) -> None:
    port = refused_port()
    found = look(f"tls:{BROKER}", tunnel=f"127.0.0.1:{port}")
    assert not isinstance(found, Unreachable)
    assert str(found) == (
        f"{BROKER} cannot be reached through the proxy 127.0.0.1:{port}: no process listens there"
    )


@pytest.mark.parametrize("look", [failure_of, second_look])
def test_a_proxy_that_refuses_is_named(look: Callable[..., StreamBroken]) -> None:
    with plain_server(forbids) as port:
        found = look(f"tls:{BROKER}", tunnel=f"127.0.0.1:{port}")
    assert f"cannot be reached through the proxy 127.0.0.1:{port}: " in str(found)
    assert "403 Forbidden" in str(found)
    assert "TLS" not in str(found)


def test_a_proxy_of_the_environment_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://app:secret@no-such-host.invalid:3128")
    for found in (failure_of(BROKER), second_look(BROKER)):
        assert "the host name of the proxy no-such-host.invalid:3128 cannot be" in str(found)
        assert "secret" not in str(found)


def test_an_end_of_the_handshake_may_mean_that_there_is_no_tls() -> None:
    words = "does not complete a TLS handshake"
    with plain_server(closes) as port:
        assert words in str(failure_of(f"tls:127.0.0.1:{port}"))
        assert words in str(second_look(f"tls:127.0.0.1:{port}"))
    with plain_server(ends_tunnel) as port:
        assert words in str(failure_of(f"tls:{BROKER}", tunnel=f"127.0.0.1:{port}"))


@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.ETIMEDOUT])
def test_another_error_of_the_network_says_nothing_of_tls(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(dialing.Dialer, "connect", fail)
    found = failure_of("tls:127.0.0.1:6651")
    assert "127.0.0.1:6651 cannot be reached: " in str(found)
    assert "TLS" not in str(found)


def test_no_proxy_connects_to_an_address_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def open_tunnel(*_: object) -> object:
        raise AssertionError("the proxy is asked")

    monkeypatch.setattr(dialing, "open_tunnel", open_tunnel)
    dialer = Dialer(TlsClientConfig(is_required=True), ConnectionLimits(), tunnel="proxy:8080")
    with pytest.raises(StreamBroken, match="an address without TLS, which this client requires"):
        asyncio.run(dialer.connect_through("broker:6660", asyncio.Protocol))
