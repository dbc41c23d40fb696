"""Which certificates are those of a cluster's members."""

from __future__ import annotations

import pytest

from pulsarish.security.credentials import Certificate
from pulsarish.security.membership import Membership, member_uri

NOW_MS = 1_000_000


def certificate(name: str = "x", *names: str, expires_at_ms: int = NOW_MS + 1) -> Certificate:
    return Certificate(name, names, expires_at_ms)


def refusal(
    shown: Certificate | None, *, cluster: str = "prod", roles: tuple[str, ...] = ()
) -> str:
    return Membership(cluster, roles, lambda: NOW_MS).refusal(shown)


@pytest.mark.parametrize("kind", ["bookie", "broker", "autorecovery", "operator"])
def test_a_process_of_the_cluster_is_a_member(kind: str) -> None:
    for uri in (member_uri("prod", kind), member_uri("prod", kind, "one")):
        assert not refusal(certificate("any", "DNS:h", f"URI:{uri}"))


@pytest.mark.parametrize(
    "name",
    [
        "URI:pulsarish://other/broker/b1",
        "URI:pulsarish://prod/client/b1",
        "URI:pulsarish://prod",
        "URI:pulsarish://prod/",
        "URI:pulsarish://prod/brokers/b1",
        "URI:pulsarish://production/broker/b1",
        "URI:http://pulsarish://prod/broker",
        "DNS:pulsarish://prod/broker/b1",
        "DNS:prod",
        "",
    ],
)
def test_others_are_not(name: str) -> None:
    assert "no member of this cluster" in refusal(certificate("x", name))


def test_a_common_name_is_a_member_only_where_it_is_allowed() -> None:
    assert not refusal(certificate("broker-1"), roles=("broker-1",))
    assert not refusal(certificate("broker-1"), cluster="", roles=("broker-1",))
    assert refusal(certificate("broker-2"), roles=("broker-1",))
    assert refusal(certificate(""), roles=("",))


def test_without_a_rule_every_verified_certificate_is_a_member() -> None:
    assert not refusal(certificate(), cluster="")
    assert "show a certificate" in refusal(None, cluster="")


def test_an_empty_cluster_is_none_of_a_uri() -> None:
    assert refusal(certificate("x", "URI:pulsarish:///broker/b1"), cluster="", roles=("y",))


def test_rights_end_with_the_certificate() -> None:
    good = f"URI:{member_uri('prod', 'broker')}"
    assert "has expired" in refusal(certificate("x", good, expires_at_ms=NOW_MS))
