"""Verify what is on a bookie's disks: all checksums, the index against the logs in both directions,
and all of it against the metadata.

The bookie may run meanwhile. So nothing counts as wrong before a second look, with what the index
and the journal have by then: compaction moves entries, checkpoints write them, and collection
deletes them. An entry is here if the index has it, or if a start would replay it from the journal.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pulsarish.bookie.inspection.directories import Damage, Inspected
from pulsarish.bookie.inspection.journals import (
    check_journal,
    describe,
    files_of,
)
from pulsarish.bookie.inspection.ledgers import LedgerFacts, ledgers_here
from pulsarish.bookie.inspection.logs import InspectedLogs, reason_of
from pulsarish.bookie.inspection.looks import Look, absent_entries, looking_at
from pulsarish.bookie.ledger_index import LedgerIndex, Location, entry_key
from pulsarish.metadata import paths
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie, VolumeRecord
from pulsarish.model.errors import BookieIOError, CorruptData
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.wire.json_record import decode_record
from pulsarish.wire.record import peek_ids

__all__ = ["Counts", "Finding", "FindingKind", "Verification"]

_PAGE_ENTRIES: Final = 500
_LOOKS: Final = 3
"""Looks at a journal that is written meanwhile, before damage counts."""


class FindingKind(StrEnum):
    COOKIE = "cookie"
    MARK = "mark"
    JOURNAL = "journal"
    INDEX = "index"
    ENTRY_UNREADABLE = "entry-unreadable"
    ENTRY_NOT_IN_INDEX = "entry-not-in-index"
    LOG_DAMAGED = "log-damaged"
    LOG_UNKNOWN = "log-unknown"
    LEDGER_MISSING = "ledger-missing"
    ENTRIES_MISSING = "entries-missing"
    LEDGER_UNNAMED = "ledger-unnamed"
    METADATA = "metadata"


@dataclass(slots=True)
class Finding:
    """Something that is not as it should be.

    Of one kind and ledger, or of one kind and file, there is one finding.
    """

    kind: FindingKind
    reason: str
    decides: str
    """What an operator does about it."""
    is_wrong: bool = True
    """``False``: the bookie may put it in order by itself."""
    path: str = ""
    offset: int | None = None
    ledger_id: int | None = None
    entries: list[int] = field(default_factory=list)

    @property
    def where(self) -> str:
        """Return the ledger, the entries and the place, for people."""
        parts: list[str] = []
        if self.ledger_id is not None:
            parts.append(f"ledger {self.ledger_id}")
        if self.entries:
            first, last = min(self.entries), max(self.entries)
            parts.append(
                f"entry {first}"
                if first == last
                else f"{len(self.entries)} of the entries {first} to {last}"
            )
        if self.path:
            parts.append(self.path if self.offset is None else f"{self.path} at {self.offset}")
        return ", ".join(parts)

    def row(self) -> dict[str, object]:
        """Return the fields as the command prints them."""
        return {
            "finding": str(self.kind),
            "wrong": self.is_wrong,
            "ledger": self.ledger_id,
            "entries": len(self.entries) or None,
            "first": min(self.entries, default=None),
            "last": max(self.entries, default=None),
            "file": self.path or None,
            "offset": self.offset,
            "reason": self.reason,
            "decides": self.decides,
        }


@dataclass(slots=True)
class Counts:
    """What was verified."""

    journal_records: int = 0
    ledgers: int = 0
    index_entries: int = 0
    logs: int = 0
    log_entries: int = 0
    log_bytes: int = 0
    metadata_ledgers: int = 0


@dataclass(slots=True)
class _LogRead:
    """What one pass over a log found."""

    entries: int = 0
    size_bytes: int = 0
    damages: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    """By offset: why it cannot be read, and of which ledger it is, where that is known."""
    missing: list[tuple[int, int]] = field(default_factory=list)
    """Confirmed entries that the index did not have."""


class Verification:
    """One verification. ``run`` does it once.

    Args:
        bookie_id: the bookie's id, for what to do about a finding.
        rate: awaited with the number of bytes that were read.
        others: the other volumes of the bookie. Only the metadata are compared with them, too.
        progress: called with what is verified now, and how much of it is done.
    """

    def __init__(
        self,
        inspected: Inspected,
        bookie_id: str,
        *,
        rate: Callable[[float], Awaitable[None]],
        others: Sequence[Inspected] = (),
        progress: Callable[[str, int], None] = lambda _what, _done: None,
    ) -> None:
        # by log: where the last entry that the index needs begins
        self._needed_up_to: dict[int, int] = {}
        self.counts = Counts()
        self._inspected = inspected
        self._bookie_id = bookie_id
        self._whole = [inspected, *others]
        self._rate = rate
        self._progress = progress
        self._findings: dict[tuple[FindingKind, int | str], Finding] = {}

    @property
    def findings(self) -> list[Finding]:
        return list(self._findings.values())

    @property
    def is_wrong(self) -> bool:
        return any(each.is_wrong for each in self._findings.values())

    async def run(self, records: Records | None, *, compares: bool = True) -> None:
        """Verify everything. ``records``: the metadata; ``None``: not against them.

        ``compares``: whether the ledgers of the metadata are looked for. That is about all volumes
        together.
        """
        await self._verify_cookies()
        # Before the journal, which only grows.
        cookie = await _stored_cookie(records, self._bookie_id)
        durable_below = 0 if cookie is None else await _durable_below(cookie, self._inspected)
        is_mark_good = await self._verify_journals(durable_below)
        try:
            async with self._opened() as (indexes, _):
                for opened in indexes:
                    self.counts.ledgers += len(await ledgers_here(self._inspected, [opened]))
            await self._verify_index()
        except (CorruptData, BookieIOError, OSError) as error:
            path = self._inspected.indexes[0]
            self._add(Finding(FindingKind.INDEX, str(error), _REBUILD, path=path), "index")
            return
        if is_mark_good:
            await self._verify_logs()
            if records is not None and compares:
                await self._compare(records, cookie)

    def _add(self, finding: Finding, key: int | str) -> None:
        found = self._findings.setdefault((finding.kind, key), finding)
        if found is not finding:
            found.entries += finding.entries

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[tuple[list[LedgerIndex], InspectedLogs]]:
        """Yield the indexes and the logs as they are now."""
        async with self._inspected.opened_indexes() as found:
            for each in found:
                if each.missing:
                    self._add(
                        Finding(FindingKind.INDEX, each.missing, _REBUILD, path=each.path),
                        each.path,
                    )
            indexes = [each.index for each in found]
            logs = InspectedLogs(self._inspected, indexes[0])
            await logs.open()
            try:
                yield indexes, logs
            finally:
                await logs.close()

    def _recover(self, ledger_id: int) -> str:
        return f"pulsarish bookies recover {self._bookie_id} --ledger {ledger_id}"

    async def _verify_cookies(self) -> None:
        seen: dict[str, str] = {}
        for directory in self._inspected.cookies:
            try:
                cookie = await self._inspected.cookie_in(directory)
                reason = "there is no cookie" if cookie is None else ""
            except (CorruptData, OSError) as error:
                cookie, reason = None, str(error)
            if cookie is not None:
                seen[directory] = cookie.instance_id
                if cookie.instance_id != next(iter(seen.values())):
                    reason = f"the cookie is of {cookie.instance_id}, the one in "
                    reason += f"{next(iter(seen))} of {next(iter(seen.values()))}"
            if reason:
                self._add(
                    Finding(
                        FindingKind.COOKIE,
                        reason,
                        "put the right directories together, or: pulsarish storage cookie create",
                        path=directory,
                    ),
                    directory,
                )

    async def _verify_journals(self, durable_below: int) -> bool:
        """Verify the mark, and what a start would replay. Return whether the mark can be read."""
        try:
            mark = await self._inspected.mark()
        except (CorruptData, OSError) as error:
            self._add(
                Finding(FindingKind.MARK, str(error), _RESTORE, path=self._inspected.ledgers[0]), ""
            )
            return False
        for directory in self._inspected.journals:
            for look in range(_LOOKS):
                try:
                    now = mark if not look else await self._inspected.mark()
                    await check_journal(
                        self._inspected, directory, now, durable_below=durable_below
                    )
                except (CorruptData, OSError) as error:
                    if look == _LOOKS - 1:
                        self._add(
                            Finding(FindingKind.JOURNAL, str(error), _RESTORE, path=directory),
                            directory,
                        )
                else:
                    break
        async for file in files_of(self._inspected):
            await self._rate(file.size_bytes)
            for record in file.records:
                if mark is not None and record.sequence < mark.sequence:
                    continue
                self.counts.journal_records += 1
                item = describe(file.path, record)
                if isinstance(item, Damage):
                    self._add(
                        Finding(
                            FindingKind.JOURNAL,
                            item.reason,
                            _RESTORE,
                            path=item.path,
                            offset=item.offset,
                        ),
                        f"{item.path}:{item.offset}",
                    )
        return True

    async def _verify_index(self) -> None:
        """Read every entry where the index says that it lies."""
        start: tuple[int, int] = (0, 0)
        async with self._opened() as (indexes, logs):
            for number, index in enumerate(indexes):
                start = (0, 0)
                while page := await index.locations_from(*start, _PAGE_ENTRIES):
                    for _, _, (log_id, offset, _) in page:
                        self._needed_up_to[log_id] = max(self._needed_up_to.get(log_id, -1), offset)
                    bad = await self._unreadable(logs, page)
                    if bad:
                        await self._look_again(number, bad)
                    self.counts.index_entries += len(page)
                    self._progress("entries of the index read", self.counts.index_entries)
                    await self._rate(sum(location[2] for _, _, location in page))
                    start = (page[-1][0], page[-1][1] + 1)

    async def _unreadable(
        self, logs: InspectedLogs, page: Sequence[tuple[int, int, Location]]
    ) -> list[tuple[int, int, Location, str]]:
        found = await logs.read([location for _, _, location in page])
        return [
            (ledger_id, entry_id, location, why)
            for (ledger_id, entry_id, location), data in zip(page, found, strict=True)
            if (why := reason_of(data, ledger_id, entry_id))
        ]

    async def _look_again(self, number: int, bad: Sequence[tuple[int, int, Location, str]]) -> None:
        """Read entries once more, where the index has them by now."""
        async with self._opened() as (indexes, logs):
            places = await indexes[number].locations(
                [entry_key(ledger_id, entry_id) for ledger_id, entry_id, _, _ in bad]
            )
            again = [
                (each[0], each[1], place)
                for each, place in zip(bad, places, strict=True)
                if place is not None
            ]
            for ledger_id, entry_id, location, why in await self._unreadable(logs, again):
                self._add(
                    Finding(
                        FindingKind.ENTRY_UNREADABLE,
                        why,
                        self._recover(ledger_id),
                        path=logs.path(location[0]),
                        offset=location[1],
                        ledger_id=ledger_id,
                        entries=[entry_id],
                    ),
                    ledger_id,
                )

    async def _verify_logs(self) -> None:
        """Read every record of every log, and look for it in the index."""
        async with self._opened() as (indexes, logs):
            begun = {log_id for each in indexes for log_id in await each.logs_begun()}
            facts = {each.ledger_id: each for each in await ledgers_here(self._inspected, indexes)}
            for log_id in logs.ids:
                if log_id not in begun:
                    await self._add_unknown_log(log_id, logs.path(log_id))
                read = await self._read_log(log_id, logs, indexes, facts)
                self.counts.log_entries += read.entries
                self.counts.log_bytes += read.size_bytes
                if read.damages:
                    await self._add_damages(read.damages, log_id, logs, indexes)
                if read.missing:
                    await self._look_for(read.missing, logs.path(log_id))
                self.counts.logs += 1
                self._progress("entry logs read", self.counts.logs)

    async def _add_unknown_log(self, log_id: int, path: str) -> None:
        async with self._opened() as (indexes, logs):
            begun = {each_id for each in indexes for each_id in await each.logs_begun()}
            if log_id in begun or log_id not in logs.ids:
                return
            damage = [each async for each in logs.walk(log_id) if isinstance(each, Damage)]
        reason = "the index does not know this log, so the bookie never deletes it"
        is_damaged = any(each.is_damage for each in damage)
        self._add(
            Finding(
                FindingKind.LOG_UNKNOWN,
                f"{reason}; {damage[0].reason}" if is_damaged else reason,
                _SET_ASIDE if is_damaged else _REBUILD,
                path=path,
                offset=damage[0].offset if is_damaged else None,
            ),
            path,
        )

    async def _read_log(
        self,
        log_id: int,
        logs: InspectedLogs,
        indexes: Sequence[LedgerIndex],
        facts: dict[int, LedgerFacts],
    ) -> _LogRead:
        read = _LogRead()
        async for chunk in logs.walk(log_id):
            if isinstance(chunk, Damage):
                if chunk.is_damage:
                    read.damages[chunk.offset] = (chunk.reason, None)
                continue
            here = facts.get(chunk.ledger_id)
            for first in range(0, len(chunk.locations), _PAGE_ENTRIES):
                some = chunk.locations[first : first + _PAGE_ENTRIES]
                entry_ids: list[int] = []
                for location, data in zip(some, await logs.read(some), strict=True):
                    if isinstance(data, FileNotFoundError):
                        continue  # collected meanwhile
                    read.entries += 1
                    read.size_bytes += location[2]
                    why = reason_of(data, chunk.ledger_id, None)
                    if isinstance(data, OSError) or why:
                        read.damages[location[1]] = (why, chunk.ledger_id)
                    else:
                        entry_ids.append(peek_ids(data)[2])
                # No entry above the LAC was acknowledged, and a ledger in the trash is not read. Of
                # one with deleted copies only the metadata say what should be here.
                wanted = (
                    [each for each in entry_ids if each <= here.lac]
                    if here is not None and here.is_whole
                    else []
                )
                absent = await absent_entries(indexes, chunk.ledger_id, wanted)
                read.missing += [(chunk.ledger_id, entry_id) for entry_id in absent]
                await self._rate(sum(location[2] for location in some))
        return read

    async def _add_damages(
        self,
        damages: dict[int, tuple[str, int | None]],
        log_id: int,
        logs: InspectedLogs,
        indexes: Sequence[LedgerIndex],
    ) -> None:
        """Add what is still damaged at a second look: the end of a log may have been written
        meanwhile.

        What the index needs of it was found by the pass over the index.
        """
        path = logs.path(log_id)
        again = (await self._read_log(log_id, logs, indexes, {})).damages
        for offset, (reason, ledger_id) in again.items():
            if offset in damages:
                self._add(
                    Finding(
                        FindingKind.LOG_DAMAGED,
                        reason,
                        "nothing, unless entries are missing or unreadable, too: the bookie "
                        "serves no entry from here, and compaction leaves it out",
                        # A power cut leaves unsynced ends of logs like this.
                        is_wrong=self._needed_up_to.get(log_id, -1) >= offset,
                        path=path,
                        offset=offset,
                        ledger_id=ledger_id,
                    ),
                    f"{path}:{offset}",
                )

    async def _look_for(self, missing: Sequence[tuple[int, int]], path: str) -> None:
        """Add what neither the journal nor the index has by now."""
        async with looking_at([self._inspected]) as look:
            by_ledger: dict[int, list[int]] = {}
            for ledger_id, entry_id in missing:
                here = look.facts.get(ledger_id)
                pending = look.replayed.get(ledger_id, {})
                if here is not None and here.is_whole and entry_id not in pending:
                    by_ledger.setdefault(ledger_id, []).append(entry_id)
            for ledger_id, entry_ids in by_ledger.items():
                absent = await absent_entries(look.indexes, ledger_id, entry_ids)
                if absent:
                    self._add(
                        Finding(
                            FindingKind.ENTRY_NOT_IN_INDEX,
                            "a log has confirmed entries that the index lacks",
                            f"{self._recover(ledger_id)}, or for very many: {_REBUILD}",
                            path=path,
                            ledger_id=ledger_id,
                            entries=absent,
                        ),
                        ledger_id,
                    )

    async def _compare(self, records: Records, cookie: Cookie | None) -> None:
        """Compare the metadata with all volumes that the bookie uses."""
        if cookie is not None and cookie.volumes:
            self._whole = [
                each
                for each in self._whole
                if (record := await _record_of(cookie, each)) is None or not record.is_lost
            ]
        try:
            await self._verify_metadata(records)
        except (CorruptData, BookieIOError, OSError) as error:
            self._add(
                Finding(
                    FindingKind.INDEX,
                    f"the metadata are not compared, as a volume cannot be read: {error}",
                    _REBUILD,
                    path=", ".join(each.indexes[0] for each in self._whole),
                ),
                "whole",
            )

    async def _verify_metadata(self, records: Records) -> None:
        instance_id = await self._inspected.instance_id()
        # A later look is taken only of what this one lacks.
        async with looking_at(self._whole) as look:
            await self._find_unnamed(records, look)
            async for branch in ledger_ids(records):
                for first in range(0, len(branch), _PAGE_ENTRIES):
                    some = branch[first : first + _PAGE_ENTRIES]
                    named = await self._named(records, instance_id, some)
                    suspects = await look.without_entries(instance_id, named)
                    if suspects:
                        await self._look_for_missing(records, instance_id, list(suspects))
                    self.counts.metadata_ledgers += len(some)
                    self._progress("ledgers of the metadata compared", self.counts.metadata_ledgers)

    async def _find_unnamed(self, records: Records, look: Look) -> None:
        local = [each.ledger_id for each in look.facts.values() if not each.is_trashed]
        for first in range(0, len(local), _PAGE_ENTRIES):
            some = local[first : first + _PAGE_ENTRIES]
            nodes = await records.nodes([paths.ledger(each) for each in some])
            for ledger_id, node in zip(some, nodes, strict=True):
                if node is None:
                    self._add(
                        Finding(
                            FindingKind.LEDGER_UNNAMED,
                            "the metadata do not name this ledger",
                            "nothing, if it was deleted: garbage collection puts it into the "
                            "trash. If metadata were lost: pulsarish metadata audit, then restore",
                            is_wrong=False,
                            ledger_id=ledger_id,
                        ),
                        ledger_id,
                    )

    async def _named(
        self, records: Records, instance_id: str, some: Sequence[int]
    ) -> list[LedgerMetadata]:
        """Return the closed ones of these ledgers that name the bookie."""
        found: list[LedgerMetadata] = []
        nodes = await records.nodes([paths.ledger(each) for each in some])
        for ledger_id, node in zip(some, nodes, strict=True):
            if node is None:
                continue
            path = paths.ledger(ledger_id)
            try:
                ledger = decode_record(node.data, LedgerMetadata, path)
            except CorruptData as error:
                decides = "put the metadata back from a backup: pulsarish metadata restore"
                self._add(
                    Finding(
                        FindingKind.METADATA, str(error), decides, path=path, ledger_id=ledger_id
                    ),
                    ledger_id,
                )
                continue
            if ledger.state is LedgerState.CLOSED and any(
                instance_id in segment.members for segment in ledger.segments
            ):
                found.append(ledger)
        return found

    async def _look_for_missing(
        self, records: Records, instance_id: str, suspects: Sequence[int]
    ) -> None:
        """Add what is still missing: the ledger may have been deleted, or repaired."""
        named = await self._named(records, instance_id, suspects)
        async with looking_at(self._whole) as look:
            missing = await look.without_entries(instance_id, named)
        for ledger_id, entry_ids in missing.items():
            is_here = ledger_id in look.facts or ledger_id in look.replayed
            self._add(
                Finding(
                    FindingKind.ENTRIES_MISSING if is_here else FindingKind.LEDGER_MISSING,
                    "the metadata say that these entries are here"
                    if is_here
                    else "the metadata say that this ledger is here",
                    self._recover(ledger_id),
                    ledger_id=ledger_id,
                    entries=entry_ids,
                ),
                ledger_id,
            )


_REBUILD: Final = "pulsarish storage rebuild-index, with the bookie stopped"
_SET_ASIDE: Final = (
    "move the file away with the bookie stopped, once no ledger is under-replicated; then verify "
    "again, which names the ledgers to recover, if any. A rebuilt index knows no damaged log"
)
_RESTORE: Final = 'put the file back, or start the bookie once with journal_corruption = "limbo"'


async def _record_of(cookie: Cookie, volume: Inspected) -> VolumeRecord | None:
    """Return what the metadata know of one of several volumes, which its cookie names."""
    try:
        own = await volume.cookie_in(volume.ledgers[0])
    except (CorruptData, OSError):
        own = None
    return None if own is None else cookie.volumes.get(own.volume)


async def _durable_below(cookie: Cookie, volume: Inspected) -> int:
    """Return below which record the journal of a volume was durable, as the metadata know."""
    if not cookie.volumes:
        return cookie.journal_position
    record = await _record_of(cookie, volume)
    return 0 if record is None else record.journal_position


async def _stored_cookie(records: Records | None, bookie_id: str) -> Cookie | None:
    found = None if records is None else await records.get(paths.cookie(bookie_id), Cookie)
    return None if found is None else found[0]
