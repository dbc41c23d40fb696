"""Keys, tokens and passwords from the command line: what is made works, and no secret is shown."""

from __future__ import annotations

import asyncio
import base64
import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pulsarish.cli import tokens as tokens_module
from pulsarish.cli.main import pulsarish
from pulsarish.model.errors import (
    AlreadyExists,
    AuthenticationError,
    ConfigError,
    InvalidArgument,
)
from pulsarish.security.basic_provider import BasicProvider
from pulsarish.security.config import AuthenticationConfig
from pulsarish.security.credentials import Credentials, Secret
from pulsarish.security.keys import ASYMMETRIC_ALGORITHMS, HMAC_BYTES
from tests.support.tokens import SECRET, Clock, data_url, make_token, private_bytes, public_bytes


def run(*words: str, stdin: bytes | None = None, code: int = 0) -> Result:
    done = CliRunner().invoke(pulsarish, words, input=stdin)
    assert done.exit_code == code, (done.output, done.exception)
    return done


def refusal(kind: type[Exception], *words: str, stdin: bytes | None = None) -> str:
    done = run(*words, stdin=stdin, code=1)
    assert isinstance(done.exception, kind), done.exception
    return str(done.exception)


def mode(path: str) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def shown(*words: str, **options: Any) -> dict[str, Any]:
    found = json.loads(run("tokens", *words, **options).stdout)
    assert isinstance(found, dict)
    return found


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_algorithms_are_those_of_the_servers() -> None:
    assert tokens_module._SECRET_BYTES == HMAC_BYTES
    assert tokens_module._PAIR_ALGORITHMS == ASYMMETRIC_ALGORITHMS


@pytest.mark.parametrize("algorithm", HMAC_BYTES)
def test_a_secret_makes_tokens_that_it_checks(algorithm: str) -> None:
    run("tokens", "create-secret-key", "-a", algorithm, "--output", "secret.key")
    assert mode("secret.key") == 0o600
    assert len(Path("secret.key").read_bytes()) == HMAC_BYTES[algorithm]
    create = ("create", "--secret-key", "secret.key", "--subject", "orders", "-a", algorithm)
    run("tokens", *create, "--output", "t")
    assert mode("t") == 0o600
    found = shown("validate", "--secret-key", "secret.key", "-f", "t")
    assert found["role"] == "orders"
    assert found["expires"] is None
    assert len(found["token_id"]) == 32
    assert shown("show", "-f", "t")["header"] == {"alg": algorithm}


@pytest.mark.parametrize("algorithm", ASYMMETRIC_ALGORITHMS)
def test_a_key_pair_makes_tokens_that_it_checks(algorithm: str) -> None:
    pair = ("--output-private-key", "private", "--output-public-key", "public")
    run("tokens", "create-key-pair", "-a", algorithm, *pair)
    assert (mode("private"), mode("public") & 0o600) == (0o600, 0o600)
    words = ("--subject", "orders", "-a", algorithm, "--kid", "k1")
    made = run("tokens", "create", "--private-key", "private", *words).stdout
    check = ("validate", "--public-key", "public", "-a", algorithm)
    assert shown(*check, stdin=made.encode())["role"] == "orders"
    assert shown("show", stdin=made.encode())["header"] == {"alg": algorithm, "kid": "k1"}


def test_expiry_audience_and_claims() -> None:
    Path("secret.key").write_bytes(SECRET)
    create = ("create", "-sk", "secret.key", "-s", "orders")
    more = ("--expiry-time", "1y", "--audience", "c1", "--claim", "team=t")
    run("tokens", *create, *more, "--output", "t")
    claims = shown("show", "-f", "t")["claims"]
    assert claims["exp"] - claims["iat"] == 365 * 86_400
    assert (claims["sub"], claims["aud"], claims["team"]) == ("orders", "c1", "t")
    check = ("validate", "-sk", "secret.key", "-f", "t")
    assert shown(*check, "--audience", "c1", "--auth-claim", "team")["role"] == "t"
    text = refusal(AuthenticationError, "tokens", *check, "--audience", "c2")
    assert "audience" in text


