"""Limbo: a bookie that may have lost entries answers "unknown", not "not there" (rule 7), until
each ledger is repaired here.

The file ``limbo`` in the ledger directory says below which ledger id. Ids only grow, so later
ledgers are not affected. When auto-recovery has verified and completed a ledger, a row of the index
clears it. The row names the limbo that it ends: a later limbo holds for the ledger again.
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
    """The ledgers that are in limbo as a whole. Single ledgers also carry a flag of their own."""

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
        """Put every ledger below this id into limbo, durably.

        ``times_before`` is the count of earlier limbos as the metadata know it. The disk may have
        forgotten some of them.
        """
        self.ledgers_below = max(self.ledgers_below, ledgers_below)
        self.times = max(self.times, times_before) + 1
        await self._files.replace(
            self._path, msgspec.json.encode(_Stored(self.ledgers_below, reason, self.times))
        )

    def covers(self, ledger_id: int) -> bool:
        return ledger_id < self.ledgers_below
