"""Publishes the lines of a broker's audit trail to a topic, beside all other work.

A line comes here once it is on disk. The file stays whole whatever becomes of the topic: lines
wait, up to a limit in bytes, and what does not fit is lost for the topic, counted and logged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from pulsarish.model.errors import PulsarishError
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["AuditLines", "AuditTopic", "SendAuditLines"]

_log = get_logger("broker.audit")

_RETRY_SECONDS: Final = 5.0
_LOG_AGAIN_SECONDS: Final = 60.0
_WAITING_BYTES_MAX: Final = 4 << 20
_BATCH_LINES_MAX: Final = 200
_BATCH_BYTES_MAX: Final = 256 << 10

AuditLines = list[tuple[int, str]]
"""Lines with the numbers of their records, in order."""
SendAuditLines = Callable[[str, int, AuditLines], Awaitable[None]]
"""Publishes lines: the name of a producer, its epoch, which grows with each attempt, the lines.

Raises ``PulsarishError`` when not all of them are known to be stored.
"""


class AuditTopic:
    """The lines of one broker that wait for the topic.

    Args:
        topic: empty: nothing is published.
    """

    def __init__(self, world: World, topic: str) -> None:
        self.is_on = bool(topic)
        self._world = world
        self._topic = topic
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._stopping = False
        self._epoch = 0
        self._logged_at: float | None = None
        self.published_sequence = 0
        """The number of the newest record in the topic, as far as is known; 0: it is not."""
        self.published_count = 0
        """Lines that were published since the start."""
        self.lost_count = 0
        """Lines that were not published, because too many waited."""

    def put(self, sequence: int, line: bytes) -> None:
        """Publish a line soon. Never waits and never fails."""
        if not self.is_on:
            return
        if self._waiting_bytes + len(line) > _WAITING_BYTES_MAX:
            self.lost_count += 1
            self._report("too many lines wait")
            return
        self._waiting.append((sequence, line))
        self._waiting_bytes += len(line)
        self._wake.set()

    def start(self, broker: str, send: SendAuditLines) -> None:
        """Begin to publish.

        The name of the producer is another one after each start. So deduplication of the topic
        drops what is sent twice, and never a line of a trail that begins again with record 1.
        """
        if not self.is_on:
            return
        producer = f"audit {broker} {self._world.random.getrandbits(64):016x}"
        tasks, clock = self._world.tasks, self._world.clock
        _ = run_in_background(tasks, clock, "audit topic", lambda: self._publish(producer, send))

    def stop(self) -> None:
        """Begin nothing more. What waits is published after the next start, from the files."""
        self._stopping = True
        self._wake.set()

    async def _publish(self, producer: str, send: SendAuditLines) -> None:
        while not self._stopping:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            batch = self._batch()
            self._epoch += 1
            try:
                await send(
                    producer, self._epoch, [(number, line.decode()) for number, line in batch]
                )
            except PulsarishError as error:
                if not self._stopping:
                    self._report(error)
                    await self._world.clock.sleep(_RETRY_SECONDS)
                continue
            for _, line in batch:
                self._waiting.popleft()
                self._waiting_bytes -= len(line)
            self.published_count += len(batch)
            self.published_sequence = batch[-1][0]
            if self._logged_at is not None:
                self._logged_at = None
                _log.info("audit lines are published again", lost=self.lost_count)

    def _batch(self) -> list[tuple[int, bytes]]:
        batch: list[tuple[int, bytes]] = []
        size_bytes = 0
        for sequence, line in self._waiting:
            if batch and (
                len(batch) == _BATCH_LINES_MAX or size_bytes + len(line) > _BATCH_BYTES_MAX
            ):
                break
            batch.append((sequence, line))
            size_bytes += len(line)
        return batch

    def _report(self, reason: object) -> None:
        now = self._world.clock.monotonic()
        if self._logged_at is None or now - self._logged_at >= _LOG_AGAIN_SECONDS:
            self._logged_at = now
            _log.error(
                "audit lines cannot be published; they wait, and are lost for the topic when too "
                "many do; the files have all",
                topic=self._topic,
                waiting=len(self._waiting),
                lost=self.lost_count,
                reason=reason,
            )
