"""What is known of each ledger from outside, and what must hold of it: the oracle of
``workloads/ledgers.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pulsarish.model.errors import PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState

__all__ = ["LedgerCounts", "LedgerHistory", "LedgerOracle"]


@dataclass(slots=True)
class LedgerCounts:
    """Counts of what a run reached: a branch that no seed reaches is not tested."""

    ledgers: int = 0
    confirmed: int = 0
    closed_by_writer: int = 0
    recovered: int = 0
    recovered_entries: int = 0
    undecided: int = 0
    stopped_writers: int = 0
    ensemble_changes: int = 0
    below_policy: int = 0
    deleted: int = 0
    followed: int = 0

    def add(self, other: LedgerCounts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class LedgerHistory:
    """What is known of one ledger from outside.

    It gets the writer's events as its ``WriterListener``.
    """

    ledger_id: int
    payloads: list[bytes] = field(default_factory=list)
    last_confirmed: int = -1
    stopped_by: PulsarishError | None = None
    end: LedgerMetadata | None = None
    deleting: bool = False
    deleted_at: int | None = None  # number of appended entries when the deletion was answered

    def confirmed(self, last_entry: int) -> None:
        assert last_entry > self.last_confirmed, "confirmations go backwards"
        assert last_entry < len(self.payloads), "confirmed what was never appended"
        assert self.stopped_by is None, "confirmed after it stopped"
        # Entries on disk before the fence may be confirmed later. Entries appended after the answer
        # must not: a deleted ledger takes none.
        assert self.deleted_at is None or last_entry < self.deleted_at, (
            f"entry {last_entry} of ledger {self.ledger_id} was appended and confirmed after the "
            "deletion was answered"
        )
        self.last_confirmed = last_entry
        if self.end is not None:
            assert last_entry <= self.end.last_entry, (
                f"entry {last_entry} of ledger {self.ledger_id} was confirmed, closed at "
                f"{self.end.last_entry}"
            )

    def stopped(self, error: PulsarishError) -> None:
        assert self.stopped_by is None, "stopped twice"
        self.stopped_by = error

    def closed(self, metadata: LedgerMetadata) -> None:
        """Note that a process learned the end."""
        assert metadata.state is LedgerState.CLOSED
        metadata.check()
        assert metadata.last_entry < len(self.payloads), (
            f"ledger {self.ledger_id} ends beyond what was written"
        )
        assert metadata.last_entry >= self.last_confirmed, (
            f"ledger {self.ledger_id} was closed at {metadata.last_entry}, entry "
            f"{self.last_confirmed} was confirmed"
        )
        length = sum(len(payload) for payload in self.payloads[: metadata.last_entry + 1])
        assert metadata.length_bytes == length, (
            f"ledger {self.ledger_id} has {length} bytes, its record says {metadata.length_bytes}"
        )
        if self.end is not None:
            ends = (
                (self.end.last_entry, self.end.length_bytes),
                (metadata.last_entry, metadata.length_bytes),
            )
            assert ends[0] == ends[1], (
                f"ledger {self.ledger_id} was closed twice: {ends[0]} and {ends[1]}"
            )
        self.end = metadata

    def read(self, entry_id: int, payload: bytes) -> None:
        assert payload == self.payloads[entry_id], (
            f"entry {entry_id} of ledger {self.ledger_id} reads {payload!r}"
        )


class LedgerOracle:
    """All ledgers of a run."""

    def __init__(self) -> None:
        self.ledgers: list[LedgerHistory] = []
        self.counts = LedgerCounts()
