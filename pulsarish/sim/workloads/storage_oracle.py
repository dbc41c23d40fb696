"""What is known of each ledger of one bookie from outside, and what must hold of it: the oracle of
``workloads/storage.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pulsarish.model.errors import NoSuchEntry, NoSuchLedger
from pulsarish.model.position import NO_ENTRY
from pulsarish.wire.bookie import ReadAnswer
from pulsarish.wire.record import decode_entry_record

__all__ = ["NEGATIVE", "StorageCounts", "StoredLedger"]

NEGATIVE: Final = (NoSuchEntry.code, NoSuchLedger.code)
"""The answers that say "not there"."""


@dataclass(slots=True)
class StorageCounts:
    """Counts of what a run reached: a branch that no seed reaches is not tested."""

    stored: int = 0
    refused: int = 0
    fenced: int = 0
    starts: int = 0
    ends: int = 0
    verified: int = 0
    unreadable: int = 0
    limbo: int = 0
    repaired: int = 0
    deleted: int = 0
    collected: int = 0
    compacted: int = 0
    postponed: int = 0
    volumes_failed: int = 0
    """Lives of the bookie in which a volume failed, and the others knew it durably."""
    volumes_gone: int = 0
    """Lives of the bookie that began without a volume that was lost."""

    def add(self, other: StorageCounts) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class StoredLedger:
    """What is known of one ledger from outside."""

    ledger_id: int
    sent: list[bytes] = field(default_factory=list)
    stored: dict[int, None] = field(default_factory=dict)
    lac: int = NO_ENTRY
    """The greatest LAC that was answered as stored."""
    fenced: bool = False
    left: bool = False
    """No more entries are written to it."""
    deleted: bool = False
    forgotten: bool = False
    """For a while the metadata service did not show it."""

    def judge(self, entry_id: int, answer: ReadAnswer, stored: bool, *, damaged: bool) -> bool:
        """Judge an answer. Return whether the entry was read. Raises ``AssertionError``.

        ``stored``: it had been answered as stored when it was asked for. ``damaged``: the disk may
        have lost it.
        """
        what = f"entry {entry_id} of ledger {self.ledger_id}"
        if answer.records:
            assert entry_id < len(self.sent), f"{what} is there and was never sent"
            record = decode_entry_record(answer.records[0], self.ledger_id, entry_id)
            assert bytes(record.payload) == self.sent[entry_id], (
                f"{what} reads {bytes(record.payload)!r}"
            )
            return True
        if stored:
            assert answer.code not in NEGATIVE, (
                f"{what} was answered as stored, and now it is said not to be there"
            )
            assert damaged, (
                f"{what} was answered as stored, and now the answer is code {answer.code}"
            )
        return False
