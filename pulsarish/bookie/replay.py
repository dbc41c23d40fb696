"""Replay of the journal at start: its records from the mark on go back into the store (rule 10).

A torn tail is cut off durably, because no client was promised it, and so are the records of a
file's earlier life. Damage before the end refuses the start and names file and offset, unless the
operator gives up what is unreadable. Then every existing ledger is in limbo. When replay ends, a
checkpoint has synced everything that it found, so nothing is served that only the page cache holds.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from pulsarish.bookie.adds import read_heads
from pulsarish.bookie.checkpoint import Checkpointer
from pulsarish.bookie.config import BookieConfig
from pulsarish.bookie.journal.journal_format import (
    EXPLICIT_LAC_PAYLOAD,
    FENCE_PAYLOAD,
    JournalRecord,
    JournalScanner,
    RecordType,
    ScanEnd,
    file_id_of,
    file_name,
    header_instance_id,
    read_past_damage,
)
from pulsarish.bookie.journal.mark import Mark, read_file, read_mark
from pulsarish.bookie.ledger_state import LocalLedgerStates
from pulsarish.bookie.space import check_room_to_start
from pulsarish.bookie.write_cache import WriteCache
from pulsarish.model.errors import ChecksumError, CorruptData
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Files
from pulsarish.wire.bookie import decode_add

__all__ = [
    "Replayed",
    "check_reaches",
    "journal_file_ids",
    "make_room_to_start",
    "oldest_mark",
    "remove_below_mark",
    "replay",
]

_log = get_logger("bookie.replay")
_LANE: Final = "journal"


@dataclass(frozen=True, slots=True)
class Replayed:
    next_file_id: int
    next_sequence: int
    file_ids: list[int]
    """All files that exist. They can be deleted once the mark is past them."""
    lost: CorruptData | None
    """The damage that the operator chose to give up."""


async def journal_file_ids(files: Files, directory: str) -> list[int]:
    found = [file_id_of(name) for name in await files.list(directory)]
    return [file_id for file_id in found if file_id is not None]


async def oldest_mark(files: Files, directory: str) -> Mark:
    """Return the mark of the oldest file, in the place of one that is lost.

    A replay from there puts more into the store than is needed, and needs what is there.
    """
    file_id = min(await journal_file_ids(files, directory), default=1)
    data = await read_file(files, f"{directory}/{file_name(file_id)}") or b""
    header = next(read_past_damage(file_id, data), None)
    return Mark(file_id, header.sequence if isinstance(header, JournalRecord) else 0)


async def remove_below_mark(files: Files, config: BookieConfig) -> None:
    """Delete the journal files that no replay needs, if the one where it begins is there.

    Raises ``CorruptData`` for a mark that cannot be read.
    """
    mark = await read_mark(files, config.ledger_path)
    file_ids = await journal_file_ids(files, config.journal_path)
    if mark is not None and mark.file_id in file_ids:
        await files.remove(
            [
                f"{config.journal_path}/{file_name(file_id)}"
                for file_id in file_ids
                if file_id < mark.file_id
            ]
        )


async def make_room_to_start(files: Files, config: BookieConfig) -> None:
    """Make sure that the journal can preallocate its first file.

    Raises ``OSError`` without the space for it, and ``CorruptData``.
    """
    needed_bytes = config.journal_file_size_bytes
    free_bytes = await files.free_bytes(config.journal_path)
    if free_bytes < needed_bytes:
        await remove_below_mark(files, config)
        free_bytes = await files.free_bytes(config.journal_path)
    check_room_to_start(config.journal_path, free_bytes, needed_bytes)


async def replay(
    files: Files,
    directory: str,
    mark: Mark,
    *,
    instance_id: str,
    cache: WriteCache,
    states: LocalLedgerStates,
    checkpointer: Checkpointer,
    durable_below: int,
    give_up_damage: bool,
) -> Replayed:
    """Put all records from the mark on into the write cache, and from there into the logs when it
    is full.

    Args:
        durable_below: all records below this one were durable, by the bookie's cookie in metadata.

    Raises ``CorruptData`` for damage to what was promised, unless ``give_up_damage``.
    """
    file_ids = await journal_file_ids(files, directory)
    wanted = [file_id for file_id in file_ids if file_id >= mark.file_id]
    scanner = JournalScanner(directory, mark.sequence)
    highest = mark.sequence
    lost: CorruptData | None = None
    try:
        if not wanted or wanted[0] != mark.file_id:
            raise CorruptData(
                f"the journal file {directory}/{file_name(mark.file_id)} is missing: the mark "
                "says that replay begins there (offset 0). Put the file back, or start once with "
                'journal_corruption = "limbo": this bookie then answers "unknown" for every '
                "ledger that existed, and readers go to the other copies"
            )
        for file_id in wanted:
            data = await read_file(files, f"{directory}/{file_name(file_id)}") or b""
            for record in scanner.scan(file_id, data):
                _check_first(directory, record, mark, instance_id)
                if record.sequence >= mark.sequence and record.offset:
                    highest = record.sequence + 1
                    await _apply(record, cache, states)
                    if cache.wants_flush:
                        await checkpointer.flush()
        end: ScanEnd | None = scanner.finish()
        check_reaches(directory, highest, durable_below)
    except CorruptData as damage:
        if not give_up_damage:
            raise
        _log.error("the journal is damaged and its rest is given up", damage=damage)
        lost, end = damage, None
    if end is not None and end.torn:
        await _cut(files, directory, end)
    next_file_id = max([*file_ids, mark.file_id]) + 1
    # The given-up records may have used any of these sequences, so none of them may be used again.
    next_sequence = highest if lost is None else max(highest, durable_below) + (1 << 32)
    return Replayed(next_file_id, next_sequence, file_ids, lost)


def check_reaches(directory: str, end: int, durable_below: int) -> None:
    """Raise ``CorruptData`` for a journal that ends before what the metadata know to have been
    durable in it.
    """
    if end < durable_below:
        raise CorruptData(
            f"the journal in {directory} is older than it was: it ends before record {end}, "
            "and the metadata know that all records below "
            f"{durable_below} were durable in it. A disk was put back as it was before, or has "
            "lost what it had synced. Put the newest "
            "state of all directories of this bookie back. If that is lost, start with another "
            "bookie_id on empty directories, or once "
            'with journal_corruption = "limbo": this bookie then answers "unknown" for every '
            "ledger that existed, until auto-recovery has "
            "made it whole"
        )


def _check_first(directory: str, record: JournalRecord, mark: Mark, instance_id: str) -> None:
    """Check the header of a file; other records pass.

    It must name this bookie. In the file of the mark it must not be above the mark.

    Raises ``CorruptData``.
    """
    if record.offset:
        return
    where = f"the journal file {directory}/{file_name(record.file_id)}"
    if header_instance_id(record) != instance_id.encode():
        raise CorruptData(f"{where} is not of bookie {instance_id} (offset 0)")
    if record.file_id == mark.file_id and record.sequence > mark.sequence:
        raise CorruptData(
            f"{where} begins with record {record.sequence}, the mark needs {mark.sequence} "
            "(offset 0)"
        )


async def _apply(record: JournalRecord, cache: WriteCache, states: LocalLedgerStates) -> None:
    where = f"record {record.sequence} at offset {record.offset} of {file_name(record.file_id)}"
    if record.type is RecordType.ADD:
        try:
            records = decode_add(bytes(record.payload)).records
            heads = read_heads(records)
        except (DecodeError, ChecksumError, struct.error) as error:
            raise CorruptData(f"{where} is no batch of entries: {error}") from None
        await states.load([head[1] for head in heads])
        for (_, ledger_id, entry_id, lac, _), view in zip(heads, records, strict=True):
            state = states.loaded[ledger_id]
            cache.active.entries(ledger_id)[entry_id] = view
            state.last_entry = max(state.last_entry, entry_id)
            state.lac = max(state.lac, lac)
            states.changed(state)
        cache.added(len(record.payload), len(records))
    elif record.type is RecordType.FENCE:
        state = await states.get(FENCE_PAYLOAD.unpack(record.payload)[0])
        state.fenced = True
        states.changed(state)
    elif record.type is RecordType.EXPLICIT_LAC:
        ledger_id, lac = EXPLICIT_LAC_PAYLOAD.unpack(record.payload)
        state = await states.get(ledger_id)
        state.explicit_lac = max(state.explicit_lac, lac)
        states.changed(state)
    else:
        raise CorruptData(f"{where} is a file header in the middle of a file")


async def _cut(files: Files, directory: str, end: ScanEnd) -> None:
    path = f"{directory}/{file_name(end.file_id)}"
    _log.info("what follows the journal's last record is cut off", file=path, offset=end.offset)
    file = await files.open(path, lane=_LANE)
    await file.truncate(end.offset)
    await file.write(end.offset, [], sync=True)
    await file.close()
