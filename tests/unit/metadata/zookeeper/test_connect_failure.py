"""Why a connection to a metadata server fails: each kind has a reason, an option and a file of its
own, without waiting for the end of a time.
"""

from __future__ import annotations

import logging
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pulsarish.metadata.access import MetadataAccess
from pulsarish.metadata.daemon.zkwire import ErrorCode, encode_connect_reply, encode_reply
from pulsarish.metadata.zookeeper.access_errors import what_to_change
from pulsarish.metadata.zookeeper.connect_failure import ConnectFailure, Refusal
from pulsarish.metadata.zookeeper.kazoo_connection import Client
from pulsarish.security.credentials import Secret
from pulsarish.security.tls import TlsClientConfig, client_context, read_client_material
from tests.support.certificates import Certificates

ELSEWHERE = ("elsewhere.example",)
Speaks = Callable[[socket.socket], None]


@contextmanager
def serving(speaks: Speaks, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Run a server that ends each connection after ``speaks``."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection = listening.accept()[0]
                except OSError:
                    return
                with suppress(OSError), connection:
                    connection.settimeout(30)
                    if tls is not None:
                        with tls.wrap_socket(connection, server_side=True) as secured:
                            speaks(secured)
                    else:
                        speaks(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def without_quorum(connection: socket.socket) -> None:
    if connection.recv(100) == b"srvr":
        connection.sendall(b"This ZooKeeper instance is not currently serving requests\n")


def zookeeper(connection: socket.socket) -> None:
    """Answer words, and take everything else for a request that is too long."""
    if connection.recv(4) == b"srvr":
        connection.sendall(b"Zookeeper version: 3.9.3\n")


def mute(connection: socket.socket) -> None:
    """End every connection, as for a certificate that is refused."""
    connection.recv(100)


def logging_in(*answers: bytes) -> Speaks:
    def speaks(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(encode_connect_reply(10_000, 7, bytes(16), with_read_only=True))
        connection.recv(100)
        for answer in answers:
            connection.sendall(answer)

    return speaks


def server_tls(certificate: str, key: str, trust: str = "") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if trust:
        context.load_verify_locations(trust)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def failures(
    address: str, tls: TlsClientConfig | None = None, login: str = ""
) -> Iterator[ConnectFailure]:
    """Yield why attempts to connect fail, as they do."""
    heard: queue.Queue[ConnectFailure] = queue.Queue()
    now_ms = time.time_ns() // 1_000_000
    client = Client(
        address,
        10.0,
        reconnect_max_seconds=0.2,
        logger=logging.getLogger("test"),
        came=lambda: None,
        connected=lambda _seconds: None,
        failed=heard.put,
        logins=(Secret(login.encode()),) if login else (),
        tls=None if tls is None else lambda: client_context(tls, read_client_material(tls, now_ms)),
    )
    client.start_async()
    try:
        while True:
            yield heard.get(timeout=20)
    finally:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("ours"))


def refused(address: str, tls: TlsClientConfig | None = None, login: str = "") -> ConnectFailure:
    """Return the first failure that is a refusal, one of the first few."""
    for number, failure in enumerate(failures(address, tls, login)):
        if failure.refusal is not None:
            return failure
        assert number < 5
    raise AssertionError


def test_an_authority_that_is_not_trusted(made: Certificates, tmp_path: Path) -> None:
    stranger = Certificates(tmp_path, "another authority")
    with serving(mute, server_tls(*stranger.issue("server"))) as address:
        ours = made.client_config("")
        found = next(failures(address, ours))
        assert found.refusal is Refusal.AUTHORITY
        assert address in found.reason
        said = what_to_change(found.refusal, MetadataAccess(tls=ours))
        assert f"tls_trust_certs_file_path = {made.trust!r}" in said


@pytest.mark.parametrize("wrong", [{"hosts": ELSEWHERE}, {"age_days": 40}])
def test_a_certificate_for_another_host_or_time(made: Certificates, wrong: dict[str, int]) -> None:
    certificate = made.issue("wrong", **wrong)  # type: ignore[arg-type]
    with serving(mute, server_tls(*certificate)) as address:
        found = next(failures(address, made.client_config("")))
        assert found.refusal is Refusal.SERVER_CERTIFICATE
        assert "metadata_url" in what_to_change(found.refusal, MetadataAccess())


@pytest.mark.parametrize("shown", ["", "stranger"])
def test_a_certificate_that_the_server_refuses(
    made: Certificates, tmp_path: Path, shown: str
) -> None:
    stranger = Certificates(tmp_path, "another authority")
    ours = TlsClientConfig(made.trust, *(stranger.issue(shown) if shown else ()))
    with serving(mute, server_tls(*made.issue("server"), made.trust)) as address:
        found = refused(address, ours)
        assert found.refusal is Refusal.CERTIFICATE
        said = what_to_change(found.refusal, MetadataAccess(tls=ours))
        assert (ours.certificate_file or "is empty") in said
        assert "tls_certificate_file_path" in said


def test_a_server_that_refuses_without_a_word(made: Certificates) -> None:
    with serving(mute, server_tls(*made.issue("server"))) as address:
        found = refused(address, made.client_config(""))
        assert found.refusal is Refusal.CERTIFICATE


def test_a_port_without_tls(made: Certificates) -> None:
    with serving(zookeeper) as address:
        found = next(failures(address, made.client_config("")))
        assert found.refusal is Refusal.NO_TLS
        assert "no TLS at this port" in found.reason
        assert "metadata_url" in what_to_change(found.refusal, MetadataAccess())


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_server_without_a_quorum_may_get_one(made: Certificates, has_tls: bool) -> None:
    tls = server_tls(*made.issue("server")) if has_tls else None
    with serving(without_quorum, tls) as address:
        attempts = failures(address, made.client_config("") if has_tls else None)
        for _ in range(5):
            found = next(attempts)
            assert "no quorum" in found.reason
            assert found.refusal is None
        attempts.close()


@pytest.mark.parametrize("has_tls", [False, True])
def test_a_port_without_a_server(made: Certificates, has_tls: bool) -> None:
    with serving(mute) as address:
        pass
    attempts = failures(address, made.client_config("") if has_tls else None)
    for _ in range(5):
        found = next(attempts)
        assert "refused" in found.reason
        assert found.refusal is None
    attempts.close()


def test_a_wrong_login(made: Certificates) -> None:
    with serving(logging_in(encode_reply(-4, 0, ErrorCode.AUTH_FAILED))) as address:
        found = next(failures(address, login="pulsarish:wrong"))
        assert found.refusal is Refusal.LOGIN
        said = what_to_change(found.refusal, MetadataAccess("members.auth"))
        assert "metadata_auth_file = 'members.auth'" in said


def test_a_login_that_is_not_checked(made: Certificates) -> None:
    with serving(logging_in()) as address:
        attempts = failures(address, login="pulsarish:right")
        for _ in range(5):
            found = next(attempts)
            assert "too many logins" in found.reason
            assert found.refusal is None
        attempts.close()
