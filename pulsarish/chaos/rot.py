"""Rot in the files of a stopped bookie: one flipped bit, or a page of zeros.

What is damaged is chosen so that it is known: one entry of one entry log, one place of the index,
or one record of the journal that a start needs and that later records prove to have been synced.
(The very last record of a journal is not promised to survive rot, docs/guarantees.md.)
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.inspection.directories import Inspected, directories_of
from pulsarish.bookie.inspection.journals import files_of
from pulsarish.bookie.inspection.ledgers import ledgers_here
from pulsarish.bookie.inspection.logs import InspectedLogs, reason_of
from pulsarish.bookie.ledger_index import entry_key
from pulsarish.runtime.files import ReadOnlyFiles
from pulsarish.runtime.lanes import Lanes, OutsideWork
from pulsarish.runtime.rocks.index import open_rocks_snapshot
from pulsarish.runtime.seams import KeyValueIndex

__all__ = [
    "Rot",
    "damage_entry_log",
    "damage_index",
    "damage_journal",
    "is_entry_whole",
    "ledgers_in_limbo",
]

_PAGE_BYTES: Final = 4_096
_TRIES: Final = 100


@dataclass(frozen=True, slots=True)
class Rot:
    """What was done to which file. ``ledger_id`` and ``entry_id``: the damaged entry of an entry
    log; otherwise -1.
    """

    path: str
    offset: int
    size_bytes: int
    how: str
    ledger_id: int = -1
    entry_id: int = -1

    def row(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        what = f" (entry {self.entry_id} of ledger {self.ledger_id})" if self.ledger_id >= 0 else ""
        return f"{self.how} at {self.offset} of {self.path}{what}"


async def damage_entry_log(data: Path, chance: random.Random) -> Rot | None:
    """Damage one entry that the index has. Return ``None`` when there is none in the logs yet."""
    async with _inspecting(data) as inspected, inspected.opened_indexes() as opened:
        index = opened[0].index
        ledgers = [
            each
            for each in await ledgers_here(inspected, [index])
            if each.is_whole and each.log_bytes
        ]
        logs = InspectedLogs(inspected, index)
        await logs.open()
        try:
            for _ in range(_TRIES if ledgers else 0):
                ledger = chance.choice(ledgers)
                first = chance.randint(0, max(0, ledger.last_entry))
                for entry_id, (log_id, offset, size) in await index.entry_locations(
                    ledger.ledger_id, first, 1
                ):
                    return _change(
                        Path(logs.path(log_id)),
                        offset,
                        size,
                        chance,
                        ledger_id=ledger.ledger_id,
                        entry_id=entry_id,
                    )
        finally:
            await logs.close()
    return None


async def damage_index(data: Path, chance: random.Random) -> Rot | None:
    """Damage one place of one file of the index."""
    files = sorted(
        path
        for path in (data / "index" / "rows").iterdir()
        if path.suffix in (".sst", ".log") and path.stat().st_size
    )
    if not files:
        return None
    path = chance.choice(files)
    return _change(path, 0, path.stat().st_size, chance)


async def damage_journal(data: Path, chance: random.Random) -> Rot | None:
    """Damage one record that a start replays and that a later record proves to be synced.

    Return ``None`` when there is none.
    """
    async with _inspecting(data) as inspected:
        mark = await inspected.mark()
        records = [
            (file.path, record.offset, record.end - record.offset, record.sequence)
            async for file in files_of(inspected)
            for record in file.records
            if mark is None or (file.file_id >= mark.file_id and record.sequence >= mark.sequence)
        ]
        durable_up_to = max(
            [record.durable_up_to async for file in files_of(inspected) for record in file.records],
            default=0,
        )
    proved = [each for each in records if each[3] < durable_up_to]
    if not proved:
        return None
    path, offset, size, _ = chance.choice(proved)
    return _change(Path(path), offset, size, chance)


async def is_entry_whole(data: Path, rot: Rot) -> bool:
    """Return whether the bookie, which may run, has the entry in a place that can be read, or no
    longer has it.
    """
    async with _inspecting(data) as inspected, inspected.opened_indexes() as opened:
        index = opened[0].index
        (place,) = await index.locations([entry_key(rot.ledger_id, rot.entry_id)])
        if place is None:
            return True
        logs = InspectedLogs(inspected, index)
        await logs.open()
        try:
            (found,) = await logs.read([place])
        finally:
            await logs.close()
        return not reason_of(found, rot.ledger_id, rot.entry_id)


async def ledgers_in_limbo(data: Path, named: Collection[int]) -> list[int]:
    """Return those of the ledgers ``named`` of which the bookie, which may run, may have lost
    entries.
    """
    async with _inspecting(data) as inspected, inspected.opened_indexes() as opened:
        found = await ledgers_here(inspected, [each.index for each in opened])
    return [each.ledger_id for each in found if each.limbo and each.ledger_id in named]


def _change(
    path: Path,
    offset: int,
    size: int,
    chance: random.Random,
    *,
    ledger_id: int = -1,
    entry_id: int = -1,
) -> Rot:
    """Flip a bit, or zero a page, as far as it lies within these bytes of the file."""
    at = offset + chance.randrange(size)
    with path.open("r+b") as file:
        if chance.random() < 0.5:
            how, start, count = "a flipped bit", at, 1
            file.seek(start)
            change = bytes([file.read(1)[0] ^ 1 << chance.randrange(8)])
        else:
            how = "a page of zeros"
            page = at // _PAGE_BYTES * _PAGE_BYTES
            start = max(page, offset)
            count = min(page + _PAGE_BYTES, offset + size) - start
            change = bytes(count)
            file.seek(start)
            if file.read(count) == change:  # it was all zeros
                how, change = "a page of ones", b"\xff" * count
        file.seek(start)
        file.write(change)
    return Rot(str(path), start, count, how, ledger_id, entry_id)


@asynccontextmanager
async def _inspecting(data: Path) -> AsyncIterator[Inspected]:
    lanes = Lanes(OutsideWork())

    async def open_index(directory: str) -> tuple[KeyValueIndex, str]:
        rows = await open_rocks_snapshot(directory, lane=lanes.get(f"index:{directory}"))
        return rows, rows.missing

    try:
        yield directories_of(
            BookieConfig(bookie_id=data.parent.name, data_directory=str(data)),
            ReadOnlyFiles(lanes),
            open_index,
        )
    finally:
        await lanes.close()
