"""Facts about a query without Spark: the tables that it names, and whether quotes and brackets are
closed.

This is not a parser of SQL. It knows words, quotes, comments and brackets, which is enough to find
the names after FROM and JOIN. Spark checks columns, types and the rest of the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["QueryError", "TableName", "tables_of"]

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
  | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
  | (?P<quoted>`(?:[^`]|``)*`)
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<open>['"`]|/\*)
  | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_QUERIES: Final = ("select", "with", "from", "values", "table")
# FROM that is not a clause: inside these functions, and in IS [NOT] DISTINCT FROM.
_FROM_FUNCTIONS: Final = frozenset({"extract", "trim", "substring", "substr", "overlay"})
_ENDS_FROM: Final = frozenset(
    (
        *(
            "where",
            "group",
            "having",
            "order",
            "limit",
            "window",
            "union",
            "intersect",
            "except",
            "qualify",
            "select",
        ),
        *("sort", "cluster", "distribute", "offset", "on", "using", "lateral"),
    )
)
_JOIN_WORDS: Final = frozenset(
    ["join", "left", "right", "full", "inner", "cross", "outer", "semi", "anti", "natural"]
)


class QueryError(ValueError):
    """``line``: counted from 0 within the query."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.line = line


@dataclass(frozen=True, slots=True)
class TableName:
    name: str
    line: int
    """Counted from 0 within the query."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int

    @property
    def low(self) -> str:
        return self.text.lower() if self.kind == "word" else self.text


def tables_of(query: str) -> list[TableName]:
    """Return the tables that a query reads, without those that it defines itself by WITH.

    Raises ``QueryError``.
    """
    tokens = list(_tokens(query))
    if not tokens:
        raise QueryError("the query is empty", 0)
    _check_brackets(tokens)
    first = next((token for token in tokens if token.text != "("), tokens[0])
    if first.low not in _QUERIES:
        raise QueryError(
            f"a query begins with SELECT or WITH, this one with {first.text!r}", first.line
        )
    own = set(_common_tables(tokens))
    found: dict[str, TableName] = {}
    for each in _named(tokens):
        if each.name.lower() not in own:
            found.setdefault(each.name.lower(), each)
    return list(found.values())


def _tokens(query: str) -> Iterator[_Token]:
    line = 0
    for match in _TOKEN.finditer(query):
        kind = match.lastgroup or "sign"
        if kind == "open":
            raise QueryError(f"{match[0]} is not closed", line)
        if kind == "quoted":
            yield _Token(kind, match[0][1:-1].replace("``", "`"), line)
        elif kind != "space":
            yield _Token(kind, match[0], line)
        line += match[0].count("\n")


def _check_brackets(tokens: list[_Token]) -> None:
    opened: list[_Token] = []
    for index, token in enumerate(tokens):
        if token.kind != "sign":
            continue
        if token.text == "(":
            opened.append(token)
        elif token.text == ")":
            if not opened:
                raise QueryError(") closes nothing", token.line)
            opened.pop()
        elif token.text == ";" and index < len(tokens) - 1:
            raise QueryError(
                "one query, not several: there is text behind the semicolon", token.line
            )
        elif token.text == ";":
            raise QueryError("leave the semicolon away", token.line)
    if opened:
        raise QueryError("( is not closed", opened[-1].line)


def _common_tables(tokens: list[_Token]) -> Iterator[str]:
    """Yield the names defined by WITH: a name, perhaps columns in brackets, then AS and a
    bracket.
    """
    if not any(token.low == "with" for token in tokens):
        return
    for index, token in enumerate(tokens):
        if (
            token.kind not in ("word", "quoted")
            or index == 0
            or tokens[index - 1].low not in ("with", ",", "recursive")
        ):
            continue
        behind = index + 1
        if behind < len(tokens) and tokens[behind].text == "(" and tokens[behind].kind == "sign":
            behind = _closing(tokens, behind) + 1
        if (
            behind + 1 < len(tokens)
            and tokens[behind].low == "as"
            and tokens[behind + 1].text == "("
        ):
            yield token.text.lower()


def _closing(tokens: list[_Token], index: int) -> int:
    depth = 0
    for position in range(index, len(tokens)):
        if tokens[position].kind == "sign":
            depth += {"(": 1, ")": -1}.get(tokens[position].text, 0)
            if depth == 0:
                return position
    raise AssertionError("brackets have been checked")


def _named(tokens: list[_Token]) -> Iterator[TableName]:
    # For each open bracket: the word before it, and whether its FROM clause is being read.
    clauses: list[tuple[str, bool]] = [("", False)]
    awaited = False
    for index, token in enumerate(tokens):
        before, reading = clauses[-1]
        if token.kind == "sign" and token.text == "(":
            clauses.append(
                (
                    tokens[index - 1].low if index and tokens[index - 1].kind == "word" else "",
                    awaited,
                )
            )
            continue  # FROM (a JOIN b): a table may follow inside
        if token.kind == "sign" and token.text == ")":
            clauses.pop()
            awaited = False
        elif (
            token.low == "from"
            and before not in _FROM_FUNCTIONS
            and not _is_distinct_from(tokens, index)
        ):
            clauses[-1] = (before, True)
            awaited = True
        elif token.low == "join" or (token.text == "," and token.kind == "sign" and reading):
            awaited = True
        elif token.low in _ENDS_FROM and token.kind == "word":
            if token.low not in ("on", "using", "lateral"):
                clauses[-1] = (before, False)
            awaited = False
        elif awaited and token.low not in _JOIN_WORDS:
            awaited = False
            if (
                token.kind in ("word", "quoted")
                and not _is_function(tokens, index)
                and token.low != "values"
            ):
                yield TableName(_whole_name(tokens, index), token.line)


def _is_distinct_from(tokens: list[_Token], index: int) -> bool:
    words = [token.low for token in tokens[max(0, index - 3) : index]]
    return words[-1:] == ["distinct"] and "is" in words


def _is_function(tokens: list[_Token], index: int) -> bool:
    return (
        index + 1 < len(tokens)
        and tokens[index + 1].kind == "sign"
        and tokens[index + 1].text == "("
    )


def _whole_name(tokens: list[_Token], index: int) -> str:
    name = tokens[index].text
    while (
        index + 2 < len(tokens)
        and tokens[index + 1].text == "."
        and tokens[index + 2].kind in ("word", "quoted")
    ):
        index += 2
        name += "." + tokens[index].text
    return name
