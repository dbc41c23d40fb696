"""Whether a member's list of what it holds has all that it should hold, and what each member has
of one entry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.repair.copy_probe import are_in_spans, entry_copies
from pulsarish.ledger.repair.repair_core import spans_of
from pulsarish.model.errors import (
    BookieIOError,
    EntryUnknown,
    NoSuchEntry,
    NoSuchLedger,
    WrongBookie,
)
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, PurposeKind, Segment
from pulsarish.runtime.seams import StreamBroken
from pulsarish.wire.bookie import ReadAnswer
from pulsarish.wire.record import encode_record_head

IDS = st.lists(st.integers(0, 40), unique=True).map(sorted)


@pytest.mark.parametrize(
    ("wanted", "spans", "there"),
    [
        ([], [], True),
        ([0], [], False),
        (range(10), [(0, 9)], True),
        (range(10), [(0, 4), (5, 9)], True),
        (range(10), [(0, 4), (6, 9)], False),
        (range(10), [(1, 9)], False),
        (range(10), [(0, 8)], False),
        ([2, 3, 5, 6], [(0, 6)], True),
        ([0, 1, 3, 4], [(0, 1), (3, 4)], True),
    ],
)
def test_all_that_is_wanted_must_lie_in_the_spans(
    wanted: list[int], spans: list[tuple[int, int]], there: bool
) -> None:
    assert are_in_spans(wanted, spans) is there


@given(IDS, IDS)
def test_it_says_what_sets_say(wanted: list[int], held: list[int]) -> None:
    assert are_in_spans(wanted, spans_of(held)) == (
        not [entry_id for entry_id in wanted if entry_id not in held]
    )


def record(entry_id: int, payload: bytes, *, lac: int = -1) -> bytes:
    return encode_record_head(5, entry_id, lac, len(payload), payload) + payload


class Pool:
    """Bookies with prepared answers."""

    def __init__(self, answers: dict[str, ReadAnswer | Exception]) -> None:
        self._answers = answers
        self._member = ""

    def reader(self, member: str) -> Pool:
        reader = Pool(self._answers)
        reader._member = member
        return reader

    async def read(
        self, ledger_id: int, spans: Sequence[tuple[int, int]], _max_bytes: int
    ) -> ReadAnswer:
        assert (ledger_id, spans) == (5, [(7, 7)])
        answer = self._answers[self._member]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (ReadAnswer(1, 0, [record(7, b"x")]), "held"),
        (ReadAnswer(1, 0, [record(7, b"x")[:-1] + b"y"]), "corrupt"),
        (ReadAnswer(1, 0, [record(6, b"x")]), "corrupt"),
        (ReadAnswer(1, BookieIOError.code), "corrupt"),
        (ReadAnswer(1, NoSuchEntry.code), "missing"),
        (ReadAnswer(1, NoSuchLedger.code), "missing"),
        (ReadAnswer(1, EntryUnknown.code), "unknown"),
        (ReadAnswer(1, WrongBookie.code), "unknown"),
        (StreamBroken("gone"), "silent"),
        (TimeoutError(), "silent"),
    ],
)
def test_each_member_of_the_write_set_is_judged_by_its_own_answer(
    answer: ReadAnswer | Exception, state: str
) -> None:
    # Entry 7 of an ensemble of three with two copies is at the places 1 and 2.
    metadata = LedgerMetadata(
        5, 3, 2, 2, LedgerPurpose(PurposeKind.TOPIC, "t"), (Segment(0, ("a", "b", "c")),)
    )
    good = ReadAnswer(1, 0, [record(7, b"x", lac=6)])
    pool = cast("BookiePool", Pool({"b": answer, "c": good}))
    first, second = asyncio.run(entry_copies(pool, metadata, 7))
    assert (first.member, first.state) == ("b", state)
    assert (second.member, second.state) == ("c", "held")
    assert (first.checksum == second.checksum) is (state == "held")
