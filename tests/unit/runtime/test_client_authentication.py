"""Authentication as programs give it: Apache Pulsar's classes, plugin names and parameters."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pulsarish.model.errors import AuthenticationError, InvalidArgument, OperationNotSupported
from pulsarish.runtime.client_authentication import (
    Authentication,
    AuthenticationAthenz,
    AuthenticationBasic,
    AuthenticationOauth2,
    AuthenticationTLS,
    AuthenticationToken,
)
from pulsarish.security.credentials import Credentials, Secret
from pulsarish.security.tls import TlsClientConfig

JAVA = "org.apache.pulsar.client.impl.auth."
SECRET = "hunter2"


def shown(authentication: Authentication) -> tuple[str, bytes]:
    found = authentication.provider.credentials()
    return found.method, found.data.reveal()


@pytest.mark.parametrize("plugin", ["token", "TOKEN", JAVA + "AuthenticationToken"])
@pytest.mark.parametrize(
    "parameters", ["token:a.b.c", "a.b.c", '{"token": "a.b.c"}', " token:a.b.c\n", "data:,a.b.c"]
)
def test_a_token(plugin: str, parameters: str) -> None:
    made = Authentication(plugin, parameters)
    assert shown(made) == ("token", b"a.b.c")
    assert made.provider.is_immediate
    assert made.provider.http_scheme == "Bearer"


@pytest.mark.parametrize("form", ["file://{}", "file:{}", "token:file://{}", "token:file:{}"])
def test_a_token_file_is_read_again(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a token"
    path.write_text("first\n")
    made = Authentication("token", form.format(str(path).replace(" ", "%20")))
    assert not made.provider.is_immediate
    assert shown(made) == ("token", b"first")
    path.write_text("second")
    assert shown(made) == ("token", b"second")
    path.unlink()
    with pytest.raises(AuthenticationError, match="a token cannot be read: No such file"):
        shown(made)


def test_a_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    made = AuthenticationToken("env:MY_TOKEN")
    monkeypatch.setenv("MY_TOKEN", "x")
    assert shown(made) == ("token", b"x")
    monkeypatch.delenv("MY_TOKEN")
    with pytest.raises(AuthenticationError, match="environment variable MY_TOKEN is empty or not"):
        shown(made)


def test_a_token_of_the_program() -> None:
    tokens = iter(["first", " second\n"])
    made = AuthenticationToken(lambda: next(tokens))
    assert not made.provider.is_immediate
    assert [shown(made), shown(made)] == [("token", b"first"), ("token", b"second")]


def _broken() -> str:
    raise ValueError(SECRET)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (_broken, "raised ValueError"),
        (lambda: b"t", "returned a bytes: it must return a str"),
        (lambda: None, "returned a NoneType"),
        (lambda: " ", "empty"),
        (lambda: f"{SECRET}\nX-Role: admin", "white space"),
        (lambda: f"{SECRET}é", "not ASCII"),
        (lambda: SECRET * 10_000, "at most 49152"),
    ],
)
def test_functions_that_return_no_token(function: Callable[[], str], words: str) -> None:
    with pytest.raises(AuthenticationError, match=words) as raised:
        shown(AuthenticationToken(function))
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("plugin", ["basic", JAVA + "AuthenticationBasic"])
@pytest.mark.parametrize(
    "parameters",
    [
        "username:u,password:p:w",
        '{"username": "u", "password": "p:w"}',
        '{"userId": "u", "password": "p:w", "method": ""}',
    ],
)
def test_a_password(plugin: str, parameters: str) -> None:
    made = Authentication(plugin, parameters)
    assert shown(made) == ("basic", b"u:p:w")
    assert made.provider.http_scheme == "Basic"


def test_a_password_by_its_class(tmp_path: Path) -> None:
    assert shown(AuthenticationBasic("u", "p")) == ("basic", b"u:p")
    assert shown(AuthenticationBasic("u", "file:p", "oms3.0")) == ("oms3.0", b"u:file:p")
    as_json = '{"username": "ü", "password": "a,b", "method": "m"}'
    assert shown(AuthenticationBasic(auth_params_string=as_json)) == ("m", "ü:a,b".encode())
    path = tmp_path / "password"
    path.write_text(" spaces \n")
    made = Authentication("basic", f"username:u,password:file:{path}")
    assert shown(made) == ("basic", b"u: spaces ")
    assert not made.provider.is_immediate


@pytest.mark.parametrize("plugin", ["tls", JAVA + "AuthenticationTls"])
def test_a_certificate(plugin: str) -> None:
    wanted = TlsClientConfig(certificate_file="/c.pem", key_file="/k.pem")
    made = Authentication(plugin, "tlsCertFile:/c.pem,tlsKeyFile:file:///k.pem")
    assert made.certificate == AuthenticationTLS("/c.pem", "/k.pem").certificate == wanted
    assert made.provider.credentials() == Credentials("tls")


def test_oauth2_by_name() -> None:
    parameters = '{"issuerUrl": "https://issuer", "privateKey": "/key.json"}'
    for plugin in ("oauth2", JAVA + "oauth2.AuthenticationOAuth2"):
        assert not Authentication(plugin, parameters).provider.is_immediate


@pytest.mark.parametrize(
    "plugin",
    [
        "athenz",
        "sasl",
        JAVA + "AuthenticationAthenz",
        JAVA + "AuthenticationSasl",
        JAVA + "AuthenticationKeyStoreTls",
        "",
        "tls.so",
        "com.example.AuthenticationToken",
    ],
)
def test_plugins_that_are_not_supported(plugin: str) -> None:
    with pytest.raises(OperationNotSupported, match="use one of token, basic, tls, oauth2"):
        Authentication(plugin, SECRET)


def test_athenz_is_refused_by_name() -> None:
    with pytest.raises(OperationNotSupported, match="athenz"):
        AuthenticationAthenz("{}")


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: AuthenticationToken(5), "token is of type int"),  # type: ignore[arg-type]
    (lambda: AuthenticationToken(""), "token is empty"),
    (lambda: AuthenticationToken(f"{SECRET} {SECRET}"), "token holds white space"),
    (lambda: AuthenticationToken(f"{SECRET}é"), "token holds .* not ASCII"),
    (lambda: AuthenticationToken(f"{SECRET}\ud800"), "token is not ASCII"),
    (lambda: AuthenticationToken("file://elsewhere/token"), "three slashes"),
    (lambda: AuthenticationToken("file:"), "token names no file"),
    (lambda: AuthenticationToken("env:"), "token is no reference"),
    (lambda: AuthenticationToken(f"data:{SECRET}"), "data without a comma"),
    (lambda: AuthenticationToken(f"data:;base64,{SECRET}!"), "not base64"),
    (lambda: Authentication("token", ""), "token is empty"),
    (lambda: Authentication("token", '{"token": 5}'), "not all texts"),
    (lambda: Authentication("token", f'{{"tok": "{SECRET}"}}'), "it takes token"),
    (lambda: Authentication(5, "x"), "dynamicLibPath is of type int"),  # type: ignore[arg-type]
    (lambda: Authentication("token", None), "authParamsString is of"),  # type: ignore[arg-type]
    (lambda: Authentication("basic", SECRET), "part 1 .* no name:value"),
    (lambda: Authentication("basic", f"username:u,password:a,{SECRET}"), "part 3 .* JSON"),
    (lambda: Authentication("basic", f"username:u,password:a,{SECRET}:b"), "1 of the parameters"),
    (lambda: Authentication("basic", f'{{"username": "{SECRET}'), "not valid JSON"),
    (lambda: Authentication("basic", f"password:{SECRET}"), "needs username"),
    (lambda: AuthenticationBasic("u"), "password is of type NoneType"),
    (lambda: AuthenticationBasic("a:b", SECRET), "no colon"),
    (lambda: AuthenticationBasic("a\nb", SECRET), "control character"),
    (lambda: AuthenticationBasic("u", SECRET, "two words"), "method must be a word"),
    (lambda: Authentication("tls", "tlsCertFile:/c"), "needs tlsKeyFile"),
    (lambda: AuthenticationTLS("", "k"), "certificate_path names no file"),
    (lambda: AuthenticationOauth2(f"{SECRET}"), "part 1"),
    (lambda: AuthenticationOauth2("{}"), "private_key is missing"),
    (
        lambda: AuthenticationOauth2(
            f'{{"issuer_url": "http://{SECRET}.example", "private_key": "/k"}}'
        ),
        "issuer_url must be .* https://",
    ),
    (
        lambda: AuthenticationOauth2('{"issuer_url": "https://i", "type": "password"}'),
        "type must be client_credentials",
    ),
]


@pytest.mark.parametrize(("make", "words"), BAD, ids=[words for _, words in BAD])
def test_what_is_refused_is_not_shown(make: Callable[[], object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as raised:
        make()
    error: BaseException | None = raised.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ if error.__suppress_context__ else error.__context__


def test_nothing_of_a_secret_is_shown() -> None:
    encoded = base64.b64encode(json.dumps({"client_id": "i", "client_secret": SECRET}).encode())
    for made in (
        AuthenticationToken(SECRET),
        AuthenticationBasic("u", SECRET),
        AuthenticationOauth2(
            json.dumps(
                {"issuer_url": "https://i", "private_key": f"data:;base64,{encoded.decode()}"}
            )
        ),
    ):
        assert SECRET not in f"{made!r} {made.provider!r} {vars(made)}"
    assert SECRET not in repr(Credentials("token", Secret(SECRET)))
