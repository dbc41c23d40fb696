"""Where processes are reached: by frames or by gRPC."""

from __future__ import annotations

from typing import Literal

__all__ = ["AddressBook", "Transport"]

Transport = Literal["auto", "grpc", "framed"]
"""``framed``: frames over TCP. ``auto``: frames where they are offered and get through."""


class _Addresses:
    """The addresses of one process."""

    __slots__ = ("address", "failures_count", "framed_address")

    def __init__(self, address: str, framed_address: str) -> None:
        self.address = address
        self.framed_address = framed_address
        self.failures_count = 0  # consecutive ones at the framed address


class AddressBook:
    """The addresses of each process, as it announced them last.

    With ``auto`` the framed address is taken where a process has one. After ``failures_max``
    failures in a row there, perhaps because of a firewall, gRPC is tried; when that fails, too, the
    framed address is next.

    Args:
        transport: how processes are reached.
    """

    def __init__(self, transport: Transport = "auto", *, failures_max: int = 2) -> None:
        self._transport = transport
        self._failures_max = failures_max
        self._known: dict[str, _Addresses] = {}

    def get(self, name: str) -> str | None:
        """Return the process's gRPC address, which says on which machine it is.

        ``None`` when it is not known.
        """
        known = self._known.get(name)
        return None if known is None else known.address

    def route(self, name: str) -> str | None:
        """Return the address to connect to next; ``None`` when there is none."""
        known = self._known.get(name)
        if known is None:
            return None
        if self._transport == "grpc":
            return known.address
        if self._transport == "framed":
            return known.framed_address or None
        is_refused = known.failures_count >= self._failures_max
        return known.address if is_refused else known.framed_address or known.address

    def put(self, name: str, address: str, framed_address: str = "") -> None:
        known = self._known.get(name)
        if known is None or known.address != address or known.framed_address != framed_address:
            self._known[name] = _Addresses(address, framed_address)

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    def clear(self) -> None:
        self._known.clear()

    def on_reached(self, name: str, address: str) -> None:
        """Note that a process was reached at one of its addresses."""
        known = self._known.get(name)
        if known is not None and address == known.framed_address:
            known.failures_count = 0

    def on_failed(self, name: str, address: str) -> None:
        """Note that a process was not reached at one of its addresses."""
        known = self._known.get(name)
        if known is not None:
            is_framed = address == known.framed_address
            known.failures_count = known.failures_count + 1 if is_framed else 0
