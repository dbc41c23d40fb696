"""The ``broker.publish`` stream of a client to one broker: the entries of all its producers, and
their receipts.

One message carries all entries that wait, up to about 1 MB. At most two messages are unanswered;
the next one fills in the meantime.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol

from pulsarish.client.connection.broker_stream import BrokerStream, error_of
from pulsarish.client.messages.pending_entries import PendingEntry
from pulsarish.model.errors import PulsarishError, Timeout
from pulsarish.runtime.seams import Buffer
from pulsarish.security.credentials import Credentials
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire.framing import join_records

__all__ = ["PublishStream", "Sender"]

_COMMANDS_MAX: Final = 1_000
"""Producers opened and closed in one message."""


class Sender(Protocol):
    """A producer, as the stream uses it. All calls are made in the loop."""

    def take(self, bytes_max: int) -> list[PendingEntry]: ...

    def receipts(self, count: int, ledger_id: int, first_entry: int, sequence_id: int) -> None: ...

    def send_failed(self, sequence_id: int, error: PulsarishError) -> None: ...

    def closed_by_broker(self, error: PulsarishError, moved_to: pb.BrokerAddresses) -> None: ...

    def stream_lost(self, error: PulsarishError) -> None: ...


class PublishStream(BrokerStream):
    kind = "publish"

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._senders: dict[int, Sender] = {}
        self._producer_count = 0
        self._commands: deque[pb.OpenProducer | pb.CloseProducer] = deque()
        self._ready: dict[int, Sender] = {}  # producers with entries, in the order of their turns
        self._counted = 0  # messages with entries that were sent
        self._answered_count = 0  # messages with entries that were answered
        self._new_credentials: Credentials | None = None  # to be sent

    async def open_producer(
        self, sender: Sender, command: pb.OpenProducer, timeout_seconds: float | None
    ) -> pb.ProducerOpened:
        """Open a producer and return the answer with its id.

        Raises the broker's error, ``Timeout`` or ``ConnectError``.
        """
        self._producer_count += 1
        producer_id = command.producer_id = self._producer_count

        def send(request_id: int) -> None:
            command.request_id = request_id
            self._commands.append(command)

        # Register it before the answer: the broker may open and close the producer in one message.
        self._senders[producer_id] = sender
        try:
            opened: pb.ProducerOpened = await self.answer(send, timeout_seconds)
        except (Timeout, asyncio.CancelledError):
            # The broker may still open it: close it there.
            self.close_producer(producer_id)
            raise
        except PulsarishError:
            self._senders.pop(producer_id, None)
            raise
        return opened

    def has_producer(self, producer_id: int) -> bool:
        """Whether the producer is open on both sides."""
        return producer_id in self._senders

    def close_producer(self, producer_id: int) -> None:
        """Close a producer without waiting for the answer. Later receipts are dropped."""
        self._senders.pop(producer_id, None)
        self._ready.pop(producer_id, None)
        if self.lost is None:
            request_id = self.request(lambda _error, _answer: None)
            self._commands.append(pb.CloseProducer(request_id=request_id, producer_id=producer_id))
            self._wake.set()

    async def close_producer_and_wait(self, producer_id: int, timeout_seconds: float) -> None:
        self._senders.pop(producer_id, None)
        self._ready.pop(producer_id, None)

        def send(request_id: int) -> None:
            self._commands.append(pb.CloseProducer(request_id=request_id, producer_id=producer_id))

        await self.answer(send, timeout_seconds)

    def entries_wait(self, producer_id: int, sender: Sender) -> None:
        """Note that the producer has entries to send."""
        if producer_id not in self._ready and producer_id in self._senders:
            self._ready[producer_id] = sender
            self._wake.set()

    def _gather(self) -> Sequence[Buffer] | None:
        request = pb.PublishRequest()
        new, self._new_credentials = self._new_credentials, None
        if new is not None:
            request.credentials.method = new.method
            request.credentials.data = new.data.reveal()
        self._gather_commands(request)
        may_send = self._counted - self._answered_count < self._limits.unanswered_messages_max
        if self._ready and may_send and (parts := self._gather_entries(request)):
            request.counted = True
            self._counted += 1
            return join_records(request, parts, sum(request.sizes))
        if request.open or request.close or new is not None:
            return [request.SerializeToString()]
        if self.heartbeat_due:
            self.heartbeat_due = False
            return [self._heartbeat()]
        return None

    def _gather_commands(self, request: pb.PublishRequest) -> None:
        """Add commands in their order.

        The broker carries out a message's closings first, so a closing after an opening waits for
        the next message. Entries come last in a message; there are none of a producer that is being
        opened or closed.
        """
        commands = self._commands
        for _ in range(min(len(commands), _COMMANDS_MAX)):
            command = commands[0]
            if isinstance(command, pb.OpenProducer):
                request.open.append(command)
            elif request.open:
                return
            else:
                request.close.append(command)
            commands.popleft()

    def _gather_entries(self, request: pb.PublishRequest) -> list[bytes]:
        """Return the entries' bytes. Their producers and sizes go into the request."""
        parts: list[bytes] = []
        left = self._limits.message_bytes
        while self._ready and left > 0:
            producer_id, sender = next(iter(self._ready.items()))
            entries = sender.take(left)
            del self._ready[producer_id]
            if not entries:
                continue
            sizes = [entry.size_bytes for entry in entries]
            for entry in entries:
                parts += entry.parts
            request.producer_ids.extend([producer_id] * len(sizes))
            request.sizes.extend(sizes)
            left -= sum(sizes)
            # The producer goes to the end of the queue. Its next turn shows whether it has more
            # entries.
            self._ready[producer_id] = sender
        return parts

    def _show(self, credentials: Credentials) -> None:
        self._new_credentials = credentials

    def _heartbeat(self) -> bytes:
        return pb.PublishRequest(heartbeat=True).SerializeToString()

    @property
    def _awaits_answer(self) -> bool:
        return self._counted > self._answered_count

    def _handle(self, data: bytes) -> None:
        response = pb.PublishResponse.FromString(data)
        for opened in response.opened:
            if opened.queued:
                continue
            self._answered(opened.outcome, opened)
        for outcome in response.outcomes:
            self._answered(outcome, outcome)
        senders = self._senders
        for producer_id, count, ledger_id, first, sequence_id in zip(
            response.producers,
            response.counts,
            response.ledgers,
            response.firsts,
            response.sequence_ids,
            strict=True,
        ):
            # Drop a receipt for a producer that was closed in the meantime.
            if (sender := senders.get(producer_id)) is not None:
                sender.receipts(count, ledger_id, first, sequence_id)
        for failed in response.failed:
            if (sender := senders.get(failed.producer_id)) is not None:
                error = error_of(failed)
                assert error is not None, "a failure has code 0"
                sender.send_failed(failed.sequence_id, error)
        if response.ask_credentials:
            self._on_credentials_asked()
        for closed in response.closed:
            sender = senders.pop(closed.producer_id, None)
            self._ready.pop(closed.producer_id, None)
            if sender is not None:
                sender.closed_by_broker(
                    error_of(closed) or PulsarishError("closed by the broker"), closed.moved_to
                )
        if response.answered != self._answered_count:
            assert (
                self._answered_count <= response.answered <= self._counted or not response.answered
            ), "more was answered than was sent"
            self._answered_count = max(self._answered_count, response.answered)
            self._wake.set()

    def _ended(self, error: PulsarishError) -> None:
        senders, self._senders = list(self._senders.values()), {}
        self._ready.clear()
        for sender in senders:
            sender.stream_lost(error)
