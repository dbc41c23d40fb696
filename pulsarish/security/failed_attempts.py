"""Failed authentications by address: who fails too often is refused for a while, unchecked.

An address has a window from its first failure on. With ``failures_max`` failures in it, every
further attempt from there is refused until the window ends. Credentials that were good lately are
still checked: the programs behind one address share it, and one that guesses must not end the
others. IPv6 addresses count by their network of 64 bits, which one machine has for itself.

Checks of passwords take a good part of a second each in another thread, so no address may have all
of its places.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from pulsarish.model.errors import TooManyRequests
from pulsarish.security.credentials import Credentials
from pulsarish.security.provider_names import BASIC

__all__ = ["SALT_BYTES", "FailedAttempts", "Refusal", "address_fault"]

ADDRESSES_MAX: Final = 10_000
"""Beyond, the address whose window began first is forgotten."""
SALT_BYTES: Final = 16
"""Random bytes with which a process hashes credentials that it remembers."""
_GOOD_MAX: Final = 10_000
_GOOD_SECONDS: Final = 3_600.0
_CHECKS_MAX: Final = 8
"""Different passwords of one address that are checked at a time: a quarter of all places."""
_CHECKS_OF_PROXY_MAX: Final = 24
_HOST_CHARACTERS_MAX: Final = 64


def address_fault(text: str) -> str:
    """Return what is wrong with an address or network in CIDR form; empty when nothing is."""
    try:
        _ = ip_network(text, strict=False)
    except ValueError as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an attempt is refused without a check."""

    text: str
    is_first: bool
    """Whether it is the first in its window: the others are only counted."""


@dataclass(slots=True)
class _Window:
    since: float
    failures_count: int = 0
    refused_count: int = 0


class FailedAttempts:
    """Counts failures, and says who has to wait.

    Args:
        monotonic: seconds of the process's clock.
        salt: 16 random bytes or more of this process.
        failures_max: failures of one address within a window; 0: no address is refused.
        proxies: addresses and networks of proxies, which are not refused for their clients.
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        salt: bytes,
        *,
        failures_max: int,
        window_seconds: float,
        proxies: Collection[str] = (),
    ) -> None:
        self._monotonic = monotonic
        self._salt = salt
        self._failures_max = failures_max
        self._window_seconds = window_seconds
        self._proxies = [ip_network(text, strict=False) for text in proxies]
        self._windows: OrderedDict[str, _Window] = OrderedDict()
        """By address, in the order in which they began."""
        self._good: OrderedDict[bytes, float] = OrderedDict()
        """When credentials were last good, by their hash; the oldest first."""
        self._busy: OrderedDict[str, _Window] = OrderedDict()
        """Addresses that found no place for a check, since the last one that was recorded."""
        self._checks: dict[str, dict[bytes, int]] = {}
        """Callers that wait for the check of a password, by address and password."""

    @property
    def refused_addresses_count(self) -> int:
        """How many addresses are refused now."""
        self._forget_old()
        return sum(window.failures_count >= self._failures_max for window in self._windows.values())

    def refusal(self, host: str, credentials: Credentials) -> Refusal | None:
        """Return why an attempt is refused; ``None`` when the credentials are to be checked."""
        if not self._failures_max or not host:
            return None
        self._forget_old()
        window = self._windows.get(_place(host))
        if window is None or window.failures_count < self._failures_max:
            return None
        now = self._monotonic()
        good_at = self._good.get(self._hash(credentials))
        if good_at is not None and now - good_at < _GOOD_SECONDS:
            return None
        window.refused_count += 1
        left_seconds = window.since + self._window_seconds - now
        return Refusal(
            f"{window.failures_count} authentications from {host[:_HOST_CHARACTERS_MAX]} failed "
            f"within {self._window_seconds:g} s; correct the credentials, and try again in "
            f"{max(left_seconds, 1):.0f} s",
            window.refused_count == 1,
        )

    def failed(self, host: str, credentials: Credentials) -> None:
        """Count a failure of an address."""
        if not self._failures_max or not host:
            return
        self._good.pop(self._hash(credentials), None)
        if self._is_proxy(host):
            return
        self._forget_old()
        place = _place(host)
        window = self._windows.get(place)
        if window is None:
            if len(self._windows) >= ADDRESSES_MAX:
                self._windows.popitem(last=False)
            window = self._windows[place] = _Window(self._monotonic())
        window.failures_count += 1

    def succeeded(self, credentials: Credentials) -> None:
        """Remember good credentials."""
        if not self._failures_max:
            return
        key = self._hash(credentials)
        self._good[key] = self._monotonic()
        self._good.move_to_end(key)
        if len(self._good) > _GOOD_MAX:
            self._good.popitem(last=False)

    @contextmanager
    def checking(self, host: str, credentials: Credentials) -> Iterator[None]:
        """Hold a place for the check of a password. Raises ``TooManyRequests``.

        Callers that show the same password share one.
        """
        if credentials.method != BASIC or not host:
            yield
            return
        place, key = _place(host), self._hash(credentials)
        checks = self._checks.setdefault(place, {})
        limit = _CHECKS_OF_PROXY_MAX if self._is_proxy(host) else _CHECKS_MAX
        if key not in checks and len(checks) >= limit:
            raise TooManyRequests(
                f"{limit} passwords from this address are being checked, the limit; try again"
            )
        checks[key] = checks.get(key, 0) + 1
        try:
            yield
        finally:
            checks[key] -= 1
            if not checks[key]:
                del checks[key]
            if not checks:
                del self._checks[place]

    def busy(self, host: str) -> int | None:
        """Count an attempt for whose check there was no place, or a call as a broker that is none.

        Return how many of the address were only counted since the last recorded one, when this one
        is to be recorded: one of a window is. ``None``: it is only counted.
        """
        now, place = self._monotonic(), _place(host)
        before = self._busy.get(place)
        if before is not None and now - before.since < self._window_seconds:
            before.refused_count += 1
            return None
        if before is None and len(self._busy) >= ADDRESSES_MAX:
            self._busy.popitem(last=False)
        self._busy[place] = _Window(now)
        self._busy.move_to_end(place)
        return 0 if before is None else before.refused_count

    def _forget_old(self) -> None:
        now = self._monotonic()
        while self._windows:
            place, window = next(iter(self._windows.items()))
            if now - window.since < self._window_seconds:
                break
            del self._windows[place]

    def _hash(self, credentials: Credentials) -> bytes:
        content = credentials.method.encode() + b"\0" + credentials.data.reveal()
        return hmac.digest(self._salt, content, hashlib.sha256)

    def _is_proxy(self, host: str) -> bool:
        if not self._proxies:
            return False
        try:
            address = ip_address(host.strip("[]"))
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._proxies)


def _place(host: str) -> str:
    """Return under what an address is counted."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return host[:_HOST_CHARACTERS_MAX]
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ip_network((int(address), 64), strict=False))
