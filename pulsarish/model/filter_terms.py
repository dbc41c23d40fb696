"""The operations of a message filter: what each yields for one message. No I/O.

Truth has three values, as in SQL: ``True``, ``False`` and ``None`` for unknown. Each operation is a
function of a message, made once from the functions of its operands.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Final, NamedTuple, TypeVar

__all__ = [
    "LIKE_CHARS_MAX",
    "NUMBER_CHARS_MAX",
    "CannotJudge",
    "Condition",
    "FilteredMessage",
    "Number",
    "Text",
    "all_of",
    "any_of",
    "between",
    "calculation",
    "comparison",
    "condition_of",
    "is_in",
    "is_null",
    "like",
    "negation",
    "number_of",
]

LIKE_CHARS_MAX: Final = 4_096
"""``LIKE`` does not look at a longer text."""
NUMBER_CHARS_MAX: Final = 40
"""A longer text is no number."""
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_TRUTH: Final = {"true": True, "false": False}


class CannotJudge(Exception):
    """A message is beyond the limits of the judge. It counts as one that matches."""


class FilteredMessage(NamedTuple):
    """What a filter can ask of a message. Times are in milliseconds since the epoch."""

    properties: Mapping[str, str]
    key: str | None
    publish_ms: int
    event_ms: int | None
    delivery_count: int


class _Segment(NamedTuple):
    """What a ``LIKE`` has between two ``%``: always as many characters."""

    pattern: re.Pattern[str]
    chars: int


T = TypeVar("T")
Text = Callable[[FilteredMessage], str | None]
Number = Callable[[FilteredMessage], int | float | None]
Condition = Callable[[FilteredMessage], bool | None]

_ORDERS: Final[Mapping[str, Callable[..., bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CALCULATIONS: Final[Mapping[str, Callable[..., int | float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


# -- a text as something else


def number_of(text: Text) -> Number:
    """Return the number that a text is written as; unknown for any other text."""

    def read(message: FilteredMessage) -> int | float | None:
        written = text(message)
        return None if written is None else _number(written)

    return read


def _number(written: str) -> int | float | None:
    if len(written) > NUMBER_CHARS_MAX:
        return None
    if written.isdecimal() and written.isascii():
        return int(written)
    if _NUMBER.fullmatch(written) is None:
        return None
    try:
        return int(written)
    except ValueError:
        return _finite(float(written))


def condition_of(text: Text) -> Condition:
    """Return the truth that a text is written as, ``true`` or ``false`` in upper or lower case;
    unknown for any other text.
    """

    def read(message: FilteredMessage) -> bool | None:
        written = text(message)
        return None if written is None else _TRUTH.get(written.lower())

    return read


def _finite(number: int | float) -> int | float | None:
    return number if isfinite(number) else None


# -- truth


def all_of(conditions: Sequence[Condition]) -> Condition:
    """Return ``AND``: false if one is false, else unknown if one is unknown."""

    def judge(message: FilteredMessage) -> bool | None:
        found: bool | None = True
        for each in conditions:
            truth = each(message)
            if truth is False:
                return False
            if truth is None:
                found = None
        return found

    return judge


def any_of(conditions: Sequence[Condition]) -> Condition:
    """Return ``OR``: true if one is true, else unknown if one is unknown."""

    def judge(message: FilteredMessage) -> bool | None:
        found: bool | None = False
        for each in conditions:
            truth = each(message)
            if truth:
                return True
            if truth is None:
                found = None
        return found

    return judge


def negation(condition: Condition) -> Condition:
    """Return ``NOT``: unknown stays unknown."""

    def judge(message: FilteredMessage) -> bool | None:
        truth = condition(message)
        return None if truth is None else not truth

    return judge


# -- comparing and calculating


def comparison(
    sign: str,
    left: Callable[[FilteredMessage], T | None],
    right: Callable[[FilteredMessage], T | None],
) -> Condition:
    """Return a comparison of two values of one kind; unknown if one of them is unknown."""
    holds = _ORDERS[sign]

    def judge(message: FilteredMessage) -> bool | None:
        one = left(message)
        if one is None:
            return None
        other = right(message)
        return None if other is None else holds(one, other)

    return judge


def between(
    value: Callable[[FilteredMessage], T | None],
    low: Callable[[FilteredMessage], T | None],
    high: Callable[[FilteredMessage], T | None],
) -> Condition:
    """Return ``BETWEEN``, both ends included."""
    return all_of((comparison(">=", value, low), comparison("<=", value, high)))


def is_in(value: Callable[[FilteredMessage], T | None], listed: frozenset[T]) -> Condition:
    """Return ``IN``: unknown for an unknown value."""

    def judge(message: FilteredMessage) -> bool | None:
        found = value(message)
        return None if found is None else found in listed

    return judge


def is_null(value: Callable[[FilteredMessage], object]) -> Condition:
    """Return ``IS NULL``, which is never unknown."""
    return lambda message: value(message) is None


def calculation(sign: str, left: Number, right: Number) -> Number:
    """Return a sum, difference, product or quotient. A result that is no finite number, as of a
    division by zero, is unknown.
    """
    calculate = _CALCULATIONS[sign]

    def read(message: FilteredMessage) -> int | float | None:
        one, other = left(message), right(message)
        if one is None or other is None:
            return None
        try:
            return _finite(calculate(one, other))
        except (OverflowError, ZeroDivisionError):
            return None

    return read


def like(text: Text, pattern: str, escape: str) -> Condition:
    """Return ``LIKE``.

    The pattern is cut at each ``%``. What is between two of them has a fixed length, and the first
    place of each behind the one before is the right one. So the time is bounded by the length of
    the text times that of the pattern.

    Raises ``ValueError`` for an ``escape`` without ``%``, ``_`` or itself behind it.
    """
    matches = _matcher(_segments(pattern, escape))

    def judge(message: FilteredMessage) -> bool | None:
        written = text(message)
        if written is None:
            return None
        if len(written) > LIKE_CHARS_MAX:
            raise CannotJudge(f"a text of {len(written)} characters")
        return matches(written)

    return judge


def _segments(pattern: str, escape: str) -> list[_Segment]:
    parts: list[list[str]] = [[]]
    characters = iter(pattern)
    for each in characters:
        if each == escape:
            literal = next(characters, "")
            if literal not in ("%", "_", escape):
                raise ValueError(literal)
            parts[-1].append(re.escape(literal))
        elif each == "%":
            parts.append([])
        else:
            parts[-1].append("." if each == "_" else re.escape(each))
    return [_Segment(re.compile("".join(part), re.DOTALL), len(part)) for part in parts]


def _matcher(segments: list[_Segment]) -> Callable[[str], bool]:
    if len(segments) == 1:
        whole = segments[0].pattern.fullmatch
        return lambda written: whole(written) is not None
    first, *middle, last = segments

    def matches(written: str) -> bool:
        end = len(written) - last.chars
        if end < first.chars or first.pattern.match(written) is None:
            return False
        at = first.chars
        for segment in middle:
            found = segment.pattern.search(written, at, end)
            if found is None:
                return False
            at = found.end()
        return last.pattern.fullmatch(written, end) is not None

    return matches
