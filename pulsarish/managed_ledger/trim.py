"""Which ledgers of a topic may be trimmed (rule 17). No I/O."""

from __future__ import annotations

from typing import Final

from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.options import Retention
from pulsarish.model.position import Position

__all__ = ["CLOCK_TOLERANCE_MS", "trimmable"]

CLOCK_TOLERANCE_MS: Final = 60_000
"""The possible difference between the clocks of two brokers.

Timed retention is longer by this, because another broker may have closed the ledger.
"""


def trimmable(chain: Chain, safe_mark: Position, retention: Retention, now_ms: int) -> int:
    """Count the ledgers that may be trimmed from the front of the chain.

    A ledger may be trimmed when it is closed, all its entries are at or below ``safe_mark``, and
    its retention is over. Its retention is over when it was closed longer ago than the time allows,
    or when the rest of the log is still as large as the size allows, or has as many entries as the
    count allows.

    Args:
        now_ms: the wall clock of the calling broker. Closing times come from the brokers that
            closed the ledgers, so a retention time is extended by the possible difference of the
            clocks.
    """
    left_bytes, left_entries = chain.size_bytes, chain.entries
    kept_ms = retention.minutes * 60_000 + (CLOCK_TOLERANCE_MS if retention.minutes > 0 else 0)
    count = 0
    for link in chain.links:
        if link.closed_ms == 0 or link.last_position > safe_mark:
            break
        left_bytes -= link.size_bytes
        left_entries -= link.entries
        expired = retention.minutes >= 0 and now_ms - link.closed_ms >= kept_ms
        oversized = retention.mb >= 0 and left_bytes >= retention.mb << 20
        too_many = retention.count >= 0 and left_entries >= retention.count
        if not (expired or oversized or too_many):
            break
        count += 1
    return count