@pytest.mark.parametrize("text", ["1", "0s", "forever", "-1", "x", "1001y", "99999999999999w"])
def test_an_expiry_that_is_none_is_refused(text: str) -> None:
    Path("secret.key").write_bytes(SECRET)
    done = run("tokens", "create", "-sk", "secret.key", "-s", "a", "-e", text, code=2)
    assert "--expiry-time" in done.output


def test_an_expired_or_foreign_token_is_refused() -> None:
    Path("secret.key").write_bytes(SECRET)
    check = ("tokens", "validate", "-sk", "secret.key", "--stdin")
    expired = make_token({"sub": "a", "exp": 1})
    assert "expired" in refusal(AuthenticationError, *check, stdin=expired)
    other = make_token({"sub": "a"}, b"x" * 64)
    assert "signature" in refusal(AuthenticationError, *check, stdin=other)


def test_tokens_and_keys_are_given_by_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("secret.key").write_bytes(SECRET)
    monkeypatch.setenv("KEY", base64.b64encode(SECRET).decode())
    token = make_token({"sub": "a"})
    monkeypatch.setenv("TOKEN", token.decode())
    Path("t").write_bytes(token + b"\n")
    for key in ("secret.key", str(Path("secret.key").absolute()), "env:KEY"):
        for words in (
            ("env:TOKEN",),
            ("file:t",),
            (f"file://{Path('t').absolute()}",),
            ("-f", "t"),
        ):
            assert shown("validate", "-sk", key, *words)["role"] == "a"
    assert shown("validate", "-sk", "-", "-f", "t", stdin=SECRET)["role"] == "a"
    assert run("tokens", "create", "-sk", "-", "-s", "a", stdin=SECRET).stdout


def test_secrets_on_the_command_line_are_refused_and_not_repeated() -> None:
    token = make_token({"sub": "a"}).decode()
    key = data_url(SECRET)
    for words in (
        ("show", token),
        ("validate", "-sk", key, token),
        ("create", "-sk", key, "-s", "a"),
        ("create", "-pk", data_url(private_bytes("p256")), "-s", "a"),
    ):
        done = run("tokens", *words, code=2)
        assert "can be seen by others" in done.output
        assert token not in done.output
        assert key not in done.output


@pytest.mark.parametrize(
    "words",
    [
        ("create", "-s", "a"),
        ("create", "-s", "a", "-sk", "k", "-pk", "k"),
        ("create", "-sk", "k"),
        ("create", "-sk", "k", "-s", "a\nb"),
        ("create", "-sk", "k", "-s", ""),
        ("create", "-sk", "k", "-s", "a", "--claim", "sub=admin"),
        ("create", "-sk", "k", "-s", "a", "--claim", "exp=1"),
        ("create", "-sk", "k", "-s", "a", "-a", "none"),
        ("create-secret-key",),
        ("create-secret-key", "-a", "RS256"),
        ("create-key-pair", "-a", "HS256"),
        ("create-key-pair", "--output-private-key", "k", "--output-public-key", "./k"),
        ("validate",),
        ("validate", "-sk", "k", "-pk", "k"),
        ("validate", "-sk", "k", "-a", "RS256"),
        ("validate", "-sk", "-"),
        ("show", "env:NOT_SET"),
        ("show", "file:t", "--stdin"),
    ],
)
def test_bad_usage(words: tuple[str, ...]) -> None:
    run("tokens", *words, stdin=b"", code=2)


def test_a_key_that_does_not_fit_is_named_by_its_option() -> None:
    Path("pair.key").write_bytes(private_bytes("p256"))
    Path("short.key").write_bytes(b"short")
    create = ("tokens", "create", "-s", "a")
    text = refusal(ConfigError, *create, "-sk", "pair.key")
    assert text.startswith("--secret-key refers to a key of a pair")
    assert "5 bytes" in refusal(ConfigError, *create, "-sk", "short.key")
    assert "--private-key must" in refusal(ConfigError, *create, "-pk", "short.key")
    assert "no file" in refusal(ConfigError, *create, "-sk", "none.key")
    text = refusal(InvalidArgument, *create, "-pk", "pair.key", "-a", "RS256")
    assert "used with ES256" in text
    text = refusal(ConfigError, "tokens", "validate", "-pk", "pair.key", "--stdin", stdin=b"")
    assert text.startswith("--public-key refers to a private key")
    Path("pair.pub").write_bytes(public_bytes("p256"))
    check = ("tokens", "validate", "-pk", "pair.pub", "-a", "RS256", "--stdin")
    text = refusal(ConfigError, *check, stdin=b"")
    assert text.startswith("--signature-algorithm = RS256 does not fit the key of --public-key")


