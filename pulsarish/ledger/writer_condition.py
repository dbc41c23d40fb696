"""The condition of a ledger that is being written, for statistics and explanations."""

from __future__ import annotations

from dataclasses import dataclass

from pulsarish.model.ledger_metadata import LedgerMetadata

__all__ = ["WriterCondition"]


@dataclass(frozen=True, slots=True)
class WriterCondition:
    """A writer at one moment. Members are instance ids."""

    metadata: LedgerMetadata
    last_add_confirmed: int
    last_add_pushed: int
    members: tuple[str, ...]  # the ensemble that metadata holds now
    missing: tuple[str, ...]  # left out, as no bookie can replace them: their copies are missing
    silent: tuple[str, ...]  # owe an answer for the oldest entry that is not confirmed
    changing: bool  # an ensemble change is being stored
    crowded: bool  # too few members take entries as fast as they come
