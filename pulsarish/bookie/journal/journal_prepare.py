"""The next journal file, which is ready before the current one is full.

It is a file that is not needed any more, or a new one. A journal's ``fdatasync`` must carry no
change of size, so a new file is filled with zeroes before its first record. To do so at once is a
burst of a whole file, on every bookie of a ledger at about the same entry, and adds wait half a
second behind it. In slices it is never more than twice what the journal itself writes, and an idle
bookie prepares nothing. A file that is used again is whole already and needs another name only. It
keeps the records of its earlier life until new ones are written over them (``journal_format``).
"""

from __future__ import annotations

import asyncio
from typing import Final

from pulsarish.runtime.seams import Files

__all__ = ["NextFile"]

_LANE: Final = "journal-prepare"
_AHEAD: Final = 2
"""Prepared bytes for each byte written to the current file: the next file is ready when the current
one is half full.
"""


class NextFile:
    """A file in preparation.

    ``run`` prepares it, ``reached`` and ``hurry`` set the speed, and ``give_up`` ends it early.

    Args:
        path: of the file, which must not exist.
        spare: the path of a whole file in the same directory that becomes this one, if there is
            one. Nothing may need it under its old name any more.
        size_bytes: of the file.
        slice_bytes: written and synced at a time.
    """

    def __init__(
        self, files: Files, path: str, spare: str | None, *, size_bytes: int, slice_bytes: int
    ) -> None:
        self.path = path
        self._spare = spare
        self._files = files
        self._size_bytes = size_bytes
        self._slice_bytes = slice_bytes
        self._done_bytes = 0
        self._due_bytes = 0
        self._given_up = False
        self._wake = asyncio.Event()

    def reached(self, offset_bytes: int) -> None:
        """Note that the current file is written up to this offset."""
        self._due_bytes = max(self._due_bytes, _AHEAD * offset_bytes)
        if self._due_bytes > self._done_bytes:
            self._wake.set()

    def hurry(self) -> None:
        """Prepare the rest at full speed: the file is needed now."""
        self.reached(self._size_bytes)

    def give_up(self) -> None:
        """Stop preparing. The file is not needed any more and stays as it is."""
        self._given_up = True
        self._wake.set()

    async def run(self) -> None:
        """Prepare the file. Return when it is durable under its name and closed, or given up."""
        if self._spare is not None:
            await self._files.rename(self._spare, self.path)
            return
        file = await self._files.open(self.path, lane=_LANE, create=True)
        zeroes = bytes(self._slice_bytes)
        while self._done_bytes < self._size_bytes:
            if self._due_bytes <= self._done_bytes and not self._given_up:
                self._wake.clear()
                await self._wake.wait()
            if self._given_up:
                break
            # One sync covers all slices that are due; in a hurry, the rest of the file.
            end = min(self._size_bytes, max(self._due_bytes, self._done_bytes + self._slice_bytes))
            whole, rest = divmod(end - self._done_bytes, self._slice_bytes)
            await file.write(
                self._done_bytes, [zeroes] * whole + [zeroes[:rest]] * (rest > 0), sync=True
            )
            self._done_bytes = end
        await file.close()
