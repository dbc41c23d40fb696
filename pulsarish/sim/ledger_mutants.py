"""Safeguards of the ledger path, each taken away in turn; the oracle of ``ledger_workload`` must notice.

Each mutant has a scenario that makes its case likely: which faults, how many bookies, which quorums. The same scenarios pass without it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from pulsarish.bookie.group_commit import GroupCommit
from pulsarish.bookie.reads import Reader
from pulsarish.bookie.store import EntryStore
from pulsarish.ledger.recovery_core import ReadingCore, ReadOrder
from pulsarish.ledger.replicator import Replicator
from pulsarish.ledger.writer_core import Change
from pulsarish.metadata.paths import LEDGERS
from pulsarish.metadata.update import Records
from pulsarish.model.errors import BookieIOError, NoSuchEntry, PulsarishError
from pulsarish.sim.ledger_workload import LedgerSettings, run_ledgers
from pulsarish.sim.mutants import MUTANTS, Mutant, replaced
from pulsarish.wire.bookie import ReadAnswer, ReadItem

__all__ = ["LEDGER_MUTANTS", "LEDGER_SCENARIOS"]

LEDGER_MUTANTS: Final[list[str]] = []
"""Their names, in ``MUTANTS``."""

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
        seconds=10.0,
        kinds=("slow_metadata",),
        quorums=((3, 3, 2),),
        swizzle_seconds=0.02,
        lost_call_chance=0.2,
        broken_stream_seconds=0.05,
    ),
    "power": LedgerSettings(bookies=3, seconds=8.0, kinds=("slow_disk",), quorums=((3, 3, 2), (2, 2, 2)), blackout_seconds=0.8),
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
    "metadata": LedgerSettings(
        bookies=4,
        seconds=8.0,
        kinds=("slow_metadata", "lose_answers", "crash", "pause"),
        quorums=((3, 3, 2), (2, 2, 2)),
        swizzle_seconds=0.04,
    ),
}
"""Settings by what they stress."""


def _recovery_read_without_fence(_was: object) -> object:
    async def recovery_read(store: EntryStore, ledger_id: int, first: int, last: int, max_bytes: int) -> ReadAnswer:
        return (await store.read([ReadItem(0, ledger_id, [(first, last)], max_bytes)]))[0]

    return recovery_read


def _answer_at_once(was: object) -> object:
    append: Callable[..., int] = was  # type: ignore[assignment]

    def answering(queue: GroupCommit, kind: Any, parts: Any, size_bytes: int, durable: Callable[[], None] | None) -> int:
        sequence = append(queue, kind, parts, size_bytes, None)
        if durable is not None:
            durable()
        return sequence

    return answering


def _io_error_as_negative(was: object) -> object:
    read: Any = was

    async def reading(reader: Reader, items: Any) -> list[ReadAnswer]:
        answers: list[ReadAnswer] = await read(reader, items)
        for answer in answers:
            if answer.code == BookieIOError.code:
                answer.code = NoSuchEntry.code
        return answers

    return reading


def _ensemble_before_it_is_stored(_was: object) -> object:
    """The new members are written to and counted at once, and the compare-and-set follows."""

    async def change(replicator: Replicator, wished: Change) -> None:
        places = replicator.core.change_stored(wished.wished)
        replicator._attach()
        for index in places:
            replicator._resend(index)
        replicator._settle()
        try:
            await replicator._owner.store_change(wished)
        except PulsarishError as error:
            replicator.stop(error)

    return change


def _unknown_as_negative(_was: object) -> object:
    def failed(core: ReadingCore, order: ReadOrder, records: Any, _why: str) -> None:
        core.answered(order, records, NoSuchEntry.code)

    return failed


def _any_version(was: object) -> object:
    compare_and_set: Any = was

    async def set_anyway(records: Records, path: str, record: Any, version: int | None, **more: Any) -> int:
        result: int = await compare_and_set(
            records, path, record, version if version is None or not path.startswith(LEDGERS) else -1, **more
        )
        return result

    return set_anyway


def _patch(owner: object, name: str, make: Callable[[object], object]) -> Callable[[], AbstractContextManager[None]]:
    return lambda: replaced(owner, name, make)


def _register(name: str, removes: str, patch: Callable[[], AbstractContextManager[None]], scenario: str) -> None:
    settings = LEDGER_SCENARIOS[scenario]
    LEDGER_MUTANTS.append(name)
    MUTANTS[name] = Mutant(name, removes, patch, lambda seed: _run(seed, settings))


def _run(seed: int, settings: LedgerSettings) -> None:
    run_ledgers(seed, settings)


_register(
    "no_fence_on_recovery_reads",
    "a recovery read fences before it reads (rule 6)",
    _patch(EntryStore, "recovery_read", _recovery_read_without_fence),
    "links",
)
_register(
    "acknowledge_before_sync",
    "an add is answered after the sync that covers it (rule 9)",
    _patch(GroupCommit, "append", _answer_at_once),
    "power",
)
_register(
    "negative_on_io_error",
    "an entry that cannot be read is an error, never absent (rule 8)",
    _patch(Reader, "read", _io_error_as_negative),
    "disks",
)
_register(
    "ensemble_used_before_it_is_stored",
    "a new ensemble is used once it is in metadata (rule 3)",
    _patch(Replicator, "_change", _ensemble_before_it_is_stored),
    "metadata",
)
_register(
    "unknown_as_negative",
    "a time-out or a broken call is no proof of absence (rule 6)",
    _patch(ReadingCore, "failed", _unknown_as_negative),
    "links",
)
_register(
    "ledger_record_without_version",
    "every change of a ledger's record is a compare-and-set (rule 6)",
    _patch(Records, "compare_and_set", _any_version),
    "metadata",
)
