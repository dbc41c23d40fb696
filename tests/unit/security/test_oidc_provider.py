"""Access tokens of issuers: their keys, how often these are fetched, and hostile tokens."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from jwt.algorithms import RSAAlgorithm

from pulsarish.model.errors import AuthenticationError, ConfigError, ServiceNotReady
from pulsarish.security.config import AuthenticationConfig
from pulsarish.security.credentials import Credentials, Secret
from pulsarish.security.identity import Identity
from pulsarish.security.jwks import JWKS_BYTES_MAX, parse_jwks
from pulsarish.security.oidc_provider import OidcProvider
from tests.support.tokens import (
    NOW_MS,
    NOW_SECONDS,
    SECRET,
    Clock,
    hmac_token,
    jwk,
    key_set,
    make_token,
    private_key,
    public_bytes,
    raw_token,
)

ISSUER = "https://login.example"
JWKS_URL = f"{ISSUER}/keys"
CLAIMS = {"iss": ISSUER, "aud": "pulsarish", "sub": "ann", "exp": NOW_SECONDS + 60}


class World:
    """A provider, its issuer on the network, and how often that was asked."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.hold: asyncio.Event | None = None
        self.pages: dict[str, bytes | OSError] = {
            JWKS_URL: key_set(jwk("rsa", kid="k1")),
            f"{ISSUER}/.well-known/openid-configuration": json.dumps(
                {"issuer": ISSUER, "jwks_uri": JWKS_URL}
            ).encode(),
        }
        options.setdefault("openid_allowed_token_issuers", (ISSUER,))
        options.setdefault("openid_allowed_audiences", ("pulsarish",))
        options.setdefault("openid_jwks", {ISSUER: JWKS_URL})
        self.config = AuthenticationConfig(
            authentication_enabled=True, authentication_providers=("oauth2",), **options
        )
        self.config.validate()
        self.provider = OidcProvider(self.config, self.clock, self.fetch, self.problems.append)

    async def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        if self.hold is not None:
            await self.hold.wait()
        page = self.pages.get(url, OSError("not found"))
        if isinstance(page, OSError):
            raise page
        return page

    async def ask(self, token: bytes) -> Identity:
        return await self.provider.authenticate(Credentials("token", Secret(token)), None)

    def check(self, token: bytes) -> Identity:
        return asyncio.run(self.ask(token))

    def refusal(self, token: bytes) -> str:
        with pytest.raises(AuthenticationError) as raised:
            self.check(token)
        return str(raised.value)


def token(kind: str = "rsa", algorithm: str = "RS256", kid: str = "k1", **claims: object) -> bytes:
    return make_token(CLAIMS | claims, private_key(kind), algorithm, kid=kid)


def test_a_token_of_an_issuer_names_the_role() -> None:
    world = World()
    expected = Identity("ann", "oauth2", NOW_MS + 60_000, credential_id="t-1")
    assert world.check(token(jti="t-1")) == expected
    assert world.check(token(aud=["x", "pulsarish"])).role == "ann"
    assert world.asked == [JWKS_URL]
    assert World(openid_role_claim="azp").check(token(azp="app")).role == "app"


def test_the_issuer_is_asked_where_its_keys_are() -> None:
    world = World(openid_jwks={})
    assert world.check(token()).role == "ann"
    assert world.asked == [f"{ISSUER}/.well-known/openid-configuration", JWKS_URL]


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://evil.example", "jwks_uri": JWKS_URL},
        {"jwks_uri": JWKS_URL},
        {"issuer": ISSUER, "jwks_uri": "http://login.example/keys"},
        {"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"},
        {"issuer": ISSUER},
        [],
    ],
)
def test_a_configuration_of_another_issuer_is_not_followed(document: object) -> None:
    world = World(openid_jwks={})
    world.pages[f"{ISSUER}/.well-known/openid-configuration"] = json.dumps(document).encode()
    with pytest.raises(ServiceNotReady, match="cannot be fetched now"):
        world.check(token())
    assert len(world.asked) == 1
    assert len(world.problems) == 1


