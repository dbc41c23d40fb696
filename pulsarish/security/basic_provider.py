"""Method ``basic``: user and password, checked with the bcrypt hashes of an htpasswd file."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

import bcrypt

from pulsarish.model.errors import AuthenticationError, ConfigError, TooManyRequests
from pulsarish.security.config import AuthenticationConfig
from pulsarish.security.credentials import Certificate, Credentials
from pulsarish.security.identity import Identity
from pulsarish.security.provider import Offload
from pulsarish.security.provider_names import BASIC
from pulsarish.security.roles import role_fault
from pulsarish.security.watched_file import WatchedFile

__all__ = ["COST_MAX", "PASSWORD_BYTES_MAX", "BasicProvider", "parse_users", "password_fault"]

PASSWORD_BYTES_MAX: Final = 72
"""Bcrypt reads no more."""
COST_MAX: Final = 14
"""A check with this cost takes a second, and each step more doubles it."""
_CREDENTIAL_BYTES_MAX: Final = 4_096
_CHECKS_MAX: Final = 32
"""Checks that wait for the other thread. More callers are told to try again."""
_VERIFIED_MAX: Final = 10_000
_VERIFIED_MS: Final = 60_000
_HASH: Final = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")
"""The last character of the salt, the 22nd, has two bits: others make each check fail."""
_WRONG: Final = "user or password is wrong"
_REMEDY: Final = "make the line with pulsarish passwords hash USER, or htpasswd -B"


class BasicProvider:
    """Checks ``user:password``. The role is the user's name.

    A verified password is remembered for a minute by a salted hash, so that a client with many
    connections is checked once. An unknown user takes as long as a known one: the password is then
    checked with the hash of a user that the name chooses, and refused.

    Args:
        offload: runs the check, which takes a good part of a second, off the event loop.
        salt: 16 random bytes or more of this process.
        on_problem: gets a sentence when a changed file cannot be taken.

    Raises ``ConfigError`` when the file is wrong.
    """

    name = BASIC
    method = BASIC

    def __init__(
        self,
        config: AuthenticationConfig,
        wall_ms: Callable[[], int],
        offload: Offload,
        salt: bytes,
        on_problem: Callable[[str], None],
    ) -> None:
        self._wall_ms = wall_ms
        self._offload = offload
        self._salt = salt
        self._users = WatchedFile(
            "basic_auth_conf", config.basic_auth_conf, parse_users, wall_ms, on_problem
        )
        self._verified: OrderedDict[bytes, int] = OrderedDict()
        """When each was verified, in milliseconds since the epoch; the oldest first."""
        self._checks: dict[bytes, asyncio.Future[bool]] = {}

    async def authenticate(
        self, credentials: Credentials, certificate: Certificate | None
    ) -> Identity:
        user, password = _split(credentials.data.reveal())
        if not await self._is_right(user, password):
            raise AuthenticationError(_WRONG)
        return Identity(user, BASIC)

    async def _is_right(self, user: str, password: bytes) -> bool:
        users = self._users.read()
        found = users.get(user)
        key = self._digest(b"%d\0%b\0%b\0%b" % (len(user), user.encode(), found or b"", password))
        if self._is_verified(key):
            return True
        check = self._checks.get(key)
        if check is None:
            if len(self._checks) >= _CHECKS_MAX:
                raise TooManyRequests("too many passwords are being checked; try again")
            hashed = found or self._hash_of_another(users, user)

            def check_password() -> bool:
                matches = bcrypt.checkpw(password, hashed)
                return matches and found is not None

            check = asyncio.ensure_future(self._offload(check_password))
            self._checks[key] = check
            check.add_done_callback(lambda done: self._on_checked(key, done))
        # A caller that leaves must not end the check of others with the same credentials.
        return await asyncio.shield(check)

    def _digest(self, content: bytes) -> bytes:
        return hmac.digest(self._salt, content, hashlib.sha256)

    def _hash_of_another(self, users: Mapping[str, bytes], user: str) -> bytes:
        """Return a hash for an unknown user: always the same, so that its cost says nothing."""
        hashes = list(users.values())
        return hashes[int.from_bytes(self._digest(user.encode())[:8]) % len(hashes)]

    def _is_verified(self, key: bytes) -> bool:
        verified_ms = self._verified.get(key)
        # Either way: a clock that was set back must not prolong it.
        return verified_ms is not None and abs(self._wall_ms() - verified_ms) < _VERIFIED_MS

    def _on_checked(self, key: bytes, check: asyncio.Future[bool]) -> None:
        del self._checks[key]
        if check.cancelled() or check.exception() is not None or not check.result():
            return
        self._verified[key] = self._wall_ms()
        self._verified.move_to_end(key)
        while len(self._verified) > _VERIFIED_MAX:
            self._verified.popitem(last=False)


def _split(data: bytes) -> tuple[str, bytes]:
    if len(data) > _CREDENTIAL_BYTES_MAX:
        raise AuthenticationError(
            f"the credential has {len(data)} bytes; at most {_CREDENTIAL_BYTES_MAX} are read"
        )
    name, colon, password = data.partition(b":")
    try:
        user = name.decode()
    except UnicodeDecodeError:
        user = ""
    if not colon or not user or not password:
        raise AuthenticationError("the credential must look like user:password in UTF-8")
    if fault := password_fault(password):
        raise AuthenticationError(f"the password {fault}")
    return user, password


def password_fault(password: bytes) -> str:
    """Return why a password can be no user's; empty when it can."""
    if not password:
        return "is empty"
    if len(password) > PASSWORD_BYTES_MAX:
        return f"is too long: bcrypt reads at most {PASSWORD_BYTES_MAX} bytes"
    return "has a zero byte, which bcrypt does not read" if b"\0" in password else ""


def parse_users(content: bytes, path: str) -> Mapping[str, bytes]:
    """Return the hash of each user. Raises ``ConfigError`` that names the line, never its text."""
    users: dict[str, bytes] = {}
    for number, line in enumerate(content.split(b"\n"), 1):
        where = f"basic_auth_conf: {path}, line {number}"
        try:
            text = line.decode().strip()
        except UnicodeDecodeError:
            raise ConfigError(f"{where} is not UTF-8; {_REMEDY}") from None
        if not text or text.startswith("#"):
            continue
        user, _, hashed = text.partition(":")
        if fault := role_fault(user):
            raise ConfigError(f"{where}: the user's name {fault}; {_REMEDY}")
        if user in users:
            raise ConfigError(f"{where}: the user stands in an earlier line, too; remove one")
        found = _HASH.fullmatch(hashed)
        if found is None:
            raise ConfigError(
                f"{where}: the hash is not bcrypt ($2y$, $2b$ or $2a$), and others are too weak; "
                f"{_REMEDY}"
            )
        if not 4 <= int(found[1]) <= COST_MAX:
            raise ConfigError(
                f"{where}: the cost {int(found[1])} is not allowed; 4 to {COST_MAX} are, because a "
                "greater one makes each login slow"
            )
        users[user] = hashed.encode()
    if not users:
        raise ConfigError(f"basic_auth_conf: {path} has no user; {_REMEDY}")
    return users
