"""The subscription of a topic's consumer at the broker that owns the topic: opened, lost, opened
again, closed.

After a loss it looks the topic up and subscribes again. A durable subscription then delivers what
is not acknowledged; a reader continues after the last message that it handed out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from pulsarish.client.connection.consume_stream import ConsumeStream, Receiver
from pulsarish.client.connection.context import ClientContext, may_retry, retrying
from pulsarish.client.connection.reconnect import Reconnector
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.consumer.reader_position import ReaderPosition
from pulsarish.client.consumer.seek_tracker import SeekTracker
from pulsarish.client.consumer.subscribe_command import subscribe_command
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.model.errors import AlreadyClosed, ConnectError, PulsarishError, ServiceNotReady
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.wire._pb import broker_pb2 as pb

__all__ = ["SessionOwner", "SubscriptionSession"]

T = TypeVar("T")

_log = get_logger("client.consumer")


class SessionOwner(Receiver, Protocol):
    """The consumer, as its session uses it. All calls are made in the loop."""

    def on_opening(self) -> None:
        """A subscription is to be opened. The caller holds the queue's lock."""
        ...

    def on_subscribed(self) -> int:
        """The broker accepted the subscription. Returns the permits to grant.

        The caller holds the queue's lock.
        """
        ...

    def on_open(self) -> None:
        """Acknowledgements pass from now on, and deliveries with the permits that follow."""
        ...

    def on_lost(self) -> None:
        """The subscription is open no longer. The caller holds the queue's lock."""
        ...

    def on_end(self, error: PulsarishError) -> None:
        """It will not be open again."""
        ...


class SubscriptionSession:
    """Runs in the loop. ``seeks`` and ``position`` say where a new subscription starts."""

    def __init__(
        self,
        topic: TopicName,
        options: ConsumerOptions[Any],
        parts: ClientContext,
        inbox: MessageQueue,
        position: ReaderPosition,
        seeks: SeekTracker,
        owner: SessionOwner,
        *,
        partition: int,
    ) -> None:
        self.topic = topic
        self.is_open = False
        self.stream: ConsumeStream | None = None
        self.consumer_id = 0
        """The consumer's number on ``stream``."""
        self.subscribed_count = 0
        """How often a broker accepted it; what is queued is of the last time."""
        self._options = options
        self._parts = parts
        self._inbox = inbox
        self._position = position
        self._seeks = seeks
        self._owner = owner
        self._partition = partition
        self._reconnector = Reconnector(
            "consumer",
            topic.full,
            parts,
            self._open_at,
            owner.on_end,
            anywhere=options.replica,
        )

    # Subscribing, and subscribing again.

    async def open(self) -> None:
        """Subscribe for the first time. Raises the broker's refusal, or ``Timeout``."""
        await self._reconnector.open()

    async def _open_at(self, address: str) -> None:
        stream = await self._parts.consume.get(address)
        command = subscribe_command(self.topic, self._options)
        late_seeks = self._seeks.late_count
        with self._inbox.lock:
            self._owner.on_opening()
            self._position.continue_after_taken()
            self._position.set_start(command)
        consumer_id = await stream.subscribe(
            self._owner, command, self._parts.operation_timeout_seconds
        )
        if self._position.is_to_be_learned:
            await self.learn_start(stream, consumer_id)
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
            permits = self._owner.on_subscribed()
            self.subscribed_count += 1
        self.stream, self.consumer_id = stream, consumer_id
        self.is_open = True
        self._owner.on_open()
        if permits:
            stream.flow(consumer_id, permits)

    async def learn_start(self, stream: ConsumeStream, consumer_id: int) -> None:
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
            MessageId(self._partition, mark.ledger, mark.entry)
            if mark.ledger >= 0
            else MessageId.earliest
        )
        with self._inbox.lock:
            self._position.move_to(start, inclusive=False)

    def resubscribe(self) -> None:
        """Close and subscribe again: nothing that is on the wire now arrives."""
        if self.stream is not None:
            self.stream.close_quietly(self.consumer_id)
            self.on_stream_lost()

    # Losses.

    def on_stream_lost(self, moved_to: pb.BrokerAddresses | None = None) -> None:
        self.is_open = False
        self.stream = None
        with self._inbox.lock:
            self._owner.on_lost()
        self._reconnector.lost(moved_to)

    def on_closed_by_broker(self, error: PulsarishError, moved_to: pb.BrokerAddresses) -> None:
        self.on_stream_lost(moved_to)
        if not may_retry(error, first=False):
            self._reconnector.close()
            self._owner.on_end(error)

    # Requests.

    def is_current(self, stream: ConsumeStream, consumer_id: int) -> bool:
        """Whether the subscription that had this number on this stream is the present one."""
        return self.stream is stream and self.consumer_id == consumer_id

    def live_stream(self) -> ConsumeStream:
        """Return the present stream.

        Raises why the consumer ended, or ``ConnectError`` while it is not connected.
        """
        if self._reconnector.is_closing:
            raise self._inbox.failure or self.closed_error()
        if self.stream is None:
            raise ConnectError(f"consumer on {self.topic} is not connected now")
        return self.stream

    async def request(self, what: str, work: Callable[[], Awaitable[T]]) -> T:
        """Send a request on the present stream, and again after a loss, within the operation
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

    def is_loss(self, error: PulsarishError) -> bool:
        """Whether an answer says only that the broker no longer serves this consumer.

        It answers ``AlreadyClosed`` when it has closed the consumer and the client does not know
        yet.
        """
        return error.retryable or (
            isinstance(error, AlreadyClosed) and not self._reconnector.is_closing
        )

    # The end.

    def closed_error(self) -> AlreadyClosed:
        """Return what calls raise after a close."""
        if self._options.start is not None:
            return AlreadyClosed(f"reader on {self.topic} was closed: create another one")
        return AlreadyClosed(f"consumer on {self.topic} was closed: subscribe again")

    async def unsubscribe(self, *, force: bool) -> None:
        """Delete the subscription and end."""
        timeout = self._parts.operation_timeout_seconds
        await self.request(
            "unsubscribe",
            lambda: self.live_stream().unsubscribe(
                self.consumer_id, force=force, timeout_seconds=timeout
            ),
        )

    def _detach(self) -> ConsumeStream | None:
        """Stop for good, and return the stream on which the consumer is still to be closed."""
        stream, self.stream = self.stream, None
        self.is_open = False
        self._reconnector.close()
        return stream

    async def close(self) -> None:
        """Close the consumer at the broker, and do not open it again."""
        stream = self._detach()
        if stream is not None and stream.lost is None:
            try:
                await stream.close_consumer(self.consumer_id, self._parts.operation_timeout_seconds)
            except PulsarishError as error:
                _log.debug("consumer closed without an answer", topic=self.topic, reason=error)

    def shutdown(self) -> None:
        """Close without waiting for the broker."""
        stream = self._detach()
        if stream is not None:
            stream.close_quietly(self.consumer_id)
