"""Filters of messages: the parser, the judge, and what both refuse."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.model.errors import InvalidArgument
from pulsarish.model.filter_terms import LIKE_CHARS_MAX, FilteredMessage
from pulsarish.model.message_filter import FILTER_CHARS_MAX, parse_filter


def message(
    properties: dict[str, str] | None = None,
    *,
    key: str | None = None,
    publish_ms: int = 1_000,
    event_ms: int | None = None,
    delivery_count: int = 1,
) -> FilteredMessage:
    return FilteredMessage(properties or {}, key, publish_ms, event_ms, delivery_count)


def matches(text: str, **properties: str) -> bool:
    return parse_filter(text).matches(message(properties))


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("region = 'eu'", {"region": "eu"}),
        ("region <> 'us' AND region != 'cn'", {"region": "eu"}),
        ("amount > 100", {"amount": "100.5"}),
        ("amount = 1e2", {"amount": "100"}),
        ("100 <= amount", {"amount": "+100"}),
        ("day >= '2026-11-01'", {"day": "2026-11-26"}),
        ("price * count - 1 > 2 * (3 + 4)", {"price": "4", "count": "4.1"}),
        ("7 / 2 = 3.5", {}),
        ("-amount < - 1", {"amount": "2"}),
        ("urgent", {"urgent": "True"}),
        ("NOT urgent", {"urgent": "false"}),
        ("urgent = TRUE OR FALSE", {"urgent": "true"}),
        ("name LIKE 'a%c_'", {"name": "abbcd"}),
        ("name LIKE 'a%'", {"name": "a\nb"}),
        ("name LIKE '%aa%a'", {"name": "aaa"}),
        ("name LIKE '50!%!_!!' ESCAPE '!'", {"name": "50%_!"}),
        ("name NOT LIKE 'a.'", {"name": "ab"}),
        ("region IN ('eu', 'us')", {"region": "us"}),
        ("region NOT IN ('eu', 'us')", {"region": "cn"}),
        ("amount IN (-1, 2)", {"amount": "-1.0"}),
        ("amount BETWEEN 1 AND 1 + 1", {"amount": "2"}),
        ("amount NOT BETWEEN 1 AND 2", {"amount": "3"}),
        ("day BETWEEN 'a' AND 'b'", {"day": "aa"}),
        ("a IS NULL AND b IS NOT NULL", {"b": ""}),
        ("(a = 1) IS NULL", {}),
        ("\"my-prop\" = 'it''s'", {"my-prop": "it's"}),
        ('"__key" = 1 AND "a""b" = 2', {"__key": "1", 'a"b': "2"}),
        ("trace.id = 'x' and $a = 'y'", {"trace.id": "x", "$a": "y"}),
        ("a = 1 OR b = 1 AND c = 1", {"a": "1"}),
        ("NOT a = 1 AND b = 1", {"a": "2", "b": "1"}),
    ],
)
def test_a_message_that_matches(text: str, properties: dict[str, str]) -> None:
    assert matches(text, **properties)
    assert not matches(f"NOT ({text})", **properties)


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("region = 'eu'", {}),
        ("region <> 'eu'", {}),
        ("amount > 100", {"amount": "many"}),
        ("amount > 100", {"amount": "9" * 50}),
        ("amount > 1", {"amount": "1e999"}),
        ("amount > 1", {"amount": "NaN"}),
        ("amount > 1", {"amount": "1_000"}),
        ("amount > 1", {"amount": "١٢"}),
        ("amount / 0 = 1", {"amount": "1"}),
        ("amount * amount > 1", {"amount": "1e300"}),
        ("region LIKE '%'", {}),
        ("region IN ('eu')", {}),
        ("amount BETWEEN 1 AND 2", {}),
        ("urgent", {"urgent": "yes"}),
        ("urgent AND TRUE", {}),
        ("urgent OR FALSE", {}),
        ("amount IN (1, 2)", {"amount": "x"}),
    ],
)
def test_what_is_unknown_matches_neither_way(text: str, properties: dict[str, str]) -> None:
    assert not matches(text, **properties)
    assert not matches(f"NOT ({text})", **properties)


def test_unknown_beside_what_decides() -> None:
    assert matches("missing = 1 OR TRUE")
    assert matches("NOT (missing = 1 AND FALSE)")


def test_the_own_names() -> None:
    one = message(key="k", publish_ms=5, event_ms=None, delivery_count=3)
    assert parse_filter(
        "__key = 'k' AND __publishTime = 5 AND __eventTime IS NULL AND __deliveryCount > 2"
    ).matches(one)
    assert parse_filter("__eventTime < 10 AND __key = 7").matches(message(key="7", event_ms=9))
    assert not parse_filter("__key = 'k'").matches(message())


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("", 1, "a name or a value, not the end"),
        ("a =", 4, "a name or a value, not the end"),
        ("a = 1 b", 7, "an operator, AND, OR or the end, not the name 'b'"),
        ("a = 1 < 2", 7, "an operator, AND, OR or the end, not <"),
        ("(a = 1", 7, "), not the end"),
        ("a = NULL", 5, "IS NULL asks"),
        ("a IS 1", 6, "NULL, not 1"),
        ("a = 'x", 7, "' for that of column 5"),
        ("a LIKE b", 8, "a pattern in single quotes, not the name 'b'"),
        ("a LIKE 'x' ESCAPE '!!'", 19, "one character in single quotes"),
        ("a LIKE 'x!' ESCAPE '!'", 8, "a pattern with %, _ or ! behind each !"),
        ("5 LIKE 'x'", 1, "a text or a property, not a number"),
        ("a IN ()", 7, "a value in the list"),
        ("a IN (1 2)", 9, "a comma or )"),
        ("a IN (1, 'x')", 10, "a number or a property, not a text"),
        ("a NOT 5", 7, "LIKE, IN or BETWEEN"),
        ("a BETWEEN 1 OR 2", 13, "AND, not OR"),
        ("a = 1 AND 'x'", 11, "a condition, not a text"),
        ("a + 1", 1, "a condition, not a number"),
        ("a > 'x' + 1", 5, "a number or a property"),
        ("TRUE < FALSE", 1, "compared by <"),
        ("a # 1", 3, "a name, a value or an operator, not '#'"),
        ("a = 1e", 7, "a digit of the exponent"),
        ("__topic = 1", 1, "one of __key, __publishTime"),
        ("a = 1e999", 5, "a number of at most"),
        ("(" * 33 + "a" + ")" * 33, 33, "at most 32 levels"),
        ("NOT " * 33 + "a", 129, "at most 32 levels"),
        (" OR ".join(["a"] * 201), 1001, "at most 200 names and values"),
        (f"a LIKE '{'_' * 1025}'", 8, "at most 1024 characters"),
    ],
)
def test_a_refusal_names_the_column(text: str, column: int, expected: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"column {column}: .*{re.escape(expected)}"):
        parse_filter(text)


def test_a_filter_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="4097 characters; at most 4096"):
        parse_filter("a" * (FILTER_CHARS_MAX + 1))


def test_a_text_that_is_too_long_to_judge_is_delivered() -> None:
    long = "x" * (LIKE_CHARS_MAX + 1)
    assert matches("a LIKE 'y%'", a=long)
    assert matches("NOT a LIKE 'y%'", a=long)
    assert not matches("a LIKE 'y%'", a=long[1:])


# -- against a simple reference

Tree = tuple[Any, ...]
_NAMES: Final = ("a", "b", "c")
_TEXTS: Final = ("", "x", "xy", "yx", "1", "2.5", "-1", "true", "FALSE", "%_")
_PATTERNS: Final = ("%", "x%", "%y", "_", "x_", "%x%y%", "", "1", "_%_")
_ORDERS: Final[dict[str, Callable[..., bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    ">=": operator.ge,
}
names = st.sampled_from(_NAMES)
numbers = st.sampled_from((0, 1, 2.5, 3))
predicates = st.one_of(
    st.tuples(st.just("text"), names, st.sampled_from(tuple(_ORDERS)), st.sampled_from(_TEXTS)),
    st.tuples(st.just("number"), names, st.sampled_from(tuple(_ORDERS)), numbers),
    st.tuples(st.just("like"), names, st.sampled_from(_PATTERNS)),
    st.tuples(st.just("in"), names, st.lists(st.sampled_from(_TEXTS), min_size=1, max_size=3)),
    st.tuples(st.just("between"), names, numbers, numbers),
    st.tuples(st.just("null"), names),
    st.tuples(st.just("truth"), names),
)
trees = st.recursive(
    predicates,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("and"), inner, inner),
        st.tuples(st.just("or"), inner, inner),
    ),
    max_leaves=8,
)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def written(tree: Tree) -> str:
    match tree:
        case ("text", name, sign, value):
            return f"{name} {sign} {_quoted(value)}"
        case ("number", name, sign, value):
            return f"{name} {sign} {value}"
        case ("like", name, pattern):
            return f"{name} LIKE {_quoted(pattern)}"
        case ("in", name, values):
            return f"{name} IN ({', '.join(map(_quoted, values))})"
        case ("between", name, low, high):
            return f"{name} BETWEEN {low} AND {high}"
        case ("null", name):
            return f"{name} IS NULL"
        case ("truth", name):
            return str(name)
        case ("not", inner):
            return f"NOT ({written(inner)})"
        case (word, one, other):
            return f"({written(one)}) {word} ({written(other)})"
    raise AssertionError(tree)


def like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "%":
        return any(like(text[at:], pattern[1:]) for at in range(len(text) + 1))
    return bool(text) and pattern[0] in ("_", text[0]) and like(text[1:], pattern[1:])


def truth(tree: Tree, properties: dict[str, str]) -> bool | None:
    match tree:
        case ("and", one, other):
            both = truth(one, properties), truth(other, properties)
            return False if False in both else None if None in both else True
        case ("or", one, other):
            both = truth(one, properties), truth(other, properties)
            return True if True in both else None if None in both else False
        case ("not", inner):
            found = truth(inner, properties)
            return None if found is None else not found
        case ("null", name):
            return name not in properties
    value = properties.get(tree[1])
    if value is None:
        return None
    match tree:
        case ("text", _, sign, other):
            return _ORDERS[sign](value, other)
        case ("like", _, pattern):
            return like(value, pattern)
        case ("in", _, values):
            return value in values
        case ("truth", _):
            return {"true": True, "false": False}.get(value.lower())
    try:
        number = float(value)
    except ValueError:
        return None
    if tree[0] == "number":
        return _ORDERS[tree[2]](number, tree[3])
    return bool(tree[2] <= number <= tree[3])


@given(trees, st.dictionaries(names, st.sampled_from(_TEXTS)))
def test_the_judge_agrees_with_a_simple_one(tree: Tree, properties: dict[str, str]) -> None:
    assert matches(written(tree), **properties) is (truth(tree, properties) is True)


@given(st.text(st.sampled_from("ab%_"), max_size=8), st.text(st.sampled_from("ab\n"), max_size=8))
def test_like_agrees_with_a_simple_one(pattern: str, text: str) -> None:
    assert matches(f"a LIKE '{pattern}'", a=text) is like(text, pattern)


@given(st.text(st.sampled_from("ab'\"()=<>+-*/,.1e _%$\n") | st.characters(), max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        parsed = parse_filter(text)
    except InvalidArgument:
        return
    parsed.matches(message({"a": "1", "b": "x"}))
