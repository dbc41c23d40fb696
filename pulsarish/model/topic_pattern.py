"""Patterns of names: regular expressions in linear time (RE2), and wildcards over tokens.

Patterns come from clients. So their length and what they may cost are limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from pulsarish.model.errors import InvalidArgument
from pulsarish.model.topic_name import TopicName

__all__ = [
    "PATTERN_CHARS_MAX",
    "compile_pattern",
    "compile_patterns",
    "plain_name",
    "wildcard_pattern",
]

PATTERN_CHARS_MAX: Final = 1_000
_COST_BYTES_MAX: Final = 256 << 10
"""Memory of one compiled pattern. RE2 refuses a pattern that needs more."""
_KEPT_MAX: Final = 256
_ONE: Final = "[^.]+"


def plain_name(full: str) -> str:
    """Return a topic's name as patterns match it: without domain and partition number."""
    return TopicName.parse(full).partitioned.full.partition("://")[2]


@lru_cache(_KEPT_MAX)
def compile_pattern(
    pattern: str, what: str = "topic pattern", cost_bytes_max: int = _COST_BYTES_MAX
) -> Callable[[str], bool]:
    """Return a function that says whether a whole ``plain_name`` matches.

    A domain in the pattern is left out. ``what`` names the pattern in errors. Raises
    ``InvalidArgument``, which shows where the pattern is wrong, also when it would need more than
    ``cost_bytes_max``.
    """
    import re2  # only programs and brokers with patterns need it

    if len(pattern) > PATTERN_CHARS_MAX:
        raise InvalidArgument(
            f"a {what} of {len(pattern)} characters; at most {PATTERN_CHARS_MAX} are taken"
        )
    try:
        return _compiled(_without_domain(pattern), cost_bytes_max)
    except re2.error as error:
        reason = error.args[0]
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidArgument(
            f"the {what} {pattern!r} is no regular expression of RE2: {reason}"
            f"{_place(pattern, reason)}"
        ) from None


def compile_patterns(
    patterns: Sequence[str], what: str, cost_bytes_max: int
) -> Callable[[str], bool]:
    """Return a function that says whether a whole text matches one of several patterns.

    Its cost does not depend on their number. Arguments and errors are those of ``compile_pattern``,
    for each of them.
    """
    for each in patterns:
        _ = compile_pattern(each, what, cost_bytes_max)
    if not patterns:
        return lambda _: False
    text = "|".join(f"(?:{_without_domain(each)})" for each in patterns)
    return _compiled(text, cost_bytes_max * (len(patterns) + 1))


def _without_domain(pattern: str) -> str:
    return pattern.partition("://")[2] or pattern


def _compiled(text: str, cost_bytes_max: int) -> Callable[[str], bool]:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = cost_bytes_max
    compiled: Any = re2.compile(text, options)

    def matches(plain: str) -> bool:
        return compiled.fullmatch(plain) is not None

    return matches


def _place(pattern: str, reason: str) -> str:
    """Return where in the pattern the part is that RE2 names last in its reason, or the fix."""
    if reason.startswith("pattern too large"):
        return "; use fewer or smaller repetitions"
    part = reason.partition(": ")[2]
    at = pattern.find(part) if part and part != pattern else -1
    return f" at character {at + 1}" if at >= 0 else ""


def wildcard_pattern(wildcard: str) -> str:
    """Return the regular expression of a wildcard over the tokens between the dots of a name.

    ``*`` stands for one token, ``>`` at the end for one or more. Raises ``InvalidArgument``, which
    names the token.
    """
    tokens = wildcard.split(".")
    found = []
    for number, part in enumerate(tokens, 1):
        where = f"the wildcard {wildcard!r} has the token {part!r} in place {number}"
        if not part:
            raise InvalidArgument(f"{where}: a token between dots is empty; write * for any token")
        if part == ">":
            if number < len(tokens):
                raise InvalidArgument(f"{where}: > stands for the rest, so it is the last token")
            found.append(rf"{_ONE}(?:\.{_ONE})*")
        elif part == "*":
            found.append(_ONE)
        elif "*" in part or ">" in part:
            raise InvalidArgument(
                f"{where}: * and > stand for whole tokens; for parts of a token use a pattern"
            )
        else:
            found.append(re.escape(part))
    return r"\.".join(found)
