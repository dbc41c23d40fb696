"""Tokens: which keys and algorithms are accepted, the claims, and hostile input."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.model.errors import AuthenticationError, ConfigError
from pulsarish.security.config import AuthenticationConfig
from pulsarish.security.credentials import Credentials, Secret
from pulsarish.security.identity import Identity
from pulsarish.security.keys import load_public_key, load_secret_key, read_reference
from pulsarish.security.signed_token import TOKEN_BYTES_MAX, TokenHeader, verify_claims
from pulsarish.security.token_provider import TokenProvider
from tests.support.tokens import (
    NOW_MS,
    NOW_SECONDS,
    SECRET,
    Clock,
    data_url,
    hmac_token,
    make_token,
    private_bytes,
    private_key,
    public_bytes,
    raw_token,
)


def provider(**options: Any) -> TokenProvider:
    options.setdefault("token_secret_key", data_url(SECRET))
    config = AuthenticationConfig(
        authentication_enabled=True, authentication_providers=("token",), **options
    )
    config.validate()
    return TokenProvider(config, Clock())


def check(token: bytes, **options: Any) -> Identity:
    credentials = Credentials("token", Secret(token))
    return asyncio.run(provider(**options).authenticate(credentials, None))


def refusal(token: bytes, **options: Any) -> str:
    with pytest.raises(AuthenticationError) as raised:
        check(token, **options)
    return str(raised.value)


def test_a_token_names_role_expiry_and_id() -> None:
    token = make_token({"sub": "orders", "exp": NOW_SECONDS + 60, "jti": "t-1"})
    assert check(token) == Identity("orders", "token", NOW_MS + 60_000, credential_id="t-1")


def test_a_token_without_expiry_never_expires_unless_it_must() -> None:
    token = make_token({"sub": "orders"})
    assert check(token).expires_at_ms == 0
    assert "--expiry-time" in refusal(token, token_require_expiry=True)


@pytest.mark.parametrize(
    ("kind", "algorithms"),
    [
        ("rsa", ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        ("p256", ("ES256",)),
        ("p384", ("ES384",)),
        ("p521", ("ES512",)),
        ("ed25519", ("EdDSA",)),
    ],
)
@pytest.mark.parametrize("form", ["der", "pem"])
def test_a_public_key_checks_the_algorithms_of_its_kind(
    kind: str, algorithms: tuple[str, ...], form: str
) -> None:
    key = data_url(public_bytes(kind, form))
    for algorithm in algorithms:
        token = make_token({"sub": "a"}, private_key(kind), algorithm)
        assert check(token, token_secret_key="", token_public_key=key).role == "a"
        assert "no key" in refusal(token)  # of a server that has only a secret


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_secret_checks_the_algorithms_that_it_is_long_enough_for(algorithm: str) -> None:
    token = make_token({"sub": "a"}, SECRET, algorithm)
    assert check(token).role == "a"
    least = int(algorithm.removeprefix("HS")) // 8
    shorter = SECRET[: least - 1]
    if least > 32:
        assert "no key" in refusal(token, token_secret_key=data_url(shorter))
    else:
        with pytest.raises(ConfigError, match="31 bytes; at least 32"):
            provider(token_secret_key=data_url(shorter))


def test_token_public_alg_pins_one_algorithm() -> None:
    key = data_url(public_bytes("rsa"))
    options = {"token_secret_key": "", "token_public_key": key, "token_public_alg": "RS256"}
    assert check(make_token({"sub": "a"}, private_key("rsa"), "RS256"), **options).role == "a"
    assert "no key" in refusal(make_token({"sub": "a"}, private_key("rsa"), "RS512"), **options)
    with pytest.raises(ConfigError, match="token_public_alg = ES256 does not fit"):
        provider(**{**options, "token_public_alg": "ES256"})


# The holes of other systems.


def test_a_token_without_algorithm_is_refused() -> None:
    for algorithm in ("none", "None", "NONE", "", None, 7, ["HS256"]):
        token = raw_token({"alg": algorithm}, {"sub": "admin"})
        assert "alg" in refusal(token)
        assert "alg" in refusal(hmac_token({"alg": algorithm}, {"sub": "admin"}, SECRET))
    assert "alg" in refusal(raw_token({}, {"sub": "admin"}))


@pytest.mark.parametrize("form", ["der", "pem"])
def test_a_public_key_is_never_used_as_a_secret(form: str) -> None:
    public = public_bytes("rsa", form)
    forged = hmac_token({"alg": "HS256"}, {"sub": "admin"}, public)
    assert "no key" in refusal(forged, token_secret_key="", token_public_key=data_url(public))
    # also not beside a secret, and not by the id of another key
    assert refusal(forged, token_public_key=data_url(public))
    forged = hmac_token({"alg": "HS256", "kid": "new"}, {"sub": "admin"}, public)
    assert refusal(forged, token_public_keys={"new": data_url(public)})


@pytest.mark.parametrize("content", [public_bytes, private_bytes])
@pytest.mark.parametrize("form", ["der", "pem"])
def test_a_key_of_a_pair_is_refused_as_a_secret(content: Any, form: str) -> None:
    with pytest.raises(ConfigError, match="token_secret_key refers to a key of a pair"):
        provider(token_secret_key=data_url(content("rsa", form)))


@pytest.mark.parametrize("field", ["crit", "zip", "b64"])
def test_header_fields_that_change_the_meaning_are_refused(field: str) -> None:
    value = {"crit": ["exp"], "zip": "DEF", "b64": False}[field]
    token = hmac_token({"alg": "HS256", field: value}, {"sub": "admin"}, SECRET)
    assert field in refusal(token) or "damaged" in refusal(token)
    token = hmac_token({"alg": "HS256", "crit": ["b64"], "b64": True}, {"sub": "a"}, SECRET)
    assert "crit" in refusal(token)


@pytest.mark.parametrize("field", ["jku", "x5u", "jwk", "x5c"])
def test_keys_and_addresses_in_a_token_are_not_used(field: str) -> None:
    token = make_token({"sub": "admin"}, b"x" * 64, "HS256", **{field: "https://evil.example"})
    assert "signature" in refusal(token)


def test_a_changed_token_is_refused() -> None:
    token = make_token({"sub": "orders"})
    head, _, signature = token.split(b".")
    other = make_token({"sub": "admin"}).split(b".")[1]
    assert "signature" in refusal(b".".join((head, other, signature)))
    assert "signature" in refusal(token[:-4] + b"AAAA")
    assert "signature" in refusal(b".".join((head, other, b"")))
    assert "signature" in refusal(make_token({"sub": "orders"}, b"y" * 64))


@pytest.mark.parametrize("size", [0, 1, 15])
def test_each_of_many_short_signatures_is_refused(size: int) -> None:
    key = data_url(public_bytes("p256"))
    token = raw_token({"alg": "ES256"}, {"sub": "admin"}, bytes(size))
    assert "signature" in refusal(token, token_secret_key="", token_public_key=key)
    zeros = raw_token({"alg": "ES256"}, {"sub": "admin"}, bytes(64))
    assert "signature" in refusal(zeros, token_secret_key="", token_public_key=key)


# Claims.


@pytest.mark.parametrize("late_ms", [0, 1, 1_000_000])
def test_an_expired_token_is_refused(late_ms: int) -> None:
    expired = make_token({"sub": "a", "exp": (NOW_MS - late_ms) / 1_000})
    assert "expired" in refusal(expired)


def test_the_clock_skew_counts_for_both_ends() -> None:
    expired = make_token({"sub": "a", "exp": NOW_SECONDS - 5})
    assert check(expired, token_allowed_clock_skew_seconds=6).expires_at_ms == NOW_MS + 1_000
    assert "expired" in refusal(expired, token_allowed_clock_skew_seconds=5)
    early = make_token({"sub": "a", "nbf": NOW_SECONDS + 5})
    assert check(early, token_allowed_clock_skew_seconds=5).role == "a"
    assert "nbf" in refusal(early, token_allowed_clock_skew_seconds=4)
    assert "nbf" in refusal(early)


@pytest.mark.parametrize("claim", ["exp", "nbf"])
@pytest.mark.parametrize(
    "value",
    [
        b"null",
        b'"1900000000"',
        b"true",
        b"[1900000000]",
        b"-1",
        b"1900000000000",
        b"1" + b"0" * 300,
    ],
)
def test_a_time_that_is_none_is_refused(claim: str, value: bytes) -> None:
    token = make_token(b'{"sub":"a","%b":%b}' % (claim.encode(), value))
    assert claim in refusal(token)


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
def test_a_number_that_json_does_not_have_is_refused(value: bytes) -> None:
    assert refusal(make_token(b'{"sub":"a","exp":%b}' % value))


@pytest.mark.parametrize(
    "role",
    [
        None,
        "",
        7,
        True,
        {},
        [],
        ["a", "b"],
        [7],
        "a\nadmin",
        "a\r",
        "a\0",
        "a\x1b[2J",
        " admin",
        "admin ",
        "adm\u200bin",
        "a\u202e",
        "r" * 257,
    ],
)
def test_a_role_that_is_no_plain_text_is_refused(role: object) -> None:
    assert "sub" in refusal(make_token({"sub": role}))


def test_a_role_with_half_a_character_is_refused() -> None:
    assert refusal(make_token({"sub": "\ud800"}))


def test_the_role_comes_from_the_claim_of_the_option() -> None:
    token = make_token({"sub": "a", "role": ["b"]})
    assert check(token, token_auth_claim="role").role == "b"
    assert "no claim team" in refusal(token, token_auth_claim="team")


@pytest.mark.parametrize("value", [None, 7, "x" * 257, "a\nb", " a", "#a", "role:admin"])
def test_an_id_that_cannot_be_revoked_is_refused(value: object) -> None:
    assert "jti" in refusal(make_token({"sub": "a", "jti": value}))


def test_the_audience() -> None:
    options = {"token_audience": "cluster-1"}
    for good in ("cluster-1", ["cluster-0", "cluster-1"]):
        assert check(make_token({"sub": "a", "aud": good}), **options).role == "a"
    for wrong in ("cluster-10", "cluster", "", ["x"], [], [["cluster-1"]], None, {"cluster-1": 1}):
        assert "token_audience" in refusal(make_token({"sub": "a", "aud": wrong}), **options)
    assert "token_audience" in refusal(make_token({"sub": "a"}), **options)
    other = make_token({"sub": "a", "to": "cluster-1"})
    assert check(other, token_audience_claim="to", **options).role == "a"


# Rotation.


def test_keys_are_chosen_by_their_id() -> None:
    options = {
        "token_secret_key": data_url(SECRET),
        "token_secret_keys": {"s2": data_url(b"2" * 64)},
        "token_public_keys": {"p3": data_url(public_bytes("rsa"))},
    }
    for key, algorithm, header in (
        (SECRET, "HS256", {}),
        (SECRET, "HS256", {"kid": "of-before-ids"}),
        (b"2" * 64, "HS512", {"kid": "s2"}),
        (private_key("rsa"), "RS256", {"kid": "p3"}),
        (private_key("rsa"), "RS256", {}),  # the only key of its kind
    ):
        assert check(make_token({"sub": "a"}, key, algorithm, **header), **options).role == "a"
    for key, algorithm, header in (
        (SECRET, "HS256", {"kid": "s2"}),
        (b"2" * 64, "HS256", {}),
        (b"2" * 64, "HS256", {"kid": "p3"}),
        (private_key("other-rsa"), "RS256", {"kid": "p3"}),
        (private_key("rsa"), "RS256", {"kid": "p4"}),
    ):
        assert refusal(make_token({"sub": "a"}, key, algorithm, **header), **options)


def test_a_token_without_key_id_is_not_tried_with_several() -> None:
    options = {
        "token_secret_key": "",
        "token_secret_keys": {"1": data_url(b"1" * 64), "2": data_url(b"2" * 64)},
    }
    assert "kid" in refusal(make_token({"sub": "a"}, b"1" * 64), **options)


# References to keys.


def test_a_key_is_a_file_a_url_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a secret.key"
    file.write_bytes(SECRET)
    monkeypatch.setenv("KEY", data_url(SECRET).partition(",")[2])
    monkeypatch.setenv("KEY_FILE", file.as_uri())
    for reference in (str(file), file.as_uri(), f"file:{file}", "env:KEY", "env:KEY_FILE"):
        assert read_reference("token_secret_key", reference) == SECRET
    pem = public_bytes("rsa", "pem")
    monkeypatch.setenv("PEM", pem.decode())
    assert read_reference("token_public_key", "env:PEM") == pem


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("file:///no/such/file", "/no/such/file cannot be read"),
        ("file://host/path", "file:///path"),
        ("file:relative", "file:///path"),
        ("/tmp/no-such-file.key", "/tmp/no-such-file.key cannot be read"),
        ("data:,abc", "data:;base64,"),
        ("data:;base64,???", "not valid base64"),
        ("env:NOT_SET", "NOT_SET is not set"),
        ("env:", "is not set"),
        ("\0", "no file"),
    ],
)
def test_a_reference_that_leads_nowhere_names_the_remedy(reference: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_secret_key("token_secret_key", reference)
    assert text in str(raised.value)
    assert "token_secret_key" in str(raised.value)


@pytest.mark.parametrize("key", ["c2VjcmV0c2VjcmV0", "/2VjcmV0c2VjcmV0", "ab/c2VjcmV0c2VjcmV0"])
def test_a_key_in_the_place_of_a_file_is_not_shown(key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_secret_key("token_secret_key", key)
    assert "2VjcmV0" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "does not refer to a public key"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "public key in DER"),
        (SECRET, "does not refer to a public key"),
        (private_bytes("rsa"), "refers to a private key"),
        (public_bytes("weak-rsa"), "RSA key of 1024 bits; 2048 to 8192"),
        (public_bytes("secp256k1"), "kind that signs no tokens"),
    ],
    ids=["empty", "damaged", "secret", "private", "weak", "curve"],
)
def test_a_bad_public_key_is_refused_at_start(content: bytes, text: str) -> None:
    with pytest.raises(ConfigError, match="token_public_key") as raised:
        provider(token_public_key=data_url(content))
    assert text in str(raised.value)


def test_keys_are_not_printed() -> None:
    key = load_secret_key("token_secret_key", data_url(SECRET))
    assert repr(SECRET)[2:20] not in repr(key)


# Hostile tokens.


def test_a_key_is_not_used_with_an_algorithm_of_another_kind() -> None:
    public = load_public_key("token_public_key", data_url(public_bytes("rsa")))
    forged = hmac_token({"alg": "HS256"}, {"sub": "admin"}, public_bytes("rsa"))
    with pytest.raises(AuthenticationError):
        verify_claims(forged, TokenHeader("HS256", ""), public)
    secret = load_secret_key("token_secret_key", data_url(SECRET[:32]))
    with pytest.raises(AuthenticationError):
        verify_claims(make_token({}, SECRET, "HS512"), TokenHeader("HS512", ""), secret)


def test_a_token_has_a_greatest_size() -> None:
    def token_of(size: int) -> bytes:
        claims = b'{"sub":"a"' + b" " * size + b"}"
        return hmac_token({"alg": "HS256"}, claims, SECRET)

    spaces = (TOKEN_BYTES_MAX - len(token_of(0))) * 3 // 4 - 2
    assert check(token_of(spaces)).role == "a"
    assert f"at most {TOKEN_BYTES_MAX}" in refusal(token_of(spaces + 4))


HOSTILE = {
    "empty": b"",
    "dots": b"." * TOKEN_BYTES_MAX,
    "two-dots": b"..",
    "long": b"a" * 1_000_000,
    "binary": bytes(range(256)) * 8,
    "deep-header": raw_token(b"[" * 11_000, b"{}"),
    "deep-claims": hmac_token({"alg": "HS256"}, b"[" * 11_000, SECRET),
    "deep-object": hmac_token({"alg": "HS256"}, b'{"a":' * 2_000, SECRET),
    "long-number": raw_token(b'{"alg":' + b"1" * 10_000 + b"}", b"{}"),
    "long-number-claim": hmac_token({"alg": "HS256"}, b'{"exp":' + b"1" * 9_000 + b"}", SECRET),
    "header-list": raw_token(["HS256"], {"sub": "a"}),
    "header-text": raw_token(b'"HS256"', {"sub": "a"}),
    "kid-number": hmac_token({"alg": "HS256", "kid": 7}, {"sub": "a"}, SECRET),
    "kid-path": hmac_token({"alg": "HS256", "kid": "../../dev/null"}, {"sub": "a"}, b""),
    "kid-long": hmac_token({"alg": "HS256", "kid": "k" * 5_000}, {"sub": "a"}, SECRET),
    "claims-list": hmac_token({"alg": "HS256"}, ["sub"], SECRET),
    "claims-empty": hmac_token({"alg": "HS256"}, b"", SECRET),
    "claims-not-utf8": hmac_token({"alg": "HS256"}, b'{"sub":"\xff"}', SECRET),
    "many-claims": hmac_token({"alg": "HS256"}, {str(n): n for n in range(1_000)}, SECRET),
    "not-base64": b"!!!.???.***",
    "padding": make_token({"sub": "a"}) + b"===",
    "line-end": make_token({"sub": "a"}) + b"\n",
    "five-parts": b"a.b.c.d.e",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_token_is_refused_soon_and_not_repeated(name: str) -> None:
    token = HOSTILE[name]
    checker = provider(token_public_key=data_url(public_bytes("rsa")))
    started = time.process_time()
    with pytest.raises(AuthenticationError) as raised:
        checker.check(token)
    assert time.process_time() - started < 0.1
    assert len(str(raised.value)) < 300
    assert raised.value.__cause__ is None
    if len(token) > 20:
        assert token[:20].decode(errors="replace") not in str(raised.value)


CHECKER = provider(token_public_key=data_url(public_bytes("p256")))


@given(st.binary(max_size=300))
@settings(deadline=None)
def test_bytes_are_refused_as_a_token(token: bytes) -> None:
    with pytest.raises(AuthenticationError):
        CHECKER.check(token)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(
    st.dictionaries(st.sampled_from(["alg", "kid", "crit", "typ", "b64", "zip"]), _JSON),
    st.dictionaries(st.sampled_from(["sub", "exp", "nbf", "aud", "jti", "iss"]), _JSON),
)
@settings(deadline=None)
def test_any_header_and_claims_give_a_role_or_a_refusal(
    header: dict[str, object], claims: dict[str, object]
) -> None:
    token = hmac_token({"alg": "HS256"} | header, claims, SECRET)
    try:
        identity = CHECKER.check(token)
    except AuthenticationError:
        return
    # What is accepted is what is in the token, read in the strict way.
    given_role = claims["sub"]
    assert identity.role == (given_role[0] if isinstance(given_role, list) else given_role)
    assert identity.role.isprintable()
    assert header.get("alg", "HS256") == "HS256"
    assert not {"crit", "b64", "zip"} & header.keys()
    json.dumps(identity.expires_at_ms)


@given(st.integers(0, 400), st.integers(1, 255))
@settings(deadline=None)
def test_no_changed_byte_is_accepted(index: int, change: int) -> None:
    token = bytearray(make_token({"sub": "orders", "exp": NOW_SECONDS + 60}))
    token[index % len(token)] ^= change
    with pytest.raises(AuthenticationError):
        CHECKER.check(bytes(token))
