"""All chunks of a message go to one consumer of a shared subscription, in order: a client can only
join chunks that it received itself.

The consumer that got the first chunk gets the others. When it has no permits, or earlier chunks
wait for redelivery, chunks are put aside by position and read again later. When the consumer
leaves, its part of an unfinished message goes to another consumer, the first chunk first. Messages
that are never finished are forgotten, the oldest first. Their remaining chunks may go to any
consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pulsarish.broker.clients.consumer import Consumer
from pulsarish.model.position import Position

__all__ = ["Chunk", "ChunkedMessages"]

_MESSAGES_MAX: Final = 1_000  # unfinished messages of one subscription


class Chunk(NamedTuple):
    """A part of a chunked message. ``message`` identifies the message."""

    message: tuple[str, str]
    is_last: bool


@dataclass(slots=True)
class _Unfinished:
    consumer: Consumer | None  # none: the consumer that had it has left
    given: set[Position] = field(default_factory=set)
    behind: set[Position] = field(default_factory=set)
    """Positions to be delivered before any later part of the message."""


class ChunkedMessages:
    """The unfinished chunked messages of one subscription.

    Positions that are ``asked`` are being read again.
    """

    def __init__(self) -> None:
        self._unfinished: dict[tuple[str, str], _Unfinished] = {}
        # message of each position in ``given`` or ``behind``
        self._of: dict[Position, tuple[str, str]] = {}
        self._waiting: dict[tuple[str, str], None] = {}  # messages with positions in ``behind``
        self._asked: set[Position] = set()

    def __bool__(self) -> bool:
        return bool(self._unfinished)

    def taker(self, chunk: Chunk, position: Position, consumer: Consumer) -> Consumer | None:
        """Return the consumer that gets this entry; ``None`` when it is put aside for now.

        This is ``consumer``, unless another one has chunks of the message.
        """
        self._asked.discard(position)
        message = chunk.message
        found = self._unfinished.get(message)
        if found is None:
            found = self._unfinished[message] = _Unfinished(consumer)
        if found.consumer is None:
            found.consumer = consumer
        taker = found.consumer
        self._of[position] = message
        if (found.behind and position > min(found.behind)) or not (
            taker is consumer or taker.available
        ):
            found.behind.add(position)
            self._waiting[message] = None
            return None
        self._is_not_behind(message, found, position)
        found.given.add(position)
        if chunk.is_last and not found.behind:
            self._drop(message)
        return taker

    def _is_not_behind(
        self, message: tuple[str, str], found: _Unfinished, position: Position
    ) -> None:
        found.behind.discard(position)
        if not found.behind:
            self._waiting.pop(message, None)

    def _drop(self, message: tuple[str, str]) -> _Unfinished:
        dropped = self._unfinished.pop(message)
        self._waiting.pop(message, None)
        for position in (*dropped.given, *dropped.behind):
            del self._of[position]
        return dropped

    def forget_oldest(self) -> list[Position]:
        """Forget the oldest messages above the limit.

        Return the positions that would not be delivered otherwise.
        """
        left: list[Position] = []
        while len(self._unfinished) > _MESSAGES_MAX:
            left.extend(sorted(self._drop(next(iter(self._unfinished))).behind - self._asked))
        return left

    def to_read(self) -> list[Position]:
        """Return the chunks that were put aside and can be delivered now.

        They count as asked for from now on.
        """
        found: list[Position] = []
        for message in self._waiting:
            each = self._unfinished[message]
            if each.consumer is None or each.consumer.available:
                found.extend(each.behind - self._asked)
        self._asked.update(found)
        return sorted(found)

    def asked_again(self, coming: AbstractSet[Position]) -> None:
        """Keep only these as being read again.

        Other chunks are asked for again when they can be delivered.
        """
        self._asked.intersection_update(coming)

    def held(self) -> dict[str, tuple[int, bool]]:
        """Return, by the name of the consumer that they wait for, how many chunks were put aside
        and whether it could receive them.

        The name is empty when the consumer has left: then any consumer could receive them.
        """
        found: dict[str, tuple[int, bool]] = {}
        for message in self._waiting:
            each = self._unfinished[message]
            name = "" if each.consumer is None else each.consumer.name
            count, available = found.get(name, (0, False))
            found[name] = (
                count + len(each.behind),
                available or each.consumer is None or each.consumer.available,
            )
        return found

    def given_back(self, positions: Iterable[Position]) -> None:
        """Note that a consumer gave these entries back and that they are being read again."""
        for position in positions:
            message = self._of.get(position)
            if message is not None:
                each = self._unfinished[message]
                each.given.discard(position)
                each.behind.add(position)
                self._waiting[message] = None
                self._asked.add(position)

    def left(self, consumer: Consumer) -> None:
        """Note that the consumer has left: others may finish its messages."""
        for message, each in list(self._unfinished.items()):
            if each.consumer is consumer:
                each.consumer = None
                if not each.behind:
                    self._drop(message)

    def done(self, positions: Iterable[Position]) -> None:
        """Note that these entries need no delivery any more.

        Later chunks of the message still go to the same consumer.
        """
        for position in positions:
            self._asked.discard(position)
            message = self._of.pop(position, None)
            if message is not None:
                each = self._unfinished[message]
                each.given.discard(position)
                self._is_not_behind(message, each, position)

    def done_through(self, position: Position) -> None:
        self.done([held for held in self._of if held <= position])

    def aside(self) -> list[Position]:
        """Return the entries that were put aside."""
        return [each for message in self._waiting for each in self._unfinished[message].behind]

    def drop_aside(self) -> int:
        """Drop the entries that were put aside. Return how many these were."""
        aside = self.aside()
        self.done(aside)
        return len(aside)

    def clear(self) -> None:
        self._unfinished.clear()
        self._of.clear()
        self._waiting.clear()
        self._asked.clear()

    def check(self, consumers: Sequence[Consumer]) -> None:
        assert len(self._unfinished) <= _MESSAGES_MAX
        for message, each in self._unfinished.items():
            assert each.consumer is None or each.consumer in consumers, (
                "chunks wait for a consumer that is gone"
            )
            assert each.given.isdisjoint(each.behind)
            assert each.consumer is None or each.given <= each.consumer.pending.keys()
            assert bool(each.behind) == (message in self._waiting)
            assert all(self._of[position] == message for position in (*each.given, *each.behind))
        assert len(self._of) == sum(
            len(each.given) + len(each.behind) for each in self._unfinished.values()
        )
        assert self._waiting.keys() <= self._unfinished.keys()
