"""The public keys of an issuer: a JSON Web Key Set from a file, or fetched by https and kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from pulsarish.model.errors import ConfigError, PulsarishError, ServiceNotReady
from pulsarish.security.keys import VerificationKey, public_algorithms, select_key
from pulsarish.security.provider import Fetch

__all__ = ["JWKS_BYTES_MAX", "FetchedKeys", "RefreshTimes", "parse_jwks"]

JWKS_BYTES_MAX: Final = 512 << 10
_KEYS_MAX: Final = 100
_KID_CHARS_MAX: Final = 256
_RETRY_MS: Final = 5_000
_DISCOVERY: Final = "/.well-known/openid-configuration"


def parse_jwks(content: bytes, where: str) -> tuple[VerificationKey, ...]:
    """Return the keys of a key set that check signatures.

    Keys of other kinds, for encryption, and shared secrets are left out. Raises ``ConfigError``
    that names ``where``, if none is left.
    """
    entries = _object(content, where).get("keys")
    if not isinstance(entries, list) or len(entries) > _KEYS_MAX:
        raise ConfigError(f"{where}: a key set has a list keys, of at most {_KEYS_MAX}")
    found = tuple(key for each in entries if (key := _key(each)) is not None)
    if not found:
        raise ConfigError(f"{where}: the key set has no public key that checks signatures")
    return found


def _object(content: bytes, where: str) -> dict[str, Any]:
    if len(content) > JWKS_BYTES_MAX:
        raise ConfigError(f"{where}: {len(content)} bytes; at most {JWKS_BYTES_MAX} are read")
    try:
        value = msgspec.json.decode(content)
    except (msgspec.DecodeError, ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: this is no JSON object")
    return value


def _key(entry: object) -> VerificationKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    kid, algorithm = entry.get("kid", ""), entry.get("alg", "")
    if not isinstance(kid, str) or len(kid) > _KID_CHARS_MAX or not isinstance(algorithm, str):
        return None
    try:
        key = PyJWK.from_dict({name: value for name, value in entry.items() if name != "alg"}).key
    except (PyJWTError, ValueError, TypeError, RecursionError):
        return None
    algorithms, _ = public_algorithms(key)
    if algorithm:
        algorithms = tuple(each for each in algorithms if each == algorithm)
    return VerificationKey(key, algorithms, kid) if algorithms else None


@dataclass(frozen=True, slots=True)
class RefreshTimes:
    """When keys are fetched again, in milliseconds."""

    refresh_ms: int
    """Age of keys that are fetched again."""
    expire_ms: int
    """Age of keys that are used no more."""
    unknown_kid_ms: int
    """Least time between two fetches because of an unknown key id."""


class FetchedKeys:
    """The keys of one issuer, fetched when they are needed first.

    Callers that hold a token with a known, fresh key never wait for the network, and no caller can
    make this process fetch more often than ``times`` says.

    Args:
        url: of the key set; empty: the issuer's own configuration names it.
        on_problem: gets a sentence when a fetch fails.
    """

    def __init__(
        self,
        issuer: str,
        url: str,
        fetch: Fetch,
        times: RefreshTimes,
        wall_ms: Callable[[], int],
        on_problem: Callable[[str], None],
    ) -> None:
        self._issuer = issuer
        self._url = url
        self._fetch = fetch
        self._times = times
        self._wall_ms = wall_ms
        self._on_problem = on_problem
        self._keys: Sequence[VerificationKey] = ()
        self._fetched_ms = 0
        self._tried_ms = 0
        self._wait_ms = 0
        """Least time after the last try until the next one."""
        self._fetching = asyncio.Lock()

    async def find(self, kid: str, algorithm: str) -> VerificationKey | None:
        """Return the key of a token, or ``None``.

        Raises ``ServiceNotReady`` when the issuer's keys cannot be fetched and none are known.
        """
        found = select_key(self._usable(), kid, algorithm)
        is_fresh = self._age_ms() < self._times.refresh_ms
        # While one caller fetches, the others go on with the keys that are known.
        if found is not None and (is_fresh or self._fetching.locked()):
            return found
        async with self._fetching:
            # Another caller may have fetched them meanwhile; then it is too early again.
            if self._may_fetch():
                await self._refresh()
        keys = self._usable()
        if not keys:
            raise ServiceNotReady(
                f"the keys of the issuer {self._issuer} cannot be fetched now; try again"
            )
        return select_key(keys, kid, algorithm)

    def _age_ms(self) -> int:
        # Either way: a clock that was set back must not prolong it.
        return abs(self._wall_ms() - self._fetched_ms)

    def _usable(self) -> Sequence[VerificationKey]:
        return self._keys if self._age_ms() < self._times.expire_ms else ()

    def _may_fetch(self) -> bool:
        return abs(self._wall_ms() - self._tried_ms) >= self._wait_ms

    async def _refresh(self) -> None:
        # Set first: a caller that leaves in the middle must not let the next one fetch at once.
        self._tried_ms = self._wall_ms()
        self._wait_ms = _RETRY_MS
        try:
            url = self._url or await self._discover()
            keys = parse_jwks(await self._fetch(url), f"the keys of {url}")
        except (PulsarishError, OSError, ValueError) as error:
            # From its end: a fetch may take longer than the wait, and other callers wait behind it.
            self._tried_ms = self._wall_ms()
            self._on_problem(f"the keys of the issuer {self._issuer} were not fetched: {error}")
            return
        self._keys = keys
        self._fetched_ms = self._wall_ms()
        self._wait_ms = self._times.unknown_kid_ms

    async def _discover(self) -> str:
        url = self._issuer.rstrip("/") + _DISCOVERY
        document = _object(await self._fetch(url), url)
        if document.get("issuer") != self._issuer:
            raise ConfigError(f"{url} is of another issuer")
        found = document.get("jwks_uri")
        if not isinstance(found, str) or not found.startswith("https://"):
            raise ConfigError(f"{url} names no jwks_uri with https")
        return found
