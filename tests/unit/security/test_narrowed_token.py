"""Tokens that limit themselves, and tokens that their bearers made narrower."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest
from jwt import PyJWS

from pulsarish.model.errors import AuthenticationError, InvalidArgument
from pulsarish.security.config import AuthenticationConfig
from pulsarish.security.credentials import Credentials, Secret
from pulsarish.security.identity import Identity
from pulsarish.security.keys import SigningKey, VerificationKey
from pulsarish.security.limits import LIMITS_CLAIM, limits_claim, read_limits
from pulsarish.security.narrowed_token import (
    NARROWINGS_MAX,
    WIDER,
    narrow_token,
    read_wider_claims,
)
from pulsarish.security.revocation import Revocations
from pulsarish.security.signed_token import TokenHeader
from pulsarish.security.token_maker import make_key_pair, sign_token
from pulsarish.security.token_provider import TokenProvider

NOW_MS = 1_800_000_000_000
SECRET = b"k" * 64
HMAC = ("HS256", "HS384", "HS512")


def check(token: bytes, *, secret: bytes = SECRET, **options: Any) -> Identity:
    keys = [VerificationKey(secret, HMAC)]
    return TokenProvider(AuthenticationConfig(**options), lambda: NOW_MS, keys).check(token)


def make(algorithm: str = "HS256", **claims: object) -> bytes:
    return sign_token({"sub": "ann", **claims}, SigningKey(SECRET, HMAC), algorithm=algorithm)


def encoded(value: object) -> bytes:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=")


@pytest.mark.parametrize("algorithm", HMAC)
def test_a_narrowed_token_has_the_role_and_all_limits_of_its_chain(algorithm: str) -> None:
    first = make(algorithm, jti="one", exp=NOW_MS // 1000 + 100)
    second = narrow_token(
        first, {"jti": "two", LIMITS_CLAIM: limits_claim([], ["consume"], ["10.0.0.0/8"])}
    )
    third = narrow_token(second, {"jti": "three", "exp": NOW_MS // 1000 + 200})
    found = check(third)
    assert (found.role, found.credential_id, found.wider_ids) == ("ann", "three", ("one", "two"))
    assert found.expires_at_ms == NOW_MS + 100_000
    assert [each.actions for each in found.limits] == [("consume",)]
    assert [claims["jti"] for claims in read_wider_claims(third)] == ["two", "one"]


@pytest.mark.parametrize(("first", "then"), [(-1, 100), (100, -1)], ids=["wider", "narrower"])
def test_each_time_of_the_chain_ends_the_token(first: int, then: int) -> None:
    seconds = NOW_MS // 1000
    token = narrow_token(make(exp=seconds + first), {"exp": seconds + then})
    with pytest.raises(AuthenticationError, match="expired"):
        check(token)


def test_a_required_expiry_may_be_that_of_the_wider_token() -> None:
    token = narrow_token(make(exp=NOW_MS // 1000 + 9), {"jti": "x"})
    assert check(token, token_require_expiry=True).expires_at_ms
    with pytest.raises(AuthenticationError, match="no expiry"):
        check(
            narrow_token(make(), {"exp": NOW_MS // 1000 + 9}),
            token_require_expiry=True,
        )


def test_the_wider_token_revokes_the_narrowed_one(tmp_path: Path) -> None:
    listed = tmp_path / "revoked"
    listed.write_text("one\n")
    token = narrow_token(make(jti="one"), {"jti": "two"})
    assert Revocations(str(listed), lambda: NOW_MS, pytest.fail).is_revoked(check(token))
    assert not Revocations(str(listed), lambda: NOW_MS, pytest.fail).is_revoked(
        check(narrow_token(make(jti="other"), {"jti": "two"}))
    )


def test_limits_of_a_token_that_its_maker_limited() -> None:
    claim = limits_claim(["persistent://a/b/c"], [], [])
    assert check(make(**{LIMITS_CLAIM: claim})).limits == (read_limits(claim),)


# What a bearer of the narrowed token could try.


def widened() -> dict[str, bytes]:
    narrowed = narrow_token(make(), {LIMITS_CLAIM: limits_claim([], ["consume"], [])})
    head, payload, signature = narrowed.split(b".")
    claims = json.loads(base64.urlsafe_b64decode(payload + b"=="))
    wider = claims[WIDER].encode()
    plain = encoded({"alg": "HS256"})
    own_key = os.urandom(32)
    mine = PyJWS().encode(json.dumps({WIDER: wider.decode()}).encode(), own_key, "HS256", None)
    typ = {"typ": TokenHeader.NARROWED}
    forged = PyJWS().encode(json.dumps({WIDER: wider.decode()}).encode(), own_key, "HS256", typ)
    return {
        "the wider one without its signature": wider + b".",
        "the wider one with the narrowed signature": wider + b"." + signature,
        "limits left out": head + b"." + encoded({WIDER: wider.decode()}) + b"." + signature,
        "read as an ordinary token": plain + b"." + payload + b"." + signature,
        "signed with a key of one's own": forged.encode(),
        "no narrowed token with the claim": mine.encode(),
        "another role": head
        + b"."
        + encoded({**claims, WIDER: (plain + b"." + encoded({"sub": "root"})).decode()})
        + b"."
        + signature,
    }


@pytest.mark.parametrize("how", list(widened()))
def test_limits_cannot_be_undone(how: str) -> None:
    with pytest.raises(AuthenticationError, match=r"signature|damaged"):
        check(widened()[how])


def test_a_key_of_another_server_makes_no_chain() -> None:
    with pytest.raises(AuthenticationError, match="signature"):
        check(narrow_token(make(), {"jti": "x"}), secret=b"o" * 64)


def test_what_a_public_key_checks_is_not_narrowed() -> None:
    from pulsarish.security.keys import load_public_key, load_signing_key

    private, public = make_key_pair("ES256")
    data = "data:;base64," + base64.b64encode(private).decode()
    token = sign_token({"sub": "ann"}, load_signing_key("key", data))
    with pytest.raises(InvalidArgument, match="ES256"):
        narrow_token(token, {"jti": "x"})
    # The public key is no secret: nothing that it could sign is a chain.
    head = encoded({"alg": "HS256"}) + b"." + encoded({"sub": "root"})
    forged = PyJWS().encode(
        json.dumps({WIDER: head.decode()}).encode(),
        b"s" * 32,
        "HS256",
        {"typ": TokenHeader.NARROWED},
    )
    key = load_public_key("key", "data:;base64," + base64.b64encode(public).decode(), algorithm="")
    provider = TokenProvider(AuthenticationConfig(), lambda: NOW_MS, [key])
    with pytest.raises(AuthenticationError, match="no secret key of this server"):
        provider.check(forged.encode())


@pytest.mark.parametrize("signature", [b"", b"*", b"a"], ids=["none", "no base64", "cut"])
def test_a_token_without_its_signature_is_not_narrowed(signature: bytes) -> None:
    with pytest.raises(AuthenticationError, match="damaged"):
        narrow_token(make().rpartition(b".")[0] + b"." + signature, {"jti": "x"})


def test_a_chain_has_an_end() -> None:
    token = make()
    for _ in range(NARROWINGS_MAX):
        token = narrow_token(token, {"jti": "x"})
    assert check(token).role == "ann"
    with pytest.raises(InvalidArgument, match="at most 8 times"):
        narrow_token(token, {"jti": "x"})
    # A chain made by hand is refused, too, before anything is computed.
    wider = make().rpartition(b".")[0].decode()
    for _ in range(NARROWINGS_MAX + 1):
        wider = (
            encoded({"alg": "HS256", "typ": TokenHeader.NARROWED}) + b"." + encoded({WIDER: wider})
        ).decode()
    with pytest.raises(AuthenticationError, match="more than 8 times"):
        check(wider.encode() + b".")


# Limits.


@pytest.mark.parametrize(
    ("claim", "word"),
    [
        ([], "JSON object"),
        ({"topic": ["x"]}, "'topic'"),
        ({"topics": []}, "list of 1"),
        ({"topics": "persistent://a/b/c"}, "list of 1"),
        ({"topics": ["orders"]}, "full name"),
        ({"topics": ["persistent://a/*/c"]}, "full name"),
        ({"actions": [1]}, "list of 1"),
        ({"networks": ["10.0.0.1/8"]}, "bits of a host"),
        ({"networks": ["home"]}, "must look like"),
    ],
    ids=str,
)
def test_limits_that_are_not_understood_refuse_the_token(claim: object, word: str) -> None:
    with pytest.raises(AuthenticationError, match=word):
        check(make(**{LIMITS_CLAIM: claim}))


def test_topics_and_addresses_within_limits() -> None:
    limits = read_limits(
        {
            "topics": ["persistent://a/b/eu-*", "persistent://a/b/all"],
            "networks": ["10.0.0.0/8", "fd00::/8"],
        }
    )
    for name, permitted in (
        ("persistent://a/b/eu-1", True),
        ("persistent://a/b/all", True),
        ("persistent://a/b/all-2", False),
        ("non-persistent://a/b/eu-1", False),
    ):
        assert limits.permit_topic(name) == permitted, name
    for host, permitted in (
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("fd00::1", True),
        ("[fd00::1]", True),
        ("fd00::1%eth0", True),
        ("11.1.2.3", False),
        ("", False),
        ("unix", False),
    ):
        assert limits.permit_address(host) == permitted, host
    assert read_limits({"actions": ["consume"]}).permit_address("")


def test_credentials_of_a_narrowed_token_are_a_token() -> None:
    """A narrowed token is text without spaces, so every client can send it."""
    token = narrow_token(make(), {"jti": "x"})
    assert Credentials("token", Secret(token)).data.reveal() == token
    assert token.count(b".") == 2
