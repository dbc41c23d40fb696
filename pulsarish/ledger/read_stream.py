"""The stream that carries reads to one bookie, on a lane of its own.

Waiting requests are joined into one message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from pulsarish.ledger.bookie_stream import BookieStream, StreamWorld
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.slow_bookies import SlowBookies
from pulsarish.runtime.network.address_book import AddressBook
from pulsarish.runtime.seams import Buffer, StreamBroken
from pulsarish.wire.bookie import ReadAnswer, ReadItem, decode_read_response, encode_read

__all__ = ["ReadRequest", "ReadStream"]

_READS_PER_MESSAGE_MAX = 256


class ReadRequest:
    """One read of one bookie. ``heard`` is set when ``answer`` or ``broken`` is."""

    __slots__ = ("answer", "asked_at", "broken", "heard", "is_sent", "item")

    def __init__(self, item: ReadItem, heard: asyncio.Event, asked_at: float) -> None:
        self.item = item
        self.heard: asyncio.Event | None = heard  # None: no caller waits any more
        self.asked_at = asked_at
        self.is_sent = False
        self.answer: ReadAnswer | None = None
        self.broken: StreamBroken | None = None


class ReadStream(BookieStream):
    """Reads from one bookie.

    ``slow`` gets to know how long each answer took.
    """

    def __init__(
        self,
        world: StreamWorld,
        options: LedgerOptions,
        book: AddressBook,
        member: str,
        slow: SlowBookies,
    ) -> None:
        super().__init__(world, options, book, member, method="bookie.read", lane="read")
        self._slow = slow
        self._queue: deque[ReadRequest] = deque()
        self._requests: dict[int, ReadRequest] = {}  # not answered, by id
        self._next_id = 1

    @property
    def in_use(self) -> bool:
        return bool(self._requests)

    async def read(
        self, ledger_id: int, spans: Sequence[tuple[int, int]], max_bytes: int
    ) -> ReadAnswer:
        """Read the entries of ``spans`` (pairs first, last, inclusive) from the bookie's disk.

        The records are not checked yet.

        Raises ``StreamBroken``, and ``TimeoutError`` after ``read_timeout_ms``.
        """
        heard = asyncio.Event()
        request = self.ask(ledger_id, spans, max_bytes, heard)
        try:
            async with self._clock.timeout(self._options.read_timeout_ms / 1000):
                _ = await heard.wait()
        finally:
            self.drop(request)
        if request.broken is not None:
            raise request.broken
        assert request.answer is not None
        return request.answer

    def ask(
        self,
        ledger_id: int,
        spans: Sequence[tuple[int, int]],
        max_bytes: int,
        heard: asyncio.Event,
        *,
        may_cache: bool = False,
    ) -> ReadRequest:
        """Begin a read. Call ``drop`` when its answer came or is not waited for any more.

        Args:
            spans: pairs first, last, inclusive.
            heard: is set when the answer came or the stream broke.
            may_cache: whether the bookie may answer from its read cache. A check of its copy may
                not.

        Raises ``StreamBroken``.
        """
        if self.down or self._closed:
            raise StreamBroken(f"bookie {self.member} is not reachable")
        item = ReadItem(self._next_id, ledger_id, list(spans), max_bytes, may_cache)
        self._next_id += 1
        request = ReadRequest(item, heard, self._clock.monotonic())
        self._requests[item.request_id] = request
        self._queue.append(request)
        self._wake()
        return request

    def drop(self, request: ReadRequest) -> None:
        """Stop waiting for an answer. A request that was not sent yet is not sent any more."""
        request.heard = None
        if not request.is_sent:
            self._requests.pop(request.item.request_id, None)

    def _next_message(self) -> list[Buffer] | None:
        items: list[ReadItem] = []
        while self._queue and len(items) < _READS_PER_MESSAGE_MAX:
            request = self._queue.popleft()
            if request.heard is not None:
                request.is_sent = True
                items.append(request.item)
        return [encode_read(self.member, items)] if items else None

    def _heard(self, data: bytes) -> int:
        answered, answers = decode_read_response(data)
        now = self._clock.monotonic()
        for answer in answers:
            request = self._requests.pop(answer.request_id, None)
            if request is None:
                continue
            self._slow.answered(self.member, now - request.asked_at)
            if request.heard is not None:
                request.answer = answer
                request.heard.set()
        return answered

    def _lost(self, reason: str) -> None:
        self._queue.clear()
        waiting = list(self._requests.values())
        self._requests.clear()
        for request in waiting:
            if request.heard is not None:
                request.broken = StreamBroken(reason)
                request.heard.set()

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
