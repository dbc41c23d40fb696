"""Acknowledging the messages of one topic, and what becomes of those that are not: noted as
refused, or copied to the dead letter topic or the retry letter topic.

Waiting acknowledgements survive the loss of the connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from pulsarish.client.connection.ack_tracker import AckBatch, AckTracker, Done
from pulsarish.client.connection.cluster_of import is_of_other_cluster
from pulsarish.client.connection.context import ClientContext
from pulsarish.client.consumer.ack_sender import ACK_GROUP_MAX, AckSender
from pulsarish.client.consumer.letter_topic import LetterTopic
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.consumer.redelivery import EntryKey
from pulsarish.client.consumer.subscription_session import SubscriptionSession
from pulsarish.client.consumer.unacked_messages import DAMAGED_RETRY_MS, UnackedMessages
from pulsarish.client.message_id import MessageId
from pulsarish.client.message_log import message_log
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.letters import dead_letter, letter_topic_name, retry_letter
from pulsarish.client.messages.message import Message
from pulsarish.model.errors import ConnectError, PulsarishError

__all__ = ["Acknowledger"]

_Acknowledged = TypeVar("_Acknowledged", Message, MessageId)

_DEFERRED_MAX: Final = 256
"""At most this many acknowledged messages wait to be noted together."""


def _left() -> ConnectError:
    return ConnectError(
        "the client has left the cluster of this message, which is not acknowledged: it is "
        "delivered there again"
    )


class Acknowledger:
    """``acknowledge*`` and ``negative_acknowledge`` may be called from any thread; the rest runs in
    the loop.

    While acknowledgements wait to be sent, the loop will look at them. Messages that are
    acknowledged one by one meanwhile are only gathered: no lock and no wake-up for each of them.

    Args:
        flush_due: sends what is due; called in the loop.
        wake: has the loop call ``flush_due``; may be called from any thread.
    """

    def __init__(
        self,
        options: ConsumerOptions[Any],
        parts: ClientContext,
        inbox: MessageQueue,
        session: SubscriptionSession,
        flush_due: Callable[[], None],
        wake: Callable[[], None],
        *,
        partition: int,
    ) -> None:
        self._messages = message_log(session.topic.full)
        self._parts = parts
        self._inbox = inbox
        self._session = session
        self._flush_due = flush_due
        self._wake = wake
        self._partition = partition
        self._cluster = parts.cluster
        # The loop was woken for what waits to be sent, or has set its timer: it will also settle
        # what is deferred. Written with the lock held.
        self._may_defer = False
        policy = options.dead_letter_policy
        self._tracker = AckTracker(group_max=ACK_GROUP_MAX, batch_index=options.batch_index_ack)
        self.unacked = UnackedMessages(
            self._tracker,
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
        self._policy = policy
        self._subscription = options.subscription_name
        whole = session.topic.partitioned
        self._dead_letters: LetterTopic | None = None
        if policy is not None:
            dead_topic = policy.dead_letter_topic or letter_topic_name(
                whole, options.subscription_name, "DLQ"
            )
            self._dead_letters = LetterTopic(
                dead_topic,
                parts,
                of=whole.full,
                reader=options.crypto_key_reader,
                initial_subscription=policy.initial_subscription_name,
            )
        self._retry_letters: LetterTopic | None = None
        if options.retry_topic is not None:
            self._retry_letters = LetterTopic(
                options.retry_topic.full, parts, of=whole.full, reader=options.crypto_key_reader
            )
        self._sender = AckSender(
            self._tracker, inbox, parts.clock, parts.alarms.alarm(flush_due), session.is_loss
        )

    # The program's side.

    def acknowledge_soon(self, message: Message) -> None:
        """Acknowledge a message without waiting for an answer."""
        if self._cluster:
            # The client may leave the cluster: only with the lock is it known of which one it is.
            self.acknowledge_messages((message,), None)
            return
        count = self.unacked.defer_acknowledgement(message)
        # Deferred first, then looked at: after the loop has cleared it, this thread settles.
        if not self._may_defer or count >= _DEFERRED_MAX:
            with self._inbox.lock:
                self.unacked.settle()
                self._on_acknowledged(None)

    def acknowledge_messages(self, messages: Sequence[Message], done: Done | None) -> None:
        """Acknowledge messages; ``done`` as for ``acknowledge``."""
        with self._inbox.lock:
            here = self._of_this_cluster(messages)
            self.unacked.acknowledge_messages(here)
            self._on_acknowledged(done, is_refused=len(here) < len(messages))

    def acknowledge(self, ids: Sequence[MessageId], done: Done | None) -> None:
        """Acknowledge messages.

        ``done`` is called when the broker has made them durable; without it no answer is requested.
        """
        with self._inbox.lock:
            here = self._of_this_cluster(ids)
            self.unacked.acknowledge(here)
            self._on_acknowledged(done, is_refused=len(here) < len(ids))

    def acknowledge_cumulative(self, message_id: MessageId, done: Done | None) -> None:
        with self._inbox.lock:
            is_refused = not self._of_this_cluster((message_id,))
            if not is_refused:
                self.unacked.acknowledge_cumulative(message_id)
            self._on_acknowledged(done, is_refused=is_refused)

    def _of_this_cluster(self, acknowledged: Sequence[_Acknowledged]) -> Sequence[_Acknowledged]:
        """Return those that are not of a cluster that the client has left: here their positions
        are those of other messages. The caller holds the queue's lock.
        """
        cluster = self._cluster
        if not cluster:
            return acknowledged  # the client cannot leave its cluster
        return [
            each for each in acknowledged if not is_of_other_cluster(each.topic_name(), cluster)
        ]

    def _on_acknowledged(self, done: Done | None, *, is_refused: bool = False) -> None:
        """Wake the loop if it must send or time an acknowledgement.

        Args:
            is_refused: some were of a cluster that the client has left.
        """
        if done is not None:
            if is_refused:
                self._parts.handoff.post(lambda: done(_left()))
            elif not self._tracker.wait(done):
                self._parts.handoff.post(lambda: done(None))
        is_waiting = self._tracker.is_waiting
        is_due = self._tracker.is_full or (is_waiting and not self._may_defer)
        self._may_defer = is_waiting
        if is_due:
            self._wake()

    def negative_acknowledge(self, message_id: MessageId, redelivery_count: int) -> None:
        if self._messages is not None:
            self._messages.refused(message_id)
        with self._inbox.lock:
            if not self._of_this_cluster((message_id,)):
                return
            self.unacked.refuse(message_id, redelivery_count, self._parts.clock.monotonic())
        self._wake()

    def extend(self, message_id: MessageId) -> None:
        with self._inbox.lock:
            if not self._of_this_cluster((message_id,)):
                return
            keys = self.unacked.extend(message_id, self._parts.clock.monotonic())
        self._parts.handoff.post(lambda: self._tell_extended(keys))

    # The loop's side.

    def _tell_extended(self, keys: Sequence[EntryKey]) -> None:
        if (stream := self._session.stream) is not None:
            stream.extend_ack(self._session.consumer_id, keys)

    def take_due(self, now: float) -> AckBatch | None:
        """Return acknowledgements to send; the caller holds the queue's lock."""
        self._settle()
        batch = self._sender.take_due(now, connected=self._session.stream is not None)
        self._may_defer = self._tracker.is_waiting
        return batch

    def _settle(self) -> None:
        # Cleared first: a message that is deferred after the next line is settled by its thread.
        self._may_defer = False
        self.unacked.settle()

    def set_timer(self) -> None:
        """Set the time at which the waiting acknowledgements are due, while connected."""
        if self._session.stream is not None:
            self._sender.set_alarm()

    def send(self, batch: AckBatch) -> None:
        """Send what ``take_due`` returned."""
        if self._messages is not None:
            self._messages.acknowledged(batch.ids, batch.cumulative)
        stream = self._session.stream
        assert stream is not None
        self._sender.send(stream, self._session.consumer_id, batch)

    def send_waiting(self) -> None:
        """Send all acknowledgements that wait, if connected."""
        if self._session.stream is not None:
            with self._inbox.lock:
                self._settle()
                batch = self._tracker.take()
            if batch is not None:
                self.send(batch)

    def copy_dead_letters(self, dead: dict[EntryKey, list[Message]]) -> None:
        """Copy entries to the dead letter topic, then acknowledge them."""
        for key, messages in dead.items():
            self._copy_dead_letter(key, messages)

    def _copy_dead_letter(self, key: EntryKey, messages: list[Message]) -> None:
        assert self._dead_letters is not None

        cluster = self._cluster

        def on_copied(error: PulsarishError | None) -> None:
            if cluster != self._cluster:
                return
            if error is None:
                first = messages[0].message_id()
                self.acknowledge(
                    [first if first.chunks() else MessageId(self._partition, *key)], None
                )
                return
            with self._inbox.lock:
                self.unacked.on_dead_letter_failed(key, messages, self._parts.clock.monotonic())
            self._flush_due()

        letters = [(message, dead_letter(message, self._subscription)) for message in messages]
        self._dead_letters.send(letters, on_copied)

    async def reconsume_later(
        self, message: Message, delay_ms: int, properties: Mapping[str, str]
    ) -> None:
        """Copy a message to the retry letter topic, or after the last time to the dead letter
        topic, and return when the copy is stored. The caller then acknowledges the message.

        Raises why it was not stored; then the message is refused, and delivered again.
        """
        assert self._policy is not None
        assert self._dead_letters is not None
        assert self._retry_letters is not None
        count, extras = retry_letter(
            message,
            self._subscription,
            delay_ms=delay_ms,
            now_ms=self._parts.clock.wall_ms(),
            properties=properties,
        )
        letters = self._retry_letters
        if count > self._policy.max_redeliver_count:
            letters, extras = self._dead_letters, replace(extras, deliver_at_ms=0)
        (error,) = await letters.store([(message, extras)])
        if error is not None:
            self.negative_acknowledge(message.message_id(), message.redelivery_count())
            raise error

    def leave_cluster(self, cluster: str) -> None:
        """Drop what waits, for another cluster; the caller holds the queue's lock."""
        self._cluster = cluster
        waiters = self._tracker.end()
        self.unacked.leave_cluster()

        def tell() -> None:
            for done in waiters:
                done(_left())

        if waiters:
            self._parts.handoff.post(tell)

    def on_lost(self) -> None:
        """Queue unanswered acknowledgements again; the caller holds the queue's lock."""
        self._settle()
        self._tracker.disconnected()

    def on_end(self, error: PulsarishError) -> None:
        """Fail the callers that wait for an answer."""
        self._sender.end(error)

    async def close(self) -> None:
        """Close the producers of dead and retried letters."""
        for letters in (self._dead_letters, self._retry_letters):
            if letters is not None:
                await letters.close()

    def shutdown(self, error: PulsarishError) -> None:
        """Close the producers of dead and retried letters without waiting for the broker."""
        for letters in (self._dead_letters, self._retry_letters):
            if letters is not None:
                letters.shutdown(error)
