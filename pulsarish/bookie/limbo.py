"""Limbo: a bookie that may have lost entries answers "unknown", not "not there" (rule 7), until
each ledger is repaired here.

The file ``limbo`` in the ledger directory says below which ledger id. Ids only grow, so later
ledgers are not affected. When auto-recovery has verified and completed a ledger, a row of the index
clears it. The row names the limbo that it ends: a later limbo holds for the ledger again.

A bookie with several volumes that has lost one is in limbo for the ledgers that the lost one may
have had: those below an id that this volume does not know. A ledger that a volume knows lies there
as a whole, so it is not affected. Every volume keeps that id, and the names of the lost ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from pulsarish.bookie.journal.mark import read_file
from pulsarish.model.errors import CorruptData
from pulsarish.runtime.seams import Files

__all__ = ["Limbo"]

_NAME: Final = "limbo"


class _Stored(msgspec.Struct, frozen=True):
    ledgers_below: int
    reason: str
    times: int = 1
    absent_below: int = 0
    lost: tuple[str, ...] = ()


class Limbo:
    """The ledgers that are in limbo as a whole. Single ledgers also carry a flag of their own."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{_NAME}"
        self.ledgers_below = 0
        self.absent_below = 0
        """Ledgers below this id that are not here may have been in a lost volume."""
        self.lost: tuple[str, ...] = ()
        """The names of the lost volumes."""
        self.times = 0
        """How often this bookie has entered limbo."""

    async def load(self) -> None:
        data = await read_file(self._files, self._path)
        if data is not None:
            try:
                stored = msgspec.json.decode(data, type=_Stored)
                self.ledgers_below, self.times = stored.ledgers_below, stored.times
                self.absent_below, self.lost = stored.absent_below, stored.lost
            except msgspec.MsgspecError as error:
                raise CorruptData(f"{self._path} cannot be read at offset 0: {error}") from None

    async def enter(self, ledgers_below: int, reason: str, *, times_before: int = 0) -> None:
        """Put every ledger below this id into limbo, durably.

        ``times_before`` is the count of earlier limbos as the metadata know it. The disk may have
        forgotten some of them.
        """
        self.ledgers_below = max(self.ledgers_below, ledgers_below)
        self.times = max(self.times, times_before) + 1
        await self._store(reason)

    async def doubt_absent(
        self, absent_below: int, reason: str, *, lost: Sequence[str], times: int
    ) -> None:
        """Put the ledgers below this id that are not in this volume into limbo, durably.

        Args:
            lost: the names of all lost volumes.
            times: the number of the bookie's limbo, the same in all volumes.
        """
        self.absent_below = max(self.absent_below, absent_below)
        self.lost = tuple(dict.fromkeys([*self.lost, *lost]))
        self.times = max(self.times, times)
        await self._store(reason)

    async def _store(self, reason: str) -> None:
        stored = _Stored(
            self.ledgers_below, reason, self.times, absent_below=self.absent_below, lost=self.lost
        )
        await self._files.replace(self._path, msgspec.json.encode(stored))

    @property
    def below(self) -> int:
        """No ledger from this id on is in limbo."""
        return max(self.ledgers_below, self.absent_below)

    def covers(self, ledger_id: int, *, is_absent: bool) -> bool:
        """Return whether a ledger is in limbo. ``is_absent``: this volume does not know it."""
        return ledger_id < self.ledgers_below or (is_absent and ledger_id < self.absent_below)
