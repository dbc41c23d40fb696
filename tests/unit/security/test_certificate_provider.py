"""Roles of client certificates."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pulsarish.model.errors import AuthenticationError, ConfigError
from pulsarish.security.certificate_provider import CertificateProvider
from pulsarish.security.config import AuthenticationConfig
from pulsarish.security.credentials import Certificate, Credentials
from pulsarish.security.identity import Identity
from tests.support.tokens import NOW_MS, Clock

END_MS = NOW_MS + 60_000
URI = "URI:pulsarish://cluster/broker/b1"


def check(certificate: Certificate | None, **options: Any) -> Identity:
    config = AuthenticationConfig(
        authentication_enabled=True, authentication_providers=("tls",), **options
    )
    config.validate()
    provider = CertificateProvider(config, Clock())
    return asyncio.run(provider.authenticate(Credentials("tls"), certificate))


def refusal(certificate: Certificate | None, **options: Any) -> str:
    with pytest.raises(AuthenticationError) as raised:
        check(certificate, **options)
    return str(raised.value)


def test_the_common_name_is_the_role() -> None:
    certificate = Certificate("orders", ("DNS:other",), END_MS)
    assert check(certificate) == Identity("orders", "tls", END_MS)


def test_an_alternative_name_is_the_role() -> None:
    certificate = Certificate("orders", ("DNS:host-1", URI), END_MS)
    assert check(certificate, tls_role_source="SAN:DNS").role == "host-1"
    assert check(certificate, tls_role_source="SAN:URI").role == "pulsarish://cluster/broker/b1"


def test_the_pattern_chooses_the_name_and_cuts_out_the_role() -> None:
    certificate = Certificate("", ("URI:spiffe://other/x", URI), END_MS)
    pattern = r"pulsarish://cluster/(?:broker|bookie)/([a-z0-9]+)"
    options = {"tls_role_source": "SAN:URI", "tls_role_pattern": pattern}
    assert check(certificate, **options).role == "b1"
    assert "has no names" in refusal(Certificate("", (f"{URI}/more",), END_MS), **options)
    assert "has no names" in refusal(Certificate("", (f"URI:x{URI[4:]}",), END_MS), **options)
    whole = {"tls_role_source": "SAN:URI", "tls_role_pattern": "pulsarish://.*"}
    assert check(certificate, **whole).role == URI.removeprefix("URI:")
    empty = {"tls_role_pattern": "a|(b)"}  # the group takes no part in the match
    assert "no names" in refusal(Certificate("a", (), END_MS), **empty)


def test_several_names_that_fit_are_refused() -> None:
    two = Certificate("", ("DNS:a", "DNS:b"), END_MS)
    assert "has 2 names" in refusal(two, tls_role_source="SAN:DNS")
    # the same role twice is one
    options = {"tls_role_source": "SAN:DNS", "tls_role_pattern": r"([a-z]+)\.x[12]"}
    assert check(Certificate("", ("DNS:a.x1", "DNS:a.x2"), END_MS), **options).role == "a"


@pytest.mark.parametrize("name", ["", "a\nb", " a", "a\0", "x" * 257], ids=lambda _: "case")
def test_a_name_that_is_no_role_is_refused(name: str) -> None:
    assert refusal(Certificate(name, (), END_MS))
    source = {"tls_role_source": "SAN:URI"}
    assert refusal(Certificate("a", (f"URI:{name}",), END_MS), **source)


def test_no_certificate_or_an_expired_one_is_refused() -> None:
    assert "no client certificate" in refusal(None)
    assert "expired" in refusal(Certificate("a", (), NOW_MS))
    assert "expired" in refusal(Certificate("a", ()))  # without an end it says nothing


def test_a_pattern_takes_linear_time() -> None:
    long = Certificate("a" * 1_024, (), END_MS)
    assert "no names" in refusal(long, tls_role_pattern="(?:a+)+b")
    assert "no names" in refusal(Certificate("a" * 1_025, (), END_MS), tls_role_pattern="a+")


@pytest.mark.parametrize("pattern", ["(", "(a)(b)", r"(?=a)"])
def test_a_bad_pattern_is_refused_at_start(pattern: str) -> None:
    with pytest.raises(ConfigError, match="tls_role_pattern"):
        check(None, tls_role_pattern=pattern)
