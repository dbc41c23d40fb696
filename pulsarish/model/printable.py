"""Text from peers, made safe for terminals and logs.

Names, keys and messages may hold control characters, which move a terminal's cursor or change its
title. They may also hold invisible or bidirectional characters, which make one name look like
another. Text for people has these escaped. Data for programs is unchanged.
"""

from __future__ import annotations

__all__ = ["printable", "printable_json"]


def printable(text: str, *, keep: str = "") -> str:
    """Return the text with every character that cannot be printed escaped, as ``\\x1b`` or
    ``\\u202e``; those in ``keep`` stay.
    """
    if text.isprintable():
        return text
    return "".join(
        [
            each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
            for each in text
        ]
    )


def printable_json(encoded: str) -> str:
    """Return the same JSON with every character that cannot be printed escaped as in JSON.

    Line ends between values stay.
    """
    if encoded.isprintable():
        return encoded
    return "".join(
        [each if each.isprintable() or each == "\n" else _json_escape(each) for each in encoded]
    )


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
