"""The directories of a bookie, opened for reading only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.cookies import COOKIE_NAME
from pulsarish.bookie.journal.mark import Mark, read_file, read_mark
from pulsarish.bookie.ledger_index import LedgerIndex
from pulsarish.bookie.store import index_rows_path
from pulsarish.metadata.records import Cookie
from pulsarish.model.errors import CorruptData
from pulsarish.runtime.seams import Files, KeyValueIndex
from pulsarish.wire.json_record import decode_record

__all__ = ["Damage", "Inspected", "OpenedIndex", "directories_of"]


@dataclass(frozen=True, slots=True)
class Damage:
    """A place that cannot be read, or must not be as it is."""

    path: str
    offset: int
    reason: str
    is_damage: bool = True
    """``False``: a part of a file that never held anything that a client was promised."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """A bookie's directories.

    ``files`` changes nothing. ``open_index`` opens a snapshot of an index, and returns it with a
    description of what it has lost, empty for nothing.
    """

    files: Files
    open_index: Callable[[str], Awaitable[tuple[KeyValueIndex, str]]]
    journals: Sequence[str]
    ledgers: Sequence[str]
    indexes: Sequence[str]
    """The directories of the indexes themselves, below ``index_directory``."""
    cookies: Sequence[str]
    """All directories with a cookie."""

    async def mark(self) -> Mark | None:
        """Return the mark. Raises ``CorruptData``."""
        return await read_mark(self.files, self.ledgers[0])

    async def cookie_in(self, directory: str) -> Cookie | None:
        """Return the cookie of a directory. Raises ``CorruptData``."""
        path = f"{directory}/{COOKIE_NAME}"
        data = await read_file(self.files, path)
        return None if data is None else decode_record(data, Cookie, path)

    async def instance_id(self) -> str:
        """Return who the bookie is, from any of its cookies; empty when none can be read."""
        for directory in self.cookies:
            try:
                cookie = await self.cookie_in(directory)
            except CorruptData:
                continue
            if cookie is not None:
                return cookie.instance_id
        return ""

    @asynccontextmanager
    async def opened_indexes(self) -> AsyncIterator[list[OpenedIndex]]:
        """Yield the indexes as they are now. Raises ``CorruptData``, ``OSError``."""
        found: list[OpenedIndex] = []
        try:
            for directory in self.indexes:
                rows, missing = await self.open_index(directory)
                found.append(OpenedIndex(directory, LedgerIndex(rows), missing))
            yield found
        finally:
            for each in found:
                await each.index.rows.close()


@dataclass(frozen=True, slots=True)
class OpenedIndex:
    path: str
    index: LedgerIndex
    missing: str
    """What the index has lost of what was synced; empty: nothing."""


def directories_of(
    config: BookieConfig,
    files: Files,
    open_index: Callable[[str], Awaitable[tuple[KeyValueIndex, str]]],
) -> Inspected:
    """Return the directories that a bookie with this configuration uses."""
    return Inspected(
        files,
        open_index,
        journals=[config.journal_path],
        ledgers=[config.ledger_path],
        indexes=[index_rows_path(config)],
        cookies=[config.journal_path, config.ledger_path, config.index_path],
    )
