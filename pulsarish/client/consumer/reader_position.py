"""The core of a reader's position: where its subscription starts, and which of the first messages
it has already.

A reader continues after the last message its program took, or at its start when it took none.
"Latest" and a time are positions that move, so the reader asks once what they mean and keeps the
answer. For a durable subscription the broker keeps the position; there this only drops messages
before the start of a seek. No lock: the shell holds the queue's lock around every call, except
``is_to_be_learned``.
"""

from __future__ import annotations

from typing import Any

from pulsarish.client.consumer.receive_queue import ReceiveQueue
from pulsarish.client.consumer.subscribe_command import first_wanted
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["ReaderPosition"]


class ReaderPosition:
    """``persistent``: whether the topic stores its messages."""

    def __init__(
        self, options: ConsumerOptions[Any], incoming: ReceiveQueue, *, persistent: bool
    ) -> None:
        self._options = options
        self._incoming = incoming
        # A topic that stores nothing delivers nothing twice, so its reader has no position.
        self._is_kept = options.start is not None and persistent
        # where the subscription starts if nothing was handed out yet
        self._start: MessageId | None
        self.begin(options.start)

    def begin(self, start: MessageId | None) -> None:
        """Begin at ``start``, as a new reader does."""
        self._start, self._inclusive = start, self._options.start_inclusive
        if self._is_kept:
            self._filter()

    def begin_elsewhere(self) -> None:
        """Begin in another cluster, where no position of this one means anything: at the end or
        the time that the reader was made with, otherwise at the first message.
        """
        start = self._options.start
        if start is not None and start not in (MessageId.earliest, MessageId.latest):
            start = MessageId.earliest
        self._incoming.last_taken = None
        self.begin(start)

    def _filter(self) -> None:
        start = self._start
        symbolic = start is None or start in (MessageId.earliest, MessageId.latest)
        self._incoming.start_at(None if symbolic else start, inclusive=self._inclusive)

    @property
    def is_to_be_learned(self) -> bool:
        """Whether the start moves, so that the broker must be asked once what it means."""
        return self._is_kept and self._start == MessageId.latest

    def move_to(self, start: MessageId, *, inclusive: bool) -> None:
        self._start, self._inclusive = start, inclusive
        self._filter()

    def continue_after_taken(self) -> None:
        """Continue after what the program has."""
        taken = self._incoming.last_taken
        if self._is_kept and taken is not None:
            self._start, self._inclusive = taken, False
            self._incoming.start_after_taken()

    def set_start(self, command: pb.Subscribe) -> None:
        """Set the start in a reader's subscribe command."""
        if self._start is None or self._options.start is None:
            return
        if self._start is self._options.start:
            command.start_rollback_seconds = self._options.start_rollback_seconds
        command.start.CopyFrom(first_wanted(self._start, inclusive=self._inclusive))

    def current(self) -> tuple[MessageId, bool]:
        """Return the message before the next one, and whether it is itself still to come."""
        taken = self._incoming.last_taken
        return (
            (taken, False)
            if taken is not None
            else (self._start or MessageId.earliest, self._inclusive)
        )
