"""Seeking in one topic, and its positions: the last message, and where a reader is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulsarish.client.connection.cluster_of import TopicOfCluster, is_of_other_cluster
from pulsarish.client.connection.context import ClientContext
from pulsarish.client.consumer.acknowledger import Acknowledger
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.consumer.reader_position import ReaderPosition
from pulsarish.client.consumer.receive_queue import ReceiveQueue
from pulsarish.client.consumer.redeliverer import Redeliverer
from pulsarish.client.consumer.seek_tracker import SeekTracker
from pulsarish.client.consumer.subscribe_command import first_wanted
from pulsarish.client.consumer.subscription_session import SubscriptionSession
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.model.errors import InvalidArgument, PulsarishError
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["Seeker"]


class Seeker:
    """Moves one topic's consumer. Runs in the loop.

    Args:
        flush_due: sends permits and acknowledgements that are due.
    """

    def __init__(
        self,
        options: ConsumerOptions[Any],
        parts: ClientContext,
        inbox: MessageQueue,
        session: SubscriptionSession,
        incoming: ReceiveQueue,
        position: ReaderPosition,
        seeks: SeekTracker,
        acks: Acknowledger,
        redeliverer: Redeliverer,
        flush_due: Callable[[], None],
        *,
        partition: int,
    ) -> None:
        self._options = options
        self._parts = parts
        self._timeout_seconds = parts.operation_timeout_seconds
        self._inbox = inbox
        self._session = session
        self._incoming = incoming
        self._position = position
        self._seeks = seeks
        self._acks = acks
        self._redeliverer = redeliverer
        self._flush_due = flush_due
        self._partition = partition

    async def seek(self, target: MessageId | int) -> None:
        """Seek to a message, or to the first message published at or after a time in
        milliseconds.

        Raises ``InvalidArgument`` for a message of a cluster that the client has left.
        """
        await self._session.request("seek", lambda: self._seek_once(target))

    async def _seek_once(self, target: MessageId | int) -> None:
        if isinstance(target, MessageId) and is_of_other_cluster(
            target.topic_name(), self._parts.cluster
        ):
            # Here its position is that of another message.
            raise InvalidArgument(
                f"the client has left the cluster of message {target}: seek to a time, or to a "
                "message of the present cluster"
            )
        stream = self._session.live_stream()
        consumer_id = self._session.consumer_id
        command = self._command(target, consumer_id)

        def send(request_id: int) -> None:
            command.request_id = request_id
            stream.seek(command)

        def on_answer(error: PulsarishError | None) -> None:
            # In the loop, before any delivery from the new position.
            is_current = self._session.is_current(stream, consumer_id)
            with self._inbox.lock:
                dropped = self._seeks.on_answer(is_current=is_current, is_done=error is None)
                if error is None:
                    self._drop_delivered()
                    self._incoming.start_at(None, inclusive=False)
                    if isinstance(target, MessageId):
                        self._position.move_to(target, inclusive=self._options.start_inclusive)
            if dropped:
                self._redeliverer.request_again(dropped)
            elif error is None and not is_current:
                # The connection was lost first: what arrived since, or arrives next, may be from
                # before the seek.
                self._seeks.on_late()
                self._session.resubscribe()

        self._seeks.on_request()
        # Send waiting acknowledgements first: after the seek they would skip what it leads to.
        self._acks.send_waiting()
        await stream.answer(send, self._timeout_seconds, first=on_answer)
        if self._options.start is not None and (
            isinstance(target, int) or target == MessageId.latest
        ):
            await self._session.learn_start(stream, consumer_id)
            if not self._session.is_current(stream, consumer_id):
                # It subscribed again before the position was known, so at the position from before
                # the seek.
                with self._inbox.lock:
                    self._drop_delivered()
                self._seeks.on_late()
                self._session.resubscribe()
        self._flush_due()

    def _command(self, target: MessageId | int, consumer_id: int) -> pb.Seek:
        if isinstance(target, int):
            return pb.Seek(consumer_id=consumer_id, publish_time_ms=target)
        first = first_wanted(target, inclusive=self._options.start_inclusive)
        return pb.Seek(consumer_id=consumer_id, position=first)

    def _drop_delivered(self) -> None:
        """Drop what was delivered from before the seek; the caller holds the queue's lock."""
        self._incoming.clear()
        self._acks.unacked.forget()

    async def last_message_id(self) -> tuple[MessageId, MessageId]:
        """Return the last message of the topic (entry -1 when it has none), and the position before
        which everything is acknowledged.
        """

        async def ask() -> tuple[MessageId, MessageId]:
            topic = TopicOfCluster.of(self._session.topic.full, self._parts.cluster)
            last = await self._session.live_stream().last_message_id(
                self._session.consumer_id, self._timeout_seconds
            )
            return (
                MessageId(
                    self._partition,
                    last.last.ledger,
                    last.last.entry,
                    last.last.batch_index,
                    topic=topic,
                ),
                MessageId(self._partition, last.mark_delete.ledger, last.mark_delete.entry),
            )

        return await self._session.request("asking for the last message", ask)

    def reader_position(self) -> tuple[MessageId, bool]:
        """Return a reader's position: the message before the next one, and whether it is itself
        still to come.
        """
        with self._inbox.lock:
            return self._position.current()
