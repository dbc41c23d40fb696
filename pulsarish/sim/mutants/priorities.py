"""Mutants of delivery by priority, noticed where workers take messages with priorities."""

from __future__ import annotations

from typing import Any, Final

from pulsarish.broker.dispatchers.reads import Reads
from pulsarish.model.position import Position
from pulsarish.sim.workloads.priorities import run_priorities
from pulsarish.sim.workloads.safeguard import Mutant, Patch, replacing

__all__ = ["PRIORITY_MUTANTS"]


def _forgets_what_waits(was: Any) -> object:
    def prioritise(reads: Reads, entries_max: int) -> None:
        if not entries_max and reads.window is not None:
            reads.window.clear()
        was(reads, entries_max)

    return prioritise


def _without_looking(_was: object) -> object:
    def line_up(reads: Reads, _end: Position, messages_max: int, *, new_allowed: bool) -> None:
        assert reads.window is not None
        reads.ready_again.extend(reads.window.take_kept(messages_max, reads._is_gone))

    return line_up


def _mutant(name: str, removes: str, patch: Patch, *, seeds: int = 4) -> Mutant:
    return Mutant(name, removes, (), patch, run_priorities, seeds)


PRIORITY_MUTANTS: Final = (
    _mutant(
        "priorities_off_forgets_what_waits",
        "what waits by priority is delivered in log order when the policy is switched off",
        replacing(Reads, "prioritise", _forgets_what_waits),
    ),
    _mutant(
        "delivered_before_the_look_ahead",
        "nothing is delivered by priority before all that the window has room for was looked at",
        replacing(Reads, "line_up", _without_looking),
    ),
)
