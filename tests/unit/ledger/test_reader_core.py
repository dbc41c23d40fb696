"""Which replica is asked, and what a reader makes of the answers."""

import pytest

from pulsarish.ledger.reader_core import ReadCore, SpanOrder
from pulsarish.model.errors import BookieIOError, EntryUnknown, NoSuchEntry
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerPurpose, PurposeKind, Segment
from pulsarish.wire.record import RECORD_HEAD_SIZE, Record

NO_ENTRY, IO = NoSuchEntry.code, BookieIOError.code


def _metadata(quorums: tuple[int, int, int] = (3, 3, 2), *segments: Segment) -> LedgerMetadata:
    found = segments or (Segment(0, tuple("ABCDEFGH"[: quorums[0]])),)
    return LedgerMetadata(7, *quorums, LedgerPurpose(PurposeKind.DIAGNOSTIC, "test"), found)


def _records(*entry_ids: int) -> list[Record]:
    return [Record(7, entry_id, -1, 0, memoryview(b"x" * 10)) for entry_id in entry_ids]


def _ids(core: ReadCore) -> list[int]:
    return [record.entry_id for record in core.found()]


def test_one_bookie_gives_a_whole_range_where_all_hold_all() -> None:
    core = ReadCore(_metadata(), 0, 9, max_bytes=1000, prefer="B")
    [order] = core.orders()
    assert order == SpanOrder("B", ((0, 9),), 1000)
    core.answered(order, _records(*range(4)), 0)
    assert core.orders() == []
    assert _ids(core) == [0, 1, 2, 3]
    assert core.served_by == "B"


def test_the_next_replica_on_any_failure() -> None:
    core = ReadCore(_metadata(), 1, 3, max_bytes=1000, prefer="B")
    [first] = core.orders()
    core.failed(first, "no answer")
    [second] = core.orders()
    assert second.member != "B"
    core.answered(second, [], IO)
    [third] = core.orders()
    assert third.member not in (first.member, second.member)
    core.answered(third, _records(1, 2, 3), 0)
    assert core.orders() == []
    assert _ids(core) == [1, 2, 3]
    assert core.served_by == third.member


def test_a_damaged_record_ends_what_is_taken_of_a_replica() -> None:
    core = ReadCore(_metadata(), 0, 4, max_bytes=1000)
    [order] = core.orders()
    core.answered(order, _records(0, 1), 0, "does not match its CRC32C")
    assert core.orders() == []
    assert _ids(core) == [0, 1]


def test_a_damaged_first_record_asks_the_next_replica() -> None:
    core = ReadCore(_metadata(), 0, 4, max_bytes=1000)
    [order] = core.orders()
    core.answered(order, [], 0, "does not match its CRC32C")
    [again] = core.orders()
    assert again.member != order.member


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        ((NO_ENTRY, NO_ENTRY, NO_ENTRY), NoSuchEntry),
        ((NO_ENTRY, IO, NO_ENTRY), EntryUnknown),
        ((NO_ENTRY, None, NO_ENTRY), EntryUnknown),
    ],
)
def test_gone_only_when_every_replica_says_so(
    codes: tuple[int | None, ...], kind: type[Exception]
) -> None:
    core = ReadCore(_metadata(), 0, 0, max_bytes=1000)
    asked = []
    for code in codes:
        [order] = core.orders()
        asked.append(order.member)
        if code is None:
            core.failed(order, "no answer in time")
        else:
            core.answered(order, [], code)
    assert core.orders() == []
    error = core.error()
    assert type(error) is kind
    for member in asked:
        assert f"{member}: " in str(error)


def test_a_read_ends_with_its_segment() -> None:
    metadata = _metadata((3, 3, 2), Segment(0, ("A", "B", "C")), Segment(5, ("A", "B", "D")))
    core = ReadCore(metadata, 3, 9, max_bytes=1000, prefer="C")
    [order] = core.orders()
    assert (order.member, order.spans) == ("C", ((3, 4),))
    core = ReadCore(metadata, 5, 9, max_bytes=1000, prefer="C")
    [order] = core.orders()
    assert order.member != "C"
    assert order.spans == ((5, 9),)


def test_striped_entries_are_asked_of_several_members_at_once() -> None:
    core = ReadCore(_metadata((4, 2, 2)), 0, 7, max_bytes=1000)
    orders = core.orders()
    assert {order.member: order.spans for order in orders} == {
        "A": ((0, 0), (4, 4)),
        "B": ((1, 1), (5, 5)),
        "C": ((2, 2), (6, 6)),
        "D": ((3, 3), (7, 7)),
    }
    for order in orders:
        if order.member == "C":
            core.failed(order, "no answer")
        else:
            core.answered(order, _records(*order.entry_ids()), 0)
    assert _ids(core) == [0, 1], "up to the gap"
    assert core.orders() == []


def test_striped_a_failed_first_entry_is_asked_of_its_other_replica() -> None:
    core = ReadCore(_metadata((4, 2, 2)), 0, 3, max_bytes=1000)
    for order in core.orders():
        if order.member == "A":
            core.answered(order, [], IO)
        else:
            core.answered(order, _records(*order.entry_ids()), 0)
    [again] = core.orders()
    assert (again.member, again.spans) == ("B", ((0, 0),))
    core.answered(again, _records(0), 0)
    assert _ids(core) == [0, 1, 2, 3]


def test_bytes_are_bounded_but_one_entry_always_comes() -> None:
    core = ReadCore(_metadata(), 0, 9, max_bytes=2 * (10 + RECORD_HEAD_SIZE))
    [order] = core.orders()
    core.answered(order, _records(0, 1, 2), 0)
    assert _ids(core) == [0, 1]
    core = ReadCore(_metadata(), 0, 9, max_bytes=1)
    [order] = core.orders()
    core.answered(order, _records(0, 1), 0)
    assert _ids(core) == [0]
