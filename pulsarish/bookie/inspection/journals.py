"""The records of a bookie's journals, and what each says."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from pulsarish.bookie.adds import Head, read_heads
from pulsarish.bookie.inspection.directories import Damage, Inspected
from pulsarish.bookie.journal.journal_format import (
    EXPLICIT_LAC_PAYLOAD,
    FENCE_PAYLOAD,
    JournalGap,
    JournalRecord,
    JournalScanner,
    RecordType,
    file_id_of,
    file_name,
    header_instance_id,
    key_of,
    read_past_damage,
)
from pulsarish.bookie.journal.mark import Mark, read_file
from pulsarish.bookie.replay import check_reaches, journal_file_ids
from pulsarish.model.errors import ChecksumError, CorruptData
from pulsarish.wire.bookie import decode_add
from pulsarish.wire.record import matches_crc

__all__ = [
    "JournalFile",
    "JournalItem",
    "check_journal",
    "describe",
    "entries_above_mark",
    "files_of",
    "ledgers_of",
]


@dataclass(frozen=True, slots=True)
class JournalItem:
    """One record: what it says, and the entries that it adds."""

    record: JournalRecord
    text: str
    heads: list[Head]


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A file of a journal. ``parts`` are its records and what cannot be read, in order."""

    path: str
    file_id: int
    size_bytes: int
    parts: list[JournalRecord | JournalGap]

    @property
    def records(self) -> list[JournalRecord]:
        """Return the records, without the header."""
        return [each for each in self.parts if isinstance(each, JournalRecord) and each.offset]

    @property
    def is_begun(self) -> bool:
        return any(isinstance(each, JournalRecord) for each in self.parts)

    @property
    def damages(self) -> list[Damage]:
        return [
            Damage(self.path, each.offset, each.reason)
            for each in self.parts
            if isinstance(each, JournalGap) and each.is_damage
        ]


async def files_of(inspected: Inspected, only: int | None = None) -> AsyncIterator[JournalFile]:
    """Yield the files of all journals, oldest first, each wholly read.

    ``only``: the id of the one file that is wanted.
    """
    for directory in inspected.journals:
        key: int | None = None
        for file_id in await journal_file_ids(inspected.files, directory):
            path = f"{directory}/{file_name(file_id)}"
            data = await read_file(inspected.files, path)
            if data is None:
                continue  # the bookie removed it meanwhile
            parts = list(read_past_damage(file_id, data, key))
            if parts and isinstance(parts[0], JournalRecord):
                key = key_of(parts[0])
            if only is None or file_id == only:
                yield JournalFile(path, file_id, len(data), parts)


def describe(path: str, record: JournalRecord) -> JournalItem | Damage:
    """Return what a record says, or why it says nothing although it matches its CRC32C."""
    payload = record.payload
    try:
        match record.type:
            case RecordType.FILE_HEADER | RecordType.KEYLESS_FILE_HEADER:
                name = header_instance_id(record).decode(errors="replace")
                return JournalItem(record, f"file of {name}", [])
            case RecordType.ADD:
                batch = decode_add(bytes(payload))
                heads = read_heads(batch.records)
                bad = [
                    f"{head[2]} of ledger {head[1]}"
                    for head, each in zip(heads, batch.records, strict=True)
                    if not matches_crc(each)
                ]
                if bad:
                    reason = f"entries that do not match their CRC32C: {', '.join(bad)}"
                    return Damage(path, record.offset, reason)
                text = "; ".join(_runs(heads)) + (" (recovery)" if batch.recovery else "")
                return JournalItem(record, text, heads)
            case RecordType.FENCE:
                return JournalItem(record, f"ledger {FENCE_PAYLOAD.unpack(payload)[0]}", [])
            case RecordType.EXPLICIT_LAC:
                ledger_id, lac = EXPLICIT_LAC_PAYLOAD.unpack(payload)
                return JournalItem(record, f"ledger {ledger_id}, LAC {lac}", [])
    except (DecodeError, ChecksumError, struct.error) as error:
        return Damage(path, record.offset, f"the record is no {record.type.name}: {error}")


def _runs(heads: list[Head]) -> Iterator[str]:
    """Yield the entries of a batch as runs of consecutive ones, by ledger."""
    start = 0
    for place in range(1, len(heads) + 1):
        _, ledger_id, first, _, _ = heads[start]
        if place < len(heads) and heads[place][1:3] == (ledger_id, first + place - start):
            continue
        last = heads[place - 1][2]
        yield f"ledger {ledger_id}, " + (
            f"entry {first}" if first == last else f"entries {first} to {last}"
        )
        start = place


def ledgers_of(item: JournalItem) -> dict[int, None]:
    """Return the ledgers that a record is about."""
    record = item.record
    if record.type is RecordType.FENCE:
        return {FENCE_PAYLOAD.unpack(record.payload)[0]: None}
    if record.type is RecordType.EXPLICIT_LAC:
        return {EXPLICIT_LAC_PAYLOAD.unpack(record.payload)[0]: None}
    return {head[1]: None for head in item.heads}


async def entries_above_mark(inspected: Inspected) -> dict[int, dict[int, None]]:
    """Return the entries, by ledger, that the next start would replay.

    They may be missing in the entry logs and in the index.
    """
    mark = await inspected.mark()
    found: dict[int, dict[int, None]] = {}
    async for file in files_of(inspected):
        if mark is not None and file.file_id < mark.file_id:
            continue
        for record in file.records:
            if mark is not None and record.sequence < mark.sequence:
                continue
            item = describe(file.path, record)
            if isinstance(item, JournalItem):
                for ledger_id in ledgers_of(item):
                    _ = found.setdefault(ledger_id, {})
                for _, ledger_id, entry_id, _, _ in item.heads:
                    found[ledger_id][entry_id] = None
    return found


async def check_journal(
    inspected: Inspected, directory: str, mark: Mark | None, *, durable_below: int
) -> None:
    """Check what a start would replay.

    ``durable_below``: all records below this one were durable, as the metadata know.

    Raises the ``CorruptData`` that would end that start.
    """
    found = [
        file_id
        for name in await inspected.files.list(directory)
        if (file_id := file_id_of(name)) is not None and (mark is None or file_id >= mark.file_id)
    ]
    if mark is None and not found:
        return  # the bookie was never started
    if mark is not None and (not found or found[0] != mark.file_id):
        raise CorruptData(
            f"the journal file {directory}/{file_name(mark.file_id)} is missing: the mark says "
            "that replay begins there (offset 0)"
        )
    scanner = JournalScanner(directory, 0 if mark is None else mark.sequence)
    for file_id in found:
        data = await read_file(inspected.files, f"{directory}/{file_name(file_id)}") or b""
        for _ in scanner.scan(file_id, data):
            pass
    check_reaches(directory, scanner.finish().next_sequence, durable_below)
