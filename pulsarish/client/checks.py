"""Checks of what the program passes: each refusal is raised at the call and names the argument, its
value, and what to pass instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from pulsarish.client.errors import InvalidType
from pulsarish.model.errors import InvalidArgument

__all__ = [
    "INT64_MAX",
    "check_callable",
    "check_flag",
    "check_mapping",
    "check_names",
    "check_number",
    "check_text",
    "check_timeout",
    "check_type",
    "shown",
]

INT64_MAX: Final = 2**63 - 1
_SHOWN_CHARACTERS: Final = 100


def shown(value: object) -> str:
    """A value as errors show it: of what is long, its beginning."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def check_names(method: str, given: Iterable[str], accepted: Iterable[str]) -> None:
    """Arguments by name: every one must be one that the method has. Raises ``InvalidType``."""
    names = list(accepted)
    for name in given:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]}?" if close else f"it has {', '.join(names)}"
            raise InvalidType(f"{method}() has no argument {name!r}: {hint}")


def check_type(
    name: str,
    value: object,
    kind: type | tuple[type, ...],
    what: str,
    *,
    is_secret: bool = False,
) -> None:
    """Raise ``InvalidType`` for another type; it does not show what may hold a secret."""
    # bool is an int to Python and a mistake to everybody else.
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        content = "" if is_secret else f"{shown(value)} "
        raise InvalidType(f"{name} is {content}of type {type(value).__name__}: pass {what}")


def check_number(name: str, value: object, least: int, most: int = INT64_MAX) -> int:
    check_type(name, value, int, "an int")
    assert isinstance(value, int)
    if not least <= value <= most:
        limit = f" and at most {most}" if most < INT64_MAX or value > most else ""
        raise InvalidArgument(f"{name} is {value}: it must be {least} or more{limit}")
    return value


def check_flag(name: str, value: object) -> bool:
    check_type(name, value, bool, "True or False")
    return value is True


def check_text(name: str, value: object) -> str:
    check_type(name, value, str, "a str")
    assert isinstance(value, str)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"{name} {shown(value)} holds half a surrogate pair and cannot be written as UTF-8: "
            "pass valid text"
        ) from None
    return value


def check_mapping(name: str, value: object) -> dict[str, str]:
    """``None`` stands for an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidType(
            f"{name} is {shown(value)} of type {type(value).__name__}: pass a dict of str to str"
        )
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise InvalidType(
                f"{name} holds {shown(key)}: {shown(text)}: keys and values must be str"
            )
        check_text(name, key)
        check_text(name, text)
    return dict(value)


def check_callable(name: str, value: Any, what: str) -> None:
    """``what``: how it is called."""
    if not callable(value):
        raise InvalidType(f"{name} is {shown(value)} of type {type(value).__name__}: pass {what}")


def check_timeout(name: str, value: object) -> float | None:
    """A time-out in ms, or ``None`` for none, in seconds."""
    return None if value is None else check_number(name, value, 0) / 1_000
