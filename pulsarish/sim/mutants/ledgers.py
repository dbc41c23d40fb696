"""Mutants of the safeguards of the ledger path. The oracle of ``workloads/ledgers.py`` must notice.

Each mutant has a scenario that makes its case likely: which faults, how many bookies, which
quorums. The same scenarios pass without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pulsarish.bookie.store import EntryStore
from pulsarish.ledger import recovery, writer, writer_core
from pulsarish.ledger.coverage import Coverage
from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.reader_core import ReadCore, SpanOrder
from pulsarish.ledger.recovery import Recovery
from pulsarish.ledger.recovery_core import ReadingCore, ReadOrder, ReadVerdict
from pulsarish.ledger.replicator import Replicator
from pulsarish.ledger.writer import LedgerWriter
from pulsarish.ledger.writer_core import Change, WriterCore
from pulsarish.metadata.paths import LEDGERS
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import LedgerFenced, NoSuchEntry, NoSuchLedger, PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.model.position import NO_ENTRY
from pulsarish.sim.workloads.late_replicas import run_late_replicas
from pulsarish.sim.workloads.ledgers import LedgerSettings, run_ledgers
from pulsarish.sim.workloads.safeguard import Mutant, Patch, all_replaced, replacing
from pulsarish.wire.bookie import ReadAnswer, ReadItem
from pulsarish.wire.record import Record

__all__ = ["LEDGER_MUTANTS", "LEDGER_SCENARIOS"]

LEDGER_SCENARIOS: Final[dict[str, LedgerSettings]] = {
    "links": LedgerSettings(
        bookies=3,
        writers=3,
        rivals=1,
        recovery_pause_seconds=0.15,
        endings=("fight",),
        seconds=12.0,
        kinds=("slow_node",),
        quorums=((3, 3, 2),),
        swizzle_seconds=0.02,
        lost_call_chance=0.2,
    ),
    "changes": LedgerSettings(
        bookies=5,
        writers=3,
        rivals=1,
        recovery_pause_seconds=0.15,
        endings=("fight",),
        seconds=8.0,
        kinds=(),
        quorums=((3, 3, 2),),
        swizzle_seconds=0.02,
        lost_call_chance=0.2,
        broken_stream_seconds=0.05,
        slow_write_chance=0.5,
    ),
    "pairs": LedgerSettings(
        bookies=4,
        writers=3,
        rivals=1,
        recovery_pause_seconds=0.3,
        endings=("fight",),
        seconds=5.0,
        kinds=(),
        quorums=((2, 2, 2),),
        swizzle_seconds=0.05,
        broken_stream_seconds=0.1,
        slow_write_chance=0.5,
    ),
    "deletions": LedgerSettings(
        bookies=3,
        writers=3,
        rivals=1,
        recovery_pause_seconds=0.1,
        deletion_chance=0.7,
        endings=("fight",),
        seconds=6.0,
        kinds=(),
        quorums=((3, 3, 2),),
        swizzle_seconds=0.02,
        lost_call_chance=0.2,
    ),
    "power": LedgerSettings(
        bookies=3,
        seconds=8.0,
        kinds=("slow_disk",),
        quorums=((3, 3, 2), (2, 2, 2)),
        blackout_seconds=0.8,
    ),
    "disks": LedgerSettings(
        bookies=3,
        writers=2,
        endings=("leave",),
        recovery_pause_seconds=0.3,
        recovery_lag_ledgers=8,
        seconds=15.0,
        kinds=("slow_node",),
        quorums=((3, 3, 3),),
        bad_disk_seconds=0.02,
    ),
    "crowds": LedgerSettings(
        bookies=2,
        writers=4,
        rivals=1,
        recovery_pause_seconds=0.3,
        deletion_chance=0.0,
        endings=("fight",),
        seconds=8.0,
        kinds=("slow_disk",),
        quorums=((2, 2, 2),),
        recoveries_at_once=5,
        queue_bytes=3_000,
        broken_recovery_seconds=0.03,
    ),
    "leaving": LedgerSettings(
        bookies=5,
        writers=3,
        rivals=1,
        recovery_pause_seconds=0.3,
        endings=("leave",),
        seconds=5.0,
        kinds=(),
        quorums=((3, 3, 2),),
        broken_stream_seconds=0.05,
        slow_write_chance=0.5,
    ),
    "stripes": LedgerSettings(
        bookies=4,
        writers=1,
        rivals=1,
        seconds=3.0,
        kinds=(),
        quorums=((3, 2, 2),),
        endings=("close", "leave"),
    ),
    "metadata": LedgerSettings(
        bookies=4,
        seconds=8.0,
        kinds=("slow_metadata", "lose_answers", "crash", "pause"),
        quorums=((3, 3, 2), (2, 2, 2)),
        swizzle_seconds=0.04,
    ),
}
"""Settings by what they stress.

