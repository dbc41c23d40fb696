"""Patterns and wildcards of topic names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.model.errors import InvalidArgument
from pulsarish.model.topic_pattern import (
    PATTERN_CHARS_MAX,
    compile_pattern,
    plain_name,
    wildcard_pattern,
)


def test_a_pattern_matches_whole_names_without_domain_and_partition() -> None:
    matches = compile_pattern("persistent://public/default/orders-.*")
    names = [
        "persistent://public/default/orders-1",
        "non-persistent://public/default/orders-1-partition-3",
        "persistent://public/default/orders-1-partition-x",
        "persistent://public/default/more-orders-1",
        "persistent://acme/default/orders-1",
    ]
    assert [matches(plain_name(name)) for name in names] == [True, True, True, False, False]
    assert not compile_pattern("public/default/orders")("public/default/orders-1")
    assert plain_name(names[1]) == "public/default/orders-1"


@pytest.mark.parametrize(
    ("pattern", "where"),
    [
        ("orders-*+", "bad repetition operator: *+ at character 8"),
        ("orders(?=x)", "invalid perl operator: (?= at character 7"),
        ("(orders", "missing )"),
        ("o" * (PATTERN_CHARS_MAX + 1), "1001 characters; at most 1000"),
        # short to write, and costly to match
        (r"(\pL{900}){1}", "use fewer or smaller repetitions"),
        (".{900}" * 8, "use fewer or smaller repetitions"),
    ],
)
def test_a_wrong_or_costly_pattern_is_refused_and_says_where(pattern: str, where: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        compile_pattern(pattern)
    assert where in str(refused.value)


@pytest.mark.parametrize(
    ("wildcard", "name", "is_matched"),
    [
        ("orders.*.created", "orders.eu.created", True),
        ("orders.*.created", "orders.eu.north.created", False),
        ("orders.*.created", "orders..created", False),
        ("orders.*.created", "orders.created", False),
        ("orders.>", "orders.eu", True),
        ("orders.>", "orders.eu.created", True),
        ("orders.>", "orders", False),
        ("orders.>", "orders.", False),
        ("*", "orders", True),
        ("*", "orders.eu", False),
        (">", "orders.eu", True),
        ("a+b.(c)", "a+b.(c)", True),
        ("a+b.(c)", "aab.c", False),
    ],
)
def test_a_wildcard_stands_for_whole_tokens(wildcard: str, name: str, is_matched: bool) -> None:
    assert compile_pattern(wildcard_pattern(wildcard))(name) == is_matched


@pytest.mark.parametrize(
    ("wildcard", "where"),
    [
        ("orders.>.created", "token '>' in place 2"),
        ("orders*.created", "token 'orders*' in place 1"),
        ("orders..created", "token '' in place 2"),
        ("", "token '' in place 1"),
        ("a.>b", "token '>b' in place 2"),
    ],
)
def test_a_wrong_wildcard_is_refused_and_says_where(wildcard: str, where: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        wildcard_pattern(wildcard)
    assert where in str(refused.value)


TOKENS = st.lists(st.sampled_from(("a", "b", "a+", "é")), min_size=1, max_size=4)


@given(TOKENS, TOKENS, st.sets(st.integers(0, 3)), st.booleans())
def test_wildcards_match_as_tokens_compare(
    name: list[str], tokens: list[str], stars: set[int], has_rest: bool
) -> None:
    wanted = ["*" if place in stars else token for place, token in enumerate(tokens)]
    same = all(each in ("*", there) for each, there in zip(wanted, name, strict=False))
    if has_rest:
        expected = same and len(name) > len(wanted)
        wanted.append(">")
    else:
        expected = same and len(name) == len(wanted)
    assert compile_pattern(wildcard_pattern(".".join(wanted)))(".".join(name)) == expected
