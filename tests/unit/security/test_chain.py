"""Which provider is asked, who is anonymous, what is refused at start."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pulsarish.model.errors import AuthenticationError, ConfigError, ServiceNotReady
from pulsarish.security.authentication import Authenticator, NoAuthentication
from pulsarish.security.chain import ProviderChain, make_authenticator
from pulsarish.security.config import AuthenticationConfig
from pulsarish.security.credentials import NO_CREDENTIALS, Certificate, Credentials, Secret
from pulsarish.security.identity import UNCHECKED, Identity
from tests.support.tokens import (
    NOW_MS,
    NOW_SECONDS,
    SECRET,
    Clock,
    bcrypt_hash,
    data_url,
    jwk,
    key_set,
    make_token,
    private_key,
)

JAVA = "org.apache.pulsar.broker.authentication."
CERTIFICATE = Certificate("host", (), NOW_MS + 60_000)
KEY = data_url(SECRET)
ISSUER = "https://login.example"
JWKS_URL = f"{ISSUER}/keys"
CLAIMS = {"iss": ISSUER, "aud": "pulsarish", "sub": "ann", "exp": NOW_SECONDS + 60}


class BadgeProvider:
    """A provider of one's own, as the documentation shows it."""

    name = "badge"
    method = "badge"

    def __init__(self, config: AuthenticationConfig, wall_ms: Callable[[], int]) -> None:
        self.made_with = (config, wall_ms)

    async def authenticate(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        match credentials.data.reveal():
            case b"good":
                return Identity("guard", self.name)
            case b"bad role":
                return Identity("a\nb", self.name)
            case b"nothing":
                return None  # type: ignore[return-value]
            case b"defect":
                raise KeyError("the secret badge")
        raise AuthenticationError("the badge is unknown; ask for a new one")


class TokenOfOwn(BadgeProvider):
    name = "own"
    method = "token"


class Nameless(BadgeProvider):
    name = ""


class Failing(BadgeProvider):
    def __init__(self, config: AuthenticationConfig, wall_ms: Callable[[], int]) -> None:
        raise OSError("no reader of badges")


BADGE = f"{__name__}:BadgeProvider"
PROBLEMS: list[str] = []


async def offload(function: Callable[[], bool]) -> bool:
    return function()


async def fetch(url: str) -> bytes:
    if url != JWKS_URL:
        raise OSError("not found")
    return key_set(jwk("rsa", kid="k1"))


def make(*providers: str, **options: Any) -> Authenticator:
    PROBLEMS.clear()
    return make_authenticator(
        AuthenticationConfig(
            authentication_enabled=True, authentication_providers=providers, **options
        ),
        wall_ms=Clock(),
        offload=offload,
        fetch=fetch,
        salt=b"s" * 16,
        on_problem=PROBLEMS.append,
    )


def ask(
    authenticator: Authenticator,
    method: str = "",
    data: bytes = b"",
    certificate: Certificate | None = None,
) -> Identity:
    credentials = Credentials(method, Secret(data))
    return asyncio.run(authenticator.authenticate(credentials, certificate))


def refusal(
    authenticator: Authenticator,
    method: str = "",
    data: bytes = b"",
    certificate: Certificate | None = None,
) -> str:
    with pytest.raises(AuthenticationError) as raised:
        ask(authenticator, method, data, certificate)
    return str(raised.value)


@pytest.fixture
def users(tmp_path: Path) -> str:
    file = tmp_path / "users"
    file.write_text(f"ann:{bcrypt_hash('secret')}\n")
    return str(file)


def test_the_method_chooses_the_provider(users: str) -> None:
    every = make("token", "basic", "tls", BADGE, token_secret_key=KEY, basic_auth_conf=users)
    assert every.enabled
    assert ask(every, "token", make_token({"sub": "a"})).method == "token"
    assert ask(every, "basic", b"ann:secret") == Identity("ann", "basic")
    assert ask(every, "tls", certificate=CERTIFICATE).role == "host"
    assert ask(every, "badge", b"good") == Identity("guard", "badge")
    # A token counts more than the certificate of the connection.
    assert ask(every, "token", make_token({"sub": "a"}), CERTIFICATE).role == "a"
    # A refused credential does not become the certificate's role.
    assert refusal(every, "token", b"junk", CERTIFICATE).startswith("token: ")
    assert refusal(every, "basic", b"ann:wrong", CERTIFICATE).startswith("basic: ")
    assert "ask for a new one" in refusal(every, "badge", b"?")
    assert refusal(every, "tls")
    # Swapped credentials.
    assert refusal(every, "token", b"ann:secret")
    assert refusal(every, "basic", make_token({"sub": "a"}))


def test_without_a_method_the_certificate_counts() -> None:
    authenticator = make("token", "tls", token_secret_key=KEY)
    for method in ("", "none"):
        assert ask(authenticator, method, certificate=CERTIFICATE).role == "host"
        assert "use token, tls" in refusal(authenticator, method)
        assert "without its method" in refusal(authenticator, method, b"x", CERTIFICATE)
    without = make("token", token_secret_key=KEY)
    assert "no credentials were sent; use token" in refusal(without, certificate=CERTIFICATE)


def test_the_anonymous_role_is_for_callers_without_credentials() -> None:
    authenticator = make("token", "tls", token_secret_key=KEY, anonymous_user_role="guest")
    for method in ("", "none"):
        assert ask(authenticator, method) == Identity("guest", "anonymous")
    assert ask(authenticator, certificate=CERTIFICATE).role == "host"
    # What was refused does not become anonymous.
    assert refusal(authenticator, "token")
    assert refusal(authenticator, "token", b"junk")
    assert refusal(authenticator, "sasl")
    assert refusal(authenticator, "tls")
    assert refusal(authenticator, "", b"junk")
    assert refusal(authenticator, certificate=Certificate("", (), NOW_MS + 1))
    assert refusal(authenticator, certificate=Certificate("host", (), NOW_MS))


@pytest.mark.parametrize(
    "method",
    ["sasl", "TOKEN", "token ", "oauth2", "x" * 1_000_000, "\n\x1b[2J", "\ud800"],
    ids=lambda _: "case",
)
def test_an_unknown_method_is_refused_and_the_accepted_ones_are_named(method: str) -> None:
    text = refusal(make("tls", "token", token_secret_key=KEY), method, b"x")
    assert "use tls, token" in text
    assert len(text) < 500
    assert text.isprintable()


OAUTH2: dict[str, Any] = {
    "openid_allowed_token_issuers": (ISSUER,),
    "openid_allowed_audiences": ("pulsarish",),
    "openid_jwks": {ISSUER: JWKS_URL},
}


@pytest.mark.parametrize("order", [("token", "oauth2"), ("oauth2", "token")])
def test_own_tokens_and_those_of_issuers_are_told_apart(order: tuple[str, str]) -> None:
    authenticator = make(*order, token_secret_key=KEY, **OAUTH2)
    assert ask(authenticator, "token", make_token({"sub": "a"})).method == "token"
    of_issuer = make_token(CLAIMS, private_key("rsa"), "RS256", kid="k1")
    assert ask(authenticator, "token", of_issuer) == Identity("ann", "oauth2", NOW_MS + 60_000)
    text = refusal(authenticator, "token", make_token({"sub": "a"}, b"x" * 64))
    assert "token: " in text
    assert "oauth2: " in text


def test_keys_that_cannot_be_fetched_are_no_refusal() -> None:
    options = OAUTH2 | {"openid_jwks": {ISSUER: "https://login.example/none"}}
    authenticator = make("token", "oauth2", token_secret_key=KEY, **options)
    of_issuer = make_token(CLAIMS, private_key("rsa"), "RS256", kid="k1")
    with pytest.raises(ServiceNotReady) as raised:
        ask(authenticator, "token", of_issuer)
    assert raised.value.retryable


def test_the_revocation_list_counts_for_every_provider(tmp_path: Path, users: str) -> None:
    file = tmp_path / "revoked"
    file.write_text("t-1\nrole:ann\nrole:host\nrole:guest\n")
    authenticator = make(
        "token",
        "basic",
        "tls",
        token_secret_key=KEY,
        basic_auth_conf=users,
        anonymous_user_role="guest",
        revocation_file=str(file),
    )
    assert "revoked" in refusal(authenticator, "token", make_token({"sub": "a", "jti": "t-1"}))
    assert ask(authenticator, "token", make_token({"sub": "a", "jti": "t-2"})).role == "a"
    assert "revoked" in refusal(authenticator, "token", make_token({"sub": "ann"}))
    assert "revoked" in refusal(authenticator, "basic", b"ann:secret")
    assert "revoked" in refusal(authenticator, certificate=CERTIFICATE)
    assert "revoked" in refusal(authenticator)
    assert isinstance(authenticator, ProviderChain)
    assert authenticator.revocations.is_revoked(Identity("ann", "token"))


@pytest.mark.parametrize("data", [b"defect", b"nothing", b"bad role"])
def test_a_defect_of_a_provider_denies_one_caller_and_shows_nothing(data: bytes) -> None:
    authenticator = make(BADGE)
    text = refusal(authenticator, "badge", data)
    assert "secret" not in text + "".join(PROBLEMS)
    assert bool(PROBLEMS) == (data != b"bad role")
    assert ask(authenticator, "badge", b"good").role == "guard"


# The start.


def test_switched_off_everyone_is_unchecked() -> None:
    authenticator = make_authenticator(
        AuthenticationConfig(),
        wall_ms=Clock(),
        offload=offload,
        fetch=fetch,
        salt=b"",
        on_problem=PROBLEMS.append,
    )
    assert isinstance(authenticator, NoAuthentication)
    assert asyncio.run(authenticator.authenticate(NO_CREDENTIALS, None)) is UNCHECKED


def test_class_names_of_apache_pulsar_are_taken(users: str) -> None:
    authenticator = make(
        f"{JAVA}AuthenticationProviderTls",
        f"{JAVA}AuthenticationProviderToken",
        f"{JAVA}AuthenticationProviderBasic",
        f"{JAVA}oidc.AuthenticationProviderOpenID",
        token_secret_key=KEY,
        basic_auth_conf=users,
        **OAUTH2,
    )
    assert isinstance(authenticator, ProviderChain)
    assert authenticator.methods == ("tls", "token", "basic")


@pytest.mark.parametrize(
    ("providers", "options", "text"),
    [
        ((), {}, "authentication_providers is empty"),
        (("athenz",), {}, "athenz is not supported; use token, basic, tls, oauth2"),
        ((f"{JAVA}AuthenticationProviderAthenz",), {}, "athenz is not supported"),
        (("sasl",), {}, "sasl is not supported"),
        ((f"{JAVA}AuthenticationProviderSasl",), {}, "sasl is not supported"),
        (("tokn",), {}, "'tokn', which is unknown"),
        (("",), {}, "'', which is unknown"),
        (("a b:C",), {}, "unknown"),
        (("tls", "tls"), {}, "has tls twice"),
        (("tls", f"{JAVA}AuthenticationProviderTls"), {}, "has tls twice"),
        ((BADGE, BADGE), {}, "twice"),
        (("token", f"{__name__}:TokenOfOwn"), {"token_secret_key": KEY}, "give it others"),
        ((BADGE, f"{__name__}:Nameless"), {}, "needs an attribute name"),
        ((f"{__name__}:Failing",), {}, "cannot be made: OSError: no reader of badges"),
        ((f"{__name__}:Missing",), {}, "cannot be made: AttributeError"),
        (("no.such.module:Class",), {}, "cannot be made: ModuleNotFoundError"),
        (("token",), {}, "set token_secret_key or token_public_key"),
        (
            ("token",),
            {"token_secret_key": KEY, "token_public_alg": "RS256"},
            "token_public_key is not",
        ),
        (
            ("token",),
            {"token_secret_key": KEY, "token_audience_claim": "aud"},
            "token_audience is not",
        ),
        (
            ("token",),
            {"token_secret_keys": {"1": KEY}, "token_public_keys": {"1": KEY}},
            "both have the key id 1",
        ),
        (("token",), {"token_secret_keys": {"": KEY}}, "token_secret_keys has an empty key id"),
        (("token",), {"token_secret_keys": {"7": "env:NONE"}}, "token_secret_keys[7]"),
        (("token",), {"token_public_keys": {"7": KEY}}, "token_public_keys[7] does not refer"),
        (("basic",), {}, "basic_auth_conf is not set"),
        (("basic",), {"basic_auth_conf": "/no/file"}, "basic_auth_conf: the file /no/file"),
        (("tls",), {"tls_role_pattern": "("}, "tls_role_pattern"),
        (("oauth2",), {}, "openid_allowed_token_issuers is empty"),
        (("oauth2",), OAUTH2 | {"openid_allowed_audiences": ()}, "openid_allowed_audiences"),
        (("oauth2",), OAUTH2 | {"openid_allowed_audiences": ("",)}, "openid_allowed_audiences"),
        (("oauth2",), OAUTH2 | {"openid_jwks": {ISSUER: "http://x"}}, "by https only"),
        (("oauth2",), OAUTH2 | {"openid_jwks": {"https://x": JWKS_URL}}, "letter by letter"),
        (("oauth2",), OAUTH2 | {"openid_jwks": {ISSUER: "/no/file"}}, "openid_jwks: the file"),
        (
            ("oauth2",),
            OAUTH2 | {"openid_allowed_token_issuers": ("login",), "openid_jwks": {}},
            "which is no https URL",
        ),
        (
            ("oauth2",),
            OAUTH2 | {"openid_cache_expiration_seconds": 10},
            "openid_cache_expiration_seconds = 10 is less",
        ),
        (("tls",), {"anonymous_user_role": "a\nb"}, "anonymous_user_role has characters"),
        (("tls",), {"revocation_file": "/no/file"}, "revocation_file: the file /no/file"),
    ],
)
def test_what_is_wrong_is_named_at_start(
    providers: tuple[str, ...], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        make(*providers, **options)
    assert text in str(raised.value)
    assert base64.b64encode(SECRET).decode() not in str(raised.value)


def test_wrong_names_are_refused_also_while_switched_off() -> None:
    for options in (
        {"authentication_providers": ("athenz",)},
        {"anonymous_user_role": "a\nb"},
    ):
        with pytest.raises(ConfigError):
            AuthenticationConfig(**options).validate()  # type: ignore[arg-type]


def test_a_custom_provider_gets_options_and_clock() -> None:
    authenticator = make(BADGE)
    assert isinstance(authenticator, ProviderChain)
    config, wall_ms = authenticator._providers[0].made_with  # type: ignore[attr-defined]
    assert config.authentication_providers == (BADGE,)
    assert wall_ms() == NOW_MS


def test_a_token_is_in_no_text_of_its_refusal() -> None:
    authenticator = make("token", "oauth2", token_secret_key=KEY, **OAUTH2)
    claims = {"sub": "canary-role\n", "iss": "canary-issuer", "exp": NOW_SECONDS + 1}
    token = make_token(claims)
    text = refusal(authenticator, "token", token)
    assert "canary" not in text
    assert token.decode()[-20:] not in text
    assert "canary" not in json.dumps(PROBLEMS)
