"""Build a new index from the entry logs of a bookie whose index is damaged.

The logs say which entries exist and where. They do not say which ledgers were fenced or deleted,
and entries cut off the end of a log are not missed. So every ledger id that the metadata have given
out by now is in limbo afterwards (rule 7). The bookie answers "unknown" instead of "not there",
refuses the adds of writers to these ledgers, and auto-recovery repairs one ledger after another.
The next start replays what the journal holds above the mark, fences included, as always.

A kill tears the end of the log that is written. What is whole in it counts as in all others, and
the log is collected as they are: what the torn end had is in the journal above the mark. A log that
is damaged, with whole chunks behind the damage, is another matter. These are not believed, because
an entry's payload may look like a chunk; and they are not deleted, as they may be the last copies.

The logs do not know the trash either. A ledger that was in the trash belongs to this bookie again,
in limbo as all others. Garbage collection puts it into the trash once more, because the metadata do
not name it. Its grace period begins again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.entry_logs.entry_log import EntryLogs
from pulsarish.bookie.entry_logs.entry_log_format import HEADER_SIZE
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
    """The result of a scan of all logs."""

    entries: int = 0
    logs: int = 0
    ledgers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The last entry of each ledger, and the greatest LAC that came with one."""
    unreadable_records: int = 0
    torn: dict[int, str] = field(default_factory=dict)
    """Logs that end within a chunk, as a kill leaves the log that is written, and where. They are
    served and collected as all others.
    """
    damaged: dict[int, str] = field(default_factory=dict)
    """Logs that cannot be read up to whole chunks that follow, and why. They are never collected.
    """


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
    """Replace the index of a stopped bookie by a new one. After an interruption, run it again.

    Args:
        config: that of one volume.
        given_out: an id above those of all ledgers, by the metadata.
        remove: removes what an earlier attempt has left of a new index.
        replace: puts a closed index in the place of another, and returns where the old one is now.

    Raises ``Locked`` for a running bookie, ``NotFound`` where there is none, ``CorruptData`` for a
    mark that cannot be read, and ``OSError``.
    """
    for directory in config.paths:
        await files.lock(directory)
    if not await has_data(files, config):
        raise NotFound(f"{config.journal_path} and {config.ledger_path} hold no data of a bookie")
    ledgers_below = await given_out()
    mark = await read_mark(files, config.ledger_path)
    new = index_rows_path(config) + ".rebuilt"
    remove(new)
    rows = await open_index(new)
    index = LedgerIndex(rows)
    logs = EntryLogs(
        files, index, config.ledger_path, size_bytes=config.entry_log_size_bytes, open_max=1
    )
    found = await rebuild_index(logs, index, progress)
    await logs.close()
    await rows.close()
    # Keep this order: no negative is answered from the new index before the limbo is stored.
    limbo = Limbo(files, config.ledger_path)
    await limbo.load()
    await limbo.enter(
        max([ledgers_below, *(ledger_id + 1 for ledger_id in found.ledgers)]),
        "the index was rebuilt from the entry logs",
    )
    aside = replace(new, index_rows_path(config))
    if mark is not None:
        await write_mark(files, config.ledger_path, Mark(mark.file_id, mark.sequence, rows.synced))
    return found, aside


async def rebuild_index(
    logs: EntryLogs, index: LedgerIndex, progress: Callable[[int, int, int], None]
) -> Rebuilt:
    """Fill an empty index with what all logs hold, durably.

    Of two records of an entry the later one counts.

    Args:
        progress: called with the number of logs done, the number of all logs, and the entries
            found.

    Raises ``OSError`` when the index cannot be written, or a log not be read.
    """
    found = Rebuilt()
    log_ids = await logs.ids()
    for log_id in log_ids:
        end = HEADER_SIZE
        try:
            async for offset in _one_log(logs, index, log_id, found):
                end = offset
                progress(found.logs, len(log_ids), found.entries)
        except CorruptData as error:
            if (at := await logs.next_chunk(log_id, end)) is None:
                found.torn[log_id] = str(error)
            else:
                found.damaged[log_id] = f"{error}; the next one is at offset {at}"
        # The collector deletes and rewrites only logs that the index has begun, so what follows
        # damage is kept.
        if log_id not in found.damaged:
            await index.log_began(log_id)
        found.logs += 1
        progress(found.logs, len(log_ids), found.entries)
    rows = [
        (ledger_key(each), LedgerRow(False, False, lac, NO_ENTRY, last).encode())
        for each, (last, lac) in found.ledgers.items()
    ]
    for first in range(0, len(rows), ROWS_MAX):
        await index.rows.write(rows[first : first + ROWS_MAX], sync=False)
    await index.rows.write([], sync=True)
    return found


async def _one_log(
    logs: EntryLogs, index: LedgerIndex, log_id: int, found: Rebuilt
) -> AsyncIterator[int]:
    """Put the entries of a log into the index. Yield how far, as an offset."""
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
                sizes_of[ledger_id] = sizes_of.get(ledger_id, 0) + sum(size for _, _, size in whole)
                rows = [index.log_ledger_row(log_id, ledger_id, sizes_of[ledger_id])]
                if whole:
                    entry_ids, offsets, sizes = zip(*whole, strict=True)
                    rows += entry_rows(ledger_id, entry_ids, log_id, offsets, sizes)
                await index.rows.write(rows, sync=False)
                found.entries += len(whole)
                yield some[-1][1] + some[-1][2]


def _is_of(data: bytes | memoryview, ledger_id: int) -> bool:
    return matches_crc(data) and peek_ids(data)[1] == ledger_id
