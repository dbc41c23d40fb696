"""A consumer on one topic or one partition: keeps it subscribed, and carries permits,
acknowledgements and redeliveries.

After a loss it looks the topic up and subscribes again. A durable subscription then delivers what
is not acknowledged; a reader continues after the last message that it handed out. Waiting
acknowledgements survive the loss.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from pulsarish.client.connection.ack_tracker import AckTracker, Done
from pulsarish.client.connection.consume_stream import ConsumeStream
from pulsarish.client.connection.context import ClientContext, may_retry, retrying
from pulsarish.client.connection.loop_bridge import Wakeup
from pulsarish.client.connection.reconnect import Reconnector
from pulsarish.client.consumer.ack_sender import ACK_GROUP_MAX, AckSender
from pulsarish.client.consumer.chunk_assembler import ChunkAssembler
from pulsarish.client.consumer.dead_letters import DeadLetters
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.consumer.reader_position import ReaderPosition
from pulsarish.client.consumer.receive_queue import ReceiveQueue
from pulsarish.client.consumer.redelivery import EntryKey
from pulsarish.client.consumer.seek_tracker import SeekTracker
from pulsarish.client.consumer.subscribe_command import first_wanted, subscribe_command
from pulsarish.client.consumer.unacked_messages import DAMAGED_RETRY_MS, UnackedMessages
from pulsarish.client.consumer.unpacker import Unpacker
from pulsarish.client.consumer.writer_schemas import WriterSchemas
from pulsarish.client.enums import ConsumerType
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Entry, Message, open_entry
from pulsarish.client.messages.options import ConsumerOptions
from pulsarish.model.errors import (
    AlreadyClosed,
    ChecksumError,
    ConnectError,
    PulsarishError,
    ServiceNotReady,
)
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["TopicConsumer"]

T = TypeVar("T")

_log = get_logger("client.consumer")


class TopicConsumer:
    """``open_next``, ``acknowledge*`` and ``negative_acknowledge`` may be called from any thread;
    the rest runs in the loop.
    """

    def __init__(
        self,
        topic: TopicName,
        options: ConsumerOptions,
        parts: ClientContext,
        inbox: MessageQueue,
        writers: WriterSchemas,
        *,
        queue_size: int,
        partition: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.is_open = False
        self.is_active = True
        self._options = options
        self._parts = parts
        self._inbox = inbox
        full = topic.full
        self._writers = writers
        decode_of = partial(writers.decode_of, topic.partitioned.full)
        clock = parts.clock
        self._chunks = ChunkAssembler(
            pending_max=options.pending_chunked_max,
            expire_seconds=options.chunked_expire_seconds,
            acknowledge_oldest=options.ack_oldest_chunked,
            stamp=lambda: (clock.monotonic(), clock.wall_ms()),
            shared=not self._is_ordered,
        )
        self.incoming = ReceiveQueue(
            full,
            queue_size,
            lambda entry: open_entry(entry, full, partition, decode_of),
            inbox.ready,
            self._chunks,
        )
        policy = options.dead_letter_policy
        self._acks = AckTracker(group_max=ACK_GROUP_MAX, batch_index=options.batch_index_ack)
        self._unacked = UnackedMessages(
            self._acks,
            negative_delay_ms=options.negative_ack_delay,
            unacked_timeout_seconds=options.unacked_timeout_seconds,
            redeliveries_max=policy.max_redeliver_count if policy is not None else None,
            acknowledged=options.start is None,
            # At random times: consumers that hold parts of a message each would otherwise return
            # them to each other again and again.
            damaged_delay_ms=lambda _count: parts.random.randrange(
                DAMAGED_RETRY_MS // 2, DAMAGED_RETRY_MS * 3 // 2
            ),
        )
        self._dead_letters: DeadLetters | None = None
        if policy is not None:
            dead_topic = (
                policy.dead_letter_topic
                or f"{topic.partitioned.full}-{options.subscription_name}-DLQ"
            )
            self._dead_letters = DeadLetters(dead_topic, parts, of=topic.partitioned.full)
        self._notice = Wakeup(parts.handoff, self.look)
        self._unpacker = Unpacker(
            topic,
            options,
            inbox,
            self.incoming,
            self._chunks,
            self._unacked,
            writers,
            clock,
            self._notice.give,
            partition=partition,
            ordered=self._is_ordered,
        )
        self._ack_sending = AckSender(
            self._acks, inbox, clock, parts.alarms.alarm(self.look), self._means_gone
        )
        self._redelivery_alarm = parts.alarms.alarm(self._redeliver_due)
        self._stream: ConsumeStream | None = None
        self._consumer_id = 0
        self._seeks = SeekTracker()
        self._place = ReaderPosition(options, self.incoming, persistent=topic.persistent)
        self._keeps_queue = options.start is not None or not topic.persistent
        self._reconnector = Reconnector("consumer", topic.full, parts, self._open_at, self._ended)

    # Subscribing, and subscribing again.

    async def open(self) -> None:
        """Subscribe for the first time. Raises the broker's refusal, or ``Timeout``."""
        await self._reconnector.open()

    async def _open_at(self, address: str) -> None:
        stream = await self._parts.consume.get(address)
        command = subscribe_command(self.topic, self._options)
        late_seeks = self._seeks.late_count
        with self._inbox.lock:
            self._place.go_on_after_taken()
            self._place.say(command)
        consumer_id = await stream.subscribe(self, command, self._parts.operation_timeout_seconds)
        if self._place.is_to_be_learned:
            await self._learn_start(stream, consumer_id)
        if (
            self._reconnector.is_closing
            or not stream.has_consumer(consumer_id)
            or self._seeks.late_count != late_seeks
        ):
            stream.close_quietly(consumer_id)
            raise ServiceNotReady(
                f"consumer on {self.topic} was closed as soon as it was subscribed"
            )
        with self._inbox.lock:
            # A second time: the program may have taken queued messages while the broker answered,
            # and the broker sends those again.
            self._place.go_on_after_taken()
            self._unacked.forget()
            permits = self.incoming.restart(keep_ready=self._keeps_queue)
            self._seeks.subscribed_anew()
        self._stream, self._consumer_id = stream, consumer_id
        self.is_open = True
        if permits:
            stream.flow(consumer_id, permits)
        self.look()
        # A program that waits with a queue of size 0 needs a new permit.
        self._inbox.arrived()

    async def _learn_start(self, stream: ConsumeStream, consumer_id: int) -> None:
        """Learn what a moving start ("latest", a time) means, so that a lost connection skips
        nothing.
        """
        try:
            last = await stream.last_message_id(consumer_id, self._parts.operation_timeout_seconds)
        except AlreadyClosed as error:
            raise ServiceNotReady(
                f"consumer on {self.topic} was closed as soon as it was subscribed: {error}"
            ) from None
        mark = last.mark_delete
        start = (
            MessageId(self.partition, mark.ledger, mark.entry)
            if mark.ledger >= 0
            else MessageId.earliest
        )
        with self._inbox.lock:
            self._place.move_to(start, inclusive=False)

    # Callbacks of the stream.

    def delivered(self, entries: list[Entry]) -> None:
        with self._inbox.lock:
            if self._seeks.is_under_way:
                # From before the seek: only their permits count, unless the seek is refused.
                self.incoming.dropped(entries)
                self._seeks.passed(entries)
                return
            self.incoming.delivered(entries)
        self._inbox.arrived()

    def damaged(self, ledger_id: int, entry_id: int, error: ChecksumError) -> None:
        _log.error(
            "delivered entry is damaged, asking for it again",
            topic=self.topic,
            ledger=ledger_id,
            entry=entry_id,
            reason=error,
        )
        if self._is_ordered or self._options.consumer_type is ConsumerType.KeyShared:
            # Later messages, at least those of its key, must not be handed out before it.
            self._subscribe_anew()
            return
        with self._inbox.lock:
            self._unacked.damaged((ledger_id, entry_id), self._parts.clock.monotonic())
            due = self._unacked.next_due()
        self._redelivery_alarm.set(due)

    def active_changed(self, active: bool) -> None:
        self.is_active = active

    def end_of_topic(self) -> None:
        _log.info("topic is terminated and read to its end", topic=self.topic)

    def closed_by_broker(self, error: PulsarishError) -> None:
        self._lose()
        if not may_retry(error, first=False):
            self._reconnector.close()
            self._ended(error)

    def stream_lost(self, error: PulsarishError) -> None:
        self._lose()

    def _lose(self) -> None:
        self.is_open = False
        self._stream = None
        with self._inbox.lock:
            self._acks.disconnected()
            if not self._keeps_queue:
                # It is redelivered, here or to another consumer of the subscription.
                self.incoming.restart(keep_ready=False)
        self._reconnector.lost()

    def _ended(self, error: PulsarishError) -> None:
        """Note that no more messages come."""
        self._redelivery_alarm.cancel()
        self._ack_sending.end(error)
        self._inbox.fail(error)

    # The program's side. The caller of ``open_next`` holds the queue's lock; the others take it.

    def open_next(self) -> bool:
        """Open the next entry for the program. Returns whether there is a message now."""
        return self._unpacker.open_next()

    def acknowledge(self, ids: Sequence[MessageId], done: Done | None) -> None:
        """Acknowledge messages.

        ``done`` is called when the broker has made them durable; without it no answer is requested.
        """
        with self._inbox.lock:
            waited = self._acks.is_waiting
            self._unacked.acknowledge(ids)
            self._acknowledged(waited, done)

    def acknowledge_cumulative(self, message_id: MessageId, done: Done | None) -> None:
        with self._inbox.lock:
            waited = self._acks.is_waiting
            self._unacked.acknowledge_cumulative(message_id)
            self._acknowledged(waited, done)

    def _acknowledged(self, waited: bool, done: Done | None) -> None:
        """Wake the loop if it must send or time an acknowledgement."""
        if done is not None and not self._acks.wait(done):
            self._parts.handoff.post(lambda: done(None))
        if self._acks.is_full or (self._acks.is_waiting and not waited):
            self._notice.give()

    def negative_acknowledge(self, message_id: MessageId, redelivery_count: int) -> None:
        with self._inbox.lock:
            self._unacked.refuse(message_id, redelivery_count, self._parts.clock.monotonic())
        self._notice.give()

    # The loop's side.

    def look(self) -> None:
        """Send due permits, acknowledgements and dead letters, and set the timers."""
        now = self._parts.clock.monotonic()
        self._writers.fetch()
        with self._inbox.lock:
            dead = self._unacked.take_dead()
            due = self._unpacker.next_due()
            permits = 0
            stream = self._stream
            if stream is not None and self.incoming.permits_due:
                if not self.incoming.may_receive:
                    # No chunk could come until now.
                    self._chunks.excuse(now)
                permits = self.incoming.take_permits()
            batch = self._ack_sending.take_due(now, connected=stream is not None)
            read_to = self.incoming.last_taken
        if stream is not None:
            self._ack_sending.set_alarm()
        self._redelivery_alarm.set(due)
        if stream is not None:
            if permits:
                stream.flow(self._consumer_id, permits)
                if (
                    self._options.start is not None
                    and read_to is not None
                    and not self._seeks.is_under_way
                ):
                    # The broker keeps a reader's cursor in memory; moving it lets the broker forget
                    # what is behind.
                    position = (read_to.ledger_id(), read_to.entry_id(), -1)
                    stream.acknowledge(
                        self._consumer_id, [position], cumulative=True, answered=None
                    )
            if batch is not None:
                self._ack_sending.send(stream, self._consumer_id, batch)
        for key, messages in dead.items():
            self._bury(key, messages)

    def _redeliver_due(self) -> None:
        now = self._parts.clock.monotonic()
        with self._inbox.lock:
            self._unpacker.expire_chunks(now, connected=self._stream is not None)
            keys = self._unacked.take_due(now)
        if keys and self._stream is not None:
            self._stream.redeliver(self._consumer_id, keys)
        self.look()

    def redeliver_unacknowledged(self) -> None:
        """Redeliver everything unacknowledged.

        Queued messages are dropped, because they are redelivered too.
        """
        if self._is_ordered:
            # By a new subscription: what is on the wire for this one must not arrive first, or a
            # cumulative acknowledgement would skip it.
            self._subscribe_anew()
            return
        with self._inbox.lock:
            self.incoming.clear()
            self._unacked.forget()
        if self._stream is not None:
            self._stream.redeliver(self._consumer_id, [])
        self.look()

    def _ask_again(self, keys: Sequence[EntryKey]) -> None:
        """Request entries again that arrived and were not handed out."""
        if self._is_ordered:
            # Nothing after them may be handed out before them.
            self._subscribe_anew()
        elif self._stream is not None:
            self._stream.redeliver(self._consumer_id, keys)

    @property
    def _is_ordered(self) -> bool:
        return not self._options.consumer_type.is_spread

    def _subscribe_anew(self) -> None:
        """Close and subscribe again: nothing that is on the wire now arrives."""
        if self._stream is not None:
            self._stream.close_quietly(self._consumer_id)
            self._lose()

    def _bury(self, key: EntryKey, messages: list[Message]) -> None:
        """Copy an entry's messages to the dead letter topic, then acknowledge it."""
        assert self._dead_letters is not None

        def copied(error: PulsarishError | None) -> None:
            if error is None:
                self.acknowledge(
                    [
                        messages[0].message_id()
                        if messages[0].message_id().chunks()
                        else MessageId(self.partition, *key)
                    ],
                    None,
                )
                return
            with self._inbox.lock:
                self._unacked.not_buried(key, messages, self._parts.clock.monotonic())
            self.look()

        self._dead_letters.send(messages, copied)

    # Requests.

    def _means_gone(self, error: PulsarishError) -> bool:
        """Whether an answer says only that the broker no longer serves this consumer.

        It answers ``AlreadyClosed`` when it has closed the consumer and the client does not know
        yet.
        """
        return error.retryable or (
            isinstance(error, AlreadyClosed) and not self._reconnector.is_closing
        )

    async def _ask(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        """Send a request on the present connection, and again after a loss, within the operation
        timeout.
        """

        async def once() -> T:
            try:
                return await work()
            except AlreadyClosed as error:
                if self._reconnector.is_closing:
                    raise
                raise ConnectError(
                    f"consumer on {self.topic} is not connected now: {error}"
                ) from None

        return await retrying(self._parts, f"{what} on {self.topic}", once)

    def _closed_error(self) -> AlreadyClosed:
        if self._options.start is not None:
            return AlreadyClosed(f"reader on {self.topic} was closed: create another one")
        return AlreadyClosed(f"consumer on {self.topic} was closed: subscribe again")

    def _live(self) -> ConsumeStream:
        if self._reconnector.is_closing:
            raise self._inbox.failure or self._closed_error()
        if self._stream is None:
            raise ConnectError(f"consumer on {self.topic} is not connected now")
        return self._stream

    async def seek(self, position: MessageId | int) -> None:
        """Seek to a message, or to the first message published at or after a time in
        milliseconds.
        """
        await self._ask("seek", lambda: self._seek_once(position))

    async def _seek_once(self, position: MessageId | int) -> None:
        stream = self._live()
        consumer_id = self._consumer_id
        command = pb.Seek(consumer_id=consumer_id)
        if isinstance(position, int):
            command.publish_time_ms = position
        else:
            command.position.CopyFrom(
                first_wanted(position, inclusive=self._options.start_inclusive)
            )

        def send(request_id: int) -> None:
            command.request_id = request_id
            stream.seek(command)

        def answered(error: PulsarishError | None) -> None:
            # In the loop, before any delivery from the new position.
            is_here = self._stream is stream and self._consumer_id == consumer_id
            with self._inbox.lock:
                passed = self._seeks.answered(of_now=is_here, done=error is None)
                if error is None:
                    self.incoming.clear()
                    self._unacked.forget()
                    self.incoming.start_at(None, inclusive=False)
                    if isinstance(position, MessageId):
                        self._place.move_to(position, inclusive=self._options.start_inclusive)
            if passed:
                self._ask_again(passed)
            elif error is None and not is_here:
                # The connection was lost first: what arrived since, or arrives next, may be from
                # before the seek.
                self._seeks.came_late()
                self._subscribe_anew()

        with self._inbox.lock:
            self._seeks.began()
            # Send waiting acknowledgements first: after the seek they would skip what it leads to.
            batch = self._acks.take()
        if batch is not None:
            self._ack_sending.send(stream, consumer_id, batch)
        await stream.answer(send, self._parts.operation_timeout_seconds, first=answered)
        if self._options.start is not None and (
            isinstance(position, int) or position == MessageId.latest
        ):
            await self._learn_start(stream, consumer_id)
            if self._stream is not stream or self._consumer_id != consumer_id:
                # It subscribed again before the position was known, so at the position from before
                # the seek.
                with self._inbox.lock:
                    self.incoming.clear()
                    self._unacked.forget()
                self._seeks.came_late()
                self._subscribe_anew()
        self.look()

    async def last_message_id(self) -> tuple[MessageId, MessageId]:
        """Return the last message of the topic (entry -1 when it has none), and the position before
        which everything is acknowledged.
        """

        async def ask() -> tuple[MessageId, MessageId]:
            last = await self._live().last_message_id(
                self._consumer_id, self._parts.operation_timeout_seconds
            )
            return (
                MessageId(
                    self.partition,
                    last.last.ledger,
                    last.last.entry,
                    last.last.batch_index,
                    topic=self.topic.full,
                ),
                MessageId(self.partition, last.mark_delete.ledger, last.mark_delete.entry),
            )

        return await self._ask("asking for the last message", ask)

    def place(self) -> tuple[MessageId, bool]:
        """Return a reader's position: the message before the next one, and whether it is itself
        still to come.
        """
        with self._inbox.lock:
            return self._place.now()

    async def unsubscribe(self, *, force: bool) -> None:
        """Delete the subscription and end."""
        timeout = self._parts.operation_timeout_seconds
        await self._ask(
            "unsubscribe",
            lambda: self._live().unsubscribe(
                self._consumer_id, force=force, timeout_seconds=timeout
            ),
        )

    async def close(self) -> None:
        """Send waiting acknowledgements, then close the consumer at the broker."""
        stream, consumer_id = self._stream, self._consumer_id
        if stream is not None:
            with self._inbox.lock:
                batch = self._acks.take()
            if batch is not None:
                self._ack_sending.send(stream, consumer_id, batch)
        self._stream = None
        self.is_open = False
        self._reconnector.close()
        if stream is not None and stream.lost is None:
            try:
                await stream.close_consumer(consumer_id, self._parts.operation_timeout_seconds)
            except PulsarishError as error:
                _log.debug("consumer closed without an answer", topic=self.topic, reason=error)
        if self._dead_letters is not None:
            await self._dead_letters.close()
        self._ended(self._closed_error())

    def shutdown(self, error: PulsarishError) -> None:
        """End now, without waiting for the broker."""
        stream, self._stream = self._stream, None
        self.is_open = False
        self._reconnector.close()
        if stream is not None:
            stream.close_quietly(self._consumer_id)
        if self._dead_letters is not None:
            self._dead_letters.shutdown(error)
        self._ended(error)
