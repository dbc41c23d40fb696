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


def _late_first() -> tuple[ReadCore, SpanOrder, SpanOrder]:
    """A read whose first replica is late, and its second order."""
    core = ReadCore(_metadata(), 0, 9, max_bytes=1000, prefer="B")
    [late] = core.orders()
    assert not core.has_second
    core.late(late)
    assert core.has_second
    second = core.second_order()
    core.check()
    return core, late, second


def test_beside_a_late_replica_one_other_is_asked_for_the_same() -> None:
    core, late, second = _late_first()
    assert second.member != late.member
    assert second.spans == late.spans
    assert core.orders() == []
    assert not core.is_over
    core.late(second)
    assert not core.has_second, "at most one is out beside a late one"


@pytest.mark.parametrize("winner", ["late", "second"])
def test_the_first_good_answer_ends_the_read(winner: str) -> None:
    core, late, second = _late_first()
    order = late if winner == "late" else second
    core.answered(order, _records(0, 1), 0)
    assert core.is_over
    assert core.orders() == []
    assert _ids(core) == [0, 1]
    assert core.served_by == order.member


def test_a_late_replica_is_waited_for_before_an_entry_is_gone() -> None:
    core, late, second = _late_first()
    core.answered(second, [], NO_ENTRY)
    third = core.second_order()
    assert len({late.member, second.member, third.member}) == 3
    core.answered(third, [], NO_ENTRY)
    core.check()
    assert not core.has_second
    assert core.orders() == []
    assert not core.is_over, "the late one has not said it"
    core.answered(late, [], NO_ENTRY)
    assert core.is_over
    assert type(core.error()) is NoSuchEntry


def test_a_late_replica_that_never_answers_leaves_it_open_whether_an_entry_is_there() -> None:
    core, late, second = _late_first()
    core.answered(second, [], NO_ENTRY)
    core.answered(core.second_order(), [], NO_ENTRY)
    core.failed(late, "no answer in time")
    assert core.orders() == []
    assert core.is_over
    assert type(core.error()) is EntryUnknown


def test_when_the_late_replica_has_failed_the_second_may_be_late() -> None:
    core, late, second = _late_first()
    core.failed(late, "no answer in time")
    assert not core.is_over
    assert not core.has_second
    core.late(second)
    assert core.second_order().member not in (late.member, second.member)


def test_the_last_replica_is_waited_for_though_it_is_late() -> None:
    core = ReadCore(_metadata((1, 1, 1)), 0, 0, max_bytes=1000)
    [order] = core.orders()
    core.late(order)
    assert not core.has_second
    assert not core.is_over
    core.answered(order, _records(0), 0)
    assert core.is_over


def test_a_late_replica_of_a_striped_ledger_holds_up_only_its_entries() -> None:
    core = ReadCore(_metadata((4, 2, 2)), 0, 7, max_bytes=1000)
    orders = {order.member: order for order in core.orders()}
    holder = next(order for order in orders.values() if 0 in order.entry_ids())
    for order in orders.values():
        if order is not holder:
            core.answered(order, _records(*order.entry_ids()), 0)
    core.late(holder)
    second = core.second_order()
    assert 0 in second.entry_ids()
    assert set(second.entry_ids()) <= set(holder.entry_ids())
    core.answered(second, _records(*second.entry_ids()), 0)
    assert core.is_over
    assert 0 in _ids(core)


def test_what_follows_the_first_entry_of_a_striped_ledger_is_not_asked_twice() -> None:
    core = ReadCore(_metadata((4, 2, 2)), 0, 7, max_bytes=1000)
    orders = core.orders()
    holder = next(order for order in orders if 0 in order.entry_ids())
    core.answered(holder, _records(*holder.entry_ids()), 0)
    assert not core.is_over, "the others are in time still"
    for order in orders:
        core.late(order)
    assert not core.has_second
    assert core.is_over
    assert _ids(core)[0] == 0


def test_the_nearest_replica_is_asked_first_and_the_others_are_fall_backs() -> None:
    distance = {"A": 2, "B": 0, "C": 1}.__getitem__
    core = ReadCore(_metadata(), 0, 9, max_bytes=1000, prefer="A", distance=distance)
    asked = []
    while orders := core.orders():
        asked.append(orders[0].member)
        core.failed(orders[0], "no answer")
    assert asked == ["B", "C", "A"]
    # One that is slow is asked last, however near; the last that served decides among equals.
    core = ReadCore(
        _metadata(), 0, 9, max_bytes=1000, prefer="C", avoid=["B"], distance=lambda member: 0
    )
    [order] = core.orders()
    assert order.member == "C"
    core = ReadCore(_metadata(), 0, 9, max_bytes=1000, avoid=["B"], distance=distance)
    [order] = core.orders()
    assert order.member == "C"


def test_a_late_near_replica_does_not_hold_up_the_read() -> None:
    distance = {"A": 1, "B": 0, "C": 2}.__getitem__
    core = ReadCore(_metadata(), 0, 9, max_bytes=1000, distance=distance)
    [near] = core.orders()
    core.late(near)
    assert core.has_second
    second = core.second_order()
    assert (near.member, second.member) == ("B", "A")
    core.answered(second, _records(*range(10)), 0)
    assert core.orders() == []
    assert core.served_by == "A"


def test_near_entries_of_a_striped_ledger_come_from_near_members() -> None:
    distance = {"A": 0, "B": 1, "C": 0, "D": 1}.__getitem__
    core = ReadCore(_metadata((4, 2, 2)), 0, 7, max_bytes=1000, distance=distance)
    assert {order.member for order in core.orders()} == {"A", "C"}


def test_only_the_wanted_entries_of_a_striped_ledger_are_asked_for() -> None:
    wanted = [2, 3, 4, 7, 8, 9]
    core = ReadCore(_metadata((5, 3, 2)), 2, 9, max_bytes=1000, avoid=["E"], only=wanted)
    orders = core.orders()
    asked = sorted(entry_id for order in orders for entry_id in order.entry_ids())
    assert asked == wanted
    for order in orders:
        core.answered(order, _records(*order.entry_ids()), 0)
    assert _ids(core) == wanted


def test_each_member_is_asked_for_its_share_of_the_bytes() -> None:
    """What a member gives of entries behind those of the others would be thrown away."""
    core = ReadCore(_metadata((5, 3, 2)), 0, 9, max_bytes=1000, avoid=["E"])
    orders = core.orders()
    assert {order.member: (len(order.entry_ids()), order.max_bytes) for order in orders} == {
        "A": (4, 400),
        "B": (2, 200),
        "C": (2, 200),
        "D": (2, 200),
    }
