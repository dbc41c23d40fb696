"""Which under-replicated ledger a worker takes next, and when one that could not be repaired is
tried again. No I/O, no clock, no chance.

Nothing is given up: what is published stays here until the record is gone, and its waits between
attempts have a longest. Ledgers that wait alike are taken in an order that chance decides, so that
several workers seldom want the same one.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Backlog"]


@dataclass(slots=True)
class _Ledger:
    first_seen: float
    due: float
    order: float
    attempts: int = 0
    running: bool = False
    reason: str = ""


class Backlog:
    """Times are of a monotonic clock, in seconds."""

    def __init__(
        self, rng: random.Random, backoff_seconds: float, backoff_max_seconds: float
    ) -> None:
        self._random = rng
        self._backoff_seconds = backoff_seconds
        self._backoff_max_seconds = backoff_max_seconds
        self._ledgers: dict[int, _Ledger] = {}
        # due, order, ledger; a row that is not the ledger's newest means nothing
        self._heap: list[tuple[float, float, int]] = []

    @property
    def count(self) -> int:
        return len(self._ledgers)

    @property
    def running_count(self) -> int:
        return sum(ledger.running for ledger in self._ledgers.values())

    def published(self, ledger_ids: Iterable[int], now: float) -> None:
        """All that is published now."""
        known, self._ledgers = self._ledgers, {}
        for ledger_id in ledger_ids:
            ledger = known.pop(ledger_id, None)
            if ledger is None:
                self._ledgers[ledger_id] = _Ledger(now, now, self._random.random())
                self._push(ledger_id)
            else:
                self._ledgers[ledger_id] = ledger
        # What is being repaired has its own end.
        self._ledgers.update(
            (ledger_id, ledger) for ledger_id, ledger in known.items() if ledger.running
        )

    def take(self, now: float) -> int | None:
        """The next ledger to repair, which is the caller's until ``ended``."""
        while self._heap and self._heap[0][0] <= now:
            due, order, ledger_id = heapq.heappop(self._heap)
            ledger = self._ledgers.get(ledger_id)
            if (
                ledger is not None
                and not ledger.running
                and (ledger.due, ledger.order) == (due, order)
            ):
                ledger.running = True
                return ledger_id
        return None

    def waited(self, ledger_id: int, now: float) -> float:
        """Seconds for which the ledger is known to lack copies."""
        return now - self._ledgers[ledger_id].first_seen

    def is_news(self, ledger_id: int, reason: str) -> bool:
        """Whether this is another reason than last time why the ledger, which is being repaired,
        still lacks copies.
        """
        ledger = self._ledgers[ledger_id]
        before, ledger.reason = ledger.reason, reason
        return reason != before

    def ended(self, ledger_id: int, now: float, *, done: bool, again: bool = False) -> None:
        """An attempt is over: the ledger is repaired, to be looked at again at once, or waits."""
        ledger = self._ledgers[ledger_id]
        ledger.running = False
        if done:
            del self._ledgers[ledger_id]
            return
        wait = 0.0
        if not again:
            wait = min(
                self._backoff_max_seconds, self._backoff_seconds * 2 ** min(ledger.attempts, 32)
            )
            ledger.attempts += 1
        ledger.due, ledger.order = now + wait, self._random.random()
        self._push(ledger_id)

    def hurry(self, now: float) -> None:
        """Something changed that may help: what waits is tried at once, and its waits begin
        again.
        """
        for ledger_id, ledger in self._ledgers.items():
            if not ledger.running:
                ledger.attempts = 0
                if ledger.due > now:
                    ledger.due = now
                    self._push(ledger_id)

    def next_due(self) -> float | None:
        """When there may be something to take; ``None``: not before something happens."""
        return self._heap[0][0] if self._heap else None

    def _push(self, ledger_id: int) -> None:
        ledger = self._ledgers[ledger_id]
        heapq.heappush(self._heap, (ledger.due, ledger.order, ledger_id))

    def check(self) -> None:
        newest = dict.fromkeys(self._heap)
        for ledger_id, ledger in self._ledgers.items():
            assert ledger.running or (ledger.due, ledger.order, ledger_id) in newest, (
                f"ledger {ledger_id} is forgotten"
            )
