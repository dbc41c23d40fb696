"""A message filter: which messages a subscription delivers, as a condition in a part of SQL.

It is like a selector of JMS. The grammar, with keywords in any case::

    filter     = either
    either     = both { OR both }
    both       = not { AND not }
    not        = NOT not | predicate
    predicate  = sum [ sign sum
                     | [NOT] LIKE string [ESCAPE string]
                     | [NOT] IN "(" constant { "," constant } ")"
                     | [NOT] BETWEEN sum AND sum
                     | IS [NOT] NULL ]
    sign       = "=" | "<>" | "!=" | "<" | "<=" | ">" | ">="
    sum        = product { ("+" | "-") product }
    product    = factor { ("*" | "/") factor }
    factor     = ("+" | "-") factor | "(" either ")" | name | number | string | TRUE | FALSE
    constant   = ["+" | "-"] number | string
    name       = a letter, "_" or "$", then letters, digits, "_", "$" and "."; or any in "..."
    string     = characters in '...', with '' for '

A name is that of a property, in its case; ``NAMES`` are the message's own. A property is a text.
Beside a number it is read as a number, beside TRUE, FALSE, AND, OR and NOT as a truth, and is
unknown where it is written as neither.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal, NamedTuple, cast

from pulsarish.model import filter_terms as terms
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.filter_terms import CannotJudge, Condition, FilteredMessage, Number, Text

__all__ = ["FILTER_CHARS_MAX", "FILTER_PROPERTY", "NAMES", "MessageFilter", "parse_filter"]

FILTER_PROPERTY: Final = "pulsarish.filter"
"""The property of a subscription that holds its filter."""
FILTER_CHARS_MAX: Final = 4_096
_TERMS_MAX: Final = 200
_DEPTH_MAX: Final = 32
_PATTERN_CHARS_MAX: Final = 1_024  # of all LIKE together
_KEPT_MAX: Final = 256
_SHOWN_CHARS: Final = 20
_KEYWORDS: Final = frozenset(
    ("AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE")
)
_SIGNS: Final = ("<>", "!=", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "(", ")", ",")
_COMPARISONS: Final = ("=", "<>", "!=", "<", "<=", ">", ">=")

NAMES: Final = ("__key", "__publishTime", "__eventTime", "__deliveryCount")
"""What a filter can ask of a message beside its properties.

