"""Read all entries on disk from time to time, to find bit rot before the other copies are needed.

An indexed entry that cannot be read, or does not match its CRC32C, is read once more as for a
client, because compaction may have moved it in the meantime. Only if that read fails, too, the
entry is damaged. Its ledger is then published as under-replicated on this bookie, and auto-recovery
writes the entry again from another replica, onto this bookie. Until then a read of it is answered
with an error, never with "no such entry" (rule 8).

Then the entry logs are compared with the index. A confirmed entry that lies in a log and is missing
in the index is published, too, unless the ledger names other bookies for it: then this bookie has
deleted its copy.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Final

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.entry_logs.entry_log import Chunk, EntryLogs
from pulsarish.bookie.ledger_index import ROWS_MAX, entry_key
from pulsarish.bookie.store import EntryStore
from pulsarish.bookie.stray_copies import Span, unnamed_spans
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.model.errors import (
    BookieIOError,
    ChecksumError,
    CorruptData,
    MetadataUnavailable,
    NoSuchEntry,
)
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.rate_limiter import RateLimiter
from pulsarish.runtime.seams import Clock, Files
from pulsarish.wire.bookie import ReadItem
from pulsarish.wire.record import decode_entry_record, matches_crc, peek_ids

__all__ = ["Scrubber"]

_log = get_logger("bookie.scrub")
_PAGE_ENTRIES: Final = 200
_LANE: Final = "scrub"


class Scrubber:
    """Scrub all entries in rounds. ``scrub`` is one round."""

    def __init__(
        self,
        store: EntryStore,
        ledgers: LedgerStore,
        files: Files,
        clock: Clock,
        config: BookieConfig,
    ) -> None:
        self.rounds = 0
        self.entries = 0
        self.bytes = 0
        self.damaged = 0
        """Entries found damaged, or missing in the index.

        Each round counts them again until they are repaired.
        """
        self._stopping = False
        self._busy = asyncio.Lock()
        self._store = store
        self._ledgers = ledgers
        self._rate = RateLimiter(clock, config.local_scrub_rate_bytes)
        # Files and a lane of its own: clients' reads do not wait for them.
        self._logs = EntryLogs(
            files,
            store.index,
            config.ledger_path,
            size_bytes=config.entry_log_size_bytes,
            open_max=1,
            read_lane=_LANE,
        )
        self._unpublished: dict[int, None] = {}
        # by ledger, while one log is compared
        self._unnamed: dict[int, list[Span]] = {}

    async def scrub(self) -> None:
        """Run one round, at ``local_scrub_rate_bytes``."""
        async with self._busy:
            try:
                await self._scrub_all()
                for log_id in await self._store.index.logs_begun():
                    if self._stopping:
                        return
                    await self._scrub_log(log_id)
            except BookieIOError as error:
                _log.error("the round ends here, because the index could not be read", reason=error)
                return
            await self._logs.close()  # it may hold the last of a log that was deleted
            self.rounds += 1

    async def _scrub_all(self) -> None:
        after = -1
        while page := await self._store.index.ledgers(after, ROWS_MAX):
            for ledger_id, _ in page:
                if self._stopping:
                    return
                await self._scrub_ledger(ledger_id)
            after = page[-1][0]

    async def stop(self) -> None:
        """Stop, and return when no read is under way."""
        self._stopping = True
        async with self._busy:
            await self._logs.close()

    async def _scrub_ledger(self, ledger_id: int) -> None:
        next_entry = 0
        while rows := await self._store.index.entry_locations(ledger_id, next_entry, _PAGE_ENTRIES):
            if self._stopping:
                return
            size_bytes = 0
            for (entry_id, location), data in zip(
                rows, await self._logs.read([location for _, location in rows]), strict=True
            ):
                size_bytes += location[2]
                if not _is_whole(data, ledger_id, entry_id) and await self._is_damaged(
                    ledger_id, entry_id
                ):
                    self.damaged += 1
                    _log.error(
                        "an entry at rest is damaged",
                        ledger=ledger_id,
                        entry=entry_id,
                        log=location[0],
                        offset=location[1],
                    )
                    self._unpublished[ledger_id] = None
            self.entries += len(rows)
            self.bytes += size_bytes
            next_entry = rows[-1][0] + 1
            await self._rate.take(size_bytes)
        await self._publish()

    async def _scrub_log(self, log_id: int) -> None:
        """Find confirmed entries that the log has and the index does not, in ledgers that are
        here.
        """
        logs, index = self._logs, self._store.index
        self._unnamed = {}
        if log_id == self._store.logs.current_id or log_id not in await logs.ids():
            return
        try:
            async with aclosing(logs.scan(log_id)) as chunks:
                async for chunk in chunks:
                    row = (await index.ledger_rows([chunk.ledger_id]))[0]
                    if row is not None:
                        await self._scrub_chunk(chunk, max(row.lac, row.explicit_lac))
                    await self._rate.take(sum(size for _, _, size in chunk.locations))
                    if self._stopping:
                        return
        except (CorruptData, OSError) as error:
            # Usually torn by a crash, or collected in the meantime. The entries of it that the
            # index has were read before.
            _log.debug(
                "comparison of an entry log with the index ended early", log=log_id, reason=error
            )
        await self._publish()

    async def _scrub_chunk(self, chunk: Chunk, lac: int) -> None:
        ledger_id = chunk.ledger_id
        for first in range(0, len(chunk.locations), _PAGE_ENTRIES):
            found = await self._logs.read(chunk.locations[first : first + _PAGE_ENTRIES])
            # A record that does not match its CRC32C proves nothing: its ids may be those of an
            # entry that was never here.
            ids = [
                peek_ids(data)
                for data in found
                if not isinstance(data, OSError) and matches_crc(data)
            ]
            # No entry above the LAC was acknowledged: a crash may have lost its journal record and
            # left it in the log.
            entry_ids = [
                entry_id
                for _, ledger, entry_id, _, _ in ids
                if ledger == ledger_id and 0 <= entry_id <= lac
            ]
            places = await self._store.index.locations(
                [entry_key(ledger_id, entry_id) for entry_id in entry_ids]
            )
            for entry_id, place in zip(entry_ids, places, strict=True):
                if (
                    place is None
                    and await self._is_named(ledger_id, entry_id)
                    and await self._is_missing(ledger_id, entry_id)
                ):
                    self.damaged += 1
                    _log.error(
                        "the index lacks an entry that a log has",
                        ledger=ledger_id,
                        entry=entry_id,
                        log=chunk.locations[0][0],
                    )
                    self._unpublished[ledger_id] = None

    async def _is_named(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether the metadata may name this bookie for an entry."""
        if ledger_id not in self._unnamed:
            try:
                found = await self._ledgers.read(ledger_id)
            except (MetadataUnavailable, CorruptData):
                return True
            self._unnamed[ledger_id] = (
                [] if found is None else unnamed_spans(found[0], self._store.instance_id)
            )
        return not any(first <= entry_id <= last for first, last in self._unnamed[ledger_id])

    async def _is_missing(self, ledger_id: int, entry_id: int) -> bool:
        """Return whether a read of this entry answers "not there", for a ledger that is not
        deleted.
        """
        answer = (
            await self._store.reader.read([ReadItem(0, ledger_id, [(entry_id, entry_id)], 1)])
        )[0]
        return answer.code == NoSuchEntry.code

    async def _is_damaged(self, ledger_id: int, entry_id: int) -> bool:
        answer = (
            await self._store.reader.read([ReadItem(0, ledger_id, [(entry_id, entry_id)], 1)])
        )[0]
        return answer.code == BookieIOError.code

    async def _publish(self) -> None:
        try:
            while self._unpublished:
                ledger_id = next(iter(self._unpublished))
                _ = await self._ledgers.publish_found(
                    ledger_id, (self._store.instance_id,), below_policy=False
                )
                del self._unpublished[ledger_id]
        except MetadataUnavailable as error:
            _log.warning(
                "damaged ledgers are published later", ledgers=len(self._unpublished), reason=error
            )


def _is_whole(data: bytes | memoryview | OSError, ledger_id: int, entry_id: int) -> bool:
    if isinstance(data, OSError):
        return False
    try:
        decode_entry_record(data, ledger_id, entry_id)
    except ChecksumError:
        return False
    return True
