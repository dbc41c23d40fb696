"""``AsyncProducer``: publishing in the asyncio API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Generic, Self

from pulsarish.client.api.receiving import state_of
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.entry_encoder import Extras
from pulsarish.client.producer.partitioned_producer import PartitionedProducer
from pulsarish.client.producer.topic_producer import TopicProducer, Waiter
from pulsarish.client.stats import ProducerStats
from pulsarish.client.type_variables import Value_contra
from pulsarish.model.errors import PulsarishError
from pulsarish.model.result import Result

__all__ = ["AsyncProducer"]


class _Sent(Waiter):
    """A ``send`` that is awaited."""

    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[MessageId]) -> None:
        self._future = future

    def __call__(self, result: Result, message_id: MessageId) -> None:
        if not self._future.done():
            self._future.set_result(message_id)

    def fail(self, error: PulsarishError) -> None:
        if not self._future.done():
            self._future.set_exception(error)


class _Room:
    """Sends that wait for room in the queue of a partition, in the order of their calls."""

    __slots__ = ("freed", "turns", "waiting_count")

    def __init__(self) -> None:
        self.turns = asyncio.Lock()
        self.waiting_count = 0
        self.freed = asyncio.Event()


class AsyncProducer(Generic[Value_contra]):
    """Publishes to a topic."""

    def __init__(self, publishing: PartitionedProducer) -> None:
        self._publishing = publishing
        self._rooms: dict[TopicProducer, _Room] = {}
        """Of each partition whose queue was full."""
        publishing.watch_room(self._freed)

    def topic(self) -> str:
        return self._publishing.options.topic.full

    def producer_name(self) -> str:
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

    async def send(
        self,
        content: Value_contra | None,
        properties: Mapping[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        replication_clusters: list[str] | None = None,
        disable_replication: bool | None = None,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        *,
        expires_after: timedelta | None = None,
        priority: int | None = None,
    ) -> MessageId:
        """Publish, wait until the message is stored, and return its id.

        Messages that are awaited together share a batch. ``expires_after`` and ``priority`` are as
        in the blocking client. When it is cancelled, the message may be stored or not; while it
        waits for room in the queue, it is not. Raises ``Timeout`` (it may be stored or not),
        ``ProducerQueueIsFull``, ``MessageTooBig``, ``AlreadyClosed`` or ``InvalidArgument``.
        """
        payload, extras, number = self._publishing.prepared(
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
        child = self._publishing.choose(payload, extras)
        sent = self._add(child, payload, extras, number)
        if sent is None:
            if not self._publishing.options.block_if_queue_full:
                raise self._publishing.full(child)
            sent = await self._add_in_turn(child, payload, extras, number)
        return await sent

    def send_soon(
        self, content: Value_contra | None, *, sequence_id: int | None = None, **extras: Any
    ) -> asyncio.Future[MessageId]:
        """Queue a message now, in the order of calls; await the result for the id.

        ``extras`` are the other arguments of ``send``. Raises ``ProducerQueueIsFull``, and what
        ``send`` raises for bad arguments.
        """
        in_order = self._publishing.in_order(extras) if extras else ()
        payload, beside, number = self._publishing.prepared(content, sequence_id, *in_order)
        child = self._publishing.choose(payload, beside)
        sent = self._add(child, payload, beside, number)
        if sent is None:
            raise self._publishing.full(child)
        return sent

    def _add(
        self, child: TopicProducer, payload: bytes, extras: Extras | None, sequence_id: int | None
    ) -> asyncio.Future[MessageId] | None:
        """Queue a message; ``None`` when there is no room, or others wait for it."""
        if self._rooms and child in self._rooms and self._rooms[child].waiting_count:
            return None
        return self._add_now(child, payload, extras, sequence_id)

    def _add_now(
        self, child: TopicProducer, payload: bytes, extras: Extras | None, sequence_id: int | None
    ) -> asyncio.Future[MessageId] | None:
        future: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        is_added = self._publishing.add(child, payload, _Sent(future), extras, sequence_id)
        return future if is_added else None

    async def _add_in_turn(
        self, child: TopicProducer, payload: bytes, extras: Extras | None, sequence_id: int | None
    ) -> asyncio.Future[MessageId]:
        """Queue a message once there is room, after those that wait already."""
        room = self._rooms.setdefault(child, _Room())
        room.waiting_count += 1
        try:
            async with room.turns:
                while True:
                    # Clear it before looking: what is freed afterwards sets it again.
                    room.freed.clear()
                    sent = self._add_now(child, payload, extras, sequence_id)
                    if sent is not None:
                        return sent
                    await room.freed.wait()
        finally:
            room.waiting_count -= 1

    def _freed(self) -> None:
        for room in self._rooms.values():
            room.freed.set()

    async def flush(self) -> None:
        """Wait until everything that was sent is stored or has failed."""
        await self._publishing.flush()

    async def close(self) -> None:
        """Flush, then close the producer at the broker."""
        await self._publishing.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
