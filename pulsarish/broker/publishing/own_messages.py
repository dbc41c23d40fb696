"""Messages that a broker publishes itself, to a topic that it owns: the same way as those of
clients, so that the same limits hold, and an outcome for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from pulsarish.broker.clients.commands import (
    Answer,
    OpenProducer,
    ProducerClosed,
    Receipts,
    SendFailed,
)
from pulsarish.broker.clients.consumer import Outlet
from pulsarish.broker.clients.producer import Producer, PublishRequest
from pulsarish.broker.publishing.producers import Queued
from pulsarish.model.errors import PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Clock

__all__ = ["OwnMessages", "PublishedLog"]


class PublishedLog(Protocol):
    """What ``OwnMessages`` needs of a topic."""

    @property
    def name(self) -> TopicName: ...

    async def open_producer(
        self, command: OpenProducer, outlet: Outlet, address: str, queued: Queued
    ) -> tuple[Producer, int]: ...

    def remove_producer(self, producer: Producer) -> None: ...

    def publish(
        self, producer: Producer, entries: Sequence[memoryview], request: PublishRequest
    ) -> None: ...

    async def wait_for_room(self) -> None: ...


class _Outcomes:
    """What a producer's session would send to its client: here it is only counted."""

    has_room = True

    def __init__(self, count: int) -> None:
        self._left_count = count
        self.error: PulsarishError | None = None
        self.done = asyncio.Event()

    def put(self, answer: Answer) -> None:
        match answer:
            case Receipts():
                self._left_count -= answer.count
            case SendFailed():
                self._left_count -= 1
                self.error = self.error or answer.error
            case ProducerClosed():
                self._left_count = 0
                self.error = self.error or answer.error
            case _:
                pass
        if self._left_count <= 0:
            self.done.set()

    def deliver(self, consumer_id: int, deliveries: object) -> None:
        raise AssertionError("a producer gets no messages")

    def withdraw(self, consumer_id: int) -> int:
        return 0

    def doubt(self) -> None:
        """Do nothing: it is in this process."""


class OwnMessages:
    """A producer of the broker itself, for ``count`` entries. Open it first, and close it."""

    def __init__(self, topic: PublishedLog, clock: Clock, count: int) -> None:
        self._topic = topic
        self._clock = clock
        self._count = count
        self._outcomes = _Outcomes(count)
        self._producer: Producer | None = None

    async def open(self, name: str, epoch: int, address: str) -> None:
        """Connect the producer, after all earlier entries of its name have an outcome.

        Raises the errors of ``TopicPublishing.open_producer``.
        """
        opening = OpenProducer(0, 0, self._topic.name.full, name, epoch, is_of_broker=True)
        self._producer, _ = await self._topic.open_producer(
            opening, self._outcomes, address, lambda _turn, _name: None
        )

    async def publish(self, entries: Sequence[bytes]) -> None:
        """Append entries, as many as were announced.

        Returns when all are stored. Raises the first error, and then some may be stored.
        """
        assert self._producer is not None
        assert len(entries) == self._count
        await self._topic.wait_for_room()
        request = PublishRequest(
            len(entries),
            sum(map(len, entries)),
            lambda _request, _bytes: None,
            self._clock.monotonic(),
        )
        self._topic.publish(self._producer, [memoryview(entry) for entry in entries], request)
        await self._outcomes.done.wait()
        if self._outcomes.error is not None:
            raise self._outcomes.error

    @property
    def is_in_doubt(self) -> bool:
        """Whether the producer was closed, so that only the log can tell what is stored."""
        return self._producer is not None and self._producer.closed

    def close(self) -> None:
        if self._producer is not None:
            self._topic.remove_producer(self._producer)
