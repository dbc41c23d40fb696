"""The chunks of one message go to one consumer of a shared subscription, in order: a client can only put together what it has itself.

Who got the first chunk gets the others. While that consumer has no permits, or chunks before them are on their way to be delivered again,
they are put aside by position and read again in their turn. When it leaves, what it had of an unfinished message goes to another consumer,
the first chunk first. Messages that are never finished are forgotten, the oldest first: their chunks then go to anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pulsarish.broker.consumer import Consumer
from pulsarish.model.position import Position

__all__ = ["Chunk", "ChunkedMessages"]

_MESSAGES_MAX: Final = 1_000  # unfinished messages of one subscription


class Chunk(NamedTuple):
    """What an entry is a part of; ``message`` tells messages apart."""

    message: tuple[str, str]
    is_last: bool


@dataclass(slots=True)
class _Unfinished:
    consumer: Consumer | None  # none: who had it has left
    given: set[Position] = field(default_factory=set)
    behind: set[Position] = field(default_factory=set)
    """To be delivered before anything of the message that comes after them."""


class ChunkedMessages:
    """Of one subscription. Positions that are ``asked`` are being read again."""

    def __init__(self) -> None:
        self._unfinished: dict[tuple[str, str], _Unfinished] = {}
        self._asked: set[Position] = set()

    def __bool__(self) -> bool:
        return bool(self._unfinished)

    def taker(self, chunk: Chunk, position: Position, consumer: Consumer) -> Consumer | None:
        """Who gets this entry, which is ``consumer`` unless another one has chunks of the message; ``None``: it is put aside for now."""
        self._asked.discard(position)
        found = self._unfinished.get(chunk.message)
        if found is None:
            found = self._unfinished[chunk.message] = _Unfinished(consumer)
        if found.consumer is None:
            found.consumer = consumer
        taker = found.consumer
        if (found.behind and position > min(found.behind)) or not (taker is consumer or taker.available):
            found.behind.add(position)
            return None
        found.behind.discard(position)
        found.given.add(position)
        if chunk.is_last and not found.behind:
            del self._unfinished[chunk.message]
        return taker

    def forget_oldest(self) -> list[Position]:
        """Keep no more messages than may be kept; answers what nobody would deliver otherwise."""
        left: list[Position] = []
        while len(self._unfinished) > _MESSAGES_MAX:
            oldest = self._unfinished.pop(next(iter(self._unfinished)))
            left.extend(sorted(oldest.behind - self._asked))
        return left

    def to_read(self) -> list[Position]:
        """What was put aside and could be delivered now: it counts as asked for."""
        found: list[Position] = []
        for each in self._unfinished.values():
            if each.behind and (each.consumer is None or each.consumer.available):
                found.extend(each.behind - self._asked)
        self._asked.update(found)
        return sorted(found)

    def given_back(self, consumer: Consumer, positions: Sequence[Position]) -> None:
        """The consumer does not hold these any more, and they are being read again."""
        for each in self._unfinished.values():
            if each.consumer is consumer and (back := each.given.intersection(positions)):
                each.given -= back
                each.behind |= back
                self._asked |= back

    def left(self, consumer: Consumer) -> None:
        """The consumer is gone: others may finish what it had begun."""
        for message, each in list(self._unfinished.items()):
            if each.consumer is consumer:
                each.consumer = None
                if not each.behind:
                    del self._unfinished[message]

    def done(self, positions: Iterable[Position]) -> None:
        """These need no delivery any more; what comes after them still goes where they went."""
        gone = set(positions)
        self._asked -= gone
        for each in self._unfinished.values():
            each.given -= gone
            each.behind -= gone

    def done_through(self, position: Position) -> None:
        self.done([held for each in self._unfinished.values() for held in (*each.given, *each.behind) if held <= position])

    def drop_aside(self) -> int:
        """Forget what was put aside; answers how many entries that were."""
        count = 0
        for each in self._unfinished.values():
            count += len(each.behind)
            each.behind.clear()
        self._asked.clear()
        return count

    def clear(self) -> None:
        self._unfinished.clear()
        self._asked.clear()

    def check(self, consumers: Sequence[Consumer]) -> None:
        assert len(self._unfinished) <= _MESSAGES_MAX
        for each in self._unfinished.values():
            assert each.consumer is None or each.consumer in consumers, "chunks wait for a consumer that is gone"
            assert each.given.isdisjoint(each.behind)
            assert each.consumer is None or each.given <= each.consumer.pending.keys()
