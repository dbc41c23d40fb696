"""A consumer on one topic or one partition: what arrives is queued for the program, and permits,
acknowledgements and redeliveries go back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pulsarish.client.connection.cluster_of import TopicOfCluster
from pulsarish.client.connection.context import ClientContext
from pulsarish.client.connection.loop_bridge import Wakeup
from pulsarish.client.consumer.acknowledger import Acknowledger
from pulsarish.client.consumer.chunk_assembler import ChunkAssembler
from pulsarish.client.consumer.decryption import Decryption
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.consumer.reader_position import ReaderPosition
from pulsarish.client.consumer.receive_queue import ReceiveQueue
from pulsarish.client.consumer.redeliverer import Redeliverer
from pulsarish.client.consumer.seek_tracker import SeekTracker
from pulsarish.client.consumer.seeker import Seeker
from pulsarish.client.consumer.subscription_session import SubscriptionSession
from pulsarish.client.consumer.unpacker import Unpacker
from pulsarish.client.consumer.writer_schemas import WriterSchemas
from pulsarish.client.message_log import message_log
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.message import Entry, open_entry
from pulsarish.model.errors import ChecksumError, PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["TopicConsumer"]

_log = get_logger("client.consumer")


class TopicConsumer:
    """Puts its parts together; the program's calls go to ``acks``, ``redeliverer``, ``seeker`` and
    ``session``.

    ``open_next`` may be called from any thread; the rest runs in the loop.
    """

    def __init__(
        self,
        topic: TopicName,
        options: ConsumerOptions[Any],
        parts: ClientContext,
        inbox: MessageQueue,
        writers: WriterSchemas,
        *,
        queue_size: int,
        partition: int,
        ended: Callable[[TopicConsumer, PulsarishError], None] | None = None,
    ) -> None:
        """Create the parts.

        Args:
            ended: called when no more messages come; without it, the program's calls raise why.
        """
        self.topic = topic
        self._messages = message_log(topic.full)
        self.partition = partition
        self._options = options
        self._clock = clock = parts.clock
        self._inbox = inbox
        self._ended = ended
        self._writers = writers
        self._wakeup = Wakeup(parts.handoff, self.flush_due)
        is_ordered = not options.consumer_type.is_spread
        self._chunks = ChunkAssembler(
            pending_max=options.pending_chunked_max,
            expire_seconds=options.chunked_expire_seconds,
            acknowledge_oldest=options.ack_oldest_chunked,
            stamp=lambda: (clock.monotonic(), clock.wall_ms()),
            shared=not is_ordered,
        )
        decode_of = partial(writers.decode_of, topic.partitioned.full)
        decrypt = Decryption(options.crypto_key_reader, options.crypto_failure_action).open
        self._parts = parts
        self._cluster = parts.cluster
        self._topic_text = TopicOfCluster.of(topic.full, parts.cluster)
        self._incoming = ReceiveQueue(
            topic.full,
            queue_size,
            lambda entry: open_entry(entry, self._topic_text, partition, decode_of, decrypt, inbox),
            inbox.ready,
            self._chunks,
            inbox.on_dropped,
        )
        self._keeps_queue = options.start is not None or not topic.persistent
        self._position = ReaderPosition(options, self._incoming, persistent=topic.persistent)
        self._seeks = SeekTracker()
        self.session = SubscriptionSession(
            topic, options, parts, inbox, self._position, self._seeks, self, partition=partition
        )
        self.acks = Acknowledger(
            options,
            parts,
            inbox,
            self.session,
            self.flush_due,
            self._wakeup.give,
            partition=partition,
        )
        self._unacked = self.acks.unacked
        self._unpacker = Unpacker(
            topic,
            options,
            inbox,
            self._incoming,
            self._chunks,
            self._unacked,
            writers,
            clock,
            self._wakeup.give,
            partition=partition,
            ordered=is_ordered,
        )
        self.redeliverer = Redeliverer(
            options.consumer_type,
            parts,
            inbox,
            self.session,
            self._incoming,
            self._seeks,
            self._unacked,
            self._unpacker,
            self.flush_due,
            self.acks.send_waiting,
        )
        self.seeker = Seeker(
            options,
            parts,
            inbox,
            self.session,
            self._incoming,
            self._position,
            self._seeks,
            self.acks,
            self.redeliverer,
            self.flush_due,
            partition=partition,
        )

    def open_next(self) -> bool:
        """Open the next entry for the program; the caller holds the queue's lock.

        Returns whether there is a message now.
        """
        return self._unpacker.open_next()

    def waiting_count(self) -> int:
        """Return the number of messages that came and are not open; the caller holds the lock."""
        return self._incoming.waiting_count()

    # Events of the stream.

    def on_delivery(self, entries: list[Entry]) -> None:
        if self._messages is not None:
            for entry in entries:
                self._messages.received(entry.ledger_id, entry.entry_id, entry.redelivery_count)
        with self._inbox.lock:
            if self._seeks.is_under_way:
                # From before the seek or the redelivery: only their permits count, unless that is
                # refused.
                self._incoming.return_permits(entries)
                self._seeks.on_dropped(entries)
                return
            self._incoming.add(entries)
        self._inbox.arrived()

    def on_damaged(self, ledger_id: int, entry_id: int, error: ChecksumError) -> None:
        self.redeliverer.on_damaged(ledger_id, entry_id, error)

    def on_active_changed(self, active: bool) -> None:
        """Nothing to do: an inactive consumer waits for messages as on an empty topic."""

    def on_end_of_topic(self) -> None:
        _log.info("topic is terminated and read to its end", topic=self.topic)

    def on_closed_by_broker(self, error: PulsarishError, moved_to: pb.BrokerAddresses) -> None:
        self.session.on_closed_by_broker(error, moved_to)

    def on_stream_lost(self, error: PulsarishError) -> None:
        self.session.on_stream_lost()

    # Events of the session.

    def on_opening(self) -> None:
        self._follow_cluster()

    def on_subscribed(self) -> int:
        # A second time: the program may have taken queued messages while the broker answered, and
        # the broker sends those again.
        self._position.continue_after_taken()
        self._unacked.forget()
        permits = self._incoming.restart(keep_ready=self._keeps_queue)
        self._seeks.on_subscribed()
        return permits

    def on_open(self) -> None:
        # Before any permit: what is acknowledged must not be delivered again.
        self.acks.send_waiting()
        self.flush_due()
        # A program that waits with a queue of size 0 needs a new permit.
        self._inbox.arrived()

    def on_lost(self) -> None:
        self.acks.on_lost()
        self._follow_cluster()
        if not self._keeps_queue:
            # It is redelivered, here or to another consumer of the subscription.
            self._incoming.restart(keep_ready=False)

    def _follow_cluster(self) -> None:
        """Forget what came from another cluster: it stays unacknowledged there."""
        cluster = self._parts.cluster
        if cluster == self._cluster:
            return
        self._cluster = cluster
        self._topic_text = TopicOfCluster.of(self.topic.full, cluster)
        self.acks.leave_cluster(cluster)
        self._incoming.restart(keep_ready=False)
        self._position.begin_elsewhere()

    def on_end(self, error: PulsarishError) -> None:
        """Note that no more messages come."""
        self.redeliverer.on_end()
        self.acks.on_end(error)
        if self._ended is None:
            self._inbox.fail(error)
        else:
            self._ended(self, error)

    def flush_due(self) -> None:
        """Send due permits, acknowledgements and dead letters, and set the timers."""
        now = self._clock.monotonic()
        self._writers.fetch()
        stream, consumer_id = self.session.stream, self.session.consumer_id
        with self._inbox.lock:
            batch = self.acks.take_due(now)
            dead = self._unacked.take_dead()
            due = self._unpacker.next_due()
            permits = self._take_permits(now) if stream is not None else 0
            read_to = self._incoming.last_taken
        self.acks.set_timer()
        self.redeliverer.set_timer(due)
        if stream is not None and permits:
            stream.flow(consumer_id, permits)
            if (
                self._options.start is not None
                and read_to is not None
                and not self._seeks.is_under_way
            ):
                # The broker keeps a reader's cursor in memory; moving it lets the broker forget
                # what is behind.
                position = (read_to.ledger_id(), read_to.entry_id(), -1)
                stream.acknowledge(consumer_id, [position], cumulative=True, answered=None)
        if batch is not None:
            self.acks.send(batch)
        self.acks.copy_dead_letters(dead)

    def _take_permits(self, now: float) -> int:
        if not self._incoming.permits_due:
            return 0
        if not self._incoming.may_receive:
            # No chunk could come until now.
            self._chunks.excuse(now)
        return self._incoming.take_permits()

    # The end.

    async def close(self) -> None:
        """Send waiting acknowledgements, then close the consumer at the broker."""
        self.acks.send_waiting()
        await self.session.close()
        await self.acks.close()
        self.on_end(self.session.closed_error())

    def shutdown(self, error: PulsarishError) -> None:
        """End now, without waiting for the broker."""
        self.session.shutdown()
        self.acks.shutdown(error)
        self.on_end(error)
