"""The position where delivery begins when a client or operator names one (rule 18): a seek, a
reset, the start of a reader or subscription.

A position in one of the topic's ledgers means itself. Where there is no entry it means the next one
that exists or will exist: beyond the end it means the end, in a trimmed part the first entry that
is kept. A ledger of another topic is refused.
"""

from __future__ import annotations

from pulsarish.managed_ledger.chain import Chain
from pulsarish.model.errors import InvalidPosition, ServiceNotReady
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose
from pulsarish.model.position import EARLIEST, LATEST, Position

__all__ = ["judge_foreign", "seek_target"]


def seek_target(chain: Chain, position: Position) -> Position | None:
    """Return the target.

    ``None``: the ledger is not in the chain; then read its metadata and call ``judge_foreign``.
    """
    if position.ledger_id < 0:
        return EARLIEST
    if position.ledger_id == LATEST.ledger_id:
        return LATEST
    link = chain.find(position.ledger_id)
    if link is None:
        return None
    return chain.next_position(Position(link.ledger_id, min(position.entry_id, link.entries) - 1))


def judge_foreign(
    chain: Chain,
    position: Position,
    topic: str,
    found: LedgerMetadata | None,
    *,
    purpose: LedgerPurpose,
    highest: int,
) -> Position:
    """Return the target of a position whose ledger is not in the chain.

    Args:
        found: the ledger's metadata.
        highest: the greatest id that was ever in the chain.

    Raises ``InvalidPosition``, or ``ServiceNotReady`` when only another owner can know.
    """
    ledger_id = position.ledger_id
    if found is not None and found.purpose == purpose and ledger_id > highest:
        raise ServiceNotReady(
            f"ledger {ledger_id} of position {position} is newer than what this broker knows of "
            f"{topic}; look it up again"
        )
    if ledger_id > highest or (found is not None and found.purpose != purpose):
        raise InvalidPosition(
            f"position {position} names ledger id {ledger_id}, which is no ledger of topic "
            f"{topic}: pass the id of one of its messages,"
            " earliest or latest"
        )
    # Trimmed, or empty and removed. Without metadata a deleted ledger looks like one that never
    # existed, and the position names no entry.
    return position if position < chain.first_position() else chain.next_position(position)
