"""The condition of writing to a topic's log, for statistics and explanations."""

from __future__ import annotations

from dataclasses import dataclass

from pulsarish.ledger.writer_condition import WriterCondition
from pulsarish.managed_ledger.chain_core import Phase
from pulsarish.model.errors import PulsarishError

__all__ = ["LogCondition", "Trouble"]


@dataclass(slots=True)
class Trouble:
    """The reason why a step towards a new ledger is tried again. Times are of the wall clock."""

    error: PulsarishError
    since_ms: int
    attempts: int
    retry_at_ms: int


@dataclass(frozen=True, slots=True)
class LogCondition:
    """The condition of appending to a log at one moment."""

    phase: Phase
    step: str  # the present step towards the next ledger; empty: none
    since_ms: int  # when appends began to wait for it; 0: they do not wait
    trouble: Trouble | None
    writer: WriterCondition | None
    pending_entries: int
    pending_bytes: int
    oldest_context: object | None  # of the oldest append that is not confirmed
