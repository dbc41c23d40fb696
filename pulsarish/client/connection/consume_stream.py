"""The ``broker.consume`` stream of a client to one broker: permits, acknowledgements, seeks and
deliveries of all its consumers.

Commands whose order matters never share a message. The client answers deliveries with the number
that it has received, and the broker has at most two unanswered deliveries.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pulsarish.client.connection.ack_tracker import AckBatch
from pulsarish.client.connection.broker_stream import BrokerStream, error_of
from pulsarish.client.messages.message import Entry
from pulsarish.model.errors import ChecksumError, PulsarishError, Timeout
from pulsarish.runtime.seams import Buffer
from pulsarish.security.credentials import Credentials
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire.entry import verify_entry
from pulsarish.wire.framing import slice_records, split_records

__all__ = ["ConsumeStream", "Receiver"]


TELL_AT_ONCE_BYTES = 32 << 10
"""A delivery of this size is answered at once."""


class Receiver(Protocol):
    """A consumer, as the stream uses it. All calls are made in the loop."""

    def on_delivery(self, entries: list[Entry]) -> None: ...

    def on_damaged(self, ledger_id: int, entry_id: int, error: ChecksumError) -> None: ...

    def on_active_changed(self, active: bool) -> None: ...

    def on_end_of_topic(self) -> None: ...

    def on_closed_by_broker(self, error: PulsarishError, moved_to: pb.BrokerAddresses) -> None: ...

    def on_stream_lost(self, error: PulsarishError) -> None: ...


class ConsumeStream(BrokerStream):
    kind = "consume"

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._receivers: dict[int, Receiver] = {}
        self._consumer_count = 0
        # Messages to send, in order. Commands join only the last one, and only when their order
        # does not matter.
        self._outbox: deque[pb.ConsumeRequest] = deque()
        self._open: pb.ConsumeRequest | None = None
        self._taken = 0
        self._reported_taken = 0
        self._tell_at = 1

    # Commands.

    def _barrier(self, request: pb.ConsumeRequest) -> None:
        """Queue a message that no other command joins, so that the order of commands is kept."""
        self._open = None
        self._outbox.append(request)
        self._wake.set()

    def _shared(self) -> pb.ConsumeRequest:
        """Return the message that commands may join."""
        if self._open is None:
            self._open = pb.ConsumeRequest()
            self._outbox.append(self._open)
        self._wake.set()
        return self._open

    async def subscribe(
        self, receiver: Receiver, command: pb.Subscribe, timeout_seconds: float
    ) -> int:
        """Subscribe under a new consumer id and return the id.

        Raises the broker's error, ``Timeout`` or ``ConnectError``.
        """
        self._consumer_count += 1
        consumer_id = command.consumer_id = self._consumer_count

        def send(request_id: int) -> None:
            command.request_id = request_id
            self._barrier(pb.ConsumeRequest(subscribe=[command]))

        self._receivers[consumer_id] = receiver
        try:
            await self.answer(send, timeout_seconds)
        except (Timeout, asyncio.CancelledError):
            # The broker may still subscribe it: close it there.
            self.close_quietly(consumer_id)
            raise
        except PulsarishError:
            self._receivers.pop(consumer_id, None)
            raise
        return consumer_id

    def _say_close(self, consumer_id: int, request_id: int) -> None:
        self._barrier(
            pb.ConsumeRequest(
                close=[pb.CloseConsumer(request_id=request_id, consumer_id=consumer_id)]
            )
        )

    def has_consumer(self, consumer_id: int) -> bool:
        """Whether the consumer is open on both sides."""
        return consumer_id in self._receivers

    def close_quietly(self, consumer_id: int) -> None:
        """Close a consumer without waiting for the answer."""
        if self._receivers.pop(consumer_id, None) is not None and self.lost is None:
            self._say_close(consumer_id, self.request(lambda _error, _answer: None))

    async def close_consumer(self, consumer_id: int, timeout_seconds: float) -> None:
        self._receivers.pop(consumer_id, None)
        await self.answer(
            lambda request_id: self._say_close(consumer_id, request_id), timeout_seconds
        )

    async def unsubscribe(self, consumer_id: int, *, force: bool, timeout_seconds: float) -> None:
        def send(request_id: int) -> None:
            command = pb.Unsubscribe(request_id=request_id, consumer_id=consumer_id, force=force)
            self._barrier(pb.ConsumeRequest(unsubscribe=[command]))

        await self.answer(send, timeout_seconds)

    def seek(self, command: pb.Seek) -> None:
        self._barrier(pb.ConsumeRequest(seek=[command]))

    async def last_message_id(self, consumer_id: int, timeout_seconds: float) -> pb.LastMessageId:
        def send(request_id: int) -> None:
            self._shared().last_message_id.add(request_id=request_id, consumer_id=consumer_id)

        answer: pb.LastMessageId = await self.answer(send, timeout_seconds)
        return answer

    def flow(self, consumer_id: int, permits: int) -> None:
        request = self._shared()
        request.flow_consumers.append(consumer_id)
        request.flow_permits.append(permits)

    def acknowledge(
        self,
        consumer_id: int,
        ids: Sequence[tuple[int, int, int]],
        *,
        cumulative: bool,
        answered: Callable[[PulsarishError | None], None] | None,
    ) -> None:
        """Acknowledge ids: ledger, entry, batch index (-1: the whole entry).

        Raises ``ConnectError`` if a wanted answer is lost.
        """
        request_id = (
            self.request(lambda error, _answer: answered(error)) if answered is not None else 0
        )
        ack = self._shared().acks.add(
            consumer_id=consumer_id, request_id=request_id, cumulative=cumulative
        )
        ledgers, entries, indexes = zip(*ids, strict=True)
        ack.ledgers.extend(ledgers)
        ack.entries.extend(entries)
        if max(indexes) >= 0:
            ack.batch_indexes.extend(indexes)

    def acknowledge_batch(
        self,
        consumer_id: int,
        batch: AckBatch,
        answered: Callable[[PulsarishError | None], None] | None,
    ) -> None:
        """Send a batch of acknowledgements.

        ``answered`` is called once, with the first error, if any.
        """
        left = (1 if batch.ids else 0) + (1 if batch.cumulative is not None else 0)
        failure: PulsarishError | None = None

        def one(error: PulsarishError | None) -> None:
            nonlocal left, failure
            left -= 1
            failure = failure or error
            if left == 0 and answered is not None:
                answered(failure)

        each = one if answered is not None else None
        if batch.ids:
            self.acknowledge(consumer_id, batch.ids, cumulative=False, answered=each)
        if batch.cumulative is not None:
            self.acknowledge(consumer_id, [batch.cumulative], cumulative=True, answered=each)

    def redeliver(
        self,
        consumer_id: int,
        ids: Sequence[tuple[int, int]] = (),
        answered: Callable[[PulsarishError | None], None] | None = None,
    ) -> None:
        """Request redelivery; without ids, of everything unacknowledged.

        ``answered`` is called before anything that is delivered again.

        Raises ``ConnectError`` if a wanted answer is lost.
        """
        request_id = (
            self.request(lambda error, _answer: answered(error)) if answered is not None else 0
        )
        command = self._shared().redeliver.add(consumer_id=consumer_id, request_id=request_id)
        command.ledgers.extend(ledger for ledger, _ in ids)
        command.entries.extend(entry for _, entry in ids)

    def extend_ack(self, consumer_id: int, ids: Sequence[tuple[int, int]]) -> None:
        """Tell the broker that the program goes on working on entries."""
        command = self._shared().extend.add(consumer_id=consumer_id)
        command.ledgers.extend(ledger for ledger, _ in ids)
        command.entries.extend(entry for _, entry in ids)

    # Messages.

    def _gather(self) -> Sequence[Buffer] | None:
        if self._outbox:
            request = self._outbox.popleft()
            if request is self._open:
                self._open = None
        elif self._taken - self._reported_taken >= self._tell_at or self.heartbeat_due:
            request = pb.ConsumeRequest(heartbeat=self._taken == self._reported_taken)
        else:
            return None
        self.heartbeat_due = False
        request.taken = self._reported_taken = self._taken
        return [request.SerializeToString()]

    def _show(self, credentials: Credentials) -> None:
        self._barrier(
            pb.ConsumeRequest(
                credentials=pb.Credentials(
                    method=credentials.method, data=credentials.data.reveal()
                )
            )
        )

    def _heartbeat(self) -> bytes:
        return pb.ConsumeRequest(heartbeat=True, taken=self._taken).SerializeToString()

    @property
    def _awaits_answer(self) -> bool:
        return bool(self._answers)

    def _handle(self, data: bytes) -> None:
        head, records = split_records(data)
        response = pb.ConsumeResponse.FromString(head)
        # Answers first: entries in the same message as the answer of a seek come from the new
        # position.
        for subscribed in response.subscribed:
            self._answered(subscribed.outcome, subscribed)
        for outcome in response.outcomes:
            self._answered(outcome, outcome)
        for last in response.last_message_id:
            self._answered(last.outcome, last)
        receivers = self._receivers
        for active in response.active:
            if (receiver := receivers.get(active.consumer_id)) is not None:
                receiver.on_active_changed(active.active)
        if response.counted:
            self._deliver(response, records)
            self._taken += 1
            # A small delivery is not answered at once: the broker may send one more first, which
            # saves half of the messages at low rates. A large one is, because more follows.
            self._tell_at = (
                1 if len(data) >= TELL_AT_ONCE_BYTES else self._limits.unanswered_messages_max
            )
            self._wake.set()
        if response.ask_credentials:
            self._on_credentials_asked()
        for ended in response.ended:
            if (receiver := receivers.get(ended.consumer_id)) is not None:
                receiver.on_end_of_topic()
        for closed in response.closed:
            if (receiver := receivers.pop(closed.consumer_id, None)) is not None:
                receiver.on_closed_by_broker(
                    error_of(closed) or PulsarishError("closed by the broker"), closed.moved_to
                )

    def _deliver(self, response: pb.ConsumeResponse, records: memoryview) -> None:
        ack_sets = (
            dict(zip(response.ack_set_rows, response.ack_sets, strict=True))
            if response.ack_set_rows
            else None
        )
        by_consumer: dict[int, list[Entry]] = {}
        rows = zip(
            response.consumer_ids,
            response.ledgers,
            response.entry_ids,
            response.redelivery_counts,
            slice_records(records, response.sizes),
            strict=True,
        )
        for row, (consumer_id, ledger_id, entry_id, redelivery_count, data) in enumerate(rows):
            if consumer_id not in self._receivers:
                continue
            try:
                verify_entry(data)
            except ChecksumError as error:
                self._receivers[consumer_id].on_damaged(ledger_id, entry_id, error)
                continue
            ack_set = ack_sets.get(row) if ack_sets is not None else None
            entries = by_consumer.get(consumer_id)
            if entries is None:
                entries = by_consumer[consumer_id] = []
            entries.append(Entry(ledger_id, entry_id, redelivery_count, data, ack_set))
        for consumer_id, entries in by_consumer.items():
            # A consumer that was told of damage may have closed.
            if (receiver := self._receivers.get(consumer_id)) is not None:
                receiver.on_delivery(entries)

    def _ended(self, error: PulsarishError) -> None:
        receivers, self._receivers = list(self._receivers.values()), {}
        for receiver in receivers:
            receiver.on_stream_lost(error)
