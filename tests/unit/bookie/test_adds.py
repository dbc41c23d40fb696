"""Which adds are taken: the table of ``admit``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from pulsarish.bookie.adds import Admission, admit, check_records, read_heads
from pulsarish.bookie.ledger_index import LedgerIndex, LedgerRow
from pulsarish.bookie.ledger_state import LocalLedgerState, LocalLedgerStates
from pulsarish.bookie.limbo import Limbo
from pulsarish.bookie.write_cache import WriteCache
from pulsarish.model.errors import (
    AlreadyExists,
    BookieReadOnly,
    EntryUnknown,
    InvalidArgument,
    LedgerFenced,
)
from pulsarish.runtime.seams import Files
from pulsarish.wire.bookie import AddResult
from pulsarish.wire.record import encode_record_head

FENCED, UNKNOWN, EXISTS, READ_ONLY, BAD = (
    LedgerFenced.code,
    EntryUnknown.code,
    AlreadyExists.code,
    BookieReadOnly.code,
    InvalidArgument.code,
)


def record(
    ledger: int, entry: int, *, lac: int = -1, payload: bytes = b"p", length: int | None = None
) -> memoryview:
    return memoryview(
        encode_record_head(ledger, entry, lac, entry + 1 if length is None else length, payload)
        + payload
    )


class Shelf:
    """The parts that ``admit`` works on, without an index behind them."""

    def __init__(self, **states: LedgerRow | None) -> None:
        self.cache = WriteCache(1 << 20)
        # Neither is asked: every ledger is loaded here.
        self.states = LocalLedgerStates(
            cast("LedgerIndex", None), self.cache, Limbo(cast("Files", None), ""), 100
        )
        for name, row in states.items():
            ledger_id = int(name[1:])
            self.states.loaded[ledger_id] = LocalLedgerState(ledger_id, row, limbo=False)

    def admit(
        self,
        *records: memoryview,
        recovery: bool = False,
        read_only: bool = False,
        stored: Mapping[tuple[int, int], bytes | memoryview | None] | None = None,
    ) -> Admission:
        for ledger_id in [head[1] for head in read_heads(records)]:
            self.states.loaded.setdefault(ledger_id, LocalLedgerState(ledger_id, None, limbo=False))
        return admit(
            records,
            read_heads(records),
            recovery=recovery,
            read_only=read_only,
            states=self.states,
            cache=self.cache,
            stored=stored or {},
        )


def test_a_batch_is_answered_in_ranges_a_ledger_and_changes_its_state() -> None:
    shelf = Shelf()
    given = [
        *(record(1, entry, lac=entry - 1) for entry in range(4)),
        record(2, 0),
        record(1, 4, lac=1),
        record(1, 6),
    ]
    admission = shelf.admit(*given)
    assert admission.results == [
        AddResult(1, 0, 3, 0),
        AddResult(2, 0, 0, 0),
        AddResult(1, 4, 4, 0),
        AddResult(1, 6, 6, 0),
    ]
    assert (admission.taken, admission.taken_count, admission.unresolved) == (None, 7, [])
    state = shelf.states.loaded[1]
    assert (state.last_entry, state.lac, state.exists, state.dirty) == (6, 2, True, True)
    assert shelf.cache.get(1, 3) == given[3]
    assert shelf.states.count == 2


@pytest.mark.parametrize(
    ("row", "recovery", "read_only", "code"),
    [
        (None, False, False, 0),
        (LedgerRow(True, False, -1, -1, -1), False, False, FENCED),
        (LedgerRow(True, False, -1, -1, -1), True, False, 0),
        (LedgerRow(False, True, -1, -1, -1), False, False, UNKNOWN),
        (LedgerRow(True, True, -1, -1, -1), False, False, FENCED),
        (LedgerRow(False, True, -1, -1, -1), True, False, 0),
        (None, False, True, READ_ONLY),
        (LedgerRow(True, False, -1, -1, -1), False, True, FENCED),
    ],
)
def test_what_a_ledger_takes(
    row: LedgerRow | None, recovery: bool, read_only: bool, code: int
) -> None:
    shelf = Shelf(L1=row)
    admission = shelf.admit(record(1, 0), record(1, 1), recovery=recovery, read_only=read_only)
    assert admission.results == [AddResult(1, 0, 1, code)]
    assert admission.taken_count == (0 if code else 2)
    assert (shelf.cache.get(1, 0) is None) == bool(code)
    assert shelf.states.loaded[1].last_entry == (-1 if code else 1)


def test_a_refusal_leaves_the_rest_of_the_batch_alone() -> None:
    shelf = Shelf(L2=LedgerRow(True, False, 3, -1, 4))
    admission = shelf.admit(record(1, 0), record(2, 5), record(2, 6), record(3, 0))
    assert admission.results == [
        AddResult(1, 0, 0, 0),
        AddResult(2, 5, 6, FENCED),
        AddResult(3, 0, 0, 0),
    ]
    assert admission.taken == [0, 3]
    assert shelf.states.loaded[2].last_entry == 4


@pytest.mark.parametrize(
    ("again", "recovery", "code"),
    [
        (record(1, 0, lac=7), False, 0),  # a resend may carry another LAC
        (record(1, 0, payload=b"q"), False, EXISTS),
        (record(1, 0, length=9), False, EXISTS),
        (record(1, 0, payload=b"q"), True, 0),
    ],
)
def test_an_entry_that_is_there_already(again: memoryview, recovery: bool, code: int) -> None:
    for where in ("cache", "stored"):
        shelf = Shelf(L1=LedgerRow(False, False, -1, -1, 3))
        stored: dict[tuple[int, int], bytes | memoryview | None] = {}
        first = record(1, 0)
        if where == "cache":
            shelf.cache.active.entries(1)[0] = first
        else:
            stored[1, 0] = first
        admission = shelf.admit(again, recovery=recovery, stored=stored)
        assert admission.results == [AddResult(1, 0, 0, code)], where
        assert shelf.cache.get(1, 0) == (again if not code else first if where == "cache" else None)


def test_an_entry_that_may_be_there_is_looked_up_first() -> None:
    shelf = Shelf(L1=LedgerRow(False, False, -1, -1, 3))
    batch = [record(1, 2), record(1, 4)]
    admission = shelf.admit(*batch)
    assert (admission.unresolved, admission.taken, admission.results) == (
        [0],
        [1],
        [AddResult(1, 4, 4, 0)],
    )
    admission = shelf.admit(batch[0], stored={(1, 2): None})
    assert (admission.unresolved, admission.results) == ([], [AddResult(1, 2, 2, 0)])
    assert shelf.states.loaded[1].last_entry == 4


@pytest.mark.parametrize("place", [(-1, 0), (1, -1)])
def test_negative_ids_are_refused(place: tuple[int, int]) -> None:
    assert Shelf().admit(record(*place, length=1)).results == [AddResult(*place, place[1], BAD)]


def test_damaged_and_short_records_are_found() -> None:
    good = record(1, 0)
    flipped = bytearray(record(1, 1))
    flipped[-1] ^= 1
    heads, bad = check_records(
        [good, memoryview(bytes(flipped)), memoryview(b"short"), record(1, 2)]
    )
    assert bad == [1, 2]
    assert [head[2] for head in heads] == [0, 1, -1, 2]


@pytest.mark.parametrize(("ledger", "entry"), [(2**63 - 1, 0), (1, 2**63 - 1), (-1, 0), (1, -1)])
@pytest.mark.parametrize("recovery", [False, True])
def test_ids_that_have_no_successor_are_refused(ledger: int, entry: int, recovery: bool) -> None:
    shelf = Shelf()
    assert shelf.admit(
        record(ledger, entry, length=1), record(1, 0), recovery=recovery
    ).results == [
        AddResult(ledger, entry, entry, BAD),
        AddResult(1, 0, 0, 0),
    ]
    assert shelf.states.loaded[1].last_entry == 0
