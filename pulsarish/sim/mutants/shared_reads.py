"""Mutants of reads that several readers of one backlog share, and of read-ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pulsarish.managed_ledger import log_reader
from pulsarish.managed_ledger.chain import Link
from pulsarish.managed_ledger.log_reader import LogEntry, LogReader, Span
from pulsarish.model.position import Position
from pulsarish.sim.workloads.safeguard import Mutant, Patch, replacing
from pulsarish.sim.workloads.shared_reads import check_shared_reads

__all__ = ["SHARED_READ_MUTANTS"]


def _all_that_came(_was: object) -> object:
    def cut(entries: Sequence[LogEntry], *_: int) -> list[LogEntry]:
        return list(entries)

    return cut


def _waits_once(was: Any) -> object:
    async def read_ledger(
        reader: LogReader, link: Link, first: int, last: int, max_bytes: int
    ) -> list[LogEntry]:
        running = reader._request_of(link.ledger_id, first)
        if running is None:
            found: list[LogEntry] = await was(reader, link, first, last, max_bytes)
            return found
        entries = await running.done or ()
        return [each for each in entries if first <= each.position.entry_id <= last][:1]

    return read_ledger


def _beyond_what_is_confirmed(was: Any) -> object:
    def next_missing(reader: LogReader, position: Position) -> Span | None:
        found: Span | None = was(reader, position)
        return None if found is None else found._replace(last=found.last + 20)

    return next_missing


def _mutant(name: str, removes: str, rules: tuple[int, ...], patch: Patch) -> Mutant:
    return Mutant(name, removes, rules, patch, check_shared_reads, seeds=3)


SHARED_READ_MUTANTS: Final = (
    _mutant(
        "all_that_came_for_another",
        "a reader that shares another one's read gets of it what it asked for itself",
        (),
        replacing(log_reader, "_cut", _all_that_came),
    ),
    _mutant(
        "shared_read_tried_once",
        "a reader asks by itself when the read that it shared was given up or ended early",
        (21,),
        replacing(LogReader, "_read_ledger", _waits_once),
    ),
    _mutant(
        "read_ahead_of_what_is_confirmed",
        "read-ahead asks for confirmed entries only",
        (3,),
        replacing(LogReader, "next_missing", _beyond_what_is_confirmed),
    ),
)
