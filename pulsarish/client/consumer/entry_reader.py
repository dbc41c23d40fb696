"""Reads a topic's entries as they were published, through its broker, from a position: for callers
that decode them themselves.

Entries come in the order of the log, each once. After a lost connection it continues after the last
entry taken. About ``window_bytes``, and at least one entry, are on the wire or wait. The broker
counts permits in messages, so their number follows the size of messages.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from pulsarish.client.connection.consume_stream import ConsumeStream
from pulsarish.client.connection.context import ClientContext, may_retry
from pulsarish.client.connection.reconnect import Reconnector
from pulsarish.client.messages.message import Entry
from pulsarish.model.errors import ChecksumError, PulsarishError, ServiceNotReady
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire.entry import parse_metadata

__all__ = ["EntryReader"]

_log = get_logger("client.entries")

_PERMITS_MAX: Final = 100_000
_FIRST_PERMITS: Final = 1
"""Used until the size of messages is known."""


class EntryReader:
    """Opened by ``AsyncClient._read_entries``. Everything runs in the client's loop.

    ``subscription``: how the names of its subscriptions begin.
    """

    def __init__(
        self,
        topic: TopicName,
        first: Position,
        parts: ClientContext,
        *,
        window_bytes: int,
        subscription: str,
    ) -> None:
        self.topic = topic
        self._first = first
        self._parts = parts
        self._window_bytes = window_bytes
        self._subscription = subscription
        self._wanted = _FIRST_PERMITS  # messages that may be on the wire or wait
        self._granted = 0  # messages that are, as far as is known
        self._entries: deque[Entry] = deque()
        self._arrived = asyncio.Event()
        self._stream: ConsumeStream | None = None
        self._consumer_id = 0
        self._failure: PulsarishError | None = None
        self._reconnector = Reconnector(
            "entry reader", topic.full, parts, self._open_at, self._ended
        )

    async def open(self) -> None:
        """Open. Raises the broker's refusal, or ``Timeout``."""
        await self._reconnector.open()

    async def take(self, timeout_seconds: float) -> list[Entry]:
        """Return all entries that have arrived, at least one; an empty list after the timeout.

        Raises why no more entries come.
        """
        try:
            async with self._parts.clock.timeout(timeout_seconds):
                # What arrived may be dropped again before this task runs.
                while not self._entries and self._failure is None:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return []
        if not self._entries:
            assert self._failure is not None
            raise self._failure
        taken = list(self._entries)
        self._entries.clear()
        self._first = Position(taken[-1].ledger_id, taken[-1].entry_id + 1)
        self._grant(taken)
        return taken

    async def close(self) -> None:
        self._reconnector.close()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close_quietly(self._consumer_id)

    def _grant(self, taken: list[Entry]) -> None:
        messages = sum(max(1, parse_metadata(entry.data).num_messages_in_batch) for entry in taken)
        size_bytes = max(1, sum(len(entry.data) for entry in taken))
        self._wanted = min(_PERMITS_MAX, max(1, self._window_bytes * messages // size_bytes))
        self._granted -= messages
        due = self._wanted - self._granted
        if self._stream is not None and 2 * due >= self._wanted:
            self._granted += due
            self._stream.flow(self._consumer_id, due)

    async def _open_at(self, address: str) -> None:
        parts = self._parts
        stream = await parts.consume.get(address)
        first = self._first
        command = pb.Subscribe(
            topic=self.topic.full,
            subscription=f"{self._subscription}{parts.random.getrandbits(40):010x}",
            type=pb.SUB_EXCLUSIVE,
            durable=False,
            start=pb.MessageId(ledger=first.ledger_id, entry=first.entry_id, batch_index=-1),
        )
        consumer_id = await stream.subscribe(self, command, parts.operation_timeout_seconds)
        if self._reconnector.is_closing or not stream.has_consumer(consumer_id):
            stream.close_quietly(consumer_id)
            raise ServiceNotReady(f"the reader of {self.topic} was closed as soon as it was open")
        self._stream, self._consumer_id, self._granted = stream, consumer_id, self._wanted
        stream.flow(consumer_id, self._wanted)

    def _ended(self, error: PulsarishError) -> None:
        self._failure = error
        self._arrived.set()

    # Callbacks of the stream.

    def on_delivery(self, entries: list[Entry]) -> None:
        # After a reconnection the broker starts at the last entry taken, or before it.
        first, last = self._first, self._entries[-1] if self._entries else None
        after = first if last is None else Position(last.ledger_id, last.entry_id + 1)
        self._entries.extend(
            entry for entry in entries if (entry.ledger_id, entry.entry_id) >= after
        )
        self._arrived.set()

    def on_damaged(self, ledger_id: int, entry_id: int, error: ChecksumError) -> None:
        _log.error(
            "delivered entry is damaged, asking for it again",
            topic=self.topic,
            ledger=ledger_id,
            entry=entry_id,
            reason=error,
        )
        stream = self._stream
        self._lose()
        if stream is not None:
            stream.close_quietly(self._consumer_id)

    def on_active_changed(self, active: bool) -> None:
        """Nothing to do: it is the only consumer of its subscription."""

    def on_end_of_topic(self) -> None:
        """Nothing to do: the caller knows where to stop."""

    def on_closed_by_broker(self, error: PulsarishError, moved_to: pb.BrokerAddresses) -> None:
        self._lose(moved_to)
        if not may_retry(error, first=False):
            self._reconnector.close()
            self._ended(error)

    def on_stream_lost(self, error: PulsarishError) -> None:
        self._lose()

    def _lose(self, moved_to: pb.BrokerAddresses | None = None) -> None:
        self._stream = None
        self._entries.clear()
        self._reconnector.lost(moved_to)
