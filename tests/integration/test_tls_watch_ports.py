"""HTTPS of the processes that have only health and metrics, without a plain port."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Certificates
from tests.support.until import until

ROLES = {
    "bookie": ("bookie_id=b1", "listen_address=127.0.0.1:0"),
    "autorecovery": ("autorecovery_id=a",),
    "metadata": ("listen_address=127.0.0.1:0",),
    "proxy": ("pulsar_address=127.0.0.1:0", "connect_address="),
}
TOKEN = "a-token-of-forty-four-characters-in-base-64="
METRICS = {
    "bookie": b"bookie_SERVER_STATUS",
    "autorecovery": b"replication_worker_running",
    "metadata": b"zk_znode_count",
    "proxy": b"pulsarish_proxy_brokers",
}


def command(role: str, home: Path, made: Certificates, *settings: str) -> list[str]:
    certificate, key = made.issue("server")
    directory = () if role in ("autorecovery", "proxy") else (f"data_directory={home}/{role}",)
    url = () if role == "metadata" else (f"metadata_url=embedded:{home}/tree",)
    options = (
        *ROLES[role],
        *directory,
        *url,
        "http_address=",
        "http_address_tls=127.0.0.1:0",
        f"tls_certificate_file_path={certificate}",
        f"tls_key_file_path={key}",
        *settings,
    )
    words = [word for option in options for word in ("--set", option)]
    return [sys.executable, "-m", "pulsarish", role, *words]


class Server:
    """A process that answers at ``url``, and at no plain port."""

    def __init__(self, words: list[str]) -> None:
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = self.process.stdout.readline().split()
        assert not any(word.startswith("http=") for word in ready)
        (self.url,) = (
            f"https://{word.removeprefix('https=')}" for word in ready if word.startswith("https=")
        )

    def get(
        self, path: str, trust: str, pair: tuple[str, str] | None = None, token: str = ""
    ) -> bytes:
        context = ssl.create_default_context(cafile=trust)
        if pair is not None:
            context.load_cert_chain(*pair)
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(self.url + path, headers=shown)
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            found = answer.read()
            assert isinstance(found, bytes)
            return found

    def end(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


@pytest.fixture
def bookie(tmp_path: Path, made: Certificates) -> Iterator[Server]:
    required = "tls_require_trusted_client_cert_on_connect=true"
    server = Server(
        command("bookie", tmp_path, made, required, f"tls_trust_certs_file_path={made.trust}")
    )
    yield server
    server.end()


@pytest.mark.parametrize("role", ROLES)
def test_metrics_are_scraped_over_tls_with_a_token(
    role: str, tmp_path: Path, made: Certificates
) -> None:
    tokens = tmp_path / "metrics.token"
    tokens.write_text(f"{TOKEN}\n")
    tokens.chmod(0o600)
    server = Server(command(role, tmp_path, made, f"metrics_token_file={tokens}"))
    try:
        assert METRICS[role] in server.get("/metrics", made.trust, token=TOKEN)
        for wrong in ("", TOKEN[:-1]):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                server.get("/metrics", made.trust, token=wrong)
        if role == "proxy":
            with pytest.raises(urllib.error.HTTPError, match="503"):  # there is no broker
                server.get("/health", made.trust)
        else:
            assert server.get("/health", made.trust)
        with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
            server.get("/metrics", ssl.get_default_verify_paths().cafile or "")
        plain = server.url.replace("https", "http", 1)
        with pytest.raises((OSError, urllib.error.URLError)):
            urllib.request.urlopen(f"{plain}/metrics", timeout=5)
    finally:
        server.end()


def test_a_client_certificate_is_required_where_the_option_says_so(
    bookie: Server, made: Certificates
) -> None:
    with pytest.raises(OSError):
        bookie.get("/health", made.trust)
    assert b'"status":"ok"' in bookie.get(
        "/health", made.trust, made.issue("scraper", is_server=False)
    )


def test_health_shows_the_certificate_of_the_profile(
    bookie: Server, made: Certificates, tmp_path: Path
) -> None:
    certificate, key = made.issue("operator", is_server=False)
    os.chmod(key, 0o600)
    environ = {**os.environ, "PULSARISH_PROFILES_FILE": str(tmp_path / "profiles.toml")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pulsarish", *words],
            capture_output=True,
            text=True,
            env=environ,
            timeout=60,
            check=False,
        )

    health = ("--trust-certs-file", made.trust, "health", f"{bookie.url}/health")
    assert run(*health).returncode == 1
    made_profile = run(
        *("profiles", "create", "me", "--admin-url", bookie.url, "--certificate-file", certificate),
        *("--key-file", key),
    )
    assert made_profile.returncode == 0, made_profile.stderr
    done = run("--profile", "me", *health)
    assert (done.returncode, done.stdout) == (0, f"{bookie.url}/health ok\n"), done.stderr


def test_a_renewed_certificate_is_used_without_a_restart(
    tmp_path: Path, made: Certificates
) -> None:
    server = Server(command("metadata", tmp_path, made))
    try:
        assert server.get("/health", made.trust)
        renewed = Certificates(tmp_path, "the next authority")
        renewed.issue("server")

        def is_used() -> bool:
            try:
                return bool(server.get("/health", renewed.trust))
            except urllib.error.URLError:
                return False

        until("the renewed certificate is used", is_used)
    finally:
        server.end()


@pytest.mark.parametrize("role", ROLES)
def test_https_without_a_certificate_ends_the_start(
    role: str, tmp_path: Path, made: Certificates
) -> None:
    done = subprocess.run(
        command(role, tmp_path, made, "tls_certificate_file_path=", "tls_key_file_path="),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert "http_address_tls" in done.stderr
    assert "Traceback" not in done.stderr
