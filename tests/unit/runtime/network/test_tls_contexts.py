"""Contexts follow their files; bad new files change nothing."""

from __future__ import annotations

import logging
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from pulsarish.model.errors import ConfigError
from pulsarish.runtime.grpc.tls_credentials import server_credentials
from pulsarish.runtime.network.tls_contexts import ClientTls, ServerTls
from pulsarish.security.tls import TlsClientConfig, parse_certificate
from tests.support.certificates import Certificates


class _Time:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 10.0  # each look is a later one
        return self.now


def shown(server: ServerTls, client: ClientTls, host: str | None = "localhost") -> tuple[str, str]:
    """Return the common names of server and client after a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = server.context().wrap_bio(to_server, to_client, server_side=True)
    here = client.context().wrap_bio(to_client, to_server, server_hostname=host)
    waiting = {here, there}
    while waiting:
        for end in [each for each in (here, there) if each in waiting]:
            try:
                end.do_handshake()
                waiting.discard(end)
            except ssl.SSLWantReadError:
                continue
    names = []
    for end in (here, there):
        encoded = end.getpeercert(binary_form=True)
        found = parse_certificate(encoded) if encoded else None
        names.append("" if found is None else found.common_name)
    return names[0], names[1]


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])  # the second is sent to no server
def test_new_files_are_used_for_the_next_handshake(made: Certificates, host: str) -> None:
    server = ServerTls(made.server_config(), monotonic=_Time().monotonic)
    client = ClientTls(made.client_config(), monotonic=_Time().monotonic)
    assert shown(server, client, host) == ("server", "client")
    for name, to in (("next server", "server"), ("next client", "client")):
        made.write(to, made.authority.issue(name, now_ms=_now_ms(), days=9, hosts=[host]))
    assert shown(server, client, host) == ("next server", "next client")


def test_the_core_of_grpc_gets_files_again_only_when_they_changed(
    made: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It frees what it has when it gets any, also while handshakes use it."""
    asked: list[Callable[[], object]] = []

    def keep(_first: object, changed: Callable[[], object], _requires: bool) -> None:
        asked.append(changed)

    monkeypatch.setattr(grpc, "dynamic_ssl_server_credentials", keep)
    server_credentials(ServerTls(made.server_config(), monotonic=_Time().monotonic))
    [changed] = asked
    assert [changed() for _ in range(3)] == [None] * 3
    made.write("server", made.authority.issue("next", now_ms=_now_ms(), days=9, hosts=["h"]))
    assert changed() is not None
    assert changed() is None


def test_a_new_authority_replaces_the_old_one(made: Certificates, tmp_path: Path) -> None:
    server = ServerTls(made.server_config(), monotonic=_Time().monotonic)
    client = ClientTls(made.client_config(), monotonic=_Time().monotonic)
    assert shown(server, client) == ("server", "client")
    other = Certificates(tmp_path, "another authority")  # which writes another ca.pem
    other.issue("server")
    # The client's certificate is of the old authority.
    with pytest.raises(ssl.SSLCertVerificationError):
        shown(server, client)
    other.issue("client")
    assert shown(server, client) == ("server", "client")


def test_bad_new_files_keep_the_old_and_are_reported_once(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    server = ServerTls(made.server_config(), monotonic=_Time().monotonic)
    client = ClientTls(made.client_config(), monotonic=_Time().monotonic)
    Path(made.server_config().key_file).write_text("junk")
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert shown(server, client) == ("server", "client")
    found = [record for record in caplog.records if "not used" in record.getMessage()]
    assert len(found) == 1
    assert "server.key" in caplog.text
    assert "has no private key that can be read; give a file in PEM form" in caplog.text
    made.issue("server")
    assert shown(server, client) == ("server", "client")


def test_files_that_vanish_keep_the_old(made: Certificates) -> None:
    server = ServerTls(made.server_config(), monotonic=_Time().monotonic)
    client = ClientTls(made.client_config(), monotonic=_Time().monotonic)
    Path(made.trust).unlink()
    assert shown(server, client) == ("server", "client")


def test_files_are_looked_at_once_a_second(made: Certificates) -> None:
    now = 0.0
    server = ServerTls(made.server_config(), monotonic=lambda: now)
    client = ClientTls(made.client_config())
    made.write(
        "server", made.authority.issue("next", now_ms=_now_ms(), days=9, hosts=["localhost"])
    )
    assert shown(server, client)[0] == "server"
    now = 1.0
    assert shown(server, client)[0] == "next"


@pytest.mark.parametrize(
    ("client_hosts", "reason"),
    [(("other.example",), "Hostname mismatch"), ((), "Hostname mismatch")],
)
def test_a_server_of_another_name_is_refused(
    made: Certificates, client_hosts: tuple[str, ...], reason: str
) -> None:
    made.issue("server", hosts=client_hosts)
    server = ServerTls(made.server_config())
    with pytest.raises(ssl.SSLCertVerificationError, match=reason):
        shown(server, ClientTls(made.client_config()))
    lax = TlsClientConfig(made.trust, *made.issue("client"), validates_host_name=False)
    assert shown(server, ClientTls(lax)) == ("server", "client")


def test_a_certificate_of_a_client_is_none_of_a_server(made: Certificates) -> None:
    made.issue("server", is_server=False)
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        shown(ServerTls(made.server_config()), ClientTls(made.client_config()))


def test_a_self_signed_server_is_refused(made: Certificates, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger = Certificates(tmp_path / "other", "a stranger")
    server = ServerTls(stranger.server_config(client_certificate="none"))
    with pytest.raises(ssl.SSLCertVerificationError):
        shown(server, ClientTls(made.client_config("")))
    with pytest.raises(ssl.SSLCertVerificationError):
        shown(server, ClientTls(TlsClientConfig()))


def test_a_server_that_requires_a_certificate_refuses_a_client_without(made: Certificates) -> None:
    server = ServerTls(made.server_config())
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        shown(server, ClientTls(made.client_config("")))
    optional = ServerTls(made.server_config(client_certificate="optional"))
    assert shown(optional, ClientTls(made.client_config(""))) == ("server", "")
    assert shown(optional, ClientTls(made.client_config())) == ("server", "client")
    silent = ServerTls(made.server_config(client_certificate="none"))
    assert shown(silent, ClientTls(made.client_config())) == ("server", "")


def test_bad_files_at_the_start_are_an_error(made: Certificates) -> None:
    config = made.server_config()
    Path(config.certificate_file).write_text("junk")
    with pytest.raises(ConfigError, match="tls_certificate_file_path"):
        ServerTls(config)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_host_name_that_is_no_text_raises_nothing_unseen(
    made: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would write a traceback for each handshake of a hostile peer.
    unseen: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unseen.append)
    hello, answers = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ClientTls(made.client_config()).context()
    with pytest.raises(ssl.SSLWantReadError):
        client.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
    damaged = ssl.MemoryBIO()
    damaged.write(hello.read().replace(b"localhost", b"loc\xcflhost"))
    with pytest.raises(ssl.SSLError):
        ServerTls(made.server_config()).context().wrap_bio(
            damaged, answers, server_side=True
        ).do_handshake()
    assert unseen == []
