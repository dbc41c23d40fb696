"""Redelivery of one topic's messages: those refused, not acknowledged in time, damaged on the way,
or no longer wanted in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pulsarish.client.connection.consume_stream import ConsumeStream
from pulsarish.client.connection.context import ClientContext
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.consumer.receive_queue import ReceiveQueue
from pulsarish.client.consumer.redelivery import EntryKey
from pulsarish.client.consumer.seek_tracker import SeekTracker
from pulsarish.client.consumer.subscription_session import SubscriptionSession
from pulsarish.client.consumer.unacked_messages import UnackedMessages
from pulsarish.client.consumer.unpacker import Unpacker
from pulsarish.client.enums import ConsumerType
from pulsarish.model.errors import ChecksumError, PulsarishError
from pulsarish.runtime.log import get_logger

__all__ = ["Redeliverer"]

_log = get_logger("client.consumer")


class Redeliverer:
    """Requests entries of one subscription again, each when it is due. Runs in the loop.

    Where messages have an order, no later message may be handed out before an entry that must come
    again: then everything unacknowledged is delivered again, and what arrives before the broker's
    answer to that is dropped. It does not subscribe again, because the broker would make another
    consumer of a failover subscription the active one in the meantime.

    Args:
        flush_due: sends what else is due.
        send_acks: sends all acknowledgements that wait.
    """

    def __init__(
        self,
        consumer_type: ConsumerType,
        parts: ClientContext,
        inbox: MessageQueue,
        session: SubscriptionSession,
        incoming: ReceiveQueue,
        seeks: SeekTracker,
        unacked: UnackedMessages,
        unpacker: Unpacker,
        flush_due: Callable[[], None],
        send_acks: Callable[[], None],
    ) -> None:
        self._consumer_type = consumer_type
        self._clock = parts.clock
        self._inbox = inbox
        self._session = session
        self._incoming = incoming
        self._seeks = seeks
        self._unacked = unacked
        self._unpacker = unpacker
        self._flush_due = flush_due
        self._send_acks = send_acks
        self._timer = parts.alarms.alarm(self._redeliver_due)
        self._answer_seconds = parts.operation_timeout_seconds
        self._no_answer = parts.alarms.alarm(session.resubscribe)

    def on_damaged(self, ledger_id: int, entry_id: int, error: ChecksumError) -> None:
        """Have an entry delivered again that came with a wrong checksum."""
        _log.error(
            "delivered entry is damaged, asking for it again",
            topic=self._session.topic,
            ledger=ledger_id,
            entry=entry_id,
            reason=error,
        )
        if not self._consumer_type.is_spread or self._consumer_type is ConsumerType.KeyShared:
            # Later messages, at least those of its key, must not be handed out before it.
            self._session.resubscribe()
            return
        with self._inbox.lock:
            self._unacked.on_damaged((ledger_id, entry_id), self._clock.monotonic())
            due = self._unacked.next_due()
        self._timer.set(due)

    def set_timer(self, due: float | None) -> None:
        """Look at ``due`` (monotonic seconds) whether an entry is to be requested again."""
        self._timer.set(due)

    def _redeliver_due(self) -> None:
        now = self._clock.monotonic()
        stream = self._session.stream
        with self._inbox.lock:
            self._unpacker.expire_chunks(now, connected=stream is not None)
            keys = self._unacked.take_due(now)
        if keys and not self._consumer_type.is_spread:
            # In order: what came after them comes again, too, as in Apache Pulsar's clients.
            self.redeliver_all()
            return
        if keys and stream is not None:
            stream.redeliver(self._session.consumer_id, keys)
        self._flush_due()

    def redeliver_all(self) -> None:
        """Redeliver everything unacknowledged.

        Queued messages are dropped, because they are redelivered too. A topic that stores nothing
        keeps them.
        """
        # First: what was acknowledged must not come again.
        self._send_acks()
        if self._session.topic.persistent:
            with self._inbox.lock:
                self._incoming.clear()
                self._unacked.forget()
            if self._session.stream is not None:
                self._request_all(self._session.stream)
        self._flush_due()

    def _request_all(self, stream: ConsumeStream) -> None:
        """Request everything again. In order, drop what arrives before the broker begins with
        that: a cumulative acknowledgement of it would skip what comes again.
        """
        consumer_id = self._session.consumer_id
        if self._consumer_type.is_spread:
            stream.redeliver(consumer_id)
            return

        def on_answer(error: PulsarishError | None) -> None:
            self._no_answer.cancel()
            is_current = self._session.is_current(stream, consumer_id)
            self._seeks.on_answer(is_current=is_current, is_done=error is None)
            if is_current and error is not None:
                self._session.resubscribe()
            else:
                self._flush_due()  # the permits of what was dropped

        self._seeks.on_request()
        stream.redeliver(consumer_id, answered=on_answer)
        # Older brokers do not answer.
        self._no_answer.set(self._clock.monotonic() + self._answer_seconds)

    def request_again(self, keys: Sequence[EntryKey]) -> None:
        """Request entries again that arrived and were not handed out."""
        if not self._consumer_type.is_spread:
            # Nothing after them may be handed out before them.
            self._session.resubscribe()
        elif self._session.stream is not None:
            self._session.stream.redeliver(self._session.consumer_id, keys)

    def on_end(self) -> None:
        """Request nothing more."""
        self._timer.cancel()
        self._no_answer.cancel()
