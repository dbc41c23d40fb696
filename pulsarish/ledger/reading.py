"""One read of a range of entries: asks replicas as ``ReadCore`` decides and checks every record.

A replica that takes longer than it usually does is late: the next one is asked, too, and the late
one is asked last by other reads for a while (``SlowBookies``). Of the others the nearest are asked
first, where it is set where this process stands (``LocalReads``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from pulsarish.ledger.local_reads import LocalReads
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.read_stream import ReadRequest, ReadStream
from pulsarish.ledger.reader_core import ReadCore, SpanOrder
from pulsarish.ledger.slow_bookies import SlowBookies
from pulsarish.model.errors import ChecksumError
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.runtime.seams import Clock, StreamBroken
from pulsarish.wire.bookie import ReadAnswer
from pulsarish.wire.record import Record, decode_entry_record

__all__ = ["FoundRecords", "ReadStreams", "read_records"]


class ReadStreams(Protocol):
    """The owner of a stream to each bookie, and of what is known of their speed."""

    @property
    def clock(self) -> Clock: ...

    @property
    def slow(self) -> SlowBookies: ...

    @property
    def local(self) -> LocalReads | None: ...

    def reader(self, member: str) -> ReadStream: ...


class FoundRecords(NamedTuple):
    """Consecutive requested records from the first one on, at least one, and the member that gave
    them.
    """

    records: list[Record]
    served_by: str | None


async def read_records(
    pool: ReadStreams,
    options: LedgerOptions,
    metadata: LedgerMetadata,
    first: int,
    last: int,
    *,
    max_bytes: int,
    prefer: str | None = None,
    avoid: Sequence[str] = (),
    may_cache: bool = False,
    only: Sequence[int] | None = None,
) -> FoundRecords:
    """Read a range of entries.

    Args:
        prefer: the member that is asked first, among those that are equally near.
        avoid: members that are asked last.
        may_cache: whether a bookie may answer from its read cache. What is read once, or to know
            what lies on its disk, may not.
        only: of a striped ledger, the ids that are wanted, ascending from ``first`` on; ``None``:
            all.

    Raises ``NoSuchEntry`` when every replica says that it does not have the first entry, and the
    retryable ``EntryUnknown`` when none gave it and not all said that.
    """
    core = ReadCore(
        metadata,
        first,
        last,
        max_bytes=min(max_bytes, options.read_request_bytes),
        prefer=prefer,
        avoid=[*avoid, *pool.slow.avoided(pool.clock.monotonic())],
        distance=None if pool.local is None else pool.local.distance,
        only=only,
    )
    await _Reading(pool, options, core, may_cache=may_cache).run()
    found = core.found()
    if not found:
        raise core.error()
    if pool.local is not None and core.served_by is not None:
        pool.local.served(core.served_by)
    return FoundRecords(found, core.served_by)


class _Asked:
    """An order whose answer is waited for until ``expires``. Then the replica has failed.

    At ``late_at`` it is late.
    """

    __slots__ = ("expires", "late_at", "order", "request", "stream")

    def __init__(
        self,
        order: SpanOrder,
        stream: ReadStream,
        request: ReadRequest,
        late_at: float,
        expires: float,
    ) -> None:
        self.order = order
        self.stream = stream
        self.request = request
        self.late_at = late_at
        self.expires = expires


class _Reading:
    """Carries out the orders of one ``ReadCore``."""

    def __init__(
        self, pool: ReadStreams, options: LedgerOptions, core: ReadCore, *, may_cache: bool
    ) -> None:
        self._pool = pool
        self._clock = pool.clock
        self._slow = pool.slow
        self._timeout = options.read_timeout_ms / 1000
        self._core = core
        self._may_cache = may_cache
        self._asked: list[_Asked] = []
        self._heard = asyncio.Event()

    async def run(self) -> None:
        self._slow.read_begins()
        try:
            while True:
                self._ask_next()
                if self._core.is_over:
                    return
                await self._wait()
                self._take()
        finally:
            for each in self._asked:
                each.stream.drop(each.request)

    def _ask_next(self) -> None:
        core = self._core
        while orders := core.orders():
            for order in orders:
                self._ask(order)
        while core.has_second and self._slow.may_send():
            self._slow.send()
            self._ask(core.second_order())

    def _ask(self, order: SpanOrder) -> None:
        stream = self._pool.reader(order.member)
        try:
            request = stream.ask(
                self._core.ledger_id,
                order.spans,
                order.max_bytes,
                self._heard,
                may_cache=self._may_cache,
            )
        except StreamBroken as error:
            self._core.failed(order, str(error))
            return
        expires = request.asked_at + self._timeout
        late_at = (
            request.asked_at + self._slow.wait_seconds(order.member)
            if self._slow.is_used
            else expires
        )
        self._asked.append(_Asked(order, stream, request, late_at, expires))

    async def _wait(self) -> None:
        """Wait until a replica answers or is late."""
        at = min(min(each.late_at, each.expires) for each in self._asked)
        with suppress(TimeoutError):
            async with self._clock.timeout(at - self._clock.monotonic()):
                _ = await self._heard.wait()
        self._heard.clear()

    def _take(self) -> None:
        """Give the core what has come, and what has not come in time."""
        now = self._clock.monotonic()
        waiting: list[_Asked] = []
        for each in self._asked:
            request = each.request
            if request.answer is not None:
                self._answered(each.order, request.answer)
            elif request.broken is not None:
                self._core.failed(each.order, str(request.broken))
            elif each.expires <= now:
                each.stream.drop(request)
                self._core.failed(each.order, "no answer in time")
            else:
                waiting.append(each)
        self._asked = waiting
        for each in waiting:
            if each.late_at <= now:
                self._slow.late(each.order.member, now)
                self._core.late(each.order)
                # When no second read may be sent now, this is asked again.
                each.late_at = now + self._slow.wait_seconds(each.order.member)

    def _answered(self, order: SpanOrder, answer: ReadAnswer) -> None:
        records: list[Record] = []
        why = ""
        entry_ids = (
            entry_id
            for span_first, span_last in order.spans
            for entry_id in range(span_first, span_last + 1)
        )
        try:
            for raw, entry_id in zip(answer.records, entry_ids, strict=False):
                records.append(decode_entry_record(raw, self._core.ledger_id, entry_id))
        except ChecksumError as error:
            why = str(error)
        self._core.answered(order, records, answer.code, why)
