"""The entries that are not in the entry logs yet, in two generations: one is filled, one is
flushed.

A record is kept as a view of the message in which it came. So nothing is copied, and a message's
memory lives until its generation is flushed; sizes therefore count whole messages. An entry leaves
only after the index points to it, so a reader that looks first here and then in the index never
misses one.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ENTRY_OVERHEAD_BYTES", "Generation", "WriteCache"]

ENTRY_OVERHEAD_BYTES: Final = 300
"""The memory of one entry besides its bytes: the view, its number, its place in the dictionary."""

Entries = dict[int, memoryview]


class Generation:
    """Entries by ledger and number."""

    __slots__ = ("entries_count", "ledgers", "size_bytes")

    def __init__(self) -> None:
        self.ledgers: dict[int, Entries] = {}
        self.size_bytes = 0
        self.entries_count = 0

    def entries(self, ledger_id: int) -> Entries:
        """Return the ledger's entries, to be added to."""
        found = self.ledgers.get(ledger_id)
        if found is None:
            found = self.ledgers[ledger_id] = {}
        return found


class WriteCache:
    """Both generations.

    Args:
        size_bytes: of both together. ``wants_flush`` is set from half of it on. ``is_full`` is set
            when the active generation has filled its half while the other one is still being
            flushed.
    """

    def __init__(self, size_bytes: int) -> None:
        self.active = Generation()
        self.flushing: Generation | None = None
        self._half_bytes = size_bytes // 2

    @property
    def size_bytes(self) -> int:
        return self.active.size_bytes + (
            self.flushing.size_bytes if self.flushing is not None else 0
        )

    @property
    def entries_count(self) -> int:
        return self.active.entries_count + (
            self.flushing.entries_count if self.flushing is not None else 0
        )

    @property
    def wants_flush(self) -> bool:
        return self.active.size_bytes >= self._half_bytes

    @property
    def is_full(self) -> bool:
        return self.wants_flush and self.flushing is not None

    @property
    def filled_share(self) -> float:
        """The share of the active generation's half that is taken."""
        return self.active.size_bytes / max(1, self._half_bytes)

    def get(self, ledger_id: int, entry_id: int) -> memoryview | None:
        entries = self.active.ledgers.get(ledger_id)
        if entries is not None and (found := entries.get(entry_id)) is not None:
            return found
        if self.flushing is not None:
            entries = self.flushing.ledgers.get(ledger_id)
            if entries is not None:
                return entries.get(entry_id)
        return None

    def entry_ids(self, ledger_id: int, first: int, last: int) -> list[int]:
        """Return the ledger's entries from ``first`` to ``last`` that are here, in order."""
        if not self.holds(ledger_id):
            return []
        return [
            entry_id
            for entry_id in range(first, last + 1)
            if self.get(ledger_id, entry_id) is not None
        ]

    def holds(self, ledger_id: int) -> bool:
        return ledger_id in self.active.ledgers or (
            self.flushing is not None and ledger_id in self.flushing.ledgers
        )

    def added(self, message_bytes: int, entries_count: int) -> None:
        """Count a message whose entries were put into the active generation."""
        self.active.size_bytes += message_bytes + entries_count * ENTRY_OVERHEAD_BYTES
        self.active.entries_count += entries_count

    def begin_flush(self) -> Generation:
        """Make the active generation the flushing one; new entries go to an empty one."""
        assert self.flushing is None, "one generation is flushed at a time"
        self.flushing, self.active = self.active, Generation()
        return self.flushing

    def end_flush(self) -> None:
        """Drop the flushed generation: its entries are durable and the index points to them."""
        assert self.flushing is not None
        self.flushing = None
