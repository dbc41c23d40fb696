"""Publishes batches that the program made and numbered itself: for writers that repeat their work
after a failure and rely on deduplication, so that the contents of a batch must not depend on time.

A repeated attempt skips everything up to the last sequence id in the log. So nothing may be sent
after a failed batch: it would take the place of the missing one. Only batches that are on the wire
when the broker refuses one may be stored behind it.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Unpack

from pulsarish.client.api.blocking_client import Client
from pulsarish.client.checks import check_number
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.arguments import ProducerArguments
from pulsarish.client.messages.entry_encoder import NO_EXTRAS, Extras
from pulsarish.client.messages.options import ProducerOptions
from pulsarish.client.producer.partitioned_producer import PartitionedProducer
from pulsarish.client.producer.topic_producer import Waiter
from pulsarish.model.errors import AlreadyClosed, ForkedProcess, InvalidArgument, PulsarishError
from pulsarish.model.result import Result
from pulsarish.runtime.background import Background, Latch

__all__ = ["PENDING_BYTES_MAX", "BatchPublisher"]

PENDING_BYTES_MAX: Final = 16 << 20
"""``add`` waits while this many bytes wait for receipts."""


class _Sent(Waiter):
    __slots__ = ("_publisher", "_size_bytes")

    def __init__(self, publisher: BatchPublisher, size_bytes: int) -> None:
        self._publisher = publisher
        self._size_bytes = size_bytes

    def __call__(self, result: Result, message_id: MessageId) -> None:
        self._publisher._completed(self._size_bytes, None)

    def fail(self, error: PulsarishError) -> None:
        self._publisher._failed(self._size_bytes, error)


class BatchPublisher:
    """Opened by ``open``, for one thread. After the first failure it accepts nothing more."""

    @classmethod
    def open(
        cls,
        client: Client,
        topic: str,
        name: str,
        *,
        epoch: int,
        **options: Unpack[ProducerArguments],
    ) -> BatchPublisher:
        """Open on a topic without partitions, or on one partition.

        Args:
            name: the producer's name.
            epoch: above 0. Ends a producer of this name with a lower epoch; refused when the
                present one has a higher epoch.
            options: those of ``ProducerOptions``.

        Raises the errors of ``Client.create_producer``, and ``ProducerFenced`` for an epoch that is
        too low.
        """
        check_number("epoch", epoch, 1)
        named: ProducerArguments = {**options, "producer_name": name}
        return cls(*client._open_publishing(ProducerOptions(topic, **named), first_epoch=epoch))

    def __init__(self, publishing: PartitionedProducer, background: Background) -> None:
        """Raises ``InvalidArgument`` for a topic with partitions: sequence ids belong to one
        log.
        """
        self._publishing = publishing
        self._background = background
        if (
            len(publishing.children) != 1
            or publishing.options.topic.partition < 0 <= publishing.children[0].partition
        ):
            self.abandon()
            raise InvalidArgument(
                f"topic {publishing.options.topic} has partitions: publish to one of them, "
                f"{publishing.children[0].topic}"
            )
        self._child = publishing.children[0]
        self._lock = background.lock()
        self._pending_bytes = 0
        self._room: deque[Latch] = deque()
        self._failure: PulsarishError | None = None
        self.last_sequence_id: Final = self._child.core.last_sequence_id
        """The last sequence id of this name in the log at opening.

        Its earlier holders cannot store anything after that.
        """
        background.add_user(self)

    def _on_fork(self, error: ForkedProcess) -> None:
        self._failure = error

    @property
    def deduplication(self) -> bool:
        """Whether the topic removes duplicates."""
        return self._child.deduplication

    def add(
        self, batch: bytes, count: int, first: int, last: int, of_all: Extras = NO_EXTRAS
    ) -> None:
        """Send ``count`` messages, encoded by ``encode_batch``, with sequence ids ``first`` to
        ``last``, greater than all before.

        Brokers do not look into a batch: a message that expires is one of its own, whose ``of_all``
        is ``Extras.read_by_brokers``.

        Waits for room. Raises why an earlier batch failed, or the publisher did.
        """
        size_bytes = len(batch)
        self._wait_for_room(size_bytes)
        child = self._child
        with child.lock:
            failure, news = child.failure, False
            if failure is None:
                sent = _Sent(self, size_bytes)
                news = child.core.add_batch(batch, count, first, last, sent, of_all)
                # Read it now: the loop may send the next batch when it looks later.
                for _, too_great in child.core.take_oversized():
                    failure = too_great
        if failure is not None:
            self._completed(size_bytes, failure)
            raise failure.with_traceback(None)
        if news:
            child.notice.give()

    def _wait_for_room(self, size_bytes: int) -> None:
        while True:
            with self._lock:
                if self._failure is not None:
                    raise self._failure.with_traceback(None)
                if not self._pending_bytes or self._pending_bytes + size_bytes <= PENDING_BYTES_MAX:
                    self._pending_bytes += size_bytes
                    return
                latch = Latch()
                self._room.append(latch)
            latch.wait()

    def _completed(self, size_bytes: int, error: PulsarishError | None) -> None:
        """Count a batch as done, in the loop, or in ``add`` for one that was not accepted."""
        with self._lock:
            self._pending_bytes -= size_bytes
            self._failure = self._failure or error
            waiting = list(self._room)
            self._room.clear()
        for latch in waiting:
            latch.release()

    def _failed(self, size_bytes: int, error: PulsarishError) -> None:
        """Fail, in the loop, before anything else is sent: batches added in the meantime are
        dropped.
        """
        self._completed(size_bytes, error)
        self._child.shutdown(error)

    def finish(self) -> None:
        """Wait until all is stored. Raises why something is not."""
        self._background.run(self._publishing.flush())
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def close(self) -> None:
        """Finish, and close the producer at the broker. Raises the errors of ``finish``."""
        try:
            self.finish()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without waiting; pending batches may be stored or not."""

        async def end() -> None:
            self._publishing.shutdown(
                AlreadyClosed(
                    f"publisher of batches on {self._publishing.options.topic} was closed"
                )
            )

        self._background.run(end())
