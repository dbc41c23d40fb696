"""Safeguards of a topic's log, each taken away in turn; the oracle of ``log_workload`` must notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from pulsarish.managed_ledger import cursor_store
from pulsarish.managed_ledger.appender import Appender
from pulsarish.managed_ledger.cursor_core import CursorCore
from pulsarish.managed_ledger.record_cell import RecordCell
from pulsarish.metadata.records import TopicRecord
from pulsarish.model.position import Position
from pulsarish.runtime.seams import Op
from pulsarish.sim.log_workload import LogSettings, run_log
from pulsarish.sim.mutants import MUTANTS, Mutant, replaced

__all__ = ["LOG_SCENARIOS"]

LOG_SCENARIOS: Final[dict[str, LogSettings]] = {
    "rivals": LogSettings(seconds=6.0, kinds=("slow_metadata", "slow_node"), rival_chance=0.9, entries_per_ledger=30),
    "storage": LogSettings(bookies=4, seconds=8.0, kinds=("crash", "slow_disk", "cut", "clog"), rival_chance=0.0),
    "crashes": LogSettings(seconds=8.0, kinds=("crash", "pause", "slow_metadata"), rival_chance=0.2, entries_per_ledger=4),
}
"""Settings by what they stress."""


def _list_without_version(was: object) -> object:
    write: Any = was

    async def blind(cell: Any, wished: Any, *, guards: Callable[[], Sequence[Op]] = tuple) -> None:
        if isinstance(wished, TopicRecord) and cell.version is not None:
            cell.version = await cell._records.compare_and_set(cell.path, wished, -1)
            cell.record = wished
        else:
            await write(cell, wished, guards=guards)

    return blind


def _cursor_without_guard(_was: object) -> object:
    async def unguarded(_topic: object, commit: Callable[[Callable[[], Sequence[Op]]], Any]) -> None:
        await commit(tuple)

    return unguarded


def _resend_without_recovery(_was: object) -> object:
    async def recover(appender: Appender) -> None:
        appender.core.recovered(appender.core.chain.links[-1].entries - 1)

    return recover


def _trim_by_memory(_was: object) -> object:
    def safe_mark(core: CursorCore) -> Position:
        return core.acks.mark

    return property(safe_mark)


def _patch(owner: object, name: str, make: Callable[[object], object]) -> Callable[[], AbstractContextManager[None]]:
    return lambda: replaced(owner, name, make)


def _register(name: str, removes: str, patch: Callable[[], AbstractContextManager[None]], scenario: str) -> None:
    def check(seed: int) -> None:
        run_log(seed, LOG_SCENARIOS[scenario])

    MUTANTS[name] = Mutant(name, removes, patch, check)


_register(
    "list_swung_without_version",
    "every change of a topic's list of ledgers is a compare-and-set (rule 14)",
    _patch(RecordCell, "write", _list_without_version),
    "rivals",
)
_register(
    "cursor_stored_by_a_stale_owner",
    "a cursor is stored only while its owner's version of the topic's record holds (rule 16)",
    _patch(cursor_store, "_guarded", _cursor_without_guard),
    "rivals",
)
_register(
    "resend_without_recovery",
    "what a stopped writer left unconfirmed is sent again only once its ledger is closed (rule 4, Pulsar's #7490)",
    _patch(Appender, "_recover", _resend_without_recovery),
    "storage",
)
_register(
    "trim_by_memory",
    "trimming goes by the stored marks of cursors (rule 17)",
    _patch(CursorCore, "safe_mark", _trim_by_memory),
    "crashes",
)
