"""Rows as a table for people: numbers aligned right, only very long values cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

__all__ = ["render"]

_CELL_MAX: Final = 60


def render(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [
        max(len(name), *(len(line[index]) for line in cells), 0)
        for index, name in enumerate(columns)
    ]
    right = [
        any(_is_number(row[index]) for row in rows)
        and all(row[index] is None or _is_number(row[index]) for row in rows)
        for index in range(len(columns))
    ]
    lines = [_line(columns, widths, right), "  ".join("-" * width for width in widths)]
    lines += [_line(line, widths, right) for line in cells]
    return "\n".join(lines if rows else [*lines, "(no rows)"])


def _line(words: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = [
        word.rjust(width) if to_right else word.ljust(width)
        for word, width, to_right in zip(words, widths, right, strict=True)
    ]
    return "  ".join(parts).rstrip()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    match value:
        case None:
            text = "-"
        case bool():
            text = "yes" if value else "no"
        case float():
            text = f"{value:,.2f}"
        case tuple():  # a struct
            text = "(" + ", ".join(map(_cell, value)) + ")"
        case bytes() | bytearray():
            text = bytes(value).decode("utf-8", "backslashreplace")
        case _:
            text = str(value)
    text = " ".join(text.splitlines())
    return text if len(text) <= _CELL_MAX else text[: _CELL_MAX - 3] + "..."
