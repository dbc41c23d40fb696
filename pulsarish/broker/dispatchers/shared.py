"""Shared subscriptions: entries go round the consumers that have permits, the lowest priority level first.

A consumer is given up to a turn of messages, then the next.
"""

from __future__ import annotations

from collections.abc import Callable

from pulsarish.broker.consumer import Consumer
from pulsarish.broker.dispatchers.reads import Read, ReadLimits, Ready
from pulsarish.broker.dispatchers.several import SeveralConsumers, SharingLimits
from pulsarish.model.position import Position

__all__ = ["SharedDispatcher"]


class SharedDispatcher(SeveralConsumers):
    """The core of a shared subscription."""

    def __init__(
        self, *, read_from: Callable[[], Position], acknowledged: Callable[[Position], bool], limits: ReadLimits, sharing: SharingLimits
    ) -> None:
        super().__init__(read_from=read_from, acknowledged=acknowledged, limits=limits, sharing=sharing)
        self._next_order = 0  # the join order of whose turn it is

    def plan(self, end: Position, *, blocked: bool) -> Read | None:
        if self.blocked or not any(consumer.available for consumer in self.consumers):
            return None
        return self.reads.plan(end, new_allowed=not blocked)

    def deliver(self) -> None:
        """Give out what is ready in turns."""
        reads = self.reads
        while (reads.ready_again or reads.ready) and not self.blocked:
            consumer = self._whose_turn()
            if consumer is None:
                return
            self._turn(consumer)

    def _whose_turn(self) -> Consumer | None:
        """The first available consumer of the lowest priority level that has one, after the last who had a turn."""
        chosen: Consumer | None = None
        for consumer in self.consumers:
            if not consumer.available:
                continue
            if chosen is None:
                chosen = consumer
            elif consumer.priority_level > chosen.priority_level:
                break
            elif chosen.order < self._next_order <= consumer.order:
                chosen = consumer
                break
            if chosen.order >= self._next_order:
                break
        if chosen is not None:
            self._next_order = chosen.order + 1
        return chosen

    def _turn(self, consumer: Consumer) -> None:
        left = self._room(consumer)
        given: list[Ready] = []
        while left > 0 and (source := self.reads.ready_again or self.reads.ready):
            ready = source.popleft()
            left -= ready.messages
            given.append(ready)
        self._give(consumer, given)
