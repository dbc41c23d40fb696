"""A bookie that may have lost entries answers "unknown", not "not there" (rule 7), until each ledger was made whole here.

The file ``limbo`` in the ledger directory says below which ledger id; ids only grow, so ledgers made later are not concerned. A ledger that
auto-recovery has verified and completed is cleared by a row of the index, which names the limbo that it ends: a later one begins again.
"""

from __future__ import annotations

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


class Limbo:
    """Which ledgers are in limbo as a whole. Single ledgers also carry a flag of their own."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{_NAME}"
        self.ledgers_below = 0
        self.times = 0
        """How often this bookie has entered limbo."""

    async def load(self) -> None:
        data = await read_file(self._files, self._path)
        if data is not None:
            try:
                stored = msgspec.json.decode(data, type=_Stored)
                self.ledgers_below, self.times = stored.ledgers_below, stored.times
            except msgspec.MsgspecError as error:
                raise CorruptData(f"{self._path} cannot be read at offset 0: {error}") from None

    async def enter(self, ledgers_below: int, reason: str, *, times_before: int = 0) -> None:
        """Durably put every ledger below this id into limbo. ``times_before``: how often it was there, as others know; the disk may have
        forgotten some of these."""
        self.ledgers_below = max(self.ledgers_below, ledgers_below)
        self.times = max(self.times, times_before) + 1
        await self._files.replace(self._path, msgspec.json.encode(_Stored(self.ledgers_below, reason, self.times)))

    def covers(self, ledger_id: int) -> bool:
        return ledger_id < self.ledgers_below
