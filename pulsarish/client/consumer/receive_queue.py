"""The core of a consumer's receive queue: entries in, messages out, permits back to the broker.

Messages leave in the order in which they came. Messages of the first batch before the start are
dropped, and those a reader had already. Permits are granted for messages that were opened for the
program, so the queue never holds more than ``queue_size`` messages and one batch, or a slab of
entries that are opened together.

Pure: no clock, no I/O, no lock. The shell holds the consumer's lock around every call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from pulsarish.client.consumer.chunk_assembler import ChunkAssembler
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Entry, Message
from pulsarish.model.errors import ChecksumError, CryptoError
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from pulsarish.wire.entry import parse_metadata

__all__ = ["ReceiveQueue"]

_SLAB_MAX: Final = 64
_SLABS_MIN: Final = 16
"""A queue is opened in this many slabs or more."""

Open = Callable[[Entry], tuple[MessageMetadata | None, list[Message]]]


class ReceiveQueue:
    """Messages between the connection and the program."""

    def __init__(
        self,
        topic: str,
        queue_size: int,
        open_entry: Open,
        ready: deque[Message],
        chunks: ChunkAssembler,
        on_dropped: Callable[[int], None] = lambda _count: None,
    ) -> None:
        """``queue_size`` in messages; 0: grant a permit only while the program waits for a message.

        ``ready``: receives the opened messages. Consumers of several topics share it; its
        ``popleft`` needs no lock.

        ``on_dropped``: called with the number of messages that leave it untaken.
        """
        self._topic = topic
        self._on_dropped = on_dropped
        self._queue_size = queue_size
        self.slab_max = min(_SLAB_MAX, queue_size // _SLABS_MIN)
        """At most this many messages of several entries are opened together."""
        self._open_entry = open_entry
        self._entries: deque[Entry] = deque()
        self._ready = ready
        self._chunks = chunks
        self._owed = 0  # permits of taken messages, not yet granted again
        self._granted = 0  # permits that the broker has and has not used, as far as is known
        self._wanted = False  # for a queue of size 0: the program waits
        self._start: MessageId | None = None
        self._start_inclusive = False
        self._start_taken = False  # the start itself was taken: drop everything before it
        self.last_taken: MessageId | None = None
        """The last message of the last entry opened for the program: a reader continues there after
        a reconnection.
        """

    # The connection's side.

    def restart(self, *, keep_ready: bool) -> int:
        """Start a new subscription on a connection: the broker sends what is queued again.

        Returns the permits to grant.

        ``keep_ready``: a reader starts after ``last_taken``, so opened messages do not come again.
        """
        self._entries.clear()
        if not keep_ready:
            # A reader continues after what it took, and chunks may lie before that: keep them.
            self._drop_ready()
            self._chunks.clear()
        self._owed = 0
        self._wanted = False
        self._granted = self._queue_size
        return self._queue_size

    def start_at(self, start: MessageId | None, *, inclusive: bool) -> None:
        """Set the start: drop messages of its entry before ``start``, and ``start`` itself unless
        ``inclusive``. Delivery begins at this entry, or after it when the entry is gone or does not
        exist yet.
        """
        self._start = start
        self._start_inclusive = inclusive
        self._start_taken = False

    def start_after_taken(self) -> None:
        """Start at the entry of ``last_taken``, or before it if that was requested earlier: drop
        what was taken since.
        """
        self.start_at(self.last_taken, inclusive=False)
        self._start_taken = True

    def clear(self) -> int:
        """Drop what is queued, as a seek does; the messages count as taken.

        Returns the number of entries dropped.
        """
        dropped = len(self._entries)
        while self._entries:
            # The message count does not need the opened batch, but damage in it must not stop a
            # seek.
            self._took(_messages_count(self._entries.popleft()))
        self._drop_ready()
        self._chunks.clear()
        self.last_taken = None
        return dropped

    def _drop_ready(self) -> None:
        others = [message for message in self._ready if message.topic_name() != self._topic]
        self._on_dropped(len(self._ready) - len(others))
        self._ready.clear()
        self._ready.extend(others)

    def add(self, entries: Iterable[Entry]) -> None:
        self._entries.extend(entries)

    def return_permits(self, entries: Iterable[Entry]) -> None:
        """Return the permits of entries that arrived and are not wanted."""
        for entry in entries:
            self._took(_messages_count(entry))

    # The program's side.

    @property
    def is_empty(self) -> bool:
        return not self._entries and not self._ready

    @property
    def entries_count(self) -> int:
        return len(self._entries)

    def waiting_count(self) -> int:
        """Return the number of messages in entries that are not open yet."""
        return sum(map(_count_or_one, self._entries))

    @property
    def first(self) -> Entry | None:
        """The entry that is opened next."""
        return self._entries[0] if self._entries else None

    @property
    def may_receive(self) -> bool:
        """Whether the broker could send something now and nothing that it sent waits here."""
        return not self._entries and self._granted > 0

    def open_next(self) -> tuple[Entry, list[Message] | None] | None:
        """Open the next entry, for ``hand_out``. Returns ``None`` when there is no entry.

        A chunk is kept until its message is whole; then there is no list of messages. The list may
        be empty when all messages are before the start. Raises ``ChecksumError`` for an unreadable
        entry and ``CryptoError`` for an encrypted one; such an entry has left the queue, and its
        permits are granted again.
        """
        if not self._entries:
            return None
        entry = self._entries.popleft()
        try:
            metadata, messages = self._open_entry(entry)
        except CryptoError:
            self._took(_messages_count(entry))  # its metadata is readable
            raise
        except Exception:
            self._took(1)
            raise
        self._took(1 if metadata is None else max(1, metadata.num_messages_in_batch))
        if metadata is not None and metadata.num_chunks_from_msg > 1:
            whole = self._chunks.add(entry, metadata)
            if whole is None:
                return entry, None
            entry = whole
            messages = self._open_entry(entry)[1]
        if self._start is not None:
            messages = self._after_start(entry, messages)
        if messages:
            self.last_taken = messages[-1].message_id()
        return entry, messages

    def hand_out(self, messages: list[Message]) -> None:
        """Hand these messages to the program next."""
        self._ready.extend(messages)

    def _after_start(self, entry: Entry, messages: list[Message]) -> list[Message]:
        start = self._start
        assert start is not None
        here, at = (entry.ledger_id, entry.entry_id), (start.ledger_id(), start.entry_id())
        if here < at and (self._start_taken or start.chunks()):
            # A start in chunks was received once, so it is not beyond the end. Entries between its
            # chunks are before it.
            return []
        if here != at:
            # An inclusive start may lie beyond the end. Then the first message that comes is before
            # it, and wanted.
            self._start = None
            return messages
        index = start.batch_index()
        if index < 0:
            return messages if self._start_inclusive else []
        least = index if self._start_inclusive else index + 1
        return [message for message in messages if message.message_id().batch_index() >= least]

    # Permits.

    def _took(self, count: int) -> None:
        self._owed += count
        self._granted -= count

    @property
    def permits_due(self) -> bool:
        if self._queue_size == 0:
            return self._wanted
        return self._owed > 0 and self._owed >= (self._queue_size + 1) // 2

    def take_permits(self) -> int:
        """Return the permits to grant now: one for each message taken since the last call."""
        if self._queue_size == 0:
            permits, self._wanted = int(self._wanted), False
        else:
            permits, self._owed = self._owed, 0
        self._granted += permits
        return permits

    def want_one(self) -> bool:
        """Note that the program waits for a message.

        Returns whether a queue of size 0 must grant a permit now.
        """
        if self._queue_size == 0 and self._granted <= 0 and not self._wanted:
            self._wanted = True
            return True
        return False

    def check(self) -> None:
        assert self._owed >= 0
        assert self._granted <= max(1, self._queue_size)


def _messages_count(entry: Entry) -> int:
    return max(1, parse_metadata(entry.data).num_messages_in_batch)


def _count_or_one(entry: Entry) -> int:
    try:
        return _messages_count(entry)
    except ChecksumError:
        return 1  # opening it reports what is wrong
