"""Columns in Spark's form, ``name type, name type``, checked without Spark."""

from __future__ import annotations

import re
from typing import Final

from pulsarish.spark.pipelines.nodes import near

__all__ = ["ColumnsError", "column_names"]

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_]\w*)|`(?P<quoted>(?:[^`]|``)+)`|(?P<number>\d+)|(?P<text>'[^']*')|(?P<sign>\S))",
    re.ASCII,
)
_TYPES: Final = frozenset(
    (
        *(
            "string",
            "binary",
            "boolean",
            "date",
            "timestamp",
            "timestamp_ntz",
            "timestamp_ltz",
            "variant",
        ),
        *(
            "tinyint",
            "byte",
            "smallint",
            "short",
            "int",
            "integer",
            "bigint",
            "long",
            "float",
            "real",
            "double",
            "decimal",
            "dec",
            "numeric",
        ),
        *("char", "varchar", "array", "map", "struct"),
    )
)
_SIZED: Final = frozenset(("decimal", "dec", "numeric", "char", "varchar"))


class ColumnsError(ValueError):
    pass


class _Columns:
    def __init__(self, text: str) -> None:
        self._tokens = [
            (match.lastgroup or "", match[match.lastgroup or 0]) for match in _TOKEN.finditer(text)
        ]
        self._at = 0

    def names(self) -> list[str]:
        names = [self._column(":")]
        while self._took(","):
            names.append(self._column(":"))
        if self._at < len(self._tokens):
            raise ColumnsError(f"{self._shown()} where a comma or the end should be")
        return names

    def _column(self, between: str) -> str:
        kind, name = self._next("the name of a column")
        if kind not in ("word", "quoted"):
            raise ColumnsError(f"{name!r} is no name of a column")
        self._took(between)
        self._type(name)
        if self._took("not"):
            self._expect("null")
        if self._took("comment"):
            self._next("a comment")
        return name

    def _type(self, name: str) -> None:
        kind, word = self._next(f"the type of {name}")
        low = word.lower()
        if kind != "word" or low not in _TYPES:
            raise ColumnsError(f"{word!r} is no type of Spark for {name}.{near(low, _TYPES)}")
        if low in _SIZED and self._took("("):
            self._next("a number")
            if self._took(","):
                self._next("a number")
            self._expect(")")
        elif low in ("array", "map", "struct"):
            self._nested(low, name)

    def _nested(self, kind: str, name: str) -> None:
        self._expect("<")
        if kind == "struct":
            self._column(":")
            while self._took(","):
                self._column(":")
        else:
            self._type(name)
            if kind == "map":
                self._expect(",")
                self._type(name)
        self._expect(">")

    def _next(self, what: str) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise ColumnsError(f"{what} is missing at the end")
        self._at += 1
        return self._tokens[self._at - 1]

    def _took(self, word: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at][1].lower() == word
        self._at += found
        return found

    def _expect(self, word: str) -> None:
        if not self._took(word):
            raise ColumnsError(f"{self._shown()} where {word} should be")

    def _shown(self) -> str:
        return repr(self._tokens[self._at][1]) if self._at < len(self._tokens) else "the end"


def column_names(text: str) -> list[str]:
    """Return the names of the columns. Raises ``ColumnsError``."""
    names = _Columns(text).names()
    twice = next(
        (name for name in names if [each.lower() for each in names].count(name.lower()) > 1), None
    )
    if twice is not None:
        raise ColumnsError(f"{twice} is there twice")
    return names
