"""Rules of placement: what is taken, and what is refused with which reason."""

from __future__ import annotations

from typing import Any

import pytest

from pulsarish.model.errors import AlreadyExists, InvalidArgument, LimitReached
from pulsarish.model.placement import (
    PATTERNS_MAX,
    FailureDomain,
    IsolationPolicy,
    check_domain,
    check_isolation,
    check_rule_name,
)
from pulsarish.model.values import value_of


def policy(*namespaces: str, **given: Any) -> IsolationPolicy:
    raw = {
        "namespaces": list(namespaces),
        "primary": ["broker-1"],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
        },
    }
    found: IsolationPolicy = value_of(IsolationPolicy, raw | given, "the body $")
    return found


def failover(**parameters: object) -> dict[str, object]:
    return {
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"} | parameters,
        }
    }


def test_the_numbers_of_the_failover_policy_are_texts_or_numbers() -> None:
    found = policy("a/b", **failover(min_limit=3)).auto_failover_policy
    assert (found.min_limit, found.usage_threshold) == (3, 80)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"namespaces": []}, "namespaces"),
        ({"primary": []}, "primary"),
        ({"primary": [""]}, "primary"),
        ({"secondary": ["broker-1"]}, "primary and secondary"),
        ({"unload_scope": "all_matching"}, "changed"),
        ({"other": 1}, "other"),
        (failover(min_limit="many"), "min_limit must be a number, not 'many'"),
        (failover(min_limit="-1"), "min_limit must be a number"),
        (failover(usage_threshold="101"), "usage_threshold must be 0 to 100, not 101"),
        (failover(isPrimary="true"), "'isPrimary'"),
        (
            {"auto_failover_policy": {"policy_type": "min_available", "parameters": {}}},
            "min_limit must be a number",
        ),
    ],
)
def test_a_policy_that_says_nothing_clear_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        _ = policy("a/b", **given)


@pytest.mark.parametrize(
    ("ours", "theirs", "existing"),
    [
        ("acme/.*", "acme/orders", ()),
        ("acme/orders", "acme/.*", ()),
        ("acme/.*", "acme/o.*", ()),
        ("acme/.*", "acme/.*", ()),
        ("acme/.+", r"acme/a\.b", ()),
        # Only a namespace that exists shows it.
        ("acme/[a-m].*", "acme/.*s", ("acme/books",)),
    ],
)
def test_two_policies_of_one_namespace_are_refused_by_name(
    ours: str, theirs: str, existing: tuple[str, ...]
) -> None:
    with pytest.raises(AlreadyExists, match="'new' conflicts with 'old': both have acme/"):
        check_isolation("new", policy(ours), {"old": policy(theirs)}, existing)


def test_policies_of_different_namespaces_go_together() -> None:
    others = {"a": policy("acme/orders"), "b": policy("beta/.*", "gamma/x")}
    check_isolation("new", policy("acme/o", "delta/.*"), others, ["acme/orders", "delta/x"])


@pytest.mark.parametrize("field", ["namespaces", "primary", "secondary"])
@pytest.mark.parametrize("pattern", ["(", "(x{1,100}){1,1000}", "x" * 1_001, "(?=a)b"])
def test_a_pattern_that_is_wrong_or_costs_too_much_is_refused(field: str, pattern: str) -> None:
    with pytest.raises(InvalidArgument, match="pattern of"):
        check_isolation("new", policy("a/b", **{field: [pattern]}), {}, ())


def test_all_patterns_together_are_limited() -> None:
    full = policy(*(f"acme/n{number}" for number in range(PATTERNS_MAX - 2)))
    check_isolation("new", full, {}, ())
    with pytest.raises(LimitReached, match="1000"):
        check_isolation("new", policy("b/c"), {"full": full}, ())


@pytest.mark.parametrize("name", ["", "a/b", "x" * 129, "a\nb"])
def test_names_of_rules_are_short_and_printable(name: str) -> None:
    with pytest.raises(InvalidArgument, match="printable"):
        check_rule_name("failure domain", name)


def test_a_broker_is_in_one_failure_domain() -> None:
    others = {"rack-1": FailureDomain(("b1", "b2"))}
    check_domain("rack-2", FailureDomain(("b3",)), others)
    with pytest.raises(AlreadyExists, match="'b2' is in failure domain 'rack-1'"):
        check_domain("rack-2", FailureDomain(("b3", "b2")), others)
