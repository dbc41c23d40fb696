"""What a bookie knows of a ledger besides its entries, and the table of the states in memory.

State changes in memory first. The journal's record makes the change durable, and the next
checkpoint writes it to the index. A state stays in memory while it differs from its row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pulsarish.bookie.ledger_index import ROWS_MAX, LedgerIndex, LedgerRow, ledger_key
from pulsarish.bookie.limbo import Limbo
from pulsarish.bookie.write_cache import WriteCache
from pulsarish.model.position import NO_ENTRY

__all__ = ["LocalLedgerState", "LocalLedgerStates"]

_NEW_MAX: Final = 10_000


class LocalLedgerState:
    """One ledger.

    ``exists`` is false for a ledger that this bookie never received: it takes no place in the
    index.
    """

    __slots__ = (
        "dirty",
        "exists",
        "explicit_lac",
        "fence_sequence",
        "fenced",
        "lac",
        "last_entry",
        "ledger_id",
        "limbo",
        "waiters",
    )

    def __init__(
        self,
        ledger_id: int,
        row: LedgerRow | None,
        *,
        limbo: bool,
        cleared: bool = False,
        deleted: bool = False,
    ) -> None:
        """Make a state from its row.

        Args:
            limbo: whether the whole bookie is in limbo for this ledger.
            cleared: whether the ledger was repaired since.
        """
        self.ledger_id = ledger_id
        self.exists = row is not None
        # A deleted ledger stays fenced: a writer that missed recovery and deletion must not get an
        # add confirmed and lost.
        self.fenced = deleted or (row is not None and row.fenced)
        self.limbo = (limbo or (row is not None and row.limbo)) and not cleared
        self.lac = NO_ENTRY if row is None else row.lac
        """The greatest LAC that came with an entry."""
        self.explicit_lac = NO_ENTRY if row is None else row.explicit_lac
        self.last_entry = NO_ENTRY if row is None else row.last_entry
        self.fence_sequence = -1
        """The journal record of the fence; -1 when the fence was durable before this process."""
        self.dirty = False
        self.waiters: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def known_lac(self) -> int:
        return max(self.lac, self.explicit_lac)

    def row(self) -> LedgerRow:
        return LedgerRow(self.fenced, self.limbo, self.lac, self.explicit_lac, self.last_entry)

    def wake(self) -> None:
        """Answer the long polls that wait for the LAC, because it moved."""
        lac = self.known_lac
        for after, waiter in self.waiters:
            if lac > after and not waiter.done():
                waiter.set_result(None)


class LocalLedgerStates:
    """The states in memory: at most ``open_max`` of them, besides those that must stay."""

    def __init__(self, index: LedgerIndex, cache: WriteCache, limbo: Limbo, open_max: int) -> None:
        self.loaded: dict[int, LocalLedgerState] = {}
        self.count = 0
        """Ledgers that exist here, in memory or not."""
        self.has_new = asyncio.Event()
        """Whether ``take_new`` has something to return."""
        self._new: list[int] = []
        self._index = index
        self._cache = cache
        self._limbo = limbo
        self._open_max = open_max
        self._evictions = 0
        self._dirty: dict[int, LocalLedgerState] = {}
        self._flushing: dict[int, LocalLedgerState] = {}

    async def load(self, ledger_ids: Sequence[int]) -> None:
        """Load the states of these ledgers into memory.

        They stay at least until the caller's next await.
        """
        wanted = list(dict.fromkeys(ledger_ids))
        while missing := [ledger_id for ledger_id in wanted if ledger_id not in self.loaded]:
            evictions = self._evictions
            rows = await self._index.ledger_rows(missing)
            unknown = [
                ledger_id for ledger_id, row in zip(missing, rows, strict=True) if row is None
            ]
            gone = (
                dict(zip(unknown, await self._index.were_deleted(unknown), strict=True))
                if unknown
                else {}
            )
            absent = dict.fromkeys(each for each in unknown if not gone[each])
            doubted = [
                each
                for each, row in zip(missing, rows, strict=True)
                if self._limbo.covers(each, is_absent=each in absent)
                or (row is not None and row.limbo)
            ]
            cleared = await self._index.limbos_cleared(doubted) if doubted else []
            whole = {
                ledger_id: times == self._limbo.times
                for ledger_id, times in zip(doubted, cleared, strict=True)
            }
            if evictions != self._evictions:
                # A state that was evicted in the meantime may have changed and been written after
                # these rows were read: read again.
                continue
            for ledger_id, row in zip(missing, rows, strict=True):
                # Another caller may have loaded and changed it while the index was read.
                if ledger_id not in self.loaded:
                    self.loaded[ledger_id] = LocalLedgerState(
                        ledger_id,
                        row,
                        # Asked again: the limbo may have grown while the index was read.
                        limbo=self._limbo.covers(ledger_id, is_absent=ledger_id in absent),
                        cleared=whole.get(ledger_id, False),
                        deleted=gone.get(ledger_id, False),
                    )
            self._evict(ledger_ids)

    async def get(self, ledger_id: int) -> LocalLedgerState:
        await self.load([ledger_id])
        return self.loaded[ledger_id]

    async def count_rows(self) -> None:
        """Count the ledgers at start."""
        after = -1
        while page := await self._index.ledgers(after, ROWS_MAX):
            self.count += len(page)
            after = page[-1][0]

    def enter_limbo(self) -> None:
        """Apply the bookie's limbo, which has grown, to the states in memory."""
        for state in self.loaded.values():
            state.limbo = state.limbo or self._limbo.covers(
                state.ledger_id, is_absent=not state.exists and not state.fenced
            )

    def changed(self, state: LocalLedgerState) -> None:
        """Note that the state must reach the index at the next checkpoint.

        An unknown ledger exists from now on.
        """
        if not state.exists:
            state.exists = True
            self.count += 1
            if len(self._new) < _NEW_MAX:
                self._new.append(state.ledger_id)
                self.has_new.set()
        if not state.dirty:
            state.dirty = True
            self._dirty[state.ledger_id] = state

    def take_new(self) -> list[int]:
        """Return the ledgers that came here since the last call, at most ``_NEW_MAX``."""
        new, self._new = self._new, []
        self.has_new.clear()
        return new

    def unwritten(self, after: int) -> list[int]:
        """Return ledgers above ``after`` that may have no row yet."""
        return sorted(
            {ledger_id: None for ledger_id in (*self._dirty, *self._flushing) if ledger_id > after}
        )

    def begin_flush(self) -> list[tuple[bytes, bytes]]:
        """Return the rows of all changed states. Later changes belong to the next flush."""
        assert not self._flushing
        self._flushing, self._dirty = self._dirty, {}
        for state in self._flushing.values():
            state.dirty = False
        return [
            (ledger_key(state.ledger_id), state.row().encode()) for state in self._flushing.values()
        ]

    def end_flush(self) -> None:
        self._flushing = {}
        self._evict(())

    @property
    def has_changes(self) -> bool:
        return bool(self._dirty)

    def drop(self, ledger_id: int) -> None:
        """Forget a deleted ledger. Must not be called while a flush runs."""
        assert not self._flushing, "a ledger is dropped between flushes"
        self._dirty.pop(ledger_id, None)
        state = self.loaded.pop(ledger_id, None)
        if state is None or state.exists:
            self.count -= 1
        self._evictions += 1

    def restored(self, ledger_id: int, row: LedgerRow, *, existed: bool) -> None:
        """Set the row of a ledger that came back out of the trash.

        Must not be called while a flush runs.
        """
        assert not self._flushing, "a ledger is restored between flushes"
        self._evictions += 1
        state = self.loaded.get(ledger_id)
        if state is not None and state.exists:
            # Entries were added, or the ledger was fenced, while it was in the trash.
            merged = state.row().merged(row)
            state.lac, state.explicit_lac, state.last_entry = (
                merged.lac,
                merged.explicit_lac,
                merged.last_entry,
            )
            self.changed(state)
        elif state is not None:
            del self.loaded[ledger_id]
        if not existed and (state is None or not state.exists):
            self.count += 1

    def _evict(self, wanted: Sequence[int]) -> None:
        """Drop the states that were loaded longest ago, equal their rows and have no task waiting
        on them.
        """
        too_many = len(self.loaded) - self._open_max
        if too_many <= 0:
            return
        keep = dict.fromkeys(wanted)
        gone: list[int] = []
        for ledger_id, state in self.loaded.items():
            if len(gone) == too_many:
                break
            busy = (
                state.dirty
                or ledger_id in self._flushing
                or state.waiters
                or self._cache.holds(ledger_id)
            )
            if not busy and ledger_id not in keep:
                gone.append(ledger_id)
        for ledger_id in gone:
            del self.loaded[ledger_id]
        self._evictions += len(gone)
