"""Safeguards of a topic's log, each taken away in turn; the oracle of ``log_workload`` must notice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from pulsarish.managed_ledger.chain_core import ChainCore
from pulsarish.managed_ledger.record_cell import RecordCell
from pulsarish.metadata.records import TopicRecord
from pulsarish.runtime.seams import Op
from pulsarish.sim.log_workload import LogSettings, run_log
from pulsarish.sim.mutants import MUTANTS, Mutant, replaced

__all__ = ["LOG_SCENARIOS"]

LOG_SCENARIOS: Final[dict[str, LogSettings]] = {
    "rivals": LogSettings(seconds=6.0, kinds=("slow_metadata", "slow_node"), rival_chance=0.9, entries_per_ledger=30),
    "power": LogSettings(
        seconds=10.0, kinds=("slow_disk",), rival_chance=0.0, stay_seconds=20.0, blackout_seconds=0.7, entries_per_ledger=200
    ),
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


def _resend_everything(_was: object) -> object:
    def recovered(core: ChainCore, last_entry: int) -> None:
        kept = last_entry + 1 - core.chain.links[-1].entries
        if kept > 0:
            core.chain.grow(kept, 0)
        core.pushed = core.pushed_bytes = 0

    return recovered


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
    "resend_what_recovery_kept",
    "of what a stopped writer left unconfirmed only that is sent again which its closed ledger lacks (rule 4, Pulsar's #7490)",
    _patch(ChainCore, "recovered", _resend_everything),
    "power",
)
