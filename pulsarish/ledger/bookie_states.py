"""What a bookie answers to operators about its garbage, its trash and its volumes."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["AdditionState", "GarbageState", "TrashedLedger", "VolumeState"]


class GarbageState(NamedTuple):
    """The garbage collection of a bookie: what its last round did, and what waits."""

    ended: int
    """Rounds that ended since the bookie started."""
    wanted: int
    """The round that was asked for last; it is over once as many have ended."""
    ledgers_deleted: int
    stray_bytes: int
    logs_deleted: int
    freed_bytes: int
    copied_bytes: int
    failure: str
    missing_ledgers: int
    trash_ledgers: int
    stray_ledgers: int
    postponed_logs: int


class VolumeState(NamedTuple):
    """How far the drain and the removal of a volume of a bookie are."""

    draining: bool
    looked: bool
    """Whether the drain has looked at all ledgers since it was asked for."""
    closed_ledgers: int
    """Closed ledgers that name the bookie."""
    open_ledgers: int
    """Ledgers that are not closed."""
    failure: str
    """Why the last look failed."""
    waiting: list[tuple[int, str]]
    """Some of these ledgers, and what each waits for."""
    removing: bool = False
    removed: bool = False
    refusal: str = ""
    """Why the last attempt to remove it did not."""


class AdditionState(NamedTuple):
    """How far the addition of a volume to a bookie is."""

    adding: bool
    added: bool
    refusal: str
    """Why the last attempt did not add it."""


class TrashedLedger(NamedTuple):
    """A deleted ledger whose space is not freed yet."""

    ledger_id: int
    since_ms: int
    size_bytes: int
