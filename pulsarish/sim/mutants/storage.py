"""Mutants of the safeguards of a bookie's storage.

The oracle of ``workloads/storage.py`` must notice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from pulsarish.bookie import adds, bookie, cookies, store, volume_cookies
from pulsarish.bookie.checkpoint import Checkpointer
from pulsarish.bookie.cookies import COOKIE_NAME
from pulsarish.bookie.entry_logs.entry_log import Chunk, EntryLogs
from pulsarish.bookie.garbage import GarbageCollector
from pulsarish.bookie.journal import journal
from pulsarish.bookie.journal.group_commit import Group, GroupCommit
from pulsarish.bookie.journal.journal import Journal
from pulsarish.bookie.journal.journal_format import JournalScanner, RecordType, ScanEnd
from pulsarish.bookie.journal.mark import Mark
from pulsarish.bookie.ledger_state import LocalLedgerState
from pulsarish.bookie.limbo import Limbo
from pulsarish.bookie.reads import Reader
from pulsarish.bookie.space import SpaceMode
from pulsarish.bookie.store import EntryStore
from pulsarish.bookie.volume_homes import VolumeHomes
from pulsarish.metadata import paths
from pulsarish.metadata.ledger_walk import ledger_ids
from pulsarish.metadata.records import Cookie
from pulsarish.model.errors import (
    BookieIOError,
    BookieReadOnly,
    EntryUnknown,
    LedgerFenced,
    NoSuchEntry,
    NoSuchLedger,
)
from pulsarish.sim.workloads.safeguard import Mutant, Patch, all_replaced, replacing
from pulsarish.sim.workloads.storage import run_storage
from pulsarish.sim.workloads.storage_settings import StorageSettings
from pulsarish.wire.bookie import ReadAnswer

__all__ = ["STORAGE_MUTANTS", "STORAGE_SCENARIOS"]

STORAGE_SCENARIOS: Final[dict[str, StorageSettings]] = {
    "power": StorageSettings(),
    "forged": StorageSettings(crash_seconds=0.3, forged=True),
    "starts": StorageSettings(crash_seconds=0.2, early_crash_chance=1.0),
    "syncs": StorageSettings(crash_seconds=1.0, bad_sync_seconds=0.3),
    "rot": StorageSettings(crash_seconds=0.3, rot=True),
    "limbo": StorageSettings(crash_seconds=0.3, rot=True, journal_corruption="limbo"),
    "index": StorageSettings(crash_seconds=0.4, index_damage="log"),
    "older": StorageSettings(crash_seconds=0.4, index_damage="older"),
    "sectors": StorageSettings(crash_seconds=1.0, bad_sector_seconds=0.02),
    "wiped": StorageSettings(seconds=1.0, wiped=True),
    "emptied": StorageSettings(seconds=1.0, wiped=True, wiped_keeps=COOKIE_NAME),
    "full": StorageSettings(crash_seconds=0.0, full=True),
    "garbage": StorageSettings(crash_seconds=0.8, deleted_share=0.7),
    "metadata": StorageSettings(crash_seconds=0.8, deleted_share=0.3, slow_metadata=True),
    "volumes": StorageSettings(volumes=2),
    "volumes-garbage": StorageSettings(volumes=2, crash_seconds=0.8, deleted_share=0.7),
    "volumes-limbo": StorageSettings(
        volumes=2, crash_seconds=0.3, rot=True, journal_corruption="limbo"
    ),
    "dies": StorageSettings(volumes=3, crash_seconds=0.8, dies=True),
    "dies-running": StorageSettings(volumes=2, crash_seconds=0.0, dies=True),
}
"""Settings by what they stress."""


def _answer_at_once(was: Any) -> object:
    def append(
        queue: GroupCommit,
        kind: Any,
        parts: Any,
        size_bytes: int,
        durable: Callable[[], None] | None,
    ) -> int:
        sequence: int = was(queue, kind, parts, size_bytes, None)
        if durable is not None:
            durable()
        return sequence

    return append


def _fence_in_memory(was: Any) -> object:
    def append(
        journal: Journal,
        kind: RecordType,
        parts: Any,
        size_bytes: int,
        durable: Callable[[], None] | None = None,
    ) -> int:
        if kind is RecordType.FENCE:
            return journal.queue.synced_sequence - 1
        sequence: int = was(journal, kind, parts, size_bytes, durable)
        return sequence

    return append


def _sync_again(was: Any) -> object:
    """Sync again after a failed sync.

    The pages count as clean, so the second sync has nothing to do, and succeeds.
    """

    async def write(journal: Journal, group: Group) -> None:
        try:
            await was(journal, group)
        except OSError:
            assert journal._file is not None
            await journal._file.write(journal._offset, [], sync=True)
            journal._offset += group.size_bytes
            journal.synced_bytes += group.size_bytes

    return write


def _no_sync(_was: object) -> object:
    async def sync(_logs: EntryLogs) -> None:
        return

    return sync


def _mark_by_maximum(_was: object) -> object:
    """Move the mark to the end of the journal instead of the place that the entry logs and the
    index have reached.
    """

    async def checkpoint(checkpointer: Checkpointer, journal: Journal, **_probes: int) -> None:
        async with checkpointer.lock:
            await checkpointer._flush(0.1)
            sequence = journal.queue.next_sequence
            await journal.wait_synced(sequence - 1)
            await checkpointer.move_mark(Mark(journal.file_of(sequence), sequence))
            await journal.release_below(checkpointer.mark.file_id)

    return checkpoint


def _journal_deleted_first(_was: object) -> object:
    async def checkpoint(checkpointer: Checkpointer, journal: Journal, **_probes: int) -> None:
        async with checkpointer.lock:
            sequence = journal.queue.next_sequence
            await checkpointer._flush(0.1)
            await journal.wait_synced(sequence - 1)
            mark = Mark(journal.file_of(sequence), sequence)
            await journal.release_below(mark.file_id)
            await checkpointer.move_mark(mark)

    return checkpoint


def _no_flush(_was: object) -> object:
    async def flush(_checkpointer: Checkpointer) -> None:
        return

    return flush


def _no_evidence(_was: object) -> object:
    def need_no_evidence(_scanner: JournalScanner, _later: object) -> None:
        return

    return need_no_evidence


def _any_end(_was: object) -> object:
    def finish(scanner: JournalScanner) -> ScanEnd:
        assert scanner._bad is not None
        return scanner._bad

    return finish


def _any_index(_was: object) -> object:
    def check_index_reaches(_index: object, _mark: object, _config: object) -> None:
        return

    return check_index_reaches


def _any_journal(_was: object) -> object:
    def check_reaches(_directory: str, _end: int, _durable_below: int) -> None:
        return

    return check_reaches


def _io_error_as_negative(was: Any) -> object:
    async def read(reader: Reader, *asked: Any, **named: Any) -> list[ReadAnswer]:
        answers: list[ReadAnswer] = await was(reader, *asked, **named)
        for answer in answers:
            if answer.code == BookieIOError.code:
                answer.code = NoSuchEntry.code
        return answers

    return read


def _limbo_as_negative(_was: object) -> object:
    async def absent_code(reader: Reader, ledger_id: int) -> int:
        return (
            NoSuchEntry.code if (await reader._states.get(ledger_id)).exists else NoSuchLedger.code
        )

    return absent_code


def _limbo_takes_adds(_was: object) -> object:
    def ledger_code(
        _ledger_id: int, state: LocalLedgerState, recovery: bool, read_only: bool
    ) -> int:
        if state.fenced and not recovery:
            return LedgerFenced.code
        return BookieReadOnly.code if read_only else 0

    return ledger_code


def _clear_without_fence(_was: object) -> object:
    async def clear_limbo(store: EntryStore, ledger_id: int, times: int) -> int:
        if times != store.limbo.times:
            return EntryUnknown.code
        await store.index.clear_limbo(ledger_id, times)
        state = await store.states.get(ledger_id)
        state.limbo = False
        store.states.changed(state)
        return 0

    return clear_limbo


def _clear_any(was: Any) -> object:
    async def clear_limbo(store: EntryStore, ledger_id: int, _times: int) -> int:
        code: int = await was(store, ledger_id, store.limbo.times)
        return code

    return clear_limbo


def _one_limbo(was: Any) -> object:
    """Treat every limbo as the first one."""

    async def enter(
        limbo: Limbo, ledgers_below: int, reason: str, *, times_before: int = 0
    ) -> None:
        assert times_before >= 0
        limbo.times = 0
        await was(limbo, ledgers_below, reason)

    return enter


def _whole_limbo_only(_was: object) -> object:
    def covers(limbo: Limbo, ledger_id: int, *, is_absent: bool) -> bool:
        assert is_absent in (True, False)
        return ledger_id < limbo.ledgers_below

    return covers


def _knows_nothing(_was: object) -> object:
    async def knows(_store: EntryStore, ledger_ids: Sequence[int]) -> list[bool]:
        return [False] * len(ledger_ids)

    return knows


def _no_doubt(_was: object) -> object:
    def is_doubtful(_volumes: VolumeHomes, _ledger_id: int) -> bool:
        return False

    return is_doubtful


def _lost_ones_used(was: Any) -> object:
    """Open the volumes that were given up as if nothing had happened."""

    def named(wanted: Cookie, stored: Cookie, known: dict[str, Any], triples: Any) -> object:
        for name, record in known.items():
            known[name] = msgspec.structs.replace(record, is_lost=False)
        return was(wanted, stored, known, triples)

    return named


def _known_cookie_is_enough(_was: object) -> object:
    def decide_cookie(
        _wanted: object, _directories: object, _local: object, stored: object, *, has_data: bool
    ) -> object:
        assert has_data in (True, False)
        return stored

    return decide_cookie


def _refuse_nothing(_was: object) -> object:
    async def refuse_if_promised(_records: object, _cookie: object, _directories: object) -> None:
        return

    return refuse_if_promised


def _always_writable(_was: object) -> object:
    def next_mode(
        _mode: SpaceMode, _free_bytes: int, *, read_only_free_bytes: int, reserved_bytes: int
    ) -> SpaceMode:
        assert read_only_free_bytes >= reserved_bytes
        return SpaceMode.WRITABLE

    return next_mode


async def _delete(collector: GarbageCollector, ledger_id: int) -> None:
    _ = await collector.trash.put(ledger_id)
    _ = await collector.trash.empty(ledger_id)


def _metadata_asked_first(_was: object) -> object:
    """Treat a ledger that is made while the metadata are listed as deleted."""

    async def delete_ledgers(collector: GarbageCollector) -> None:
        named = {
            ledger_id: None
            async for branch in ledger_ids(collector._records)
            for ledger_id in branch
        }
        for ledger_id in await collector._local_ledgers():
            if ledger_id not in named:
                await _delete(collector, ledger_id)

    return delete_ledgers


def _one_look_at_metadata(_was: object) -> object:
    async def delete_ledgers(collector: GarbageCollector) -> None:
        local = await collector._local_ledgers()
        nodes = (
            await collector._records.nodes([paths.ledger(ledger_id) for ledger_id in local])
            if local
            else []
        )
        for ledger_id, node in zip(local, nodes, strict=True):
            if node is None:
                await _delete(collector, ledger_id)

    return delete_ledgers


def _copy_left_behind(_was: object) -> object:
    """Let compaction remove the old log while the index still points into it."""

    async def move(collector: GarbageCollector, chunk: Chunk, _records: object) -> None:
        assert collector._store.logs.current_id != chunk.locations[0][0]

    return move


def _mutant(
    name: str,
    removes: str,
    rules: tuple[int, ...],
    patch: Patch,
    scenario: str,
    seeds: int = 20,
    first: int = 0,
) -> Mutant:
    def check(seed: int) -> None:
        run_storage(seed, STORAGE_SCENARIOS[scenario])

    return Mutant(name, removes, rules, patch, check, seeds, first)


STORAGE_MUTANTS: Final = (
    _mutant(
        "acknowledge_before_sync",
        "an add is answered after the sync that covers it",
        (9,),
        replacing(GroupCommit, "append", _answer_at_once),
        "power",
    ),
    _mutant(
        "fence_not_journaled",
        "a fence is in the journal, and synced, before it is answered",
        (5,),
        replacing(Journal, "append", _fence_in_memory),
        "power",
    ),
    _mutant(
        "failed_sync_tried_again",
        "a sync that fails ends the process, without a second try",
        (9,),
        replacing(Journal, "_write", _sync_again),
        "syncs",
    ),
    _mutant(
        "index_before_log_sync",
        "an entry log is synced before the index points into it and the mark moves past it",
        (11,),
        replacing(EntryLogs, "sync", _no_sync),
        "power",
    ),
    _mutant(
        "mark_by_maximum",
        "the mark is the least of what all stores hold, not what the journal has reached",
        (11,),
        replacing(Checkpointer, "checkpoint", _mark_by_maximum),
        "power",
    ),
    _mutant(
        "journal_deleted_before_mark",
        "the mark is durable before the journal files below it go",
        (11,),
        all_replaced(
            replacing(Checkpointer, "checkpoint", _journal_deleted_first),
            replacing(journal, "_SPARES_MAX", lambda _was: 0),
        ),
        "power",
    ),
    _mutant(
        "replay_not_synced",
        "what replay found is synced before the bookie serves and the old journal goes",
        (10,),
        replacing(Checkpointer, "flush", _no_flush),
        "starts",
    ),
    _mutant(
        "damage_taken_for_a_torn_tail",
        "a bad record that later ones prove to have been synced is damage, not the end",
        (10,),
        all_replaced(
            replacing(JournalScanner, "_need_no_evidence", _no_evidence),
            replacing(JournalScanner, "finish", _any_end),
        ),
        "rot",
    ),
    _mutant(
        "older_index_served",
        "an index that ends before what was synced when the mark was written is refused",
        (8, 11),
        replacing(store, "_check_index_reaches", _any_index),
        "older",
    ),
    _mutant(
        "negative_on_io_error",
        "an entry that cannot be read is an error, never absent",
        (8,),
        replacing(Reader, "read", _io_error_as_negative),
        "sectors",
    ),
    _mutant(
        "limbo_answers_negative",
        "a bookie that may have lost an entry says that it does not know",
        (7,),
        replacing(Reader, "_absent_code", _limbo_as_negative),
        "limbo",
    ),
    _mutant(
        "limbo_takes_adds",
        "a bookie that may have lost a fence takes nothing from a writer",
        (5, 7),
        replacing(adds, "_ledger_code", _limbo_takes_adds),
        "limbo",
    ),
    _mutant(
        "limbo_ended_without_fence",
        "a ledger whose limbo ends is fenced first, because the fence may be among what was lost",
        (5, 7),
        replacing(EntryStore, "clear_limbo", _clear_without_fence),
        "limbo",
    ),
    _mutant(
        "limbo_ended_for_another",
        "a limbo is ended only by who has verified the ledger in that one",
        (7,),
        replacing(EntryStore, "clear_limbo", _clear_any),
        "limbo",
    ),
    _mutant(
        "limbo_ended_for_good",
        "a ledger that was made whole after one limbo is in doubt again in the next",
        (7,),
        replacing(Limbo, "enter", _one_limbo),
        "limbo",
    ),
    _mutant(
        "lost_volume_answers_negative",
        "what may have been in a lost volume is unknown, not absent",
        (7,),
        replacing(Limbo, "covers", _whole_limbo_only),
        "dies",
    ),
    _mutant(
        "ledger_changes_its_volume",
        "a ledger that a volume knows lies there, whatever is in memory",
        (5, 7),
        replacing(EntryStore, "knows", _knows_nothing),
        "volumes",
    ),
    _mutant(
        "failed_volume_forgotten_at_once",
        "until all others know durably that a volume has failed, its ledgers get errors",
        (5, 7),
        replacing(VolumeHomes, "_is_doubtful", _no_doubt),
        "dies-running",
    ),
    _mutant(
        "lost_volume_used_again",
        "a volume that was given up is not used again: its ledgers went on elsewhere",
        (5, 7),
        replacing(volume_cookies, "_named", _lost_ones_used),
        "dies",
    ),
    _mutant(
        "cookies_not_compared",
        "the cookies of all directories and of the metadata agree, or the bookie does not start",
        (7,),
        all_replaced(
            replacing(cookies, "decide_cookie", _known_cookie_is_enough),
            replacing(cookies, "refuse_if_promised", _refuse_nothing),
            replacing(store, "check_reaches", _any_journal),
        ),
        "wiped",
    ),
    _mutant(
        "emptied_bookie_starts",
        "a bookie whose cookies are all that is left does not start while a ledger names it",
        (7,),
        # An empty journal would also be noticed, once the metadata know of an entry.
        all_replaced(
            replacing(cookies, "refuse_if_promised", _refuse_nothing),
            replacing(store, "check_reaches", _any_journal),
        ),
        "emptied",
    ),
    _mutant(
        "full_disk_written_on",
        "a bookie whose disk is nearly full takes nothing more, and keeps the space that "
        "checkpoints need",
        (13,),
        replacing(bookie, "next_mode", _always_writable),
        "full",
    ),
    _mutant(
        "metadata_asked_before_the_disk",
        "local ledgers are listed before the metadata are asked which of them were deleted",
        (12,),
        replacing(GarbageCollector, "_delete_ledgers", _metadata_asked_first),
        "metadata",
        first=12,
    ),
    _mutant(
        "garbage_without_point_read",
        "each ledger is looked for by its own path, after a sync, before it is deleted",
        (12,),
        replacing(GarbageCollector, "_delete_ledgers", _one_look_at_metadata),
        "metadata",
    ),
    _mutant(
        "log_deleted_before_its_copy",
        "compaction copies, syncs, moves the index and syncs before it deletes",
        (12,),
        replacing(GarbageCollector, "_move", _copy_left_behind),
        "garbage",
    ),
)