def test_a_token_that_servers_would_not_read_is_not_made() -> None:
    Path("secret.key").write_bytes(SECRET)
    claim = f"x={'y' * 20_000}"
    text = refusal(
        InvalidArgument, "tokens", "create", "-sk", "secret.key", "-s", "a", "--claim", claim
    )
    assert "at most 16384" in text


def test_files_are_replaced_only_by_force() -> None:
    Path("there").write_text("mine")
    Path("there").chmod(0o644)
    Path("link").symlink_to("nowhere")
    Path("secret.key").write_bytes(SECRET)
    commands: tuple[tuple[str, ...], ...] = (
        ("create-secret-key", "--output"),
        ("create", "-sk", "secret.key", "-s", "a", "--output"),
        ("create-key-pair", "--output-private-key", "new", "--output-public-key"),
        ("create-key-pair", "--output-public-key", "new", "--output-private-key"),
    )
    for words in commands:
        for name in ("there", "link"):
            text = refusal(AlreadyExists, "tokens", *words, name)
            assert "--force replaces it" in text
            assert Path("there").read_text() == "mine"
            assert not Path("new").exists()
            assert not Path("nowhere").exists()
    for name in ("there", "link"):
        run("tokens", "create-secret-key", "--output", name, "--force")
        assert (mode(name), Path(name).is_symlink()) == (0o600, False)
        assert len(Path(name).read_bytes()) == 32
    assert sorted(each.name for each in Path().iterdir()) == ["link", "secret.key", "there"]


def test_a_secret_is_printed_in_base64_only() -> None:
    printed = run("tokens", "create-secret-key", "--base64").stdout
    assert len(base64.b64decode(printed, validate=False)) == 32
    assert printed != run("tokens", "create-secret-key", "--base64").stdout


# Passwords.


def provider(path: str) -> BasicProvider:
    async def offload(function: Callable[[], bool]) -> bool:
        return function()

    config = AuthenticationConfig(basic_auth_conf=path)
    return BasicProvider(config, Clock(), offload, b"s" * 16, lambda _: None)


def check(path: str, data: bytes) -> str:
    credentials = Credentials("basic", Secret(data))
    return asyncio.run(provider(path).authenticate(credentials, None)).role


def test_a_user_of_the_file_can_log_in() -> None:
    hash_user = ("passwords", "hash", "--cost", "4", "--file", "users")
    run(*hash_user, "ann", stdin=b"secret\n")
    run(*hash_user, "bob", stdin="pässwörd: 2\r\n".encode())
    assert mode("users") == 0o600
    assert check("users", b"ann:secret") == "ann"
    assert check("users", "bob:pässwörd: 2".encode()) == "bob"
    run(*hash_user, "ann", stdin=b"new")
    assert check("users", b"ann:new") == "ann"
    assert check("users", "bob:pässwörd: 2".encode()) == "bob"
    with pytest.raises(AuthenticationError):
        check("users", b"ann:secret")
    line = run("passwords", "hash", "--cost", "4", "eve", stdin=b"x").stdout
    Path("more").write_text(line)
    assert line.startswith("eve:$2b$04$")
    assert check("more", b"eve:x") == "eve"


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("", b"x"),
        ("a:b", b"x"),
        ("a\nb", b"x"),
        ("ann", b""),
        ("ann", b"\n"),
        ("ann", b"x" * 73),
        ("ann", b"a\0b"),
        ("ann", b"a\nb\n"),
        ("ann", b"x" * 2_000_000),
    ],
)
def test_a_user_that_could_not_log_in_is_refused(user: str, password: bytes) -> None:
    run("passwords", "hash", user, "--cost", "4", "--file", "users", stdin=password, code=2)
    assert not Path("users").exists()


def test_a_file_with_a_bad_line_is_not_written() -> None:
    Path("users").write_text("bob:plain\n")
    words = ("passwords", "hash", "ann", "--cost", "4", "--file", "users")
    assert "users, line 1" in refusal(ConfigError, *words, stdin=b"secret")
    assert Path("users").read_text() == "bob:plain\n"
