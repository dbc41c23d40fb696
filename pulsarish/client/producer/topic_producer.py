"""A producer on one topic or one partition: keeps it open at the owner, and carries entries,
receipts and timeouts.

After a loss it looks the topic up again, opens with the next epoch, and sends everything without a
receipt again: in order, with the same sequence ids and batch boundaries. A message fails only by a
refusal, by its own timeout or that of an earlier one, or when the producer ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from pulsarish.client.connection.context import ClientContext, may_retry
from pulsarish.client.connection.loop_bridge import Wakeup
from pulsarish.client.connection.publish_stream import PublishStream
from pulsarish.client.connection.reconnect import Reconnector
from pulsarish.client.enums import BatchingType, ProducerAccessMode
from pulsarish.client.message_id import MessageId, known_id
from pulsarish.client.message_log import message_log
from pulsarish.client.messages.options import ProducerOptions
from pulsarish.client.messages.pending_entries import PendingEntry
from pulsarish.client.producer.lazy_queue import LazyQueue
from pulsarish.client.producer.send_limits import SendLimits
from pulsarish.client.producer.send_queue import SendQueue
from pulsarish.client.schemas.wire import schema_message
from pulsarish.client.send_failures import SendFailures
from pulsarish.client.stats import SendCounts
from pulsarish.model.errors import (
    AlreadyClosed,
    ProducerBusy,
    ProducerFenced,
    PulsarishError,
    ServiceNotReady,
    Timeout,
)
from pulsarish.model.result import Result
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.wire._pb import broker_pb2 as pb

if TYPE_CHECKING:
    from pulsarish.client.producer.encryption import Encryption

__all__ = ["NO_MESSAGE_ID", "OnReturn", "TopicProducer", "Waiter"]

_log = get_logger("client.producer")

NO_MESSAGE_ID = MessageId()
OnReturn = Callable[[], Awaitable[None]]


class Waiter:
    """A callback that receives the error itself instead of its ``Result``."""

    __slots__ = ()

    def __call__(self, result: Result, message_id: MessageId) -> None:
        raise NotImplementedError

    def fail(self, error: PulsarishError) -> None:
        raise NotImplementedError


class TopicProducer:
    def __init__(
        self,
        topic: TopicName,
        options: ProducerOptions[Any],
        parts: ClientContext,
        *,
        max_pending_messages: int,
        partition: int,
        first_epoch: int = 0,
        on_return: OnReturn | None = None,
        encryption: Encryption | None = None,
        lazy: bool = False,
    ) -> None:
        """``lazy``: nothing calls ``open``; the first message has the producer opened.

        ``first_epoch`` above 0: takes over from producers of the same name with lower epochs,
        and ends when one with a higher epoch does.

        ``on_return`` is called when the producer is open again after a loss, before anything is
        sent again. What it raises is handled as a refusal by the broker.
        """
        self.topic = topic
        self.partition = partition
        self.name = options.producer_name
        self.failure: PulsarishError | None = None
        """Why nothing can be sent any more."""
        self.deduplication = False
        """Whether the broker removed duplicates when it last opened the producer."""
        self.is_open = False
        self.counts = SendCounts()
        self.messages = message_log(topic.full)
        self.completed: Callable[[], None] = lambda: None
        """Called in the loop when messages were completed, so that there may be room."""
        self._options = options
        self._parts = parts
        clock = parts.clock
        limits = SendLimits(
            max_pending_messages=max_pending_messages,
            batching=options.batching_enabled,
            batch_messages_max=options.batching_max_messages if options.batching_enabled else 1,
            batch_bytes_max=options.batching_max_bytes,
            compression=options.compression_type,
            timeout_seconds=options.send_timeout_seconds,
            by_key=options.batching_type is BatchingType.KeyBased,
            chunking=options.chunking_enabled,
        )
        make_queue = LazyQueue if lazy else SendQueue
        self.core = make_queue(
            limits,
            stamp=lambda: (clock.monotonic(), clock.wall_ms()),
            encryption=encryption,
            on_sealed=None if self.messages is None else self.messages.batched,
        )
        self.is_started = not lazy
        """Whether it is open, or opens."""
        self.lock = parts.handoff.lock()
        self.notice = Wakeup(parts.handoff, self.look)
        self._batch_alarm = parts.alarms.alarm(self.look)
        self._timeout_alarm = parts.alarms.alarm(self._expire)
        self._stream: PublishStream | None = None
        self._producer_id = 0
        self._first_epoch = self._epoch = first_epoch
        self._on_return = on_return
        # Not 0, which an older client says.
        self._instance = parts.random.getrandbits(63) + 1
        self._topic_epoch = 0
        self._was_open = False
        self._cluster = parts.cluster
        self._was_open_here = False
        self._schema = schema_message(options.schema)
        self.send_failures = SendFailures(topic.full, parts.handoff, parts.alarms, clock)
        # Waiting for exclusive access has no time limit.
        self._waits = options.access_mode is ProducerAccessMode.WaitForExclusive
        self._reconnector = Reconnector(
            "producer",
            topic.full,
            parts,
            self._open_at,
            self._end,
            # What ``on_return`` opens needs a turn, too.
            waits=self._waits or on_return is not None,
        )

    # Opening, and opening again.

    async def open(self, address: str = "") -> None:
        """Open for the first time, at ``address`` if the owner is known.

        Raises the broker's refusal, or ``Timeout``.
        """
        await self._reconnector.open(address)

    async def _open_at(self, address: str) -> None:
        parts = self._parts
        if parts.cluster != self._cluster:
            # Where it was open, and for which epoch of the topic, counts in that cluster only.
            self._cluster = parts.cluster
            self._was_open_here, self._topic_epoch = False, 0
        stream = await parts.publish.get(address)
        command = pb.OpenProducer(
            topic=self.topic.full,
            producer_name=self.name,
            epoch=self._epoch,
            access_mode=int(self._options.access_mode),  # type: ignore[arg-type]
            properties=self._options.properties,
            schema=self._schema,
            topic_epoch=self._topic_epoch,
            instance=self._instance,
            takes_over=self._first_epoch > 0,
            was_open=self._was_open_here,
            initial_subscription=self._options.initial_subscription,
            encrypts=self._options.crypto_key_reader is not None,
        )
        self._epoch += 1
        try:
            opened = await stream.open_producer(
                self, command, None if self._waits else parts.operation_timeout_seconds
            )
        except ProducerBusy as error:
            raise self._outdone(error) from None
        try:
            await self._check_return(opened)
        except PulsarishError:
            stream.close_producer(opened.producer_id)
            raise
        if self._reconnector.is_closing:
            stream.close_producer(opened.producer_id)
            return
        if not stream.has_producer(opened.producer_id):
            raise ServiceNotReady(f"producer on {self.topic} was closed as soon as it was open")
        self._stream, self._producer_id = stream, opened.producer_id
        self._topic_epoch = opened.topic_epoch
        self._was_open_here = True
        self.deduplication = opened.deduplication
        with self.lock:
            if not self._was_open:
                self._was_open = True
                self.name = opened.producer_name
                self.core.named(
                    opened.producer_name,
                    last_sequence_id=opened.last_sequence_id,
                    initial_sequence_id=self._options.initial_sequence_id,
                )
            self.core.use_schema(opened.schema_version)
            if opened.max_message_bytes:
                self.core.limit_messages(opened.max_message_bytes)
            refused = self.core.release()
        self.is_open = True
        for entry, reason in refused:
            self._fail([entry], reason)
        self.look()

    async def _check_return(self, opened: pb.ProducerOpened) -> None:
        """Raise ``ProducerFenced`` when the log has sequence ids of this name that were never sent
        from here, or what ``on_return`` raises.
        """
        if not self._was_open:
            return
        if self.deduplication and opened.deduplication and not self._first_epoch:
            with self.lock:
                is_behind = opened.last_sequence_id > self.core.pushed_sequence_id
            if is_behind:
                raise ProducerFenced(
                    f"another producer {self.name!r} stored messages on {self.topic} meanwhile; "
                    "with deduplication a sequence id counts once: close this one, and make a new "
                    "one"
                )
        if self._on_return is not None:
            await self._on_return()

    def _outdone(self, error: ProducerBusy) -> PulsarishError:
        """Return the error to report.

        With a first epoch, "busy" never means this producer's own earlier opening.
        """
        if not self._first_epoch:
            return error
        return ProducerFenced(
            f"a newer producer {self.name!r} has taken the place of this one on {self.topic}"
        )

    # The loop's side of the core.

    def look(self) -> None:
        """Seal and time batches, and offer entries to the stream: after messages were added, time
        passed, or the stream changed.
        """
        now = self._parts.clock.monotonic()
        delay = self._options.batching_delay_seconds
        with self.lock:
            core = self.core
            since = core.open_batch_since()
            if since is not None and since + delay <= now:
                core.seal()
                since = None
            has_entries = core.has_entries
            refused = core.take_oversized()
            deadline = core.next_deadline()
            starts = core.is_waiting and not self.is_started
        if starts:
            self.is_started = True
            _ = self._reconnector.start()
        if since is not None:
            self._batch_alarm.set(since + delay)
        if self._options.send_timeout_seconds:
            self._timeout_alarm.set(deadline)
        if has_entries and self._stream is not None:
            self._stream.entries_wait(self._producer_id, self)
        for entry, error in refused:
            self._fail([entry], error)

    def _expire(self) -> None:
        now = self._parts.clock.monotonic()
        with self.lock:
            late = self.core.expired(now)
        if late:
            state = (
                "sent and got no receipt"
                if self.is_open
                else "could not be sent, since no broker served the topic"
            )
            self._fail(
                late,
                Timeout(
                    f"the oldest message on {self.topic} {state} within "
                    f"{self._options.send_timeout_seconds} s, so it fails with all"
                    " that were sent after it, and nothing passes it; whether they are stored "
                    "is not known"
                ),
            )
        self.look()

    # Callbacks of the stream.

    def take(self, bytes_max: int) -> list[PendingEntry]:
        with self.lock:
            entries = self.core.take(bytes_max)
        if self.messages is not None:
            self.messages.sent(entries)
        return entries

    def receipts(self, count: int, ledger_id: int, first_entry: int, sequence_id: int) -> None:
        with self.lock:
            last = self.core.sent_before(count)
            # The receipt is for another entry: the stream cannot be trusted.
            assert last is not None, f"{count} receipts for fewer entries of producer {self.name}"
            assert sequence_id in (-1, last.sequence_id, last.highest_sequence_id), (
                f"a receipt for sequence id {sequence_id} came in place of one for "
                f"{last.sequence_id}"
            )
            pending_count = self.core.pending_count
            done = self.core.answered(count)
            messages = pending_count - self.core.pending_count
        made_now = self._parts.clock.monotonic() + self._options.send_timeout_seconds
        self.counts.add(done, messages, made_now)
        for index, entry in enumerate(done):
            if entry is not None:
                # Ledger -1: a duplicate; the broker does not know the position of the stored
                # message.
                self._complete(entry, ledger_id, first_entry + index if ledger_id >= 0 else -1)
        self.completed()

    def send_failed(self, sequence_id: int, error: PulsarishError) -> None:
        with self.lock:
            entry = self.core.refused()
        if entry is not None:
            self._fail([entry], error)

    def closed_by_broker(self, error: PulsarishError, moved_to: pb.BrokerAddresses) -> None:
        """Send entries without a receipt again at the new owner, or fail them when the error is
        final.
        """
        self._lose(moved_to)
        if isinstance(error, ProducerBusy):
            error = self._outdone(error)
        if not may_retry(error, first=False):
            self._end(error)

    def stream_lost(self, error: PulsarishError) -> None:
        self._lose()

    def _lose(self, moved_to: pb.BrokerAddresses | None = None) -> None:
        self.is_open = False
        self._stream = None
        with self.lock:
            self.core.disconnected()
        self._reconnector.lost(moved_to)

    # Completion.

    def _complete(self, entry: PendingEntry, ledger_id: int, entry_id: int) -> None:
        partition, ok, callbacks = self.partition, Result.Ok, entry.callbacks
        if self.messages is not None:
            self.messages.stored(entry, ledger_id, entry_id)
        size = len(callbacks) if entry.is_batch else 0
        chunks = entry.chunked.stored(ledger_id, entry_id) if entry.chunked is not None else ()
        at = 0
        while at < len(callbacks):
            # One ``try`` around the loop, not one for each message. The loop is entered again after
            # a callback raised.
            try:
                for callback in callbacks[at:] if at else callbacks:
                    at += 1
                    if callback is not None:
                        callback(
                            ok,
                            known_id(
                                partition,
                                ledger_id,
                                entry_id,
                                at - 1 if size else -1,
                                size,
                                "",
                                chunks,
                            ),
                        )
            except Exception as error:  # noqa: BLE001
                # The program's own code: reported, and the other messages hear of theirs.
                self._parts.callback_failed(error)
        for flushed in entry.flushes:
            flushed()

    def _fail(self, entries: Sequence[PendingEntry], error: PulsarishError) -> None:
        result = error.error()
        for entry in entries:
            self.counts.failed += len(entry.callbacks)
            if self.messages is not None:
                self.messages.failed(entry, error)
            for callback in entry.callbacks:
                if isinstance(callback, Waiter):
                    callback.fail(error)
                elif callback is not None:
                    try:
                        callback(result, NO_MESSAGE_ID)
                    except Exception as raised:  # noqa: BLE001 - as in _complete
                        self._parts.callback_failed(raised)
                else:
                    self.send_failures.add(error)
            for flushed in entry.flushes:
                flushed()
        self.completed()

    # The end.

    def _end(self, error: PulsarishError) -> None:
        self.failure = error
        self._reconnector.close()
        self._batch_alarm.cancel()
        self._timeout_alarm.cancel()
        with self.lock:
            left = self.core.end()
        self._fail(left, error)
        self.send_failures.log_due()
        self.completed()

    async def flush(self) -> None:
        """Wait until all messages so far are completed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self.lock:
            self.core.flush(lambda: None if done.done() else done.set_result(None))
        self.look()
        await done

    async def close(self) -> None:
        """Wait until everything is completed, then close the producer at the broker."""
        if self.failure is None:
            await self.flush()
        self.shutdown(
            AlreadyClosed(f"producer on {self.topic} was closed: create another one"), tell=False
        )
        stream, self._stream = self._stream, None
        self.is_open = False
        if stream is not None and stream.lost is None:
            try:
                await stream.close_producer_and_wait(
                    self._producer_id, self._parts.operation_timeout_seconds
                )
            except PulsarishError as error:
                _log.debug("producer closed without an answer", topic=self.topic, reason=error)

    def shutdown(self, error: PulsarishError, *, tell: bool = True) -> None:
        """End now; pending messages fail with ``error``.

        ``tell``: also close the producer at the broker.
        """
        if self.failure is None:
            self._end(error)
        if tell and self._stream is not None:
            self._stream.close_producer(self._producer_id)
            self._stream = None
        self.is_open = False
