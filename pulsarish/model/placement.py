"""Rules of placement, in Apache Pulsar's JSON: which brokers serve which namespaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from pulsarish.model.errors import AlreadyExists, InvalidArgument, LimitReached
from pulsarish.model.topic_pattern import compile_patterns

__all__ = [
    "PATTERNS_MAX",
    "AutoFailoverPolicy",
    "FailureDomain",
    "IsolationPolicy",
    "check_domain",
    "check_isolation",
    "check_rule_name",
    "compile_rule",
]

PATTERNS_MAX: Final = 1_000
"""Patterns of all isolation policies together."""
_PATTERN_COST_BYTES_MAX: Final = 32 << 10
_BROKERS_MAX: Final = 1_000
_NAME_CHARS_MAX: Final = 128
_PERCENT_MAX: Final = 100
_MIN_LIMIT: Final = "min_limit"
_USAGE_THRESHOLD: Final = "usage_threshold"

Patterns = tuple[Annotated[str, Meta(min_length=1)], ...]


class AutoFailoverPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When secondary brokers serve, too: while fewer than ``min_limit`` primary brokers are below
    ``usage_threshold`` percent of one core.
    """

    policy_type: Literal["min_available"]
    parameters: dict[str, str | int]

    def __post_init__(self) -> None:
        known = (_MIN_LIMIT, _USAGE_THRESHOLD)
        for name in self.parameters:
            if name not in known:
                raise ValueError(f"parameters: {name!r} is none; there are {' and '.join(known)}")
        for name, greatest in ((_MIN_LIMIT, _BROKERS_MAX), (_USAGE_THRESHOLD, _PERCENT_MAX)):
            value = str(self.parameters.get(name, ""))
            if not (value.isascii() and value.isdecimal() and len(value) <= 4):
                raise ValueError(f"parameters: {name} must be a number, not {value!r}")
            if int(value) > greatest:
                raise ValueError(f"parameters: {name} must be 0 to {greatest}, not {value}")

    @property
    def min_limit(self) -> int:
        return int(self.parameters[_MIN_LIMIT])

    @property
    def usage_threshold(self) -> int:
        return int(self.parameters[_USAGE_THRESHOLD])


class IsolationPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Namespaces that only some brokers serve. All lists are of regular expressions.

    ``unload_scope``: a bundle moves only when it stands on a broker that may not have it.
    """

    namespaces: Annotated[Patterns, Meta(min_length=1)]
    primary: Annotated[Patterns, Meta(min_length=1)]
    auto_failover_policy: AutoFailoverPolicy
    secondary: Patterns = ()
    unload_scope: Literal["changed"] | None = None

    def __post_init__(self) -> None:
        both = sorted({*self.primary} & {*self.secondary})
        if both:
            raise ValueError(f"{both[0]!r} is primary and secondary; leave it out of one of them")


class FailureDomain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Brokers that fail together, by ids or addresses."""

    brokers: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=1_000)], ...],
        Meta(max_length=_BROKERS_MAX),
    ]


def check_rule_name(kind: str, name: str) -> None:
    """Raise ``InvalidArgument`` unless a policy, domain or group may be called so."""
    if not (0 < len(name) <= _NAME_CHARS_MAX and name.isprintable() and "/" not in name):
        raise InvalidArgument(
            f"the name {name[:_NAME_CHARS_MAX]!r} of the {kind}: 1 to {_NAME_CHARS_MAX} printable "
            "characters without / are allowed"
        )


def compile_rule(patterns: Sequence[str], what: str) -> Callable[[str], bool]:
    """Return a function that says whether one of the patterns matches a whole text.

    Raises ``InvalidArgument`` for a pattern that is wrong or costs too much.
    """
    return compile_patterns(patterns, f"pattern of {what}", _PATTERN_COST_BYTES_MAX)


def check_isolation(
    name: str,
    policy: IsolationPolicy,
    others: Mapping[str, IsolationPolicy],
    namespaces: Iterable[str],
) -> None:
    """Check a new or changed isolation policy.

    Args:
        others: the other policies, by name.
        namespaces: full names of the namespaces that exist.

    Raises ``InvalidArgument`` for a pattern that is wrong or costs too much, ``LimitReached``, and
    ``AlreadyExists`` when a namespace would have two policies; it names both.
    """
    check_rule_name("namespace isolation policy", name)
    count = sum(
        len(each.namespaces) + len(each.primary) + len(each.secondary)
        for each in (policy, *others.values())
    )
    if count > PATTERNS_MAX:
        raise LimitReached(
            f"all namespace isolation policies would have {count} patterns together; at most "
            f"{PATTERNS_MAX} are allowed"
        )
    for brokers in (policy.primary, policy.secondary):
        _ = compile_rule(brokers, "brokers")
    what = "namespaces"
    is_ours = compile_rule(policy.namespaces, what)
    is_other = compile_rule([text for each in others.values() for text in each.namespaces], what)
    examples = [text for each in (policy, *others.values()) for text in _examples(each)]
    for found in filter(is_ours, (*namespaces, *examples)):
        if is_other(found):
            other = next(
                each for each, rule in others.items() if compile_rule(rule.namespaces, what)(found)
            )
            raise AlreadyExists(
                f"namespace isolation policy {name!r} conflicts with {other!r}: both have {found}; "
                "let the namespaces of one of them leave it out"
            )


def _examples(policy: IsolationPolicy) -> list[str]:
    """Return texts that the patterns of namespaces may match."""
    return [
        each.replace(".*", fill).replace(".+", fill or "x").replace("\\", "")
        for each in policy.namespaces
        for fill in ("", "x")
    ]


def check_domain(name: str, domain: FailureDomain, others: Mapping[str, FailureDomain]) -> None:
    """Check a new or changed failure domain.

    Raises ``InvalidArgument``, and ``AlreadyExists`` when one of its brokers is in another one.
    """
    check_rule_name("failure domain", name)
    for other, each in others.items():
        both = sorted({*domain.brokers} & {*each.brokers})
        if both:
            raise AlreadyExists(
                f"broker {both[0]!r} is in failure domain {other!r}; a broker is in one of them "
                f"only: take it out of {other!r} first"
            )
