"""The blocking producer."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Generic, Self

from pulsarish.client.api.receiving import state_of
from pulsarish.client.checks import check_callable
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.entry_encoder import Extras
from pulsarish.client.producer.partitioned_producer import PartitionedProducer
from pulsarish.client.producer.topic_producer import NO_MESSAGE_ID, TopicProducer, Waiter
from pulsarish.client.schemas.schema import BytesSchema
from pulsarish.client.stats import ProducerStats
from pulsarish.client.type_variables import Value_contra
from pulsarish.model.errors import AlreadyClosed, ForkedProcess, PulsarishError
from pulsarish.model.result import Result
from pulsarish.runtime.background import Background, Latch

__all__ = ["Producer"]


class _Sent(Waiter):
    """A ``send`` that a thread waits for."""

    __slots__ = ("_error", "_id", "_latch")

    def __init__(self) -> None:
        self._latch = Latch()
        self._id = NO_MESSAGE_ID
        self._error: PulsarishError | None = None

    def __call__(self, result: Result, message_id: MessageId) -> None:
        self._id = message_id
        self._latch.release()

    def fail(self, error: PulsarishError) -> None:
        self._error = error
        self._latch.release()

    def wait(self) -> MessageId:
        self._latch.wait()
        if self._error is not None:
            raise self._error
        return self._id


class Producer(Generic[Value_contra]):
    """Publishes to a topic. Several threads may use it."""

    def __init__(self, publishing: PartitionedProducer, background: Background) -> None:
        self._publishing = publishing
        self._background = background
        self._refusal: PulsarishError | None = None
        self._takes_bytes = type(publishing.options.schema) is BytesSchema
        self._makes_keys = publishing.message_key is not None
        self._only = publishing.children[0] if len(publishing.children) == 1 else None
        self._add = publishing.add
        self._room: deque[Latch] = deque()
        publishing.watch_room(self._freed)
        background.add_user(self)

    def _on_fork(self, error: ForkedProcess) -> None:
        self._refusal = error

    def _check(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def topic(self) -> str:
        return self._publishing.options.topic.full

    def producer_name(self) -> str:
        """The given name, or the one that the broker chose."""
        return self._publishing.name

    def last_sequence_id(self) -> int:
        """The highest sequence id that is known to be stored; -1 when there is none."""
        return self._publishing.last_sequence_id

    def stats(self) -> ProducerStats:
        """Return what was counted since the producer was made."""
        return self._publishing.stats()

    def is_connected(self) -> bool:
        return self._publishing.is_connected

    def __repr__(self) -> str:
        return f"Producer({self.topic()}, {self.producer_name()}, {state_of(self._publishing)})"

    def send(
        self,
        content: Value_contra | None,
        properties: Mapping[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool | None = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        *,
        expires_after: timedelta | None = None,
        priority: int | None = None,
    ) -> MessageId:
        """Publish, wait until the message is stored, and return its id.

        It does not wait for a batch to fill.

        Args:
            content: bytes, or what the producer's schema accepts. ``None``: a null value, which
                removes ``partition_key`` from a compacted topic and from table views.
            properties: str to str.
            partition_key: messages with the same key go to the same partition.
            sequence_id: greater than the last one; for deduplication across restarts of the
                program.
            event_timestamp, deliver_at: milliseconds since the epoch.
            expires_after: from this time on, counted from now, no consumer gets the message any
                more. It is sent without a batch.
            priority: 0 to 9. Shared subscriptions of a topic with the policy
                ``messagePriorityWindow`` deliver the highest one first; a message without one
                counts as 4. It is sent without a batch.

        Raises ``Timeout`` (it may be stored or not), ``ProducerQueueIsFull``, ``MessageTooBig``,
        ``AlreadyClosed`` or ``InvalidArgument``.
        """
        self._check()
        self._background.check_may_wait()
        publishing = self._publishing
        payload, extras, number = publishing.prepared(
            content,
            sequence_id,
            properties,
            partition_key,
            ordering_key,
            event_timestamp,
            deliver_at,
            deliver_after,
            replication_clusters,
            disable_replication,
            expires_after,
            priority,
        )
        sent = _Sent()
        child = publishing.choose(payload, extras)
        if not self._add(child, payload, sent, extras, number, now=True):
            self._wait_and_add(child, payload, sent, extras, number, now=True)
        return sent.wait()

    def send_async(
        self,
        content: Value_contra | None,
        callback: Callable[[Result, MessageId], object] | None,
        properties: Mapping[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool | None = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        *,
        expires_after: timedelta | None = None,
        priority: int | None = None,
    ) -> None:
        """Publish without waiting.

        ``callback(Result.Ok, message_id)`` is called in the client's thread once the message is
        stored, with another ``Result`` when it failed, the queue is full, the message is too big
        or the producer is closed.

        Without a callback, failed messages are only logged, with their number. With
        ``block_if_queue_full`` it waits for room. Arguments as for ``send``. Raises
        ``InvalidArgument``, or without a callback ``AlreadyClosed``.
        """
        if self._refusal is not None:
            raise self._refusal
        payload = (
            content
            if self._takes_bytes and type(content) is bytes
            else self._publishing.encode(content)
        )
        function: object = callback  # whatever its annotation says
        if function is not None and not callable(function):
            check_callable("callback", function, "a function (result, message_id), or None")
        extras = None
        # Written out: every message passes here, and most carry only their content.
        if (
            properties is not None
            or partition_key is not None
            or ordering_key is not None
            or event_timestamp is not None
            or deliver_at is not None
            or deliver_after is not None
            or replication_clusters is not None
            or disable_replication
            or expires_after is not None
            or priority is not None
        ):
            given = (
                properties,
                partition_key,
                ordering_key,
                event_timestamp,
                deliver_at,
                deliver_after,
            )
            extras = self._publishing.extras_or_none(
                *given, replication_clusters, disable_replication, expires_after, priority
            )
        if self._makes_keys or content is None:
            extras = self._publishing.extras_of(content, extras)
        if sequence_id is not None:
            self._publishing.check_sequence_id(sequence_id)
        child = self._only or self._publishing.choose(payload, extras)
        try:
            if not self._add(child, payload, callback, extras, sequence_id):
                self._wait_and_add(child, payload, callback, extras, sequence_id)
        except PulsarishError as error:
            if callback is None and isinstance(error, AlreadyClosed):
                raise
            if callback is None:
                child.send_failures.add(error)
            else:
                callback(error.error(), NO_MESSAGE_ID)

    def _wait_and_add(
        self,
        child: TopicProducer,
        payload: bytes,
        callback: Any,
        extras: Extras | None,
        sequence_id: int | None,
        *,
        now: bool = False,
    ) -> None:
        """Wait for room.

        Raises ``ProducerQueueIsFull`` where the caller does not wait or cannot.
        """
        publishing = self._publishing
        if not publishing.options.block_if_queue_full or self._background.is_own_thread():
            raise publishing.full(child)
        while True:
            latch = Latch()
            self._room.append(latch)
            # Look again: room may have come before the latch was in place.
            if self._add(child, payload, callback, extras, sequence_id, now=now):
                return
            latch.wait()

    def _freed(self) -> None:
        """Wake waiting threads, in the loop, when a part of the queue is free and not for each
        receipt.
        """
        room = self._room
        if room and self._publishing.is_roomy:
            while room:
                room.popleft().release()

    def flush(self) -> None:
        """Wait until everything that was sent is stored or has failed."""
        self._check()
        self._background.run(self._publishing.flush())

    def close(self) -> None:
        """Flush, then close the producer at the broker. Does nothing when closed already."""
        self._check()
        self._background.run(self._publishing.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # The child of a fork that leaves its parent's block has nothing to close.
        if not isinstance(self._refusal, ForkedProcess):
            self.close()
