"""The names that a role may have."""

from __future__ import annotations

from typing import Any, Final

from pulsarish.model.errors import ConfigError

__all__ = ["ROLE_CHARS_MAX", "compile_role_pattern", "role_fault"]

ROLE_CHARS_MAX: Final = 256


def role_fault(role: object) -> str:
    """Return what is wrong with a role; empty when it is a good one.

    Roles stand in logs, grants and files with one role on a line. So a role is printable text: no
    line ends, no control, invisible or bidirectional characters. Spaces at its ends are refused,
    because two roles would look alike.
    """
    if not isinstance(role, str):
        return "is not text"
    if not role:
        return "is empty"
    if len(role) > ROLE_CHARS_MAX:
        return f"has {len(role)} characters; at most {ROLE_CHARS_MAX} are allowed"
    if not role.isprintable():
        return "has characters that cannot be printed, such as a line end"
    if role != role.strip():
        return "begins or ends with a space"
    return ""


def compile_role_pattern(pattern: str) -> Any:
    """Return the compiled pattern of ``tls_role_pattern``; ``None`` when it is empty.

    Raises ``ConfigError``.
    """
    if not pattern:
        return None
    import re2  # in linear time: the authority has signed the name, but did not choose it

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise ConfigError(
            f"tls_role_pattern = {pattern!r} is no regular expression: {error}; its syntax is that "
            "of RE2"
        ) from None
    if compiled.groups > 1:
        raise ConfigError(
            f"tls_role_pattern = {pattern!r} has {compiled.groups} groups; only one can be the "
            "role, so write the others as (?:...)"
        )
    return compiled
