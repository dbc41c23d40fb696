"""The users and passwords with which the members of a cluster log in to its metadata.

A file has one ``user:password`` in each line. A member logs in with all of them, and the metadata
daemon accepts each of them, so a password is replaced without a pause: see docs/security.md.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha1
from typing import Final

from pulsarish.model.errors import ConfigError
from pulsarish.security.credentials import Credentials, Secret
from pulsarish.security.failed_attempts import FailedAttempts, Refusal
from pulsarish.security.watched_file import WatchedFile, check_private, read_bounded

__all__ = ["MetadataLogins", "identity_of", "read_logins"]

_LOGINS_MAX: Final = 16
"""Each one is a request at every connection of a member, and an entry in every access list."""


def read_logins(option: str, path: str) -> tuple[Secret, ...]:
    """Return the lines of a file. Raises ``ConfigError`` that names the option and the file."""
    return _parse(option, read_bounded(option, path), path)


def identity_of(login: Secret) -> str:
    """Return what ZooKeeper's access lists call the owner of a login: ``user:digest``."""
    user = login.reveal().partition(b":")[0]
    # ZooKeeper's scheme knows no other hash: passwords must be long and random.
    digest = sha1(login.reveal(), usedforsecurity=False).digest()
    return f"{user.decode()}:{b64encode(digest).decode()}"


def _parse(option: str, content: bytes, path: str) -> tuple[Secret, ...]:
    check_private(option, path)
    found: list[Secret] = []
    for number, line in enumerate(content.split(b"\n"), 1):
        login = line.strip()
        if not login:
            continue
        user, colon, password = login.partition(b":")
        # Not the line itself: it may be a password.
        if not user or not colon or not password or not login.isascii():
            raise ConfigError(
                f"{option}: line {number} of {path} is not user:password in plain ASCII"
            )
        found.append(Secret(login))
    if not found:
        raise ConfigError(f"{option}: {path} is empty: write user:password into it")
    if len(found) > _LOGINS_MAX:
        raise ConfigError(
            f"{option}: {path} has {len(found)} lines; at most {_LOGINS_MAX} are taken"
        )
    return tuple(found)


class MetadataLogins:
    """The logins that a metadata daemon accepts, read again when the file changes.

    Args:
        on_problem: gets a sentence when a changed file cannot be taken.
        attempts: counts logins that failed, by address; ``None``: no address is refused.

    Raises ``ConfigError`` when the file is wrong at the start.
    """

    def __init__(
        self,
        option: str,
        path: str,
        wall_ms: Callable[[], int],
        on_problem: Callable[[str], None],
        attempts: FailedAttempts | None = None,
    ) -> None:
        def parse(content: bytes, name: str) -> tuple[tuple[Secret, ...], frozenset[str]]:
            logins = _parse(option, content, name)
            return logins, frozenset(map(identity_of, logins))

        self._file = WatchedFile(option, path, parse, wall_ms, on_problem)
        self._attempts = attempts

    def identities(self) -> frozenset[str]:
        """Return what access lists call the owners of the logins."""
        return self._file.read()[1]

    def refusal(self, host: str, login: bytes) -> Refusal | None:
        """Return why a login from an address is not checked now; ``None``: it is to be."""
        return None if self._attempts is None else self._attempts.refusal(host, _shown(login))

    def accepts(self, host: str, login: bytes) -> bool:
        """Return whether ``user:password`` is one of the logins, and count it if it is not."""
        # All of them are compared: the time says nothing of which one was nearly right.
        same = [hmac.compare_digest(login, known.reveal()) for known in self._file.read()[0]]
        if self._attempts is not None:
            if any(same):
                self._attempts.succeeded(_shown(login))
            else:
                self._attempts.failed(host, _shown(login))
        return any(same)


def _shown(login: bytes) -> Credentials:
    return Credentials("digest", Secret(login))
