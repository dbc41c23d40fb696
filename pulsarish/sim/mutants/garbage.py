"""Mutants of the safeguards of a bookie's garbage collection.

``workloads/storage.py`` must notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pulsarish.bookie.entry_logs.entry_log import Chunk, EntryLogs
from pulsarish.bookie.entry_logs.entry_log_format import encode_chunk_head
from pulsarish.bookie.garbage import GarbageCollector, _NoRoom
from pulsarish.bookie.trash import Trash
from pulsarish.sim.workloads.safeguard import Mutant, Patch, replacing
from pulsarish.sim.workloads.storage import run_storage
from pulsarish.sim.workloads.storage_settings import StorageSettings

__all__ = ["GARBAGE_MUTANTS", "GARBAGE_SCENARIOS"]

GARBAGE_SCENARIOS: Final[dict[str, StorageSettings]] = {
    "forgotten": StorageSettings(
        seconds=4.0, crash_seconds=0.0, deleted_share=0.3, forgets=True, second_look_seconds=0.8
    ),
    "trash": StorageSettings(
        seconds=4.0, crash_seconds=0.0, deleted_share=0.3, forgets=True, trash_seconds=0.8
    ),
    "squeezed": StorageSettings(crash_seconds=1.5, deleted_share=0.7, squeeze_seconds=0.3),
    "reserve": StorageSettings(
        seconds=8.0,
        crash_seconds=0.0,
        deleted_share=0.25,
        full=True,
        full_after_bytes=140_000,
        log_size_bytes=1 << 17,
    ),
    "copies": StorageSettings(crash_seconds=1.0, bad_sync_seconds=0.3, deleted_share=0.7),
}
"""Settings by what they stress."""


def _one_look(was: Any) -> object:
    def init(collector: GarbageCollector, *parts: Any, **more: Any) -> None:
        was(collector, *parts, **more)
        collector._config = msgspec.structs.replace(collector._config, gc_second_look_seconds=0.0)

    return init


def _always_due(_was: object) -> object:
    def is_due(_trash: Trash, _ledger_id: int, _grace_seconds: float) -> bool:
        return True

    return is_due


def _full_disk_as_damage(_was: object) -> object:
    def postpone(collector: GarbageCollector, log_id: int, why: _NoRoom) -> None:
        collector._keep(log_id, str(why))

    return postpone


def _any_room(_was: object) -> object:
    async def check_room(_collector: GarbageCollector, _more_bytes: int) -> None:
        return

    return check_room


def _offset_before_the_write(_was: object) -> object:
    """Let a failed write leave a hole: the next write goes after the place of the failed one."""

    async def write(
        logs: EntryLogs, chunks: Sequence[tuple[int, Sequence[bytes | memoryview]]]
    ) -> tuple[int, list[int]]:
        if logs._file is None or logs._offset >= logs._size_bytes:
            await logs._roll()
        assert logs._file is not None
        assert logs.current_id is not None
        start, parts, offsets = logs._offset, [], []
        for ledger_id, records in chunks:
            head = encode_chunk_head(
                logs.current_id, ledger_id, [len(record) for record in records]
            )
            offsets.append(logs._offset + len(head))
            logs._offset = offsets[-1] + sum(len(record) for record in records)
            parts += [head, *records]
        await logs._file.write(start, [b"".join(parts)], sync=False)
        return logs.current_id, offsets

    return write


def _failed_sync_as_no_room(was: Any) -> object:
    async def move(collector: GarbageCollector, chunk: Chunk, records: list[memoryview]) -> None:
        try:
            await was(collector, chunk, records)
        except OSError as error:
            raise _NoRoom(str(error)) from None

    return move


def _mutant(
    name: str, removes: str, rules: tuple[int, ...], patch: Patch, scenario: str, seeds: int = 20
) -> Mutant:
    def check(seed: int) -> None:
        run_storage(seed, GARBAGE_SCENARIOS[scenario])

    return Mutant(name, removes, rules, patch, check, seeds)


GARBAGE_MUTANTS: Final = (
    _mutant(
        "deleted_at_one_look",
        "a ledger must be missing in the metadata at two looks before it goes",
        (12,),
        replacing(GarbageCollector, "__init__", _one_look),
        "forgotten",
    ),
    _mutant(
        "trash_emptied_at_once",
        "a ledger stays in the trash for its grace time, and comes back whole when the metadata "
        "have it again",
        (12,),
        replacing(Trash, "is_due", _always_due),
        "trash",
    ),
    _mutant(
        "full_disk_taken_for_damage",
        "a full disk while copies are written says nothing of the log that is read",
        (12,),
        replacing(GarbageCollector, "_postpone", _full_disk_as_damage),
        "squeezed",
    ),
    _mutant(
        "compaction_takes_the_reserve",
        "compaction leaves alone the space that checkpoints and deletion need",
        (13,),
        replacing(GarbageCollector, "_check_room", _any_room),
        "reserve",
    ),
    _mutant(
        "failed_write_leaves_a_hole",
        "what follows a failed write in an entry log takes its place",
        (12,),
        replacing(EntryLogs, "write", _offset_before_the_write),
        "squeezed",
    ),
    _mutant(
        "failed_sync_of_copies_ignored",
        "a failed sync of compacted entries ends the process",
        (9, 12),
        replacing(GarbageCollector, "_move", _failed_sync_as_no_room),
        "copies",
        seeds=40,
    ),
)