Some belong to no mutant: what they stress is cheaper to notice in ``workloads/storage.py``.
"""


def _recovery_read_without_fence(_was: object) -> object:
    async def recovery_read(
        store: EntryStore, ledger_id: int, first: int, last: int, max_bytes: int
    ) -> ReadAnswer:
        return (await store.read([ReadItem(0, ledger_id, [(first, last)], max_bytes)]))[0]

    return recovery_read


def _read_before_the_fence() -> Patch:
    """Answer a fence with what the bookie knew while the writer could still add."""
    read: dict[tuple[str, int], ReadAnswer] = {}

    def early(was: Any) -> object:
        async def fence_all(store: EntryStore, ledger_ids: Sequence[int]) -> Any:
            lacs = [(await store.states.get(ledger_id)).known_lac for ledger_id in ledger_ids]
            for ledger_id, lac in zip(ledger_ids, lacs, strict=True):
                first = max(lac, 0)
                item = ReadItem(0, ledger_id, [(first, first + 3)], 8_192)
                read[store.instance_id, ledger_id] = (await store.read([item]))[0]
            await store._clock.sleep(0.05)
            found = await was(store, ledger_ids)
            return [(code, lac) for (code, _), lac in zip(found, lacs, strict=True)]

        return fence_all

    def stale(was: Any) -> object:
        async def read_fenced(
            store: EntryStore, items: Sequence[ReadItem], limit_bytes: int
        ) -> list[ReadAnswer]:
            answers: list[ReadAnswer] = await was(store, items, limit_bytes)
            return [
                read[store.instance_id, item.ledger_id]
                for item, _ in zip(items, answers, strict=False)
            ]

        return read_fenced

    return all_replaced(
        replacing(EntryStore, "fence_all", early), replacing(EntryStore, "read_fenced", stale)
    )


def _end_at_lac(_was: object) -> object:
    return property(lambda _core: ReadVerdict.END)


def _one_answer_is_enough(_was: object) -> object:
    return property(lambda coverage: coverage.heard_count > 0)


def _confirm_meanwhile(was: Any) -> object:
    def confirm(core: WriterCore) -> int:
        failed, change = core._failed, core._change
        core._failed, core._change = [], None
        try:
            count: int = was(core)
        finally:
            core._failed, core._change = failed, change
        return count

    return confirm


def _count_the_replaced(was: Any) -> object:
    def change_stored(core: WriterCore, stored: LedgerMetadata) -> tuple[int, ...]:
        acked = list(core._acked)
        places: tuple[int, ...] = was(core, stored)
        for index in places:
            core._acked[index] = acked[index]
        return places

    return change_stored


def _lac_of_what_is_sent(was: Any) -> object:
    def encode(
        ledger_id: int, entry_id: int, _lac: int, length_bytes: int, payload: bytes
    ) -> bytes:
        head: bytes = was(ledger_id, entry_id, entry_id - 1, length_bytes, payload)
        return head

    return encode


def _one_above_the_lac(was: Any) -> object:
    async def ask_lac(reader: LedgerReader, *, wait_ms: int) -> None:
        await was(reader, wait_ms=wait_ms)
        reader._lac += 1

    return ask_lac


def _whatever_the_state(_was: object) -> object:
    async def reread(writer: LedgerWriter) -> LedgerMetadata:
        found = await writer._store.read_newest(writer.ledger_id)
        if found is None:
            raise LedgerFenced(f"ledger {writer.ledger_id} was deleted")
        metadata, writer._version = found
        return msgspec.structs.replace(
            metadata, state=LedgerState.OPEN, last_entry=NO_ENTRY, length_bytes=0
        )

    return reread


def _other_places(was: Any) -> object:
    """Give each place the entries of the place before it."""

    def stripes(ensemble_size: int, write_quorum: int, length: int) -> tuple[int, ...]:
        right: tuple[int, ...] = was(ensemble_size, write_quorum, length)
        return (right[-1], *right[:-1])

    return stripes


def _other_place(_was: object) -> object:
    def holds(core: WriterCore, index: int, entry_id: int) -> bool:
        return (index - 1 - entry_id) % core.metadata.ensemble_size < core.metadata.write_quorum

    return holds


def _ensemble_before_it_is_stored(_was: object) -> object:
    """Write to the new members and count their answers at once, before the compare-and-set."""

    async def change(replicator: Replicator, wanted: Change) -> None:
        places = replicator.core.change_stored(wanted.planned)
        replicator._attach()
        for index in places:
            replicator._resend(index)
        replicator._settle()
        try:
            await replicator._owner.store_change(wanted)
        except PulsarishError as error:
            replicator.stop(error)

    return change


def _unknown_as_negative(_was: object) -> object:
    def failed(core: ReadingCore, order: ReadOrder, records: Any, _why: str) -> None:
        core.answered(order, records, NoSuchEntry.code)

    return failed


def _any_version(was: object) -> object:
    compare_and_set: Any = was

    async def set_anyway(
        records: Records, path: str, record: Any, version: int | None, **more: Any
    ) -> int:
        result: int = await compare_and_set(
            records,
            path,
            record,
            version if version is None or not path.startswith(LEDGERS) else -1,
            **more,
        )
        return result

    return set_anyway


def _close_at_once(_was: object) -> object:
    async def written(_recovery: Recovery, _writing: object, _last_entry: int) -> None:
        return

    return written


def _lac_of_what_is_written(was: Any) -> object:
    def restamp_lac(record: Record, _lac: int) -> bytes:
        whole: bytes = was(record, record.entry_id - 1)
        return whole

    return restamp_lac


def _silent_about_room(_was: object) -> object:
    """Do not notify a ledger without entries at the bookie that its stream broke."""

    def member_failed(replicator: Replicator, member: str, reason: str) -> None:
        index = replicator.core.place_of(member)
        if index is None or not replicator.core.outstanding(index):
            return
        replicator._member_lost(member, reason)
        if not replicator._released:
            replicator._settle()

    return member_failed


def _change_goes_on(_was: object) -> object:
    def abandon(replicator: Replicator, _error: PulsarishError) -> None:
        replicator._released = True
        replicator._detach()

    return abandon


def _mutant(
    name: str,
    removes: str,
    rules: tuple[int, ...],
    patch: Patch,
    scenario: str,
    seeds: int = 40,
    first: int = 0,
) -> Mutant:
    def check(seed: int) -> None:
        run_ledgers(seed, LEDGER_SCENARIOS[scenario])

    return Mutant(name, removes, rules, patch, check, seeds, first)


def _second_answer_for_all(was: Any) -> Any:
    def answered(
        core: ReadCore, order: SpanOrder, records: Sequence[Record], code: int, why: str = ""
    ) -> None:
        was(core, order, records, code, why)
        if order is core._second and code in (NoSuchEntry.code, NoSuchLedger.code):
            for late in list(core._late):
                core._settle(late)
            for member in core._metadata.write_set(core.first):
                core._say(core.first, member, "the same")
                core._negatives.add(member)

    return answered


LEDGER_MUTANTS: Final = (
    Mutant(
        "late_replica_taken_for_negative",
        "an entry is missing only when every replica says so, a late one too",
        (8,),
        replacing(ReadCore, "answered", _second_answer_for_all),
        run_late_replicas,
        seeds=3,
    ),
    _mutant(
        "no_fence_on_recovery_reads",
        "a recovery read fences before it reads",
        (6,),
        replacing(EntryStore, "recovery_read", _recovery_read_without_fence),
        "links",
        first=10,
    ),
    _mutant(
        "read_before_the_fence",
        "what comes with the answer to a fence was read when the fence was durable",
        (6,),
        _read_before_the_fence(),
        "pairs",
    ),
    _mutant(
        "ensemble_used_before_it_is_stored",
        "a new ensemble is used once it is in metadata",
        (3,),
        replacing(Replicator, "_change", _ensemble_before_it_is_stored),
        "pairs",
    ),
    _mutant(
        "unknown_as_negative",
        "a time-out or a broken call is no proof of absence",
        (6,),
        replacing(ReadingCore, "failed", _unknown_as_negative),
        "links",
    ),
    _mutant(
        "ledger_record_without_version",
        "every change of a ledger's record is a compare-and-set",
        (3, 6),
        replacing(Records, "compare_and_set", _any_version),
        "metadata",
    ),
    _mutant(
        "recovery_ends_at_lac",
        "recovery reads on behind the LAC",
        (6,),
        replacing(ReadingCore, "verdict", _end_at_lac),
        "links",
    ),
    _mutant(
        "fencing_hears_one",
        "fencing hears Qw - Qa + 1 members of every write quorum",
        (5,),
        replacing(Coverage, "covered", _one_answer_is_enough),
        "deletions",
        first=7,
    ),
    _mutant(
        "confirmation_during_change",
        "nothing is confirmed while an ensemble change runs",
        (2,),
        replacing(WriterCore, "confirm", _confirm_meanwhile),
        "pairs",
    ),
    _mutant(
        "replaced_member_counted",
        "what a replaced member has acknowledged does not count for its successor",
        (2, 3),
        replacing(WriterCore, "change_stored", _count_the_replaced),
        "pairs",
    ),
    _mutant(
        "ensemble_changed_after_the_end",
        "the ensemble changes only while the ledger is open",
        (3,),
        replacing(LedgerWriter, "_reread", _whatever_the_state),
        "pairs",
        first=7,
    ),
    _mutant(
        "lac_of_what_is_sent",
        "an entry carries the last confirmed entry, and only recovery reads above that",
        (3,),
        replacing(writer, "encode_record_head", _lac_of_what_is_sent),
        "links",
    ),
    _mutant(
        "reader_goes_above_the_lac",
        "a reader that does not recover, as that of a read replica, shows nothing above the LAC",
        (3,),
        replacing(LedgerReader, "_ask_lac", _one_above_the_lac),
        "links",
    ),
    _mutant(
        "written_elsewhere",
        "writer, readers and recovery have one idea of which members hold an entry",
        (1,),
        all_replaced(
            replacing(writer_core, "_stripes", _other_places),
            replacing(WriterCore, "holds", _other_place),
        ),
        "stripes",
    ),
    _mutant(
        "closed_before_the_copies",
        "recovery closes a ledger when what it found has its Qa copies",
        (6,),
        replacing(Recovery, "_written", _close_at_once),
        "links",
    ),
    _mutant(
        "lac_of_what_is_recovered",
        "what recovery writes back carries the LAC found at its start",
        (6,),
        replacing(recovery, "restamp_lac", _lac_of_what_is_written),
        "links",
    ),
    _mutant(
        "room_not_announced",
        "a ledger that waits for room in a queue is woken when the queue is lost with its stream",
        (20,),
        replacing(Replicator, "member_failed", _silent_about_room),
        "crowds",
    ),
    _mutant(
        "change_goes_on_after_the_end",
        "an ensemble change that is stored after the writing was given up changes nothing",
        (3,),
        replacing(Replicator, "abandon", _change_goes_on),
        "leaving",
    ),
)
