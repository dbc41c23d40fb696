"""``AsyncProducer``: publishing in the asyncio API."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Self

from pulsarish.client.api.receiving import state_of
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.entry_encoder import Extras
from pulsarish.client.producer.partitioned_producer import PartitionedProducer
from pulsarish.client.producer.topic_producer import Waiter
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


class AsyncProducer:
    """Publishes to a topic."""

    def __init__(self, publishing: PartitionedProducer) -> None:
        self._publishing = publishing
        self._waiting_for_room: deque[asyncio.Future[None]] = deque()
        publishing.watch_room(self._freed)

    def topic(self) -> str:
        return self._publishing.options.topic.full

    def producer_name(self) -> str:
        return self._publishing.name

    def last_sequence_id(self) -> int:
        """The highest sequence id that is known to be stored; -1 when there is none."""
        return self._publishing.last_sequence_id

    def is_connected(self) -> bool:
        return self._publishing.is_connected

    def __repr__(self) -> str:
        return f"Producer({self.topic()}, {self.producer_name()}, {state_of(self._publishing)})"

    async def send(
        self,
        content: Any,
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
        in the blocking client. Raises ``Timeout`` (it may be stored or not),
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
        while (sent := self._add(payload, extras, number)) is None:
            if not self._publishing.options.block_if_queue_full:
                raise self._publishing.full(self._publishing.choose(payload, extras))
            await self._room()
        return await sent

    def send_soon(
        self, content: Any, *, sequence_id: int | None = None, **extras: Any
    ) -> asyncio.Future[MessageId]:
        """Queue a message now, in the order of calls; await the result for the id.

        ``extras`` are the other arguments of ``send``. Raises ``ProducerQueueIsFull``, and what
        ``send`` raises for bad arguments.
        """
        in_order = self._publishing.in_order(extras) if extras else ()
        payload, beside, number = self._publishing.prepared(content, sequence_id, *in_order)
        sent = self._add(payload, beside, number)
        if sent is None:
            raise self._publishing.full(self._publishing.choose(payload, beside))
        return sent

    def _add(
        self, payload: bytes, extras: Extras | None, sequence_id: int | None
    ) -> asyncio.Future[MessageId] | None:
        """Queue a message; ``None`` when there is no room."""
        future: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        child = self._publishing.choose(payload, extras)
        return (
            future
            if self._publishing.add(child, payload, _Sent(future), extras, sequence_id)
            else None
        )

    async def _room(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting_for_room.append(turn)
        await turn

    def _freed(self) -> None:
        waiting = self._waiting_for_room
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)

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
