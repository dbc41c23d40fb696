"""The copying of one part of a ledger to a bookie: read from another replica, check, and write as
recovery writes.

Promises:
* Only confirmed entries are copied, byte for byte as they were read and checked. None is invented
  or skipped: an entry that cannot be read ends the copying with the reader's own error.
* ``copy`` and ``fill`` return only when the bookie has answered for every entry that it should
  hold. The entries are durable then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pulsarish.ledger.add_stream import encode_chunk
from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.reading import read_records
from pulsarish.ledger.repair.repair_core import Part, held_entries, spans_of
from pulsarish.model.errors import ChecksumError, PulsarishError, ServiceNotReady, error_from_code
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.runtime.seams import StreamBroken
from pulsarish.wire.record import RECORD_HEAD_SIZE, Record, decode_entry_record, restamp_lac

__all__ = ["Copied", "Copier"]

_SPANS_MAX = 500  # asked in one request to a bookie about a striped ledger
_STRIPED_ENTRIES_MAX = 1_000  # looked at for one read of a striped ledger


@dataclass(slots=True)
class Copied:
    """Counts of what was copied so far. The caller of the copier keeps them."""

    entries: int = 0
    bytes: int = 0
    read_bytes: int = 0
    """The bytes of all entries that were checked, including those that needed no copy."""
    seconds: float = 0.0
    """What the batches of copied entries took, from the read to the answer, added up."""


class Copier:
    """Copies entries between bookies.

    ``pace`` is awaited with the bytes of each batch, before the next one is read.
    """

    def __init__(
        self,
        pool: BookiePool,
        options: LedgerOptions,
        counts: Copied,
        pace: Callable[[int], Awaitable[None]],
        batch_bytes: int,
    ) -> None:
        self._pool = pool
        self._options = options
        self._counts = counts
        self._pace = pace
        self._batch_bytes = batch_bytes

    async def copy(
        self, metadata: LedgerMetadata, part: Part, target: str, avoid: Sequence[str]
    ) -> None:
        """Copy a part to a bookie that is not in its segment.

        Args:
            avoid: members that are asked last.

        Raises ``NoSuchEntry``, ``EntryUnknown`` (no member gives an entry now), ``ServiceNotReady``
        (the target does not take it).
        """
        entry_id = part.first
        while entry_id <= part.last:
            entry_id = await self._copy_batch(metadata, part, target, entry_id, avoid)

    async def fill(self, metadata: LedgerMetadata, part: Part, avoid: Sequence[str]) -> None:
        """Check that the part's own member has all entries of the part undamaged.

        Copy those that it misses. Raises as ``copy``.
        """
        entry_id = part.first
        while entry_id <= part.last:
            good_until = await self._good_until(metadata, part, entry_id)
            if good_until is None:
                return
            if good_until > entry_id:
                entry_id = good_until
            else:
                entry_id = await self._copy_batch(
                    metadata, part, part.member, entry_id, (part.member, *avoid)
                )

    async def _good_until(self, metadata: LedgerMetadata, part: Part, first: int) -> int | None:
        """Return the first entry from ``first`` on that the member does not give back undamaged, or
        that must be asked for again.

        ``None`` when the member has all the rest. Raises ``ServiceNotReady`` when the member does
        not answer.
        """
        last = part.last
        if metadata.write_quorum < metadata.ensemble_size:
            last = min(last, first + _SPANS_MAX * metadata.ensemble_size - 1)
        wanted = held_entries(metadata, part, first, last)
        if not wanted:
            return None if last == part.last else last + 1
        spans = [(first, last)] if isinstance(wanted, range) else spans_of(wanted)
        try:
            answer = await self._pool.reader(part.member).read(
                metadata.ledger_id, spans, self._batch_bytes
            )
        except (StreamBroken, TimeoutError) as error:
            raise ServiceNotReady(
                f"bookie {part.member} cannot be asked which entries it lacks: "
                f"{error or 'no answer in time'}"
            ) from None
        count = size_bytes = 0
        for raw, entry_id in zip(answer.records, wanted, strict=False):
            try:
                decode_entry_record(raw, metadata.ledger_id, entry_id)
            except ChecksumError:
                break
            count += 1
            size_bytes += len(raw)
        self._counts.read_bytes += size_bytes
        await self._pace(size_bytes)
        if count == len(wanted):
            return None if last == part.last else last + 1
        return wanted[count]

    async def _copy_batch(
        self, metadata: LedgerMetadata, part: Part, target: str, first: int, avoid: Sequence[str]
    ) -> int:
        """Copy the entries of one read. Return the entry to continue with."""
        last = part.last
        only: Sequence[int] | None = None
        if metadata.write_quorum < metadata.ensemble_size:
            # The others of a striped ledger lie on other members.
            last = min(last, first + self._entries_looked_at(metadata) - 1)
            only = held_entries(metadata, part, first, last)
            if not only:
                return last + 1
            first = only[0]
        began = self._pool.clock.monotonic()
        found = await read_records(
            self._pool,
            self._options,
            metadata,
            first,
            last,
            max_bytes=self._batch_bytes,
            prefer=self._source(metadata, first, avoid),
            avoid=avoid,
            only=only,
        )
        records = found.records
        size_bytes = sum(len(record.payload) + RECORD_HEAD_SIZE for record in records)
        self._counts.read_bytes += size_bytes
        await self.write(metadata.ledger_id, target, records)
        self._counts.seconds += self._pool.clock.monotonic() - began
        await self._pace(size_bytes)
        return records[-1].entry_id + 1

    def _entries_looked_at(self, metadata: LedgerMetadata) -> int:
        """Return how many entries of a striped ledger one batch is looked for in.

        Each is planned, and asked for, by itself, also those that the batch has no room for.
        """
        if metadata.state is not LedgerState.CLOSED:
            return _STRIPED_ENTRIES_MAX
        entry_bytes = RECORD_HEAD_SIZE + metadata.length_bytes // (metadata.last_entry + 1)
        stripes = max(1, self._batch_bytes // entry_bytes // metadata.write_quorum)
        return min(_STRIPED_ENTRIES_MAX, stripes * metadata.ensemble_size)

    def _source(self, metadata: LedgerMetadata, entry_id: int, avoid: Sequence[str]) -> str | None:
        """Choose the member to read from.

        It differs from ledger to ledger, so that many repairs share the work.
        """
        members = [member for member in metadata.write_set(entry_id) if member not in avoid]
        return members[metadata.ledger_id % len(members)] if members else None

    async def write(self, ledger_id: int, target: str, records: Sequence[Record]) -> None:
        """Write checked records to a bookie, as recovery does.

        Raises ``ServiceNotReady``, also while another task of this process writes entries of the
        ledger to the bookie, and the bookie's error when it refuses them.
        """
        # The record stays as it was: what is copied is confirmed, and its LAC stamp is below it.
        parts = [restamp_lac(record, record.lac) for record in records]
        stream = self._pool.adder(target, recovery=True)
        if stream.has_handler(ledger_id):
            # A move and a repair may choose the same bookie. Either would wait forever for answers
            # that the other one gets.
            raise ServiceNotReady(
                f"entries of ledger {ledger_id} are being copied to {target} already; try again"
            )
        answers = _Answers(target, ledger_id, [record.entry_id for record in records])
        stream.attach(ledger_id, answers)
        try:
            refused = stream.push(encode_chunk(ledger_id, parts, [len(part) for part in parts]))
            if refused is not None:
                raise ServiceNotReady(
                    f"entries of ledger {ledger_id} cannot be copied to {target}: {refused}"
                )
            await answers.over
        finally:
            stream.detach(ledger_id)
        self._counts.entries += len(parts)
        self._counts.bytes += sum(len(part) for part in parts)


class _Answers:
    """The answers to one batch for one bookie.

    It ends when every entry is answered, or with the first error.
    """

    def __init__(self, target: str, ledger_id: int, entry_ids: Sequence[int]) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._target = target
        self._ledger_id = ledger_id
        self._open = dict.fromkeys(entry_ids)

    def add_answered(self, member: str, first: int, last: int, code: int) -> None:
        if code:
            self._fail(
                error_from_code(
                    code,
                    f"bookie {member} refused entries {first} to {last} of ledger "
                    f"{self._ledger_id}",
                )
            )
        for entry_id in range(first, last + 1):
            self._open.pop(entry_id, None)

    def answers_done(self) -> None:
        if not self._open and not self.over.done():
            self.over.set_result(None)

    def member_failed(self, member: str, reason: str) -> None:
        self._fail(
            ServiceNotReady(
                f"entries of ledger {self._ledger_id} cannot be copied to {member}: {reason}"
            )
        )

    def _fail(self, error: PulsarishError) -> None:
        if not self.over.done():
            self.over.set_exception(error)
