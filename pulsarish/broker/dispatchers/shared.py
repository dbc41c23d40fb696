"""Shared subscriptions: consumers with permits get entries in turns, the lowest priority level
first.

A consumer gets up to a turn of messages, then the next consumer follows. The chunks of one message
go to one consumer. By a policy the messages with the highest priority of a look-ahead come first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.dispatchers.chunks import ChunkedMessages
from pulsarish.broker.dispatchers.dispatcher import DispatcherKind
from pulsarish.broker.dispatchers.multi_consumer import MultiConsumerDispatcher, SharingLimits
from pulsarish.broker.dispatchers.reads import Read, ReadLimits, Ready
from pulsarish.model.position import EARLIEST, Position

__all__ = ["SharedDispatcher"]


class SharedDispatcher(MultiConsumerDispatcher):
    """The core of a shared subscription."""

    kind = DispatcherKind.SHARED

    def __init__(
        self,
        *,
        read_from: Callable[[], Position],
        acknowledged: Callable[[Position], bool],
        limits: ReadLimits,
        sharing: SharingLimits,
    ) -> None:
        super().__init__(
            read_from=read_from, acknowledged=acknowledged, limits=limits, sharing=sharing
        )
        self._next_order = 0  # join order of the consumer whose turn is next
        self._chunked = ChunkedMessages()
        self._new_end: Callable[[], Position | None] = lambda: None

    # -- priorities

    def prioritise(self, entries_max: int, new_end: Callable[[], Position | None]) -> None:
        self._new_end = new_end
        self.reads.prioritise(entries_max)

    def stats(self) -> dict[str, Any]:
        window = self.reads.window
        if window is None:
            return {}
        return {
            "messagePriorities": {
                "window": window.entries_max,
                "entries": {str(priority): count for priority, count in window.counts().items()},
                "unsorted": window.unsorted_count,
            }
        }

    def _line_up(self) -> None:
        end = self._new_end()
        self.reads.line_up(
            EARLIEST if end is None else end,
            sum(consumer.permits for consumer in self.consumers if consumer.available),
            new_allowed=end is not None,
        )

    # -- consumers and acknowledgements

    def remove(self, consumer: Consumer) -> None:
        super().remove(consumer)
        self._chunked.left(consumer)

    def _start_over(self) -> None:
        super()._start_over()
        self._chunked.clear()

    def restart(self) -> None:
        super().restart()
        self._chunked.asked_again(self.reads.coming())

    @property
    def holds_nothing(self) -> bool:
        return super().holds_nothing and not self._chunked

    @property
    def chunks_held(self) -> Mapping[str, tuple[int, bool]]:
        """By consumer name: how many chunks wait for the consumer, and whether it could receive
        them.
        """
        return self._chunked.held() if self._chunked else {}

    def _give_back(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        super()._give_back(consumer, positions)
        if self._chunked:
            self._chunked.given_back(positions)

    def acknowledged(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        super().acknowledged(consumer, positions)
        if self._chunked:
            self._chunked.done(positions)

    def acknowledged_through(self, position: Position) -> None:
        super().acknowledged_through(position)
        self._chunked.done_through(position)
        if self.reads.window is not None:
            self.reads.window.drop_through(position)

    def partly_acknowledged(self, consumer: Consumer | None, position: Position, left: int) -> None:
        super().partly_acknowledged(consumer, position, left)
        if self.reads.window is not None:
            self.reads.window.forget(position)

    def expired(self, positions: Sequence[Position]) -> None:
        super().expired(positions)
        if self._chunked:
            self._chunked.done(positions)
        if self.reads.window is not None:
            self.reads.window.drop(positions)

    # -- reading and delivering

    def plan(self, end: Position, *, blocked: bool) -> Read | None:
        if self.blocked or not any(consumer.available for consumer in self.consumers):
            return None
        if self.reads.gone:
            self._chunked.done(self.reads.gone)
            self.reads.gone = ()
        if self._chunked:
            self.reads.deliver_again(self._chunked.to_read())
        return self.reads.plan(end, new_allowed=not blocked)

    @property
    def wants_new(self) -> bool:
        return not (self.blocked or self._chunked) and any(
            consumer.available for consumer in self.consumers
        )

    def deliver(self) -> None:
        """Deliver the ready entries in turns."""
        reads = self.reads
        if reads.window is None:
            self._deliver_ready()
        elif not self.blocked:
            self._line_up()
            self._deliver_ready()
            reads.put_back()

    def _deliver_ready(self) -> None:
        reads = self.reads
        while (reads.ready_again or reads.ready) and not self.blocked:
            consumer = self._whose_turn()
            if consumer is None:
                return
            self._turn(consumer)

    def _whose_turn(self) -> Consumer | None:
        """Return the next available consumer of the lowest priority level that has one, after the
        one with the last turn.
        """
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
        while (
            left > 0 and not self.blocked and (source := self.reads.ready_again or self.reads.ready)
        ):
            ready = source.popleft()
            if ready.chunk is not None:
                taker = self._chunked.taker(ready.chunk, ready.position, consumer)
                self.reads.deliver_again(self._chunked.forget_oldest())
                if taker is not consumer:
                    if taker is not None:
                        self._give(taker, [ready])
                    continue
            left -= ready.messages
            given.append(ready)
        if given:
            self._give(consumer, given)

    def waiting(self) -> set[Position]:
        return super().waiting().union(self._chunked.aside())

    def drop_waiting(self) -> int:
        return super().drop_waiting() + self._chunked.drop_aside()

    def check(self) -> None:
        super().check()
        self._chunked.check(self.consumers)
