"""Options that may stand before the command, as users of pulsar-admin type them, and what commands
take from the environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from pulsarish.runtime.profiles import Profile, Profiles


def run(
    *words: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PULSARISH_")},
        **environment,
    }
    return subprocess.run(
        [sys.executable, "-m", "pulsarish", *words],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b'["acme"]' if self.path.endswith("/tenants") else b"ok"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep the test's output quiet."""


@pytest.fixture
def url() -> object:
    server = HTTPServer(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_before_the_command_and_behind_it(url: str) -> None:
    before = run("--admin-url", url, "-o", "json", "tenants", "list")
    behind = run("tenants", "list", "--admin-url", url, "-o", "json")
    assert (before.returncode, before.stderr) == (0, "")
    assert before.stdout == behind.stdout != ""
    # What stands behind the command is nearer to it.
    assert (
        run(
            "--admin-url",
            "http://127.0.0.1:1",
            "-o",
            "table",
            "tenants",
            "list",
            "--admin-url",
            url,
            "-o",
            "json",
        ).stdout
        == behind.stdout
    )


def test_health_asks_the_brokers_of_the_environment(url: str) -> None:
    done = run("health", PULSARISH_ADMIN_URL=f"{url}, {url}/")
    assert (done.returncode, done.stdout) == (0, f"{url}/health ok\n" * 2)
    assert run("health", PULSARISH_ADMIN_URL="http://127.0.0.1:1").returncode == 1
    # One scheme for all of them, as the other commands take it.
    done = run("health", PULSARISH_ADMIN_URL=f"{url},{url.removeprefix('http://')}")
    assert (done.returncode, done.stdout) == (0, f"{url}/health ok\n" * 2)


def test_health_asks_the_brokers_of_a_profile_of_the_environment(url: str, tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    profiles = Profiles.read(file)
    profiles.put("mine", Profile(admin_url=url), replace=False)
    profiles.write()
    done = run("health", PULSARISH_PROFILES_FILE=str(file))
    assert (done.returncode, done.stdout) == (0, f"{url}/health ok\n")
    done = run(
        "health", PULSARISH_PROFILES_FILE=str(file), PULSARISH_ADMIN_URL="http://127.0.0.1:1"
    )
    assert done.returncode == 1


def test_zookeeper_without_java_leaves_nothing_behind(tmp_path: Path) -> None:
    done = run("zookeeper", "--set", "java=no-such-java", cwd=tmp_path)
    assert done.returncode == 1
    assert "there is no program 'no-such-java'" in done.stderr
    assert list(tmp_path.iterdir()) == []
