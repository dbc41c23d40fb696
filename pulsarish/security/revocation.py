"""Revoked credentials: ids of tokens and roles that a file lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pulsarish.model.errors import ConfigError
from pulsarish.security.identity import Identity
from pulsarish.security.watched_file import WatchedFile

__all__ = ["Revocations"]

_ROLE: Final = "role:"


@dataclass(frozen=True, slots=True)
class _Listed:
    token_ids: frozenset[str]
    roles: frozenset[str]


class Revocations:
    """The list of ``revocation_file``, which is read again within a second after a change.

    Each line is the id (``jti``) of a token, or ``role:NAME``. Empty lines, and lines that begin
    with ``#``, are skipped. A file that becomes unreadable leaves the list before it in force.

    Args:
        path: of the file; empty: no credential is revoked.
        on_problem: gets a sentence when a changed file cannot be taken.

    Raises ``ConfigError`` when the file is wrong.
    """

    def __init__(
        self, path: str, wall_ms: Callable[[], int], on_problem: Callable[[str], None]
    ) -> None:
        self._file = (
            WatchedFile("revocation_file", path, _parse, wall_ms, on_problem) if path else None
        )

    def is_revoked(self, identity: Identity) -> bool:
        """Return whether the token, one that it was narrowed from, the role, or the proxy that
        speaks for it is revoked.
        """
        if self._file is None:
            return False
        listed = self._file.read()
        return (
            identity.role in listed.roles
            or identity.proxy_role in listed.roles
            or identity.credential_id in listed.token_ids
            or not listed.token_ids.isdisjoint(identity.wider_ids + identity.proxy_ids)
        )

    def count_changes(self) -> int:
        """Return a number that grows when the list has changed: look at open connections again."""
        return 0 if self._file is None else self._file.count_changes()


def _parse(content: bytes, path: str) -> _Listed:
    token_ids = set()
    roles = set()
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            text = line.decode().strip()
        except UnicodeDecodeError:
            text = "\0"
        if not text or text.startswith("#"):
            continue
        role = text.removeprefix(_ROLE)
        if not text.isprintable() or not role:
            raise ConfigError(
                f"revocation_file: {path}, line {number} is neither the id of a token nor "
                f"{_ROLE}NAME, in UTF-8"
            )
        if text.startswith(_ROLE):
            roles.add(role)
        else:
            token_ids.add(text)
    return _Listed(frozenset(token_ids), frozenset(roles))
