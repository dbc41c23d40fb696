"""A new index for a bookie whose index is damaged, made from its entry logs.

The logs say which entries are there and where. They do not say which ledgers were fenced or deleted, and what was cut off their end is not
missed. So everything that the metadata had given out by now is in limbo afterwards (rule 7): the bookie answers "unknown" instead of "not
there", takes no adds of a writer there, and auto-recovery makes ledger after ledger whole again. What the journal holds above the mark,
fences included, is replayed at the next start as ever.

They do not know the trash either: a ledger that was in it is one of this bookie again, in limbo as all others, and garbage collection puts
it there once more, because the metadata do not name it. Its grace begins again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.entry_logs.entry_log import EntryLogs
from pulsarish.bookie.journal.mark import Mark, read_mark, write_mark
from pulsarish.bookie.ledger_index import ROWS_MAX, LedgerIndex, LedgerRow, entry_rows, ledger_key
from pulsarish.bookie.limbo import Limbo
from pulsarish.bookie.store import has_data, index_rows_path
from pulsarish.model.errors import CorruptData, NotFound
from pulsarish.model.position import NO_ENTRY
from pulsarish.runtime.seams import Files, KeyValueIndex
from pulsarish.wire.record import matches_crc, peek_ids

__all__ = ["Rebuilt", "rebuild_bookie", "rebuild_index"]

_RECORDS_AT_ONCE = 1000


@dataclass(slots=True)
class Rebuilt:
    """What the logs gave."""

    entries: int = 0
    logs: int = 0
    ledgers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The last entry of each ledger, and the greatest LAC that came with one."""
    unreadable_records: int = 0
    ends: dict[int, str] = field(default_factory=dict)
    """Logs that could not be read to their end, and why: torn by a crash as a rule, else damaged. They are never collected."""


async def rebuild_bookie(
    files: Files,
    open_index: Callable[[str], Awaitable[KeyValueIndex]],
    config: BookieConfig,
    *,
    given_out: Callable[[], Awaitable[int]],
    remove: Callable[[str], object],
    replace: Callable[[str, str], str],
    progress: Callable[[int, int, int], None],
) -> tuple[Rebuilt, str]:
    """Put a new index in the place of that of a bookie that is stopped. Interrupted, it is done again.

    Args:
        given_out: below which id there are ledgers, by the metadata.
        remove: takes away what an attempt before has left of a new index.
        replace: puts a closed index in the place of another, and says where that one is now.

    Raises ``Locked`` for a bookie that runs, ``NotFound`` where there is none, ``CorruptData`` for a mark that cannot be read, ``OSError``.
    """
    for directory in (config.journal_path, config.ledger_path, config.index_path):
        await files.lock(directory)
    if not await has_data(files, config):
        raise NotFound(f"{config.journal_path} and {config.ledger_path} hold no data of a bookie")
    ledgers_below = await given_out()
    mark = await read_mark(files, config.ledger_path)
    new = index_rows_path(config) + ".rebuilt"
    remove(new)
    rows = await open_index(new)
    index = LedgerIndex(rows)
    logs = EntryLogs(files, index, config.ledger_path, size_bytes=config.entry_log_size_bytes, open_max=1)
    found = await rebuild_index(logs, index, progress)
    await logs.close()
    await rows.close()
    # In this order: no negative is answered from the new index before the limbo is there.
    limbo = Limbo(files, config.ledger_path)
    await limbo.load()
    await limbo.enter(max([ledgers_below, *(ledger_id + 1 for ledger_id in found.ledgers)]), "the index was rebuilt from the entry logs")
    aside = replace(new, index_rows_path(config))
    if mark is not None:
        await write_mark(files, config.ledger_path, Mark(mark.file_id, mark.sequence, rows.synced))
    return found, aside


async def rebuild_index(logs: EntryLogs, index: LedgerIndex, progress: Callable[[int, int, int], None]) -> Rebuilt:
    """Fill an empty index with what all logs hold, durably. Of two records of an entry the one written later counts.

    Args:
        progress: called with how many logs are done, of how many, and how many entries were found.

    Raises ``OSError`` when the index cannot be written.
    """
    found = Rebuilt()
    log_ids = await logs.ids()
    for log_id in log_ids:
        try:
            async for _ in _one_log(logs, index, log_id, found):
                progress(found.logs, len(log_ids), found.entries)
        except CorruptData as error:
            # The collector deletes and rewrites only logs that the index has begun: what lies behind the damage is kept.
            found.ends[log_id] = str(error)
        else:
            await index.log_began(log_id)
        found.logs += 1
        progress(found.logs, len(log_ids), found.entries)
    rows = [(ledger_key(each), LedgerRow(False, False, lac, NO_ENTRY, last).encode()) for each, (last, lac) in found.ledgers.items()]
    for first in range(0, len(rows), ROWS_MAX):
        await index.rows.write(rows[first : first + ROWS_MAX], sync=False)
    await index.rows.write([], sync=True)
    return found


async def _one_log(logs: EntryLogs, index: LedgerIndex, log_id: int, found: Rebuilt) -> AsyncIterator[None]:
    sizes_of: dict[int, int] = {}
    async with aclosing(logs.scan(log_id)) as chunks:
        async for chunk in chunks:
            ledger_id = chunk.ledger_id
            for first in range(0, len(chunk.locations), _RECORDS_AT_ONCE):
                some = chunk.locations[first : first + _RECORDS_AT_ONCE]
                whole: list[tuple[int, int, int]] = []  # entry, offset, size
                for (_, offset, size), data in zip(some, await logs.read(some), strict=True):
                    if isinstance(data, OSError) or not _is_of(data, ledger_id):
                        found.unreadable_records += 1
                        continue
                    _, _, entry_id, lac, _ = peek_ids(data)
                    whole.append((entry_id, offset, size))
                    last, greatest = found.ledgers.get(ledger_id, (NO_ENTRY, NO_ENTRY))
                    found.ledgers[ledger_id] = (max(last, entry_id), max(greatest, lac))
                sizes_of[ledger_id] = sizes_of.get(ledger_id, 0) + sum(size for _, _, size in some)
                rows = [index.log_ledger_row(log_id, ledger_id, sizes_of[ledger_id])]
                if whole:
                    entry_ids, offsets, sizes = zip(*whole, strict=True)
                    rows += entry_rows(ledger_id, entry_ids, log_id, offsets, sizes)
                await index.rows.write(rows, sync=False)
                found.entries += len(whole)
                yield


def _is_of(data: bytes | memoryview, ledger_id: int) -> bool:
    return matches_crc(data) and peek_ids(data)[1] == ledger_id
