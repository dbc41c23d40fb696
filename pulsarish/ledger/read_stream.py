"""The stream that carries reads to one bookie, on a lane of its own.

Waiting requests are joined into one message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from pulsarish.ledger.bookie_stream import BookieStream, StreamWorld
from pulsarish.ledger.options import LedgerOptions
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.seams import Buffer, StreamBroken
from pulsarish.wire.bookie import ReadAnswer, ReadItem, decode_read_response, encode_read

__all__ = ["ReadStream"]

_READS_PER_MESSAGE_MAX = 256


class ReadStream(BookieStream):
    """Reads from one bookie."""

    def __init__(
        self, world: StreamWorld, options: LedgerOptions, book: AddressBook, member: str
    ) -> None:
        super().__init__(world, options, book, member, method="bookie.read", lane="read")
        self._queue: deque[ReadItem] = deque()
        self._answers: dict[int, asyncio.Future[ReadAnswer]] = {}
        self._next_id = 1

    @property
    def in_use(self) -> bool:
        return bool(self._answers)

    async def read(
        self, ledger_id: int, spans: Sequence[tuple[int, int]], max_bytes: int
    ) -> ReadAnswer:
        """Read the entries of ``spans`` (pairs first, last, inclusive).

        The records are not checked yet.

        Raises ``StreamBroken``, and ``TimeoutError`` after ``read_timeout_ms``.
        """
        if self.down or self._closed:
            raise StreamBroken(f"bookie {self.member} is not reachable")
        request_id = self._next_id
        self._next_id += 1
        future: asyncio.Future[ReadAnswer] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = future
        self._queue.append(ReadItem(request_id, ledger_id, list(spans), max_bytes))
        self._wake()
        try:
            async with self._clock.timeout(self._options.read_timeout_ms / 1000):
                return await future
        finally:
            self._answers.pop(request_id, None)

    def _next_message(self) -> list[Buffer] | None:
        items: list[ReadItem] = []
        while self._queue and len(items) < _READS_PER_MESSAGE_MAX:
            item = self._queue.popleft()
            if item.request_id in self._answers:  # otherwise its reader has given up
                items.append(item)
        return [encode_read(self.member, items)] if items else None

    def _heard(self, data: bytes) -> int:
        answered, answers = decode_read_response(data)
        for answer in answers:
            future = self._answers.get(answer.request_id)
            if future is not None and not future.done():
                future.set_result(answer)
        return answered

    def _lost(self, reason: str) -> None:
        self._queue.clear()
        waiting = list(self._answers.values())
        self._answers.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(StreamBroken(reason))

    def tick(self) -> None:
        if self.silent(self._options.read_timeout_ms):
            reason = (
                f"bookie {self.member} has not answered a read for "
                f"{self._options.read_timeout_ms} ms"
            )
            if self._stream is not None:
                self.break_off(reason)
            else:
                self._lost(reason)
