"""Tokens of an OAuth 2.0 server: a small one over TLS, and a clock of the test."""

from __future__ import annotations

import json
import ssl
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from pulsarish.model.errors import AuthenticationError, ConnectError, PulsarishError
from pulsarish.runtime.client_authentication import AuthenticationOauth2
from pulsarish.runtime.oauth2_client import OAuth2Client
from pulsarish.runtime.secret_references import SecretReference
from pulsarish.security.credentials import Credentials, Secret

SECRET = "hunter2"


@dataclass
class Issuer:
    url: str = ""
    trust_file: str = ""
    key_file: str = ""
    token_endpoint: str = ""
    status: int = 200
    answer: Any = field(default_factory=lambda: {"access_token": "t1", "expires_in": 600})
    location: str = ""
    forms: list[dict[str, str]] = field(default_factory=list)

    def client(self, now: list[float], **options: Any) -> OAuth2Client:
        return OAuth2Client(
            self.url,
            SecretReference("private_key", f"file:{self.key_file}"),
            trust_file=self.trust_file,
            now=lambda: now[0],
            **options,
        )


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def issuer(tmp_path: Path, authority: trustme.CA) -> Iterator[Issuer]:
    found = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, {"token_endpoint": found.token_endpoint})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            found.forms.append(dict(urllib.parse.parse_qsl(body)))
            self._send(found.status, found.answer)

        def _send(self, status: int, answer: Any) -> None:
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            if found.location:
                self.send_header("Location", found.location)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Keep the test's output quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    trust = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(trust))
    key = tmp_path / "key.json"
    key.write_text(json.dumps({"client_id": "me", "client_secret": SECRET}))
    found.url = f"https://localhost:{server.server_address[1]}"
    found.trust_file, found.key_file = str(trust), str(key)
    found.token_endpoint = f"{found.url}/token"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_token_is_used_until_shortly_before_its_end(issuer: Issuer) -> None:
    now = [0.0]
    client = issuer.client(now, audience="pulsar", scope="a b")
    assert client.credentials() == Credentials("token", Secret("t1"))
    assert issuer.forms == [
        {
            "grant_type": "client_credentials",
            "client_id": "me",
            "client_secret": SECRET,
            "audience": "pulsar",
            "scope": "a b",
        }
    ]
    issuer.answer = {"access_token": "t2", "expires_in": 600}
    now[0] = 539
    assert client.credentials().data == Secret("t1")
    now[0] = 541
    assert client.credentials().data == Secret("t2")
    assert len(issuer.forms) == 2


def test_an_old_token_is_used_to_its_end_while_there_is_no_new_one(issuer: Issuer) -> None:
    now = [0.0]
    client = issuer.client(now)
    client.credentials()
    issuer.status = 503
    now[0] = 599
    assert client.credentials().data == Secret("t1")
    now[0] = 600
    with pytest.raises(ConnectError, match="answered with status 503; try again"):
        client.credentials()
    issuer.status = 200
    issuer.answer = {"access_token": "t2"}
    assert client.credentials().data == Secret("t2")


def test_by_its_parameters(issuer: Issuer) -> None:
    parameters = json.dumps(
        {
            "type": "client_credentials",
            "issuerUrl": issuer.url + "/",
            "privateKey": f"file://{issuer.key_file}",
            "trustCertsFilePath": issuer.trust_file,
        }
    )
    found = AuthenticationOauth2(parameters).provider.credentials()
    assert found == Credentials("token", Secret("t1"))


@pytest.mark.parametrize(
    ("status", "answer", "error", "words"),
    [
        (401, {"error": "invalid_client"}, AuthenticationError, r"status 401 \(invalid_client\)"),
        (400, {"error": f"{SECRET} is wrong"}, AuthenticationError, "status 400: check issuer"),
        (400, b"<html>", AuthenticationError, "status 400: check issuer"),
        (429, b"", ConnectError, "status 429; try again"),
        (200, b"<html>", AuthenticationError, "did not answer with a JSON object"),
        (200, [], AuthenticationError, "did not answer with a JSON object"),
        (200, {}, AuthenticationError, "without an access_token"),
        (200, {"access_token": f"{SECRET}\n"}, AuthenticationError, "without an access_token"),
    ],
)
def test_refusals(
    issuer: Issuer, status: int, answer: Any, error: type[PulsarishError], words: str
) -> None:
    issuer.status, issuer.answer = status, answer
    with pytest.raises(error, match=words) as raised:
        issuer.client([0.0]).credentials()
    assert SECRET not in str(raised.value)


def test_redirects_are_refused(issuer: Issuer) -> None:
    issuer.status, issuer.location = 302, f"{issuer.url}/elsewhere"
    with pytest.raises(AuthenticationError, match="refused with status 302"):
        issuer.client([0.0]).credentials()
    assert len(issuer.forms) == 1


def test_a_token_endpoint_without_tls_is_refused(issuer: Issuer) -> None:
    issuer.token_endpoint = issuer.token_endpoint.replace("https", "http")
    with pytest.raises(AuthenticationError, match="no token_endpoint that begins with https"):
        issuer.client([0.0]).credentials()


def test_an_issuer_that_is_not_trusted_gets_no_secret(issuer: Issuer, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    trusted = issuer.trust_file
    issuer.trust_file = str(other)
    with pytest.raises(ConnectError, match="certificate verify failed"):
        issuer.client([0.0]).credentials()
    issuer.trust_file, issuer.url = trusted, issuer.url.replace("localhost", "127.0.0.1")
    with pytest.raises(ConnectError, match="certificate verify failed"):
        issuer.client([0.0]).credentials()
    issuer.trust_file = str(tmp_path / "none.pem")
    with pytest.raises(AuthenticationError, match=r"trust_certs_file_path: .*none\.pem"):
        issuer.client([0.0]).credentials()
    assert not issuer.forms


@pytest.mark.parametrize(
    "content", ["", SECRET, "[]", "{}", '{"client_id": "i"}', f'{{"client_secret": "{SECRET}"}}']
)
def test_key_files_that_are_none(issuer: Issuer, content: str) -> None:
    Path(issuer.key_file).write_text(content)
    with pytest.raises(AuthenticationError, match=r"private_key: .*key\.json") as raised:
        issuer.client([0.0]).credentials()
    assert SECRET not in str(raised.value)


def test_the_issuer_of_the_key_file(issuer: Issuer) -> None:
    key = {"client_id": "me", "client_secret": SECRET, "issuer_url": issuer.url}
    Path(issuer.key_file).write_text(json.dumps(key))
    issuer.url = ""
    assert issuer.client([0.0]).credentials().data == Secret("t1")
    Path(issuer.key_file).write_text(json.dumps({**key, "issuer_url": ""}))
    with pytest.raises(AuthenticationError, match="issuer_url is missing"):
        issuer.client([0.0]).credentials()
