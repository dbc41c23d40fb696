"""The chunks of a bookie's entry logs, past what is damaged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from pulsarish.bookie.entry_logs.entry_log import Chunk, EntryLogs
from pulsarish.bookie.entry_logs.entry_log_format import HEADER_SIZE, check_header
from pulsarish.bookie.inspection.directories import Damage, Inspected
from pulsarish.bookie.ledger_index import LedgerIndex, Location
from pulsarish.model.errors import ChecksumError, CorruptData
from pulsarish.wire.record import decode_entry_record, peek_ids, verify_record

__all__ = ["InspectedLogs", "LogRecord", "reason_of"]

_LANE: Final = "inspection"
_LOG_BYTES: Final = 1 << 30
"""Without effect: nothing is written."""
_RECORDS_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class LogRecord:
    """An entry as it lies in a log. ``damage`` says why it cannot be read; empty: it can be."""

    location: Location
    ledger_id: int
    entry_id: int
    lac: int
    length_bytes: int
    payload: bytes
    damage: str


@dataclass(slots=True)
class InspectedLogs:
    """The entry logs of all ledger directories, read on a lane of their own."""

    inspected: Inspected
    index: LedgerIndex
    _logs: list[EntryLogs] = field(default_factory=list)
    _place: dict[int, EntryLogs] = field(default_factory=dict)

    async def open(self) -> None:
        """Find which logs there are."""
        self._logs = [
            EntryLogs(
                self.inspected.files,
                self.index,
                directory,
                size_bytes=_LOG_BYTES,
                open_max=1,
                read_lane=_LANE,
            )
            for directory in self.inspected.ledgers
        ]
        self._place = {log_id: logs for logs in self._logs for log_id in await logs.ids()}

    @property
    def ids(self) -> list[int]:
        """Return the logs that had a file when they were listed, in order."""
        return sorted(self._place)

    def path(self, log_id: int) -> str:
        """Return a log's file; of one that is not there, where it should be."""
        return (self._place.get(log_id) or self._logs[0]).path(log_id)

    async def size_bytes(self, log_id: int) -> int:
        """Return the size of a log's file; 0 when it is gone. Raises ``OSError``."""
        try:
            return (await self._beginning(self.path(log_id)))[0]
        except FileNotFoundError:
            return 0

    async def walk(self, log_id: int) -> AsyncIterator[Chunk | Damage]:
        """Yield all chunks that can be found, and the damage between them.

        What follows the last chunk is no damage by itself: a crash leaves it, and the index points
        to what counts. A file that is gone, because the bookie collected it, has no chunks.
        """
        logs, path = self._place[log_id], self.path(log_id)
        end, size_bytes = HEADER_SIZE, 0
        try:
            size_bytes, head = await self._beginning(path)
            check_header(head, log_id, path)
        except FileNotFoundError:
            return
        except OSError as error:
            yield Damage(path, 0, f"cannot be read: {error}")
            return
        except CorruptData as error:
            # A log whose process ended before the header was written has no entries.
            yield Damage(path, 0, str(error), is_damage=size_bytes > HEADER_SIZE)
        begin: int | None = end
        while begin is not None:
            try:
                async with aclosing(logs.scan(log_id, start=begin)) as chunks:
                    async for chunk in chunks:
                        if chunk.locations:
                            end = chunk.locations[-1][1] + chunk.locations[-1][2]
                        yield chunk
                return
            except FileNotFoundError:
                return
            except (CorruptData, OSError) as error:
                reason = str(error)
            try:
                begin = await logs.next_chunk(log_id, end)
            except OSError as error:
                yield Damage(path, end, f"{reason}; what follows cannot be read: {error}")
                return
            if begin is None:
                yield Damage(path, end, f"{reason}, and none follows", is_damage=False)
            else:
                yield Damage(path, end, f"{reason}; the next one is at offset {begin}")
                end = begin

    async def _beginning(self, path: str) -> tuple[int, bytes]:
        """Return the size of a file, and its first bytes."""
        file = await self.inspected.files.open(path, lane=_LANE)
        try:
            return await file.size_bytes(), (await file.read([(0, HEADER_SIZE)]))[0]
        finally:
            await file.close()

    async def records(self, ledger_id: int, locations: Sequence[Location]) -> list[LogRecord]:
        """Read entries of a ledger where they lie, each checked."""
        found: list[LogRecord] = []
        for first in range(0, len(locations), _RECORDS_AT_ONCE):
            some = locations[first : first + _RECORDS_AT_ONCE]
            for location, data in zip(some, await self.read(some), strict=True):
                why = reason_of(data, ledger_id, None)
                if isinstance(data, OSError) or why:
                    found.append(LogRecord(location, ledger_id, -1, -1, -1, b"", why))
                    continue
                _, _, entry_id, lac, length = peek_ids(data)
                record = decode_entry_record(data, ledger_id, entry_id)
                found.append(
                    LogRecord(location, ledger_id, entry_id, lac, length, bytes(record.payload), "")
                )
        return found

    async def read(self, locations: Sequence[Location]) -> list[bytes | memoryview | OSError]:
        """Return the bytes at each location, or why they cannot be read."""
        found: list[bytes | memoryview | OSError] = [b""] * len(locations)
        by_logs: dict[int, list[int]] = {}
        for place, location in enumerate(locations):
            logs = self._place.get(location[0], self._logs[0])
            by_logs.setdefault(self._logs.index(logs), []).append(place)
        for number, places in by_logs.items():
            data = await self._logs[number].read([locations[place] for place in places])
            for place, each in zip(places, data, strict=True):
                found[place] = each
        return found

    async def close(self) -> None:
        for logs in self._logs:
            await logs.close()


def reason_of(data: bytes | memoryview | OSError, ledger_id: int, entry_id: int | None) -> str:
    """Return why these bytes are not the entry that they should be; empty: they are.

    ``entry_id``: ``None`` for any entry of the ledger.
    """
    if isinstance(data, OSError):
        return f"cannot be read: {data}"
    try:
        if entry_id is not None:
            _ = decode_entry_record(data, ledger_id, entry_id)
            return ""
        verify_record(data)
    except ChecksumError as error:
        return str(error)
    found = peek_ids(data)[1]
    return "" if found == ledger_id else f"the entry is of ledger {found}, not {ledger_id}"