def test_keys_from_a_file_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(jwk("rsa", kid="k1")))
    for place in (str(file), file.as_uri()):
        world = World(openid_jwks={ISSUER: place})
        assert world.check(token()).role == "ann"
        assert world.asked == []
    file.write_bytes(key_set(jwk("p256", kid="k2")))
    world.clock.now_ms += 1_000
    assert world.check(token("p256", "ES256", "k2")).role == "ann"
    assert world.refusal(token())
    file.write_bytes(b"{")
    world.clock.now_ms += 1_000
    assert world.check(token("p256", "ES256", "k2")).role == "ann"
    assert len(world.problems) == 1
    with pytest.raises(ConfigError, match=f"openid_jwks: {file}: this is no JSON object"):
        World(openid_jwks={ISSUER: str(file)})


# Tokens that are refused.


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": f"{ISSUER}/"},
        {"iss": ISSUER.upper()},
        {"iss": "https://login.example.evil"},
        {"iss": "login.example"},
        {"iss": [ISSUER]},
        {"iss": None},
        {"iss": ""},
        {"aud": "pulsarish2"},
        {"aud": "pulsar"},
        {"aud": []},
        {"aud": None},
        {"aud": {"pulsarish": 1}},
        {"exp": NOW_SECONDS},
        {"exp": None},
        {"nbf": NOW_SECONDS + 1},
        {"sub": "a\nb"},
        {"sub": ""},
        {"sub": 7},
    ],
)
def test_a_wrong_claim_is_refused(claims: dict[str, object]) -> None:
    assert World().refusal(token(**claims))


@pytest.mark.parametrize("claim", ["iss", "aud", "exp", "sub"])
def test_a_missing_claim_is_refused(claim: str) -> None:
    rest = {name: value for name, value in CLAIMS.items() if name != claim}
    assert World().refusal(make_token(rest, private_key("rsa"), "RS256", kid="k1"))


def test_leeway() -> None:
    late = token(exp=NOW_SECONDS - 5)
    assert World(openid_accepted_time_leeway_seconds=6).check(late).role == "ann"
    assert "expired" in World(openid_accepted_time_leeway_seconds=5).refusal(late)


def test_only_asymmetric_algorithms_are_accepted() -> None:
    world = World()
    world.pages[JWKS_URL] = key_set(
        jwk("rsa", kid="k1"), {"kty": "oct", "kid": "k2", "k": "c2VjcmV0" * 8, "alg": "HS256"}
    )
    pem = public_bytes("rsa", "pem")
    assert world.refusal(hmac_token({"alg": "HS256", "kid": "k1"}, CLAIMS, pem))
    assert world.refusal(hmac_token({"alg": "HS256", "kid": "k2"}, CLAIMS, b"secret" * 8))
    assert world.refusal(raw_token({"alg": "none", "kid": "k1"}, CLAIMS))
    assert world.refusal(make_token(CLAIMS, SECRET))


def test_the_algorithm_of_a_key_pins_it() -> None:
    world = World()
    world.pages[JWKS_URL] = key_set(jwk("rsa", kid="k1", alg="RS512"))
    assert world.check(token(algorithm="RS512")).role == "ann"
    assert world.refusal(token(algorithm="RS256"))


def test_a_key_of_one_issuer_does_not_sign_for_another() -> None:
    other = "https://other.example"
    world = World(
        openid_allowed_token_issuers=(ISSUER, other),
        openid_jwks={ISSUER: JWKS_URL, other: f"{other}/keys"},
    )
    world.pages[f"{other}/keys"] = key_set(jwk("other-rsa", kid="k1"))
    assert world.check(token()).role == "ann"
    assert world.check(token("other-rsa", iss=other)).role == "ann"
    assert world.refusal(token(iss=other))
    assert world.refusal(token("other-rsa"))


def test_no_address_of_a_token_is_used() -> None:
    world = World()
    hostile = make_token(
        CLAIMS | {"iss": "https://evil.example"},
        private_key("rsa"),
        "RS256",
        kid="k1",
        jku="https://evil.example/keys",
    )
    assert world.refusal(hostile)
    assert world.asked == []


# How often keys are fetched.


