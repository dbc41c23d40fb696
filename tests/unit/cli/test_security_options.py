"""As whom commands reach a cluster: options before the command, variables, and profiles."""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import trustme
from click.testing import Result

from pulsarish.cli.connections import SERVICE_URL
from tests.support.admin_server import AdminServer, admin_server
from tests.support.commands import run_command

SECRET = "hunter2"
PLAIN_WARNING = "without TLS, readable on the way"


@pytest.fixture
def server() -> Iterator[AdminServer]:
    with admin_server() as found:
        found.answer("GET /admin/v2/tenants", 200, ["acme"])
        yield found


class Person:
    """Who types commands: an environment and some files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.profiles = folder / "profiles.toml"
        self.environment: dict[str, str | None] = {
            "PULSARISH_PROFILES_FILE": str(self.profiles),
            **dict.fromkeys(
                f"PULSARISH_{name}"
                for name in (
                    "URL",
                    "ADMIN_URL",
                    "PROFILE",
                    "AUTH_PLUGIN",
                    "AUTH_PARAMS",
                    "TOKEN_FILE",
                    "TRUST_CERTS_FILE",
                )
            ),
        }

    def token(self, text: str, mode: int = 0o600) -> str:
        path = self.folder / f"token-{text}"
        path.write_text(text + "\n")
        path.chmod(mode)
        return str(path)

    def run(self, *words: str, **environment: str) -> Result:
        return run_command({**self.environment, **environment}, *words)  # type: ignore[dict-item]

    def done(self, *words: str, **environment: str) -> Result:
        result = self.run(*words, **environment)
        assert result.exit_code == 0, result.output
        return result


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def test_options_before_the_command(person: Person, server: AdminServer) -> None:
    token = person.token("a.b.c")
    for words in (
        ("--token-file", token),
        ("--auth-plugin", "token", "--auth-params", f"token:file:{token}"),
        (
            "--auth-plugin",
            "org.apache.pulsar.client.impl.auth.AuthenticationToken",
            "--auth-params",
            f"file://{token}",
        ),
    ):
        shown = person.done(*words, "--admin-url", server.url, "tenants", "list")
        assert shown.stderr == ""
    assert server.authorizations == ["Bearer a.b.c"] * 3


def test_variables(person: Person, server: AdminServer) -> None:
    words = ("--admin-url", server.url, "tenants", "list")
    person.done(*words, PULSARISH_TOKEN_FILE=person.token("a"))
    parameters = "username:u,password:env:PASSWORD"
    person.done(
        *words, PULSARISH_AUTH_PLUGIN="basic", PULSARISH_AUTH_PARAMS=parameters, PASSWORD="p"
    )
    assert server.authorizations == ["Bearer a", "Basic dTpw"]


def test_a_secret_in_the_arguments_is_warned_of(person: Person, server: AdminServer) -> None:
    words = ("--admin-url", server.url, "tenants", "list")
    given = ("--auth-plugin", "token", "--auth-params", f"token:{SECRET}")
    shown = person.done(*given, *words)
    assert "other users of this machine can see the secret in --auth-params" in shown.stderr
    assert SECRET not in shown.output
    # The environment of a process is its user's.
    quiet = person.done(*words, PULSARISH_AUTH_PLUGIN="token", PULSARISH_AUTH_PARAMS=SECRET)
    assert quiet.stderr == ""
    assert server.authorizations == [f"Bearer {SECRET}"] * 2


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--auth-plugin", "token"), "token is empty"),
        (("--auth-params", f"token:{SECRET}"), "auth_params is given without auth_plugin"),
        (("--auth-plugin", "athenz", "--auth-params", SECRET), "athenz is not supported"),
        (("--auth-plugin", "basic", "--auth-params", SECRET), "no name:value"),
        (("--token-file", "/nowhere/token"), "/nowhere/token cannot be read"),
        (("--token-file", "f", "--auth-plugin", "token"), "are both given"),
        (("--profile", "nowhere"), "no profile 'nowhere'"),
        (("--trust-certs-file", "ca.pem"), "needs TLS: pass a url that begins with https://"),
    ],
)
def test_bad_options(
    person: Person, server: AdminServer, words: tuple[str, ...], error: str
) -> None:
    shown = person.run(*words, "--admin-url", server.url, "tenants", "list")
    assert shown.exit_code == 1
    assert error in shown.stderr
    assert SECRET not in shown.output
    assert not server.requests


def test_a_token_file_that_others_can_read(person: Person, server: AdminServer) -> None:
    token = person.token("a", 0o644)
    shown = person.run("--token-file", token, "--admin-url", server.url, "tenants", "list")
    assert shown.exit_code == 1
    assert f"other users can read or change {token} (mode 0644): chmod 600" in shown.stderr
    assert not server.requests


def test_a_profile_in_use(person: Person, server: AdminServer) -> None:
    with admin_server() as other:
        other.answer("GET /admin/v2/tenants", 200, ["other"])
        for name, each in (("one", server), ("two", other)):
            token = person.token(name)
            person.done("profiles", "create", name, "--admin-url", each.url, "--token-file", token)
        assert "acme" in person.done("tenants", "list").stdout
        assert "other" in person.done("--profile", "two", "tenants", "list").stdout
        assert "other" in person.done("tenants", "list", PULSARISH_PROFILE="two").stdout
        person.done("profiles", "use", "two")
        assert "other" in person.done("tenants", "list").stdout
        # What is given for this command is nearer to it.
        person.done("--token-file", person.token("three"), "tenants", "list")
        assert server.authorizations == ["Bearer one"]
        assert other.authorizations == [*["Bearer two"] * 3, "Bearer three"]


def test_credentials_of_a_profile_stay_with_its_hosts(person: Person, server: AdminServer) -> None:
    token = person.token(SECRET)
    create = ("profiles", "create", "--token-file", token)
    person.done(*create, "far", "--admin-url", "http://broker.example:8080")
    shown = person.done("tenants", "list", "--admin-url", server.url)
    assert "profile far is not used: its addresses are others than" in shown.stderr
    # The same host without TLS is another one, too.
    person.done(*create, "near", "--admin-url", server.url.replace("http", "https"))
    person.done("--profile", "near", "tenants", "list", "--admin-url", server.url)
    assert server.authorizations == [None, None]
    person.done(*create, "same", "--admin-url", f"{server.url},broker.example")
    person.done("--profile", "same", "tenants", "list", "--admin-url", server.url)
    assert server.authorizations[2] == f"Bearer {SECRET}"


def test_credentials_without_tls_are_warned_of(person: Person) -> None:
    token = ("--token-file", person.token("t"))
    far = "http://broker.invalid:8080"
    assert PLAIN_WARNING in person.run(*token, "--admin-url", far, "tenants", "list").stderr
    for url in (
        far.replace("http", "https"),
        "http://127.0.0.1:1",
        "http://[::1]:1",
        "localhost:1",
    ):
        shown = person.run(*token, "--admin-url", url, "tenants", "list")
        assert PLAIN_WARNING not in shown.stderr, url


def authority(folder: Path) -> tuple[str, ssl.SSLContext]:
    """Return the file of a new authority and the context of a server at localhost."""
    made = trustme.CA()
    trust = str(folder / "ca.pem")
    made.cert_pem.write_to_path(trust)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.issue_cert("localhost").configure_cert(context)
    return trust, context


def test_tls(person: Person, tmp_path: Path) -> None:
    trust, context = authority(tmp_path)
    with admin_server(context) as server:
        server.answer("GET /admin/v2/tenants", 200, ["acme"])
        words = ("--admin-url", server.url, "tenants", "list")
        assert "is refused" in person.run(*words).stderr
        assert not server.requests
        person.done("--trust-certs-file", trust, *words)
        person.done(*words, PULSARISH_TRUST_CERTS_FILE=trust)
        person.done(
            "profiles",
            "create",
            "p",
            "--admin-url",
            server.url,
            "--trust-certs-file",
            trust,
            "--token-file",
            person.token("t"),
        )
        person.done("tenants", "list")
        assert server.authorizations == [None, None, "Bearer t"]
        # A variable for other URLs does not hinder one without TLS.
        shown = person.run(
            "tenants", "list", "--admin-url", "http://127.0.0.1:1", PULSARISH_TRUST_CERTS_FILE="x"
        )
        assert "no broker answers at http://127.0.0.1:1" in shown.stderr


def test_commands_of_profiles(person: Person) -> None:
    assert person.done("profiles", "list").stderr == "(none)\n"
    token = person.token(SECRET)
    person.done("profiles", "create", "a", "--url", SERVICE_URL, "--token-file", token)
    person.done("profiles", "create", "b", "--admin-url", "https://h")
    rows = person.done("profiles", "list").stdout.splitlines()
    assert [row.split()[:2] for row in rows[1:]] == [["a", "yes"], ["b", "no"]]
    assert f"token:file://{token}" in person.done("profiles", "show").stdout
    assert "https://h" in person.done("profiles", "show", "b").stdout
    assert "give --replace" in person.run("profiles", "create", "b", "--url", SERVICE_URL).stderr
    person.done("profiles", "create", "b", "--replace", "--url", SERVICE_URL)
    person.done("profiles", "delete", "a")
    assert "no profile is in use" in person.run("profiles", "show").stderr
    assert SECRET not in person.profiles.read_text().replace(token, "")


BAD: Mapping[tuple[str, ...], str] = {
    (): "give --url, --admin-url or both",
    ("--url", "pulsr://h"): "unknown scheme",
    ("--admin-url", "ftp://h"): "admin url 'ftp://h' must look like",
    ("--admin-url", "http://h", "--key-file", "k"): "",
    ("--admin-url", "https://h", "--key-file", "k"): "belong together",
    ("--url", SERVICE_URL, "--auth-plugin", "token", "--auth-params", SECRET): "the secret itself",
    ("--url", SERVICE_URL, "--auth-params", f"token:{SECRET}"): "without auth_plugin",
    ("--url", SERVICE_URL, "--auth-plugin", "token", "--token-file", "f"): "give either",
}


@pytest.mark.parametrize(("words", "error"), BAD.items())
def test_profiles_that_are_refused(person: Person, words: tuple[str, ...], error: str) -> None:
    shown = person.run("profiles", "create", "p", *words)
    assert error in shown.stderr
    assert (shown.exit_code == 0) == (not error)
    assert SECRET not in shown.output
    assert person.profiles.exists() == (not error)


def test_the_help_names_every_option(person: Person) -> None:
    text = re.sub(r"\s+", " ", person.done("--help").stdout)
    for word in ("--profile", "--auth-plugin", "--auth-params", "--token-file", "--trust-certs"):
        assert word in text


def test_health_over_tls(person: Person, tmp_path: Path) -> None:
    trust, context = authority(tmp_path)
    with admin_server(context) as server:
        server.answer("GET /health", 200, {})
        url = f"{server.url}/health"
        refused = person.run("health", url)
        assert (refused.exit_code, server.requests) == (1, [])
        assert "certificate verify failed" in refused.stderr
        assert person.done("--trust-certs-file", trust, "health", url).stdout == f"{url} ok\n"


def test_a_command_without_a_cluster_reads_no_profiles(person: Person) -> None:
    program = "import sys, pulsarish.cli.main; print('pulsarish.runtime.profiles' in sys.modules)"
    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "False\n"
