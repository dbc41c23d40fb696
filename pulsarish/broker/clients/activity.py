"""When things last happened to a subscription. Only its statistics use this."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pulsarish.broker.clients.stall import Stall
from pulsarish.model.position import Position

if TYPE_CHECKING:
    from pulsarish.managed_ledger.cursors.cursor import Cursor

__all__ = ["SubscriptionActivity"]


@dataclass(slots=True)
class SubscriptionActivity:
    """Times of a subscription, in milliseconds of the wall clock; 0: not since the subscription was
    loaded.
    """

    mark_delete: Position
    unused_since_ms: int  # since then no consumer is connected; 0: one is
    last_flow_ms: int = 0
    last_consumed_ms: int = 0
    last_acked_ms: int = 0
    last_expire_ms: int = 0
    mark_delete_advanced_ms: int = 0
    holes_since_ms: int = 0  # since then too many acknowledged ranges; 0: not now
    reading_since_ms: int = 0  # since then a read is in flight; 0: none is
    reading_since_seconds: float = 0.0  # the same by the monotonic clock
    retry_at_ms: int = 0  # a failed read is retried then
    rate_since_ms: int = 0  # since then reads wait for a rate of the policies; 0: they do not
    rate_until_ms: int = 0  # the rate is checked again then
    seeks: int = 0  # number of seeks in progress
    seeking_since_ms: int = 0  # when the first of them began
    # since then the active consumer waits for the previous one; 0: it does not
    handing_over_since_ms: int = 0
    stall: Stall = field(default_factory=Stall)

    def seek_began(self, now_ms: int) -> None:
        self.seeks += 1
        self.seeking_since_ms = self.seeking_since_ms or now_ms

    def seek_ended(self) -> None:
        self.seeks -= 1
        if not self.seeks:
            self.seeking_since_ms = 0

    def cursor_moved(self, cursor: Cursor, now_ms: int) -> None:
        """Note when the mark-delete position advanced, and since when there are too many
        acknowledged ranges.
        """
        mark = cursor.mark_delete
        if mark != self.mark_delete:
            self.mark_delete, self.mark_delete_advanced_ms = mark, now_ms
        if not cursor.blocked:
            self.holes_since_ms = 0
        elif not self.holes_since_ms:
            self.holes_since_ms = now_ms
