"""Read the replicas of a split from its bookie: every entry that it should have, verified, in
bounded memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from google_crc32c import extend

from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.repair.repair_core import spans_of
from pulsarish.model.errors import ChecksumError, EntryUnknown, NoSuchEntry, NoSuchLedger
from pulsarish.runtime.seams import Clock, StreamBroken
from pulsarish.spark.jobs.verify_core import SUM_BYTES, Copy, CopyState, Split
from pulsarish.wire.bookie import ReadAnswer
from pulsarish.wire.record import decode_entry_record

__all__ = ["CopyReader", "Silences"]

_READ_BYTES: Final = 1 << 20
_PROBES: Final = 128
"""Entries after a missing one that are requested one by one, concurrently."""
_ATTEMPTS: Final = 4
_WAIT_SECONDS: Final = 0.5
_SILENT_SECONDS: Final = 60.0
"""Time before a bookie that did not answer gets more than one attempt again."""
_AGREED_FROM: Final = 28
"""Offset in a record from which replicas must agree: length and payload.

A recovery writes another LAC before it.
"""


class _Chunk:
    """One chunk while it is received. ``wanted``: its entries that the member should have."""

    def __init__(self, split: Split, first: int, last: int) -> None:
        self.split = split
        self.first = first
        self.states = bytearray(CopyState.ELSEWHERE.to_bytes() * (last - first + 1))
        self.sums = bytearray(SUM_BYTES * (last - first + 1))
        self.read_bytes = 0
        striped = split.write_quorum < split.ensemble_size
        self.wanted = [
            entry_id for entry_id in range(first, last + 1) if not striped or split.holds(entry_id)
        ]

    def put(self, entry_id: int, state: CopyState) -> None:
        self.states[entry_id - self.first] = state

    def rest(self, start: int, state: CopyState) -> None:
        for entry_id in self.wanted[start:]:
            self.put(entry_id, state)

    def take(self, wanted: Sequence[int], answer: ReadAnswer) -> int:
        """Verify the answer to a request for these entries. Return how many of them it settles."""
        for raw, entry_id in zip(answer.records, wanted, strict=False):
            self.read_bytes += len(raw)
            try:
                decode_entry_record(raw, self.split.ledger_id, entry_id)
            except ChecksumError:
                self.put(entry_id, CopyState.CORRUPT)
                continue
            self.put(entry_id, CopyState.OK)
            at = (entry_id - self.first) * SUM_BYTES
            self.sums[at : at + SUM_BYTES] = extend(0, bytes(raw[_AGREED_FROM:])).to_bytes(
                SUM_BYTES
            )
        count = len(answer.records)
        if count < len(wanted) and (answer.code or not count):
            self.put(wanted[count], _state_of(answer.code))
            count += 1
        return count

    def copy(self) -> Copy:
        return Copy(self.split.member, bytes(self.states), bytes(self.sums), self.read_bytes)


def _state_of(code: int) -> CopyState:
    if code in (NoSuchEntry.code, NoSuchLedger.code):
        return CopyState.MISSING
    return CopyState.UNKNOWN if code == EntryUnknown.code else CopyState.CORRUPT


class Silences:
    """Bookies that did not answer recently.

    A cluster has thousands of splits at a bookie that is down, and each would wait for it again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def attempts(self, member: str) -> int:
        """Return the number of attempts for a bookie."""
        return 1 if self._clock.monotonic() < self._until.get(member, 0.0) else _ATTEMPTS

    def heard(self, member: str, *, answered: bool) -> None:
        if answered:
            self._until.pop(member, None)
        else:
            self._until[member] = self._clock.monotonic() + _SILENT_SECONDS


class CopyReader:
    """Reads one split.

    Retries a bookie that does not answer a few times; then the rest of the split counts as silent.
    """

    def __init__(self, pool: BookiePool, clock: Clock, silences: Silences, split: Split) -> None:
        self._pool = pool
        self._clock = clock
        self._silences = silences
        self._split = split
        self._silent = False

    async def read(self, first: int, last: int) -> Copy:
        """Read one of the split's chunks."""
        chunk = _Chunk(self._split, first, last)
        if self._silent:
            chunk.rest(0, CopyState.SILENT)
        else:
            self._silent = not await _read_chunk(self._pool, self._clock, self._silences, chunk)
        return chunk.copy()


async def _read_chunk(pool: BookiePool, clock: Clock, silences: Silences, chunk: _Chunk) -> bool:
    """Read a chunk. Return whether the bookie still answers."""
    at = 0
    while at < len(chunk.wanted):
        wanted = chunk.wanted[at:]
        answer = await _ask(pool, clock, silences, chunk.split, wanted)
        if answer is None:
            chunk.rest(at, CopyState.SILENT)
            return False
        if answer.code == NoSuchLedger.code:
            chunk.take(wanted, answer)
            chunk.rest(at + len(answer.records), CopyState.MISSING)
            return True
        count = chunk.take(wanted, answer)
        at += count
        if answer.code and at < len(chunk.wanted):
            probed = chunk.wanted[at : at + _PROBES]
            answers = await asyncio.gather(
                *(_ask(pool, clock, silences, chunk.split, [entry_id]) for entry_id in probed)
            )
            for entry_id, single in zip(probed, answers, strict=True):
                if single is None:
                    chunk.rest(at, CopyState.SILENT)
                    return False
                chunk.take([entry_id], single)
                at += 1
    return True


async def _ask(
    pool: BookiePool, clock: Clock, silences: Silences, split: Split, wanted: Sequence[int]
) -> ReadAnswer | None:
    for attempt in range(silences.attempts(split.member)):
        if attempt:
            await clock.sleep(_WAIT_SECONDS)
        try:
            answer = await pool.reader(split.member).read(
                split.ledger_id, spans_of(wanted), _READ_BYTES
            )
        except (StreamBroken, TimeoutError):
            continue
        silences.heard(split.member, answered=True)
        return answer
    silences.heard(split.member, answered=False)
    return None