def test_an_unknown_key_makes_them_be_fetched_at_most_this_often() -> None:
    world = World(openid_key_id_cache_miss_refresh_seconds=300)
    world.check(token())
    for number in range(50):
        assert "no key" in world.refusal(token(kid=f"x{number}"))
    assert len(world.asked) == 1  # fetched just now
    world.clock.now_ms += 300_000
    world.pages[JWKS_URL] = key_set(jwk("rsa", kid="k1"), jwk("p256", kid="k2"))
    rotated = token("p256", "ES256", "k2", exp=NOW_SECONDS + 9_000)
    assert world.check(rotated).role == "ann"
    assert len(world.asked) == 2
    for number in range(50):
        world.refusal(token(kid=f"x{number}"))
    assert len(world.asked) == 2


def test_old_keys_are_fetched_again_and_serve_until_they_expire() -> None:
    world = World(
        openid_cache_refresh_after_write_seconds=1_000, openid_cache_expiration_seconds=3_000
    )
    long = token(exp=NOW_SECONDS + 90_000)
    world.check(long)
    world.clock.now_ms += 999_999
    world.check(long)
    assert len(world.asked) == 1
    world.clock.now_ms += 1
    world.pages[JWKS_URL] = OSError("connection refused")
    for _ in range(10):
        assert world.check(long).role == "ann"
    assert len(world.asked) == 2  # the failed fetch is not repeated at once
    assert len(world.problems) == 1
    assert "connection refused" in world.problems[0]
    world.clock.now_ms += 2_000_000
    with pytest.raises(ServiceNotReady, match=f"{ISSUER} cannot be fetched now; try again"):
        world.check(long)
    # When the issuer is back, it takes five seconds at most.
    world.pages[JWKS_URL] = key_set(jwk("rsa", kid="k1"))
    world.clock.now_ms += 5_000
    assert world.check(long).role == "ann"


def test_a_key_that_is_withdrawn_ends_with_the_next_fetch() -> None:
    world = World(openid_cache_refresh_after_write_seconds=10)
    world.check(token())
    world.pages[JWKS_URL] = key_set(jwk("p256", kid="k2"))
    world.clock.now_ms += 300_000
    assert "no key" in world.refusal(token(exp=NOW_SECONDS + 9_000))


def test_callers_share_a_fetch_and_known_keys_do_not_wait_for_it() -> None:
    world = World(openid_cache_refresh_after_write_seconds=1_000)

    async def main() -> None:
        world.hold = asyncio.Event()
        first = [asyncio.ensure_future(world.ask(token())) for _ in range(10)]
        for _ in range(3):
            await asyncio.sleep(0)
        world.hold.set()
        assert {each.role for each in await asyncio.gather(*first)} == {"ann"}
        assert len(world.asked) == 1
        # The keys are old: one caller fetches, the others are served meanwhile.
        world.clock.now_ms += 1_000_000
        world.hold = asyncio.Event()
        long = token(exp=NOW_SECONDS + 9_000)
        fetching = asyncio.ensure_future(world.ask(long))
        await asyncio.sleep(0)
        assert (await world.ask(long)).role == "ann"
        assert not fetching.done()
        # The one that fetches leaves: the next attempt has to wait, and the old keys serve.
        fetching.cancel()
        await asyncio.sleep(0)
        assert (await world.ask(long)).role == "ann"
        assert len(world.asked) == 2

    asyncio.run(main())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys":{}}',
        b'{"keys":[]}',
        b'{"keys":[7,null,{}]}',
        b"[" * 100_000,
        b" " * (JWKS_BYTES_MAX + 1),
        key_set(jwk("rsa", use="enc")),
        key_set(jwk("weak-rsa")),
        key_set({"kty": "oct", "k": "c2VjcmV0"}),
        key_set(jwk("rsa", kid=7)),
        key_set(jwk("rsa", alg="HS256")),
        key_set(*[jwk("rsa")] * 101),
        key_set({"kty": "RSA", "n": "!", "e": "AQAB"}),
        key_set({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}),
    ],
    ids=lambda _: "case",
)
def test_a_bad_key_set_is_refused(content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^here: "):
        parse_jwks(content, "here")


def test_bad_keys_of_a_set_are_left_out_and_private_ones_never_used() -> None:
    private = dict(RSAAlgorithm.to_jwk(private_key("other-rsa"), as_dict=True), kid="k2")
    content = key_set({"kty": "new"}, 7, private, jwk("p256", kid="k1"))
    assert [(key.kid, key.algorithms) for key in parse_jwks(content, "here")] == [
        ("k1", ("ES256",))
    ]