The key is a text. The publish time, and the event time if the message has one, are milliseconds
since the epoch. The delivery count is 1 when the message is delivered for the first time.
"""


class MessageFilter:
    """A condition that messages fulfil or not. Made by ``parse_filter``."""

    __slots__ = ("_condition", "cost", "text")

    def __init__(self, text: str, condition: Condition, cost: int) -> None:
        self.text = text
        self.cost = cost
        """What judging one message may cost, as a multiple of reading one property."""
        self._condition = condition

    def matches(self, message: FilteredMessage) -> bool:
        """Return whether a message is to be delivered. Unknown is not enough.

        A message that is beyond the limits of the judge is delivered.
        """
        try:
            return self._condition(message) is True
        except CannotJudge:
            return True


@lru_cache(_KEPT_MAX)
def parse_filter(text: str) -> MessageFilter:
    """Return the filter that ``text`` is.

    Raises ``InvalidArgument``, which names the column (from 1) and what was expected there.
    """
    if len(text) > FILTER_CHARS_MAX:
        raise InvalidArgument(
            f"a filter of {len(text)} characters; at most {FILTER_CHARS_MAX} are taken"
        )
    return _Parser(text).parse()


_Kind = Literal["name", "own name", "number", "string", "sign", "keyword", "end"]


class _Token(NamedTuple):
    kind: _Kind
    text: str
    column: int

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end"
        shown = self.text if len(self.text) <= _SHOWN_CHARS else self.text[:_SHOWN_CHARS] + "..."
        return f"the {self.kind} {shown!r}" if self.kind in ("string", "name") else shown


class _Value(NamedTuple):
    """An operand. ``kind``: a property can be read as any other."""

    kind: Literal["property", "text", "number", "condition"]
    read: Callable[[FilteredMessage], object]
    column: int


def _wrong(column: int, expected: str, found: object) -> InvalidArgument:
    return InvalidArgument(
        f"the filter is wrong at column {column}: expected {expected}, not {found}"
    )


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        first, column = text[at], at + 1
        if first.isspace():
            at += 1
        elif first in "'\"":
            value, at = _quoted(text, at)
            if first == '"' and not value:
                raise _wrong(column, "a name in the quotes", 'an empty ""')
            found.append(_Token("string" if first == "'" else "name", value, column))
        elif first.isascii() and (
            first.isdigit() or (first == "." and text[at + 1 : at + 2].isdigit())
        ):
            start, at = at, _end_of_number(text, at)
            found.append(_Token("number", text[start:at], column))
        elif first.isalpha() or first in "_$":
            start = at
            while at < len(text) and (text[at].isalnum() or text[at] in "_$."):
                at += 1
            word = text[start:at]
            if word.upper() in _KEYWORDS:
                found.append(_Token("keyword", word.upper(), column))
                continue
            if word.startswith("__") and word not in NAMES:
                raise _wrong(
                    column, f"one of {', '.join(NAMES)}, or a property in double quotes", word
                )
            found.append(_Token("own name" if word in NAMES else "name", word, column))
        else:
            sign = next((each for each in _SIGNS if text.startswith(each, at)), None)
            if sign is None:
                raise _wrong(column, "a name, a value or an operator", repr(first))
            found.append(_Token("sign", sign, column))
            at += len(sign)
    found.append(_Token("end", "", len(text) + 1))
    return found


def _quoted(text: str, start: int) -> tuple[str, int]:
    """Return what is in the quotes that begin at ``start``, and where the text goes on."""
    mark = text[start]
    parts: list[str] = []
    at = start + 1
    while True:
        end = text.find(mark, at)
        if end < 0:
            raise _wrong(len(text) + 1, f"{mark} for that of column {start + 1}", "the end")
        parts.append(text[at:end])
        if not text.startswith(mark, end + 1):
            return mark.join(parts), end + 1
        at = end + 2


def _end_of_number(text: str, at: int) -> int:
    def digits(at: int) -> int:
        while at < len(text) and text[at].isascii() and text[at].isdigit():
            at += 1
        return at

    at = digits(at)
    if text.startswith(".", at):
        at = digits(at + 1)
    if text[at : at + 1] in ("e", "E"):
        exponent = at + 1 + (text[at + 1 : at + 2] in ("+", "-"))
        if digits(exponent) == exponent:
            raise _wrong(
                exponent + 1, "a digit of the exponent", repr(text[exponent : exponent + 1])
            )
        at = digits(exponent)
    return at


class _Parser:
    """Reads one filter from left to right. Each method reads one rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._terms = 0
        self._pattern_chars = 0

    def parse(self) -> MessageFilter:
        condition = self._condition(self._either())
        if self._next.kind != "end":
            raise _wrong(self._next.column, "an operator, AND, OR or the end", self._next)
        return MessageFilter(self._text, condition, self._terms + self._pattern_chars)

    # -- tokens

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._next
        if token.kind != "end":
            self._at += 1
        return token

    def _takes(self, *words: str) -> str:
        """Take the next token if it is one of these signs or keywords. Return it, or ``""``."""
        token = self._next
        if token.kind in ("sign", "keyword") and token.text in words:
            self._at += 1
            return token.text
        return ""

    def _must_take(self, word: str) -> None:
        if not self._takes(word):
            raise _wrong(self._next.column, word, self._next)

    def _count(self, token: _Token) -> None:
        self._terms += 1
        if self._terms > _TERMS_MAX:
            raise _wrong(token.column, f"at most {_TERMS_MAX} names and values", "another one")

    def _nested(self, rule: Callable[[], _Value], column: int) -> _Value:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise _wrong(column, f"at most {_DEPTH_MAX} levels", "another one")
        value = rule()
        self._depth -= 1
        return value

    # -- kinds

    def _condition(self, value: _Value) -> Condition:
        if value.kind == "property":
            return terms.condition_of(cast("Text", value.read))
        if value.kind != "condition":
            raise _wrong(value.column, "a condition", f"a {value.kind} alone")
        return cast("Condition", value.read)

    def _number(self, value: _Value) -> Number:
        if value.kind == "property":
            return terms.number_of(cast("Text", value.read))
        if value.kind != "number":
            raise _wrong(value.column, "a number or a property", f"a {value.kind}")
        return cast("Number", value.read)

    def _as_text(self, value: _Value) -> Text:
        if value.kind not in ("property", "text"):
            raise _wrong(value.column, "a text or a property", f"a {value.kind}")
        return cast("Text", value.read)

    def _alike(self, *values: _Value) -> list[Callable[[FilteredMessage], object]]:
        """Return how to read values that are compared: as numbers if one of them is a number."""
        if any(each.kind == "number" for each in values):
            return [self._number(each) for each in values]
        return [self._as_text(each) for each in values]

    # -- rules

    def _either(self) -> _Value:
        value = self._both()
        if self._next.text != "OR" or self._next.kind != "keyword":
            return value
        conditions = [self._condition(value)]
        while self._takes("OR"):
            conditions.append(self._condition(self._both()))
        return _Value("condition", terms.any_of(conditions), value.column)

    def _both(self) -> _Value:
        value = self._not()
        if self._next.text != "AND" or self._next.kind != "keyword":
            return value
        conditions = [self._condition(value)]
        while self._takes("AND"):
            conditions.append(self._condition(self._not()))
        return _Value("condition", terms.all_of(conditions), value.column)

    def _not(self) -> _Value:
        column = self._next.column
        if not self._takes("NOT"):
            return self._predicate()
        value = self._nested(self._not, column)
        return _Value("condition", terms.negation(self._condition(value)), column)

    def _predicate(self) -> _Value:
        value = self._sum()
        sign = self._takes(*_COMPARISONS)
        if sign:
            return self._comparison(sign, value, self._sum())
        if self._takes("IS"):
            negated = self._takes("NOT")
            self._must_take("NULL")
            return self._negated(negated, terms.is_null(value.read), value)
        negated = self._takes("NOT")
        match self._takes("LIKE", "IN", "BETWEEN"):
            case "LIKE":
                condition = self._like(self._as_text(value))
            case "IN":
                condition = self._in(value)
            case "BETWEEN":
                low = self._sum()
                self._must_take("AND")
                read, *ends = self._alike(value, low, self._sum())
                condition = terms.between(read, *ends)
            case _:
                if negated:
                    raise _wrong(self._next.column, "LIKE, IN or BETWEEN behind NOT", self._next)
                return value
        return self._negated(negated, condition, value)

    def _negated(self, negated: str, condition: Condition, value: _Value) -> _Value:
        return _Value(
            "condition", terms.negation(condition) if negated else condition, value.column
        )

    def _comparison(self, sign: str, left: _Value, right: _Value) -> _Value:
        if "condition" in (left.kind, right.kind):
            if sign not in ("=", "<>", "!="):
                raise _wrong(
                    left.column, "numbers or texts to be compared by " + sign, "a condition"
                )
            reads: list[Callable[[FilteredMessage], object]] = [
                self._condition(left),
                self._condition(right),
            ]
        else:
            reads = self._alike(left, right)
        return _Value("condition", terms.comparison(sign, *reads), left.column)

    def _like(self, text: Text) -> Condition:
        pattern = self._string("a pattern in single quotes")
        escape = ""
        if self._takes("ESCAPE"):
            mark = self._string("one character in single quotes")
            escape = mark.text
            if len(escape) != 1:
                raise _wrong(mark.column, "one character in single quotes", mark)
        self._pattern_chars += len(pattern.text)
        if self._pattern_chars > _PATTERN_CHARS_MAX:
            raise _wrong(
                pattern.column,
                f"at most {_PATTERN_CHARS_MAX} characters in all patterns",
                self._pattern_chars,
            )
        try:
            return terms.like(text, pattern.text, escape)
        except ValueError as error:
            raise _wrong(
                pattern.column,
                f"a pattern with %, _ or {escape} behind each {escape}",
                f"one with {error.args[0]!r} there",
            ) from None

    def _string(self, expected: str) -> _Token:
        token = self._take()
        if token.kind != "string":
            raise _wrong(token.column, expected, token)
        self._count(token)
        return token

    def _in(self, value: _Value) -> Condition:
        self._must_take("(")
        listed = [self._constant()]
        while self._takes(","):
            listed.append(self._constant())
        if self._next.text != ")":
            raise _wrong(self._next.column, "a comma or )", self._next)
        self._take()
        read, *_ = self._alike(value, *listed)
        nothing = FilteredMessage({}, None, 0, None, 0)
        return terms.is_in(read, frozenset(each.read(nothing) for each in listed))

    def _constant(self) -> _Value:
        if self._next.kind == "string":
            return self._factor()
        column = self._next.column
        sign = self._takes("+", "-")
        token = self._next
        if token.kind != "number":
            raise _wrong(token.column, "a number" if sign else "a value in the list", token)
        value = self._factor()
        return self._signed(sign, value, column)

    def _sum(self) -> _Value:
        return self._calculation(self._product, "+", "-")

    def _product(self) -> _Value:
        return self._calculation(self._factor, "*", "/")

    def _calculation(self, operand: Callable[[], _Value], *signs: str) -> _Value:
        value = operand()
        while sign := self._takes(*signs):
            numbers = self._number(value), self._number(operand())
            value = _Value("number", terms.calculation(sign, *numbers), value.column)
        return value

    def _signed(self, sign: str, value: _Value, column: int) -> _Value:
        number = self._number(value)
        if sign == "-":
            number = terms.calculation("-", lambda _: 0, number)
        return _Value("number", number, column)

    def _factor(self) -> _Value:
        token = self._take()
        column = token.column
        match token.kind, token.text:
            case "sign", "+" | "-":
                return self._signed(token.text, self._nested(self._factor, column), column)
            case "sign", "(":
                value = self._nested(self._either, column)
                self._must_take(")")
                return value
            case _:
                self._count(token)
        match token.kind, token.text:
            case "name", name:
                return _Value("property", lambda message: message.properties.get(name), column)
            case "own name", "__key":
                return _Value("property", lambda message: message.key, column)
            case "own name", "__publishTime":
                return _Value("number", lambda message: message.publish_ms, column)
            case "own name", "__eventTime":
                return _Value("number", lambda message: message.event_ms, column)
            case "own name", _:
                return _Value("number", lambda message: message.delivery_count, column)
            case "string", text:
                return _Value("text", lambda _: text, column)
            case "number", written:
                return _Value("number", self._literal(written, column), column)
            case "keyword", ("TRUE" | "FALSE") as truth:
                return _Value("condition", lambda _: truth == "TRUE", column)
            case "keyword", "NULL":
                raise _wrong(column, "a value; IS NULL asks for a missing one", token)
            case _:
                raise _wrong(column, "a name or a value", token)

    def _literal(self, written: str, column: int) -> Number:
        read = terms.number_of(lambda _: written)
        number = read(FilteredMessage({}, None, 0, None, 0))
        if number is None:
            raise _wrong(
                column, f"a number of at most {terms.NUMBER_CHARS_MAX} characters", written
            )
        return lambda _: number
