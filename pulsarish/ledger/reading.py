"""One read of a range of entries: asks replicas as ``ReadCore`` decides and checks every record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.read_stream import ReadStream
from pulsarish.ledger.reader_core import ReadCore, SpanOrder
from pulsarish.model.errors import ChecksumError
from pulsarish.model.ledger_metadata import LedgerMetadata
from pulsarish.runtime.seams import StreamBroken
from pulsarish.wire.record import Record, decode_entry_record

__all__ = ["FoundRecords", "ReadStreams", "read_records"]


class ReadStreams(Protocol):
    """The owner of a stream to each bookie."""

    def reader(self, member: str) -> ReadStream: ...


class FoundRecords(NamedTuple):
    """Consecutive records from the first requested one on, at least one, and the member that gave
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
) -> FoundRecords:
    """Read a range of entries.

    Args:
        prefer: the member that is asked first.
        avoid: members that are asked last.

    Raises ``NoSuchEntry`` when every replica says that it does not have the first entry, and the
    retryable ``EntryUnknown`` when none gave it and not all said that.
    """
    core = ReadCore(
        metadata,
        first,
        last,
        max_bytes=min(max_bytes, options.read_request_bytes),
        prefer=prefer,
        avoid=avoid,
    )
    while orders := core.orders():
        if len(orders) == 1:
            await _carry_out(pool, core, orders[0])
        else:
            await asyncio.gather(*(_carry_out(pool, core, order) for order in orders))
    found = core.found()
    if not found:
        raise core.error()
    return FoundRecords(found, core.served_by)


async def _carry_out(pool: ReadStreams, core: ReadCore, order: SpanOrder) -> None:
    try:
        answer = await pool.reader(order.member).read(core.ledger_id, order.spans, order.max_bytes)
    except StreamBroken as error:
        core.failed(order, str(error))
        return
    except TimeoutError:
        core.failed(order, "no answer in time")
        return
    records: list[Record] = []
    why = ""
    entry_ids = (
        entry_id
        for span_first, span_last in order.spans
        for entry_id in range(span_first, span_last + 1)
    )
    try:
        for raw, entry_id in zip(answer.records, entry_ids, strict=False):
            records.append(decode_entry_record(raw, core.ledger_id, entry_id))
    except ChecksumError as error:
        why = str(error)
    core.answered(order, records, answer.code, why)
