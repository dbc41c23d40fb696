"""Mutants of schedules: each instant has exactly one message."""

from __future__ import annotations

from typing import Any, Final

from pulsarish.broker.topics import topic_schedules
from pulsarish.sim.workloads.safeguard import Mutant, replacing
from pulsarish.sim.workloads.schedules import run_schedules

__all__ = ["SCHEDULE_MUTANTS"]


def _check_schedules(seed: int) -> None:
    run_schedules(seed)


def _trusts_the_notes(_was: Any) -> object:
    async def published(log: Any, after: Any, decided_ms: Any) -> Any:
        return dict(decided_ms)

    return published


def _counts_as_published(_was: Any) -> object:
    async def published(log: Any, after: Any, decided_ms: Any) -> Any:
        return {name: abs(instant_ms) + 60_000 for name, instant_ms in decided_ms.items()}

    return published


SCHEDULE_MUTANTS: Final = (
    Mutant(
        "scheduled_twice",
        "an owner that finds a run of schedules not noted looks into the log for its messages",
        (),
        replacing(topic_schedules, "published", _trusts_the_notes),
        _check_schedules,
        seeds=6,
    ),
    Mutant(
        "scheduled_never",
        "what the log does not have of a run that was not noted is published by the next owner",
        (),
        replacing(topic_schedules, "published", _counts_as_published),
        _check_schedules,
        seeds=6,
    ),
)
