"""``pulsarish health`` tells a script or a container engine whether servers can serve, by its exit
status and a sentence for each.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest


class _Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = {
            "/health": (200, b'{"status": "ok"}'),
            "/starting": (503, b'{"reason": "starting or stopping"}'),
        }[self.path]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the library's
        return


@pytest.fixture(scope="module")
def http() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), _Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """The port of somebody who takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/health"


def health(*arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pulsarish", "health", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_all_must_be_able_to_serve(http: str) -> None:
    assert health("--timeout", "30", f"{http}/health") == (0, f"{http}/health ok\n", "")
    assert health("--timeout", "30", http) == (0, f"{http} ok\n", "")
    status, out, err = health("--timeout", "30", f"{http}/health", f"{http}/starting")
    assert (status, out) == (1, f"{http}/health ok\n")
    assert f"{http}/starting cannot serve" in err
    assert "starting or stopping" in err


def test_what_is_no_address_is_refused_before_anybody_is_asked(http: str) -> None:
    status, out, err = health(f"{http}/health", "nonsense")
    assert (status, out) == (2, "")
    assert "'nonsense' is not the address" in err


def test_silence_and_absence_are_failures(silent: str) -> None:
    status, _, err = health("--timeout", "0.2", silent)
    assert (status, "timed out" in err) == (1, True)
    with socket.socket() as absent:
        absent.bind(("127.0.0.1", 0))  # nobody listens, and nobody else can
        status, _, err = health(
            "--timeout", "30", f"http://127.0.0.1:{absent.getsockname()[1]}/health"
        )
    assert (status, "refused" in err, "Traceback" in err) == (1, True, False)


@pytest.mark.parametrize("url", ["ftp://h/health", "nonsense", "http://"])
def test_what_is_no_address_is_bad_usage(url: str) -> None:
    status, _, err = health(url)
    assert (status, "http://host:port/health" in err, "Traceback" in err) == (2, True, False)
