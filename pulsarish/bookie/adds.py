"""Decide which entries of a batch of adds a bookie stores, without I/O.

* A ledger that is fenced or in limbo accepts only what recovery writes (rules 5 and 7).
* An entry that is stored already with the same payload and length is accepted again: a writer
  resends after a broken stream, perhaps with another LAC. An entry with another payload or length
  is refused with ``AlreadyExists``. One ledger has one writer, which uses each entry id once, so
  the sender of other bytes is not that writer.
* What recovery writes replaces what is stored. Recovery and re-replication stamp their own LAC
  (rule 6) and repair copies that cannot be read. The protocol makes the payload of an entry id the
  same everywhere, so the bookie does not compare it.
* A read-only bookie accepts only what recovery writes. Once the reserved space is touched it
  accepts nothing (rule 13).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from google_crc32c import extend

from pulsarish.bookie.ledger_state import LocalLedgerState, LocalLedgerStates
from pulsarish.bookie.write_cache import WriteCache
from pulsarish.model.errors import (
    AlreadyExists,
    BookieReadOnly,
    ChecksumError,
    EntryUnknown,
    InvalidArgument,
    LedgerFenced,
)
from pulsarish.model.position import ID_MAX
from pulsarish.wire.bookie import AddResult
from pulsarish.wire.record import RECORD_HEAD, RECORD_HEAD_SIZE

__all__ = ["Admission", "Head", "admit", "check_records", "read_heads"]

_OK: Final = 0
_EXISTS: Final = AlreadyExists.code
_BAD_ARGUMENT: Final = InvalidArgument.code
_BAD_CHECKSUM: Final = ChecksumError.code

# crc, ledger, entry, lac, length
Head = tuple[int, int, int, int, int]


@dataclass(slots=True)
class Admission:
    """The result of a batch. ``taken`` has the accepted positions; ``None`` means all."""

    results: list[AddResult]
    taken_count: int
    taken: list[int] | None
    unresolved: list[int]
    """Positions of entries that may be stored already and are not in memory.

    The caller looks them up and asks again.
    """


def check_records(records: Sequence[memoryview]) -> tuple[list[Head], list[int]]:
    """Return the heads of all records, and the positions of those that are too short or do not
    match their CRC32C.
    """
    heads: list[Head] = []
    bad: list[int] = []
    unpack = RECORD_HEAD.unpack_from
    for position, record in enumerate(records):
        if len(record) < RECORD_HEAD_SIZE:
            heads.append((0, -1, -1, -1, 0))
            bad.append(position)
            continue
        head = unpack(record)
        heads.append(head)
        if extend(0, bytes(record[4:])) != head[0]:
            bad.append(position)
    return heads, bad


def read_heads(records: Sequence[memoryview]) -> list[Head]:
    """Return the heads of records that were checked before."""
    unpack = RECORD_HEAD.unpack_from
    return [unpack(record) for record in records]


def refused(heads: Sequence[Head], positions: Sequence[int], code: int) -> list[AddResult]:
    """Return results that refuse these entries."""
    return [
        AddResult(heads[position][1], heads[position][2], heads[position][2], code)
        for position in positions
    ]


def _ledger_code(ledger_id: int, state: LocalLedgerState, recovery: bool, read_only: bool) -> int:
    """Return the code with which a ledger refuses this sender; 0 when it accepts."""
    if not 0 <= ledger_id <= ID_MAX:
        return _BAD_ARGUMENT
    if not recovery and state.fenced:
        return LedgerFenced.code
    if not recovery and state.limbo:
        # The fence may be among what was lost, so no writer's entry counts here. To the writer
        # this is one member that failed: a recovery that was told of the fence has the metadata.
        return EntryUnknown.code
    return BookieReadOnly.code if read_only else _OK


def admit(  # noqa: C901  # one pass over the entries; splitting it would cost a call for each entry
    records: Sequence[memoryview],
    heads: Sequence[Head],
    *,
    recovery: bool,
    read_only: bool,
    states: LocalLedgerStates,
    cache: WriteCache,
    stored: Mapping[tuple[int, int], bytes | memoryview | None],
) -> Admission:
    """Decide on each record and put the accepted ones into the write cache.

    Args:
        records, heads: checked, in the order of the message.
        recovery: whether the batch comes from recovery or re-replication.
        read_only: whether the bookie has too little space for this kind of batch.
        states: the states of all ledgers; those of the batch are loaded.
        stored: entries that were looked up because an earlier result asked for it; ``None``: not
            stored.
    """
    results: list[AddResult] = []
    unresolved: list[int] = []
    left_out: list[int] = []
    loaded = states.loaded
    active = cache.active
    # the range of equal results that is being collected
    run_ledger = run_first = run_last = run_code = -1
    ledger_id = -1
    state: LocalLedgerState | None = None
    entries: dict[int, memoryview] = {}
    ledger_code = last_entry = 0
    lac = -1
    for position, (_, record_ledger, entry_id, record_lac, _) in enumerate(heads):
        if record_ledger != ledger_id or state is None:
            if state is not None:
                _settle(states, state, last_entry, lac, not ledger_code)
            ledger_id = record_ledger
            state = loaded[ledger_id]
            ledger_code = _ledger_code(ledger_id, state, recovery, read_only)
            last_entry, lac = state.last_entry, state.lac
            if not ledger_code:
                entries = active.entries(ledger_id)
        code = ledger_code
        if not code:
            if entry_id <= last_entry:
                code = _again(records[position], heads[position], recovery, cache, stored)
            elif entry_id > ID_MAX:
                code = _BAD_ARGUMENT
            else:
                last_entry = entry_id
            if not code:
                entries[entry_id] = records[position]
                if record_lac > lac:
                    lac = record_lac
            elif code < 0:
                unresolved.append(position)
                left_out.append(position)
                continue
        if code:
            left_out.append(position)
        if entry_id == run_last + 1 and code == run_code and ledger_id == run_ledger:
            run_last = entry_id
        else:
            if run_code >= 0:
                results.append(AddResult(run_ledger, run_first, run_last, run_code))
            run_ledger, run_first, run_last, run_code = ledger_id, entry_id, entry_id, code
    if run_code >= 0:
        results.append(AddResult(run_ledger, run_first, run_last, run_code))
    if state is not None:
        _settle(states, state, last_entry, lac, not ledger_code)
    taken = None
    if left_out:
        out = dict.fromkeys(left_out)
        taken = [position for position in range(len(records)) if position not in out]
    return Admission(results, len(records) - len(left_out), taken, unresolved)


def _settle(
    states: LocalLedgerStates, state: LocalLedgerState, last_entry: int, lac: int, open_to_all: bool
) -> None:
    """Update the ledger's state after a run of entries."""
    if not open_to_all:
        return
    if last_entry > state.last_entry:
        state.last_entry = last_entry
    if lac > state.lac:
        state.lac = lac
        if state.waiters:
            state.wake()
    if not state.dirty:
        states.changed(state)


def _again(
    record: memoryview,
    head: Head,
    recovery: bool,
    cache: WriteCache,
    stored: Mapping[tuple[int, int], bytes | memoryview | None],
) -> int:
    """Return the code for an entry not above the last one: 0 to accept it, -1 when it must be
    looked up.
    """
    _, ledger_id, entry_id, _, _ = head
    if entry_id < 0:
        return _BAD_ARGUMENT
    if recovery:
        return _OK
    found: bytes | memoryview | None = cache.get(ledger_id, entry_id)
    if found is None:
        key = (ledger_id, entry_id)
        if key not in stored:
            return -1
        found = stored[key]
        if found is None:
            return _OK
    # Compare everything after the LAC: the cumulative length and the payload.
    return _OK if found[28:] == record[28:] else _EXISTS
