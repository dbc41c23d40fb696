"""The core of where a reader is: where its subscription begins, and which of the first messages it already has.

It promises: a reader goes on after what its program took, and if that is nothing yet, where it was told to begin. "Latest" and a time mean
places that move, so what they meant is learned once and kept. Of a durable subscription the broker knows the place: there this only drops
what lies before the start of a seek. No lock: the shell holds the inbox's around every call; ``is_to_be_learned`` it asks in the loop.
"""

from __future__ import annotations

from pulsarish.client.consumer.receive_queue import ReceiveQueue
from pulsarish.client.consumer.subscribe_command import first_wanted
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.options import ConsumerOptions
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["ReaderPosition"]


class ReaderPosition:
    """``persistent``: whether the topic keeps its messages."""

    def __init__(self, options: ConsumerOptions, incoming: ReceiveQueue, *, persistent: bool) -> None:
        self._options = options
        self._incoming = incoming
        # Where the subscription begins if nothing was handed out yet.
        self._start = options.start
        self._inclusive = options.start_inclusive
        # What was sent once does not come again on a topic that keeps nothing, so there a reader has no place.
        self._is_kept = options.start is not None and persistent
        if self._is_kept:
            self._filter()

    def _filter(self) -> None:
        start = self._start
        symbolic = start is None or start in (MessageId.earliest, MessageId.latest)
        self._incoming.start_at(None if symbolic else start, inclusive=self._inclusive)

    @property
    def is_to_be_learned(self) -> bool:
        """Whether the reader begins at a place that moves, so that the broker is to be asked once what that is."""
        return self._is_kept and self._start == MessageId.latest

    def move_to(self, start: MessageId, *, inclusive: bool) -> None:
        self._start, self._inclusive = start, inclusive
        self._filter()

    def go_on_after_taken(self) -> None:
        """What the program has is behind the start."""
        taken = self._incoming.last_taken
        if self._is_kept and taken is not None:
            self._start, self._inclusive = taken, False
            self._incoming.start_after_taken()

    def say(self, command: pb.Subscribe) -> None:
        """A reader tells the broker where to begin."""
        if self._start is None or self._options.start is None:
            return
        if self._start is self._options.start:
            command.start_rollback_seconds = self._options.start_rollback_seconds
        command.start.CopyFrom(first_wanted(self._start, inclusive=self._inclusive))

    def now(self) -> tuple[MessageId, bool]:
        """The message after which the next one comes, and whether that one itself is still to come."""
        taken = self._incoming.last_taken
        return (taken, False) if taken is not None else (self._start or MessageId.earliest, self._inclusive)
