"""Which ledgers of a topic may go (rule 17). No I/O."""

from __future__ import annotations

from typing import Final

from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.options import Retention
from pulsarish.model.position import Position

__all__ = ["CLOCK_TOLERANCE_MS", "trimmable"]

CLOCK_TOLERANCE_MS: Final = 60_000
"""The difference that the clocks of two brokers may have. A ledger that one broker has closed is kept longer by this by another one."""


def trimmable(chain: Chain, safe_mark: Position, retention: Retention, now_ms: int) -> int:
    """How many ledgers may be taken off the front of the chain.

    A ledger may go when it is closed, every entry of it is at or below ``safe_mark``, and its retention is over: it was closed longer
    ago than the time allows, or what would be left without it is still as great as the size allows. ``now_ms`` is the wall clock of the
    broker that asks, the closing times are those of the brokers that closed; a time of retention is longer by what they may be apart.
    """
    left_bytes = chain.size_bytes
    kept_ms = retention.minutes * 60_000 + (CLOCK_TOLERANCE_MS if retention.minutes > 0 else 0)
    count = 0
    for link in chain.links:
        if link.closed_ms == 0 or link.last_position > safe_mark:
            break
        left_bytes -= link.size_bytes
        expired = retention.minutes >= 0 and now_ms - link.closed_ms >= kept_ms
        oversized = retention.mb >= 0 and left_bytes >= retention.mb << 20
        if not expired and not oversized:
            break
        count += 1
    return count
