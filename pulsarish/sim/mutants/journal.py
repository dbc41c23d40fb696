"""Mutants of the safeguards of journal files that are used again.

``workloads/storage.py`` must notice.
"""

from __future__ import annotations

from typing import Any, Final

from pulsarish.bookie.checkpoint import Checkpointer
from pulsarish.bookie.journal import journal_format
from pulsarish.bookie.journal.journal import Journal
from pulsarish.bookie.journal.journal_format import JournalRecord, frame_header
from pulsarish.bookie.journal.mark import Mark
from pulsarish.runtime.seams import File
from pulsarish.sim.mutants.storage import STORAGE_SCENARIOS
from pulsarish.sim.workloads.safeguard import Mutant, Patch, replacing
from pulsarish.sim.workloads.storage import run_storage
from pulsarish.sim.world.files import SimFiles

__all__ = ["JOURNAL_MUTANTS"]


def _reused_first(_was: object) -> object:
    """Give a file its next name while the mark still names it."""

    async def checkpoint(checkpointer: Checkpointer, journal: Journal, **_probes: int) -> None:
        async with checkpointer.lock:
            sequence = journal.queue.next_sequence
            await journal.release_below(journal.file_of(sequence))
            await checkpointer._flush(0.1)
            await journal.wait_synced(sequence - 1)
            await checkpointer.move_mark(Mark(journal.file_of(sequence), sequence))

    return checkpoint


def _rename_in_memory(_was: object) -> object:
    async def rename(files: SimFiles, path: str, new_path: str) -> None:
        files._disk.link(new_path, files._disk.names[path])
        files._disk.unlink(path)

    return rename


def _header_in_memory(_was: object) -> object:
    async def write_header(journal: Journal, file: File, sequence: int) -> None:
        header = frame_header(journal._file_id, journal._record_key, sequence, journal._instance_id)
        await file.write(0, header, sync=False)

    return write_header


def _any_file_id(was: Any) -> object:
    def record_at(data: bytes, offset: int, _file_id: int, key: int) -> JournalRecord | None:
        found_id = int.from_bytes(data[offset + 4 : offset + 8], "big")
        record: JournalRecord | None = was(data, offset, found_id, key)
        return record

    return record_at


def _any_key(was: Any) -> object:
    def record_at(data: bytes, offset: int, file_id: int, key: int) -> JournalRecord | None:
        record: JournalRecord | None = was(data, offset, file_id, key)
        return record or was(data, offset, file_id, 0)

    return record_at


def _mutant(
    name: str, removes: str, rules: tuple[int, ...], patch: Patch, scenario: str, seeds: int = 20
) -> Mutant:
    def check(seed: int) -> None:
        run_storage(seed, STORAGE_SCENARIOS[scenario])

    return Mutant(name, removes, rules, patch, check, seeds)


JOURNAL_MUTANTS: Final = (
    _mutant(
        "journal_reused_before_mark",
        "the mark is durable before a journal file below it becomes the next one",
        (11,),
        replacing(Checkpointer, "checkpoint", _reused_first),
        "power",
    ),
    _mutant(
        "journal_name_not_synced",
        "a journal file has its next name durably before anything is written to it again",
        (9,),
        replacing(SimFiles, "rename", _rename_in_memory),
        "power",
    ),
    _mutant(
        "journal_header_not_synced",
        "the header of a journal file is synced before the mark may name the file",
        (9,),
        replacing(Journal, "_write_header", _header_in_memory),
        "starts",
    ),
    _mutant(
        "journal_file_id_not_compared",
        "records of a journal file's earlier life are told by their file id",
        (9, 10),
        replacing(journal_format, "_record_at", _any_file_id),
        "power",
    ),
    _mutant(
        "forged_journal_record_believed",
        "a record without the key of the journal is neither read nor evidence: a client chose it",
        (9, 10),
        replacing(journal_format, "_record_at", _any_key),
        "forged",
    ),
)
