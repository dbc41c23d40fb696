"""Fetching the keys of token issuers: whatever the server does, it ends in time."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pulsarish.model.errors import ServiceNotReady
from pulsarish.runtime.network.https import read_https
from pulsarish.security.authority import Authority

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


@contextmanager
def server(
    directory: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[ssl.SSLSocket], None]
) -> Iterator[str]:
    now_ms = int(time.time() * 1_000)
    authority = Authority.create("test", now_ms=now_ms, days=1)
    issued = authority.issue("localhost", now_ms=now_ms, days=1, hosts=["localhost"])
    for name, content in (
        ("ca.pem", authority.certificate),
        ("server.pem", issued.certificate + issued.key.reveal()),
    ):
        (directory / name).write_bytes(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(directory / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            try:
                while True:
                    plain, _ = listening.accept()
                    with context.wrap_socket(plain, server_side=True) as secure:
                        secure.recv(65_536)
                        answer(secure)
            except OSError:
                return  # the client or the test has ended

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"https://localhost:{listening.getsockname()[1]}/keys"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=30)


def test_an_answer_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"x" * 100_000

    def answer(secure: ssl.SSLSocket) -> None:
        secure.sendall(HEAD % len(content) + content)

    with server(tmp_path, monkeypatch, answer) as url:
        assert read_https(url) == content


@pytest.mark.parametrize("head", [b"", HEAD % 1_000], ids=["head", "body"])
def test_a_server_that_sends_byte_by_byte_is_given_up_in_time(
    head: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def answer(secure: ssl.SSLSocket) -> None:
        secure.sendall(head or b"HTTP/1.1 200 OK\r\nX: ")
        while not ended.wait(0.1):
            secure.sendall(b"x")

    with server(tmp_path, monkeypatch, answer) as url:
        began = time.monotonic()
        threading.Timer(20.0, ended.set).start()
        with pytest.raises(ServiceNotReady):
            read_https(url, seconds_max=1.0)
        took_seconds = time.monotonic() - began
        ended.set()
    assert 0.9 < took_seconds < 10.0


def test_a_server_that_sends_no_handshake_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        began = time.monotonic()
        with pytest.raises(ServiceNotReady):
            read_https(f"https://localhost:{listening.getsockname()[1]}/", seconds_max=1.0)
        assert time.monotonic() - began < 10.0


def test_only_https_is_read() -> None:
    with pytest.raises(ServiceNotReady, match="no https URL"):
        read_https("http://localhost/")
