"""Read entries from the write cache, then by the index from the read cache or the entry logs, many
at a time. What a reader in order wants next is read before it asks (``ReadAhead``).

If the index has an entry and the log does not return it, that is an error and never "no such entry"
(rule 8). Every record read from a disk is checked against its CRC32C and its ids.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, cast

from pulsarish.bookie.entry_logs.entry_log import READ_LANE, RECOVERY_LANE, EntryLogs
from pulsarish.bookie.ledger_index import LedgerIndex, Location, entry_key
from pulsarish.bookie.ledger_state import LocalLedgerStates
from pulsarish.bookie.read_ahead import ReadAhead, Walk
from pulsarish.bookie.read_cache import ReadCache
from pulsarish.bookie.write_cache import WriteCache
from pulsarish.model.errors import (
    BookieIOError,
    ChecksumError,
    EntryUnknown,
    NoSuchEntry,
    NoSuchLedger,
)
from pulsarish.model.position import ID_MAX
from pulsarish.runtime.log import get_logger
from pulsarish.wire.bookie import ReadAnswer, ReadItem
from pulsarish.wire.record import decode_entry_record

__all__ = ["Admit", "Reader"]

_log = get_logger("bookie.reads")

_PAGE_ENTRIES: Final = 1000
_PAGE_FIRST: Final = 64
_RUN_ENTRIES_MIN: Final = 8  # from this many entries on a scan costs less than single look-ups

_Found = bytes | memoryview | Location | None
"""An entry in progress: its record, where it lies, or nothing."""

_Spot = tuple[list[_Found], int, "_Reading", int]
"""A place in a page that must be filled: the page, the place, its read, the entry."""


class _Reading:
    """One read in progress."""

    __slots__ = (
        "_end",
        "_next",
        "_span",
        "answer",
        "done",
        "item",
        "log_bytes",
        "log_entries",
        "next_entry",
        "put_off",
        "size_bytes",
        "walk",
    )

    def __init__(self, item: ReadItem) -> None:
        self.item = item
        self.answer = ReadAnswer(item.request_id, 0)
        self.size_bytes = 0
        self.done = False
        self.put_off = False  # its records did not fit into the answer any more
        self.walk: Walk | None = None
        self.next_entry = -1  # behind the last one that was found; -1: none was
        self.log_entries = self.log_bytes = 0  # what was found in the logs
        self._span = 0
        self._next = 0
        self._end = -1

    def page_entries(self, entries_max: int) -> int:
        """Return how many entries the rest of the answer may take, by the size of those before."""
        if self.answer.records:
            entry_bytes = self.size_bytes / len(self.answer.records)
        elif self.walk is not None and self.walk.entry_bytes:
            entry_bytes = self.walk.entry_bytes
        else:
            return min(_PAGE_FIRST, entries_max)
        return min(int((self.item.max_bytes - self.size_bytes) / entry_bytes) + 1, entries_max)

    def page(self, entries_max: int) -> list[int]:
        """Return the next entries that the read wants."""
        wanted: list[int] = []
        while len(wanted) < entries_max:
            if self._next > self._end:
                if self._span == len(self.item.spans):
                    break
                self._next, end = self.item.spans[self._span]
                self._end = min(end, ID_MAX)
                self._span += 1
                continue
            last = min(self._end, self._next + entries_max - len(wanted) - 1)
            wanted.extend(range(self._next, last + 1))
            self._next = last + 1
        if not wanted:
            self.done = True
        return wanted

    def fits(self, size: int) -> bool:
        """Return whether a record of this size may be added; the first one always may."""
        return not self.size_bytes or self.size_bytes + size <= self.item.max_bytes

    def take(self, entry_id: int, record: bytes | memoryview) -> None:
        self.answer.records.append(record)
        self.size_bytes += len(record)
        self.next_entry = entry_id + 1

    def end(self, code: int) -> None:
        self.answer.code = code
        self.done = True


_Page = tuple[_Reading, list[int], list[_Found]]
"""The next entries of a read, and what was found of each."""

Admit = Callable[[int], Awaitable[None]]
"""A function that waits for room for an answer of at most this many bytes."""


def _size(found: bytes | memoryview | Location) -> int:
    return found[2] if isinstance(found, tuple) else len(found)


def _fitting(pages: Sequence[_Page], limit_bytes: int) -> tuple[list[_Page], int]:
    """Return the pages of the reads that fit into an answer, and the most bytes that they give.

    The first page always fits. The reads that do not fit are postponed.
    """
    size_bytes = 0
    for place, (reading, _, found) in enumerate(pages):
        first = found[0]
        # A read gives its first record however large it is, and no more than its limit otherwise.
        need = 0 if first is None else max(_size(first), reading.item.max_bytes)
        if place and size_bytes + need > limit_bytes:
            for other, _, _ in pages[place:]:
                other.put_off = other.done = True
            return list(pages[:place]), size_bytes
        size_bytes += need
    return list(pages), size_bytes


class Reader:
    """Read from all the places where an entry can be."""

    def __init__(
        self,
        *,
        cache: WriteCache,
        read_cache: ReadCache,
        states: LocalLedgerStates,
        index: LedgerIndex,
        logs: EntryLogs,
        ahead: ReadAhead,
    ) -> None:
        self.entries_read = 0
        self.bytes_read = 0
        self.failures = 0
        self._cache = cache
        self._read_cache = read_cache
        self._states = states
        self._index = index
        self._logs = logs
        self._ahead = ahead

    async def read(
        self,
        items: Sequence[ReadItem],
        limit_bytes: int = 0,
        admit: Admit | None = None,
        *,
        lane: str = READ_LANE,
    ) -> list[ReadAnswer]:
        """Answer reads together: one index look-up and one read of each log for all of them, page
        after page.

        Args:
            limit_bytes: the most that all records together may have; one larger record goes alone.
                0: no limit.
            admit: awaited before any record is read from a disk, with the most bytes that all
                records together will have.
            lane: the disk lane for reads of the entry logs.

        Returns:
            The answers, in order. With a limit, as many as fit, and at least one: the caller asks
            again for the rest.
        """
        readings = [_Reading(item) for item in items]
        for reading in readings:
            if reading.item.may_cache and reading.item.spans and lane == READ_LANE:
                reading.walk = self._ahead.begin(reading.item.ledger_id, reading.item.spans[0][0])
        open_readings = readings
        first = True
        while open_readings:
            try:
                pages = await self._locate(
                    open_readings, max(_PAGE_FIRST, _PAGE_ENTRIES // len(open_readings))
                )
                if first and limit_bytes:
                    pages, size_bytes = _fitting(pages, limit_bytes)
                    if admit is not None:
                        await admit(size_bytes)
                first = False
                await self._fetch(pages, lane)
                for reading, wanted, found in pages:
                    await self._finish(reading, wanted, found)
            except Exception as error:  # noqa: BLE001
                # After any error it is unknown what is stored, which never means "not there".
                _log.error(
                    "reads fail, because the index cannot be read",
                    exception=error,
                    reads=len(open_readings),
                )
                for reading in open_readings:
                    self.failures += 1
                    reading.end(BookieIOError.code)
            open_readings = [reading for reading in open_readings if not reading.done]
        answers: list[ReadAnswer] = []
        for reading in readings:
            if reading.put_off:
                break
            self.entries_read += len(reading.answer.records)
            self.bytes_read += reading.size_bytes
            if reading.walk is not None and not reading.answer.code and reading.next_entry >= 0:
                self._ahead.end(
                    reading.walk, reading.next_entry, reading.log_entries, reading.log_bytes
                )
            answers.append(reading.answer)
        return answers

    async def stored(
        self, wanted: Sequence[tuple[int, int]]
    ) -> dict[tuple[int, int], bytes | memoryview | None]:
        """Return the records of single entries, ``None`` where there is none.

        Raises ``BookieIOError`` when one of them cannot be read.
        """
        found: dict[tuple[int, int], bytes | memoryview | None] = {}
        for (ledger_id, entry_id), answer in zip(
            wanted,
            await self.read(
                [
                    ReadItem(0, ledger_id, [(entry_id, entry_id)], 0)
                    for ledger_id, entry_id in wanted
                ],
                lane=RECOVERY_LANE,
            ),
            strict=True,
        ):
            if answer.records:
                found[ledger_id, entry_id] = answer.records[0]
            elif answer.code in (NoSuchEntry.code, NoSuchLedger.code, EntryUnknown.code):
                found[ledger_id, entry_id] = None
            else:
                raise BookieIOError(
                    f"entry {entry_id} of ledger {ledger_id} is stored and cannot be read"
                )
        return found

    async def list_entries(self, ledger_id: int, first: int, last: int) -> tuple[int, list[int]]:
        """Return ``(code, entries)``: the entries from ``first`` to ``last`` that are here, in
        order, without reading them.

        A bookie that may have lost entries answers ``EntryUnknown`` and no entries. Raises
        ``BookieIOError``.
        """
        # The cache first: an entry leaves it only after the index has it.
        cached = self._cache.entry_ids(ledger_id, first, last)
        found = await self._index.entry_ids(ledger_id, first, last)
        if cached:
            found = sorted(dict.fromkeys([*found, *cached]))
        state = await self._states.get(ledger_id)
        if state.limbo:
            return EntryUnknown.code, []
        return (0 if found or state.exists else NoSuchLedger.code), found

    async def _locate(self, readings: Sequence[_Reading], entries_max: int) -> list[_Page]:
        """Return the next page of each read: the entries that it wants, and their records or
        locations.
        """
        pages: list[_Page] = []
        keys: list[bytes] = []
        places: list[tuple[list[_Found], int]] = []
        get = self._cache.get
        for reading in readings:
            wanted = reading.page(reading.page_entries(entries_max))
            if reading.done:
                continue
            ledger_id = reading.item.ledger_id
            found: list[_Found] = [get(ledger_id, entry_id) for entry_id in wanted]
            pages.append((reading, wanted, found))
        # An entry that is in neither the cache now nor the index afterwards was not here when this
        # began: an entry leaves the cache only after the index has it.
        for reading, wanted, found in pages:
            missing = [place for place, record in enumerate(found) if record is None]
            if not missing:
                continue
            first, last = wanted[missing[0]], wanted[missing[-1]]
            if len(missing) >= _RUN_ENTRIES_MIN and last - first == len(missing) - 1:
                locations = await self._index.run_of_locations(
                    reading.item.ledger_id, first, len(missing)
                )
                for place, location in zip(missing, locations, strict=True):
                    found[place] = location
            else:
                keys += [entry_key(reading.item.ledger_id, wanted[place]) for place in missing]
                places += [(found, place) for place in missing]
        if keys:
            for (found, place), location in zip(
                places, await self._index.locations(keys), strict=True
            ):
                found[place] = location
        return pages

    async def _fetch(self, pages: Sequence[_Page], lane: str) -> None:
        """Replace the needed locations by the records that lie there."""
        kept = self._read_cache
        needed: list[Location] = []
        places: list[_Spot] = []
        again_from: list[tuple[int, int]] = []  # ranges of ``needed`` that were read before
        walks: list[tuple[Walk, int, int]] = []  # and those of readers in order
        for reading, wanted, found in pages:
            start = len(needed)
            for place, location in self._choose(reading, wanted, found):
                needed.append(location)
                places.append((found, place, reading, wanted[place]))
            count = len(needed) - start
            if not count:
                continue
            reading.log_entries += count
            reading.log_bytes += sum(location[2] for location in needed[start:])
            if reading.walk is not None and reading.walk.pieces:
                walks.append((reading.walk, start, len(needed)))
            if reading.item.may_cache and kept.limit_bytes > 0:
                first, last = places[start][3], places[-1][3]
                if kept.missed(reading.item.ledger_id, first, last, count):
                    again_from.append((start, len(needed)))
        if not needed:
            return
        again: list[_Spot] = []
        for spot, location, data in zip(
            places, needed, await self._read_places(needed, walks, lane), strict=True
        ):
            if isinstance(data, OSError):
                again.append(spot)
                continue
            item = spot[2].item
            checked = self._checked(data, item.ledger_id, spot[3], location)
            spot[0][spot[1]] = checked
        for start, end in again_from:
            good = [
                (location, record)
                for location, (found, place, _, _) in zip(
                    needed[start:end], places[start:end], strict=True
                )
                if (record := found[place]) is not None and not isinstance(record, tuple)
            ]
            kept.put([location for location, _ in good], [record for _, record in good])
        if again:
            await self._fetch_moved(again, lane)

    def _choose(
        self, reading: _Reading, wanted: Sequence[int], found: list[_Found]
    ) -> list[tuple[int, Location]]:
        """Return the places of a page whose records fit into the answer and lie in a log, and
        where. Those that the read cache has are put into the page.
        """
        kept = self._read_cache
        room = reading.item.max_bytes - reading.size_bytes
        started = bool(reading.size_bytes)
        is_known = (
            reading.item.may_cache
            and kept.limit_bytes > 0
            and kept.may_have(reading.item.ledger_id, wanted[0], wanted[-1])
        )
        chosen: list[tuple[int, Location]] = []
        for place, record in enumerate(found):
            if record is None:
                break
            size = _size(record)
            if started and size > room:
                break
            started = True
            room -= size
            if isinstance(record, tuple):
                if is_known and (here := kept.get(record)) is not None:
                    found[place] = here
                else:
                    chosen.append((place, record))
        return chosen

    async def _read_places(
        self, needed: Sequence[Location], walks: Sequence[tuple[Walk, int, int]], lane: str
    ) -> list[bytes | memoryview | OSError]:
        """Return the bytes at each place: those that were read ahead, and the others with one read
        of each log.
        """
        if not walks:
            return await self._logs.read(needed, lane)
        data: list[bytes | memoryview | OSError | None] = [None] * len(needed)
        for walk, start, end in walks:
            here = await self._ahead.take(walk, needed[start:end])
            data[start:end] = [here.get(location) for location in needed[start:end]]
        missing = [at for at, each in enumerate(data) if each is None]
        if missing:
            read = await self._logs.read([needed[at] for at in missing], lane)
            for at, each in zip(missing, read, strict=True):
                data[at] = each
        return cast("list[bytes | memoryview | OSError]", data)

    async def _fetch_moved(self, spots: Sequence[_Spot], lane: str) -> None:
        """Read entries again whose log could not be read.

        Compaction may have moved them and deleted the log after the index was asked. This asks the
        index once more.
        """
        locations = await self._index.locations(
            [entry_key(reading.item.ledger_id, entry_id) for _, _, reading, entry_id in spots]
        )
        for (found, place, reading, entry_id), location in zip(spots, locations, strict=True):
            if location is None:
                found[place] = None  # the entry was deleted in the meantime
                continue
            data = (await self._logs.read([location], lane))[0]
            if not isinstance(data, OSError):
                found[place] = self._checked(data, reading.item.ledger_id, entry_id, location)
            # Otherwise the location stays: the index points to an unreadable place.

    def _checked(
        self, data: bytes | memoryview, ledger_id: int, entry_id: int, location: Location
    ) -> _Found:
        """Return the record, or its location again when these bytes are not the record."""
        try:
            decode_entry_record(data, ledger_id, entry_id)
        except ChecksumError:
            return location
        return data

    async def _finish(
        self, reading: _Reading, wanted: Sequence[int], found: Sequence[_Found]
    ) -> None:
        for entry_id, record in zip(wanted, found, strict=True):
            if record is None:
                reading.end(await self._absent_code(reading.item.ledger_id))
                return
            size = _size(record)
            if not reading.fits(size):
                reading.done = True
                return
            if isinstance(record, tuple):
                self.failures += 1
                reading.end(BookieIOError.code)
                return
            reading.take(entry_id, record)
        if reading.size_bytes >= reading.item.max_bytes:
            reading.done = True

    async def _absent_code(self, ledger_id: int) -> int:
        """Return the code for an absent entry.

        A bookie that may have lost entries never says "not there".
        """
        state = await self._states.get(ledger_id)
        if state.limbo:
            return EntryUnknown.code
        return NoSuchEntry.code if state.exists else NoSuchLedger.code
