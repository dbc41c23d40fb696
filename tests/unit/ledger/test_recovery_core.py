"""Where a ledger ends: tables over what bookies answer (rules 5 and 6)."""

import random

import pytest

from pulsarish.ledger.recovery_core import (
    FenceVerdict,
    FencingCore,
    ReadingCore,
    ReadOrder,
    ReadVerdict,
)
from pulsarish.model.errors import (
    BookieIOError,
    ChecksumError,
    EntryUnknown,
    NoSuchEntry,
    NoSuchLedger,
    WrongBookie,
)
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)
from pulsarish.wire.record import Record

NO_ENTRY, NO_LEDGER = NoSuchEntry.code, NoSuchLedger.code
IO, LIMBO, WRONG, CHECKSUM = (
    BookieIOError.code,
    EntryUnknown.code,
    WrongBookie.code,
    ChecksumError.code,
)


def _metadata(quorums: tuple[int, int, int] = (3, 3, 2), *segments: Segment) -> LedgerMetadata:
    ensemble, write_quorum, ack_quorum = quorums
    purpose = LedgerPurpose(PurposeKind.DIAGNOSTIC, "test")
    found = segments or (Segment(0, tuple("ABCDEFGH"[:ensemble])),)
    return LedgerMetadata(
        7, ensemble, write_quorum, ack_quorum, purpose, found, LedgerState.IN_RECOVERY
    )


def _record(entry_id: int) -> Record:
    return Record(7, entry_id, -1, (entry_id + 1) * 10, memoryview(b"x" * 10))


def _reading(
    quorums: tuple[int, int, int] = (3, 3, 2), lac: int = -1, read_ahead: int = 10
) -> tuple[ReadingCore, dict[str, ReadOrder]]:
    core = ReadingCore(_metadata(quorums), lac, read_ahead=read_ahead)
    return core, {order.member: order for order in core.orders()}


# Fencing.

WAITING, FENCED, UNDECIDED = FenceVerdict.WAITING, FenceVerdict.FENCED, FenceVerdict.UNDECIDED


@pytest.mark.parametrize(
    ("quorums", "answers", "verdict"),
    [
        ((3, 3, 2), {"A": 0}, WAITING),
        ((3, 3, 2), {"A": 0, "B": 0}, FENCED),
        ((3, 3, 2), {"A": 0, "B": NO_LEDGER}, FENCED),  # it created the ledger fenced
        ((3, 3, 2), {"A": 0, "B": LIMBO}, WAITING),
        ((3, 3, 2), {"A": 0, "B": WRONG, "C": None}, UNDECIDED),
        ((3, 3, 2), {"A": 0, "B": IO, "C": None}, UNDECIDED),
        ((3, 3, 2), {"A": None, "B": 0, "C": 0}, FENCED),  # one dead for good
        ((2, 2, 2), {"A": None, "B": 0}, FENCED),  # Qw - Qa + 1 is one
        ((3, 3, 3), {"B": 0}, FENCED),
        ((3, 3, 1), {"A": 0, "B": 0}, WAITING),
        ((3, 2, 2), {"A": 0}, WAITING),  # the write quorum B, C is still open
        ((3, 2, 2), {"A": 0, "B": 0}, FENCED),
    ],
)
def test_fencing(
    quorums: tuple[int, int, int], answers: dict[str, int | None], verdict: FenceVerdict
) -> None:
    core = FencingCore(_metadata(quorums))
    for member, code in answers.items():
        if code is None:
            core.failed(member, "no answer")
        else:
            core.answered(member, code, 4)
    assert core.verdict is verdict


def test_the_highest_lac_is_taken_and_that_of_a_refusal_is_not() -> None:
    core = FencingCore(_metadata())
    core.answered("A", 0, 3)
    core.answered("B", 0, 5)
    core.answered("C", LIMBO, 99)
    assert core.lac == 5


def test_recovery_never_starts_before_the_last_segment() -> None:
    """A fresh, empty last ensemble knows no LAC."""
    core = FencingCore(
        _metadata((3, 3, 2), Segment(0, ("A", "B", "C")), Segment(12, ("A", "D", "E")))
    )
    for member in "ADE":
        core.answered(member, 0, -1)
    assert core.lac == 11


# Reading.


@pytest.mark.parametrize(
    ("quorums", "codes", "verdict"),
    [
        # Only explicit negatives count, and so many of them that no Qa members can have it.
        ((3, 3, 2), {"A": NO_ENTRY}, ReadVerdict.WAITING),
        ((3, 3, 2), {"A": NO_ENTRY, "B": NO_ENTRY}, ReadVerdict.END),
        ((3, 3, 2), {"A": NO_ENTRY, "B": NO_LEDGER}, ReadVerdict.END),
        ((3, 3, 2), {"A": NO_ENTRY, "B": None}, ReadVerdict.WAITING),
        # does not wait for the dead one
        ((3, 3, 2), {"A": NO_ENTRY, "B": None, "C": NO_ENTRY}, ReadVerdict.END),
        ((3, 3, 2), {"A": NO_ENTRY, "B": IO, "C": None}, ReadVerdict.UNDECIDED),
        ((3, 3, 2), {"A": NO_ENTRY, "B": LIMBO, "C": LIMBO}, ReadVerdict.UNDECIDED),
        ((3, 3, 2), {"A": NO_ENTRY, "B": WRONG, "C": CHECKSUM}, ReadVerdict.UNDECIDED),
        ((3, 3, 2), {"A": NO_ENTRY, "B": IO}, ReadVerdict.WAITING),
        ((3, 3, 3), {"A": NO_ENTRY}, ReadVerdict.END),
        ((3, 3, 1), {"A": NO_ENTRY, "B": NO_ENTRY}, ReadVerdict.WAITING),
        ((3, 3, 1), {"A": NO_ENTRY, "B": NO_ENTRY, "C": None}, ReadVerdict.UNDECIDED),
        ((3, 3, 1), {"A": NO_ENTRY, "B": NO_ENTRY, "C": NO_ENTRY}, ReadVerdict.END),
        ((2, 2, 2), {"A": None, "B": NO_ENTRY}, ReadVerdict.END),
        ((2, 2, 2), {"A": None, "B": IO}, ReadVerdict.UNDECIDED),
        ((3, 2, 2), {"A": NO_ENTRY}, ReadVerdict.END),  # entry 0 lies on A and B
        ((3, 2, 1), {"A": NO_ENTRY, "B": None}, ReadVerdict.UNDECIDED),
        # an answer without an entry and without a reason means nothing
        ((3, 3, 2), {"A": 0}, ReadVerdict.WAITING),
        ((3, 3, 2), {"A": 0, "B": 0, "C": NO_ENTRY}, ReadVerdict.UNDECIDED),
    ],
)
def test_what_is_said_of_one_entry(
    quorums: tuple[int, int, int], codes: dict[str, int | None], verdict: ReadVerdict
) -> None:
    core, orders = _reading(quorums)
    for member, code in codes.items():
        if code is None:
            core.failed(orders[member], [], "no answer")
        else:
            core.answered(orders[member], [], code)
    core.check()
    assert core.verdict is verdict


def test_one_copy_is_enough_whatever_the_others_say() -> None:
    core, orders = _reading()
    core.answered(orders["A"], [], NO_ENTRY)
    core.answered(orders["C"], [_record(0)], NO_ENTRY)
    assert core.verdict is ReadVerdict.FOUND
    assert [record.entry_id for record in core.take(10, 1_000)] == [0]


def test_what_is_taken_at_once_is_limited_in_bytes_but_for_the_first_entry() -> None:
    core, orders = _reading()
    records = [_record(0), _record(1), _record(2)]
    core.answered(orders["A"], records, NO_ENTRY)
    size = len(records[0].payload)
    assert [record.entry_id for record in core.take(10, 2 * size)] == [0, 1]
    assert [record.entry_id for record in core.take(10, 0)] == [2]


def test_a_run_is_taken_apart_entry_by_entry() -> None:
    core, orders = _reading()
    core.answered(orders["A"], [_record(0), _record(1)], NO_ENTRY)
    core.answered(orders["B"], [_record(0)], NO_ENTRY)
    assert [record.entry_id for record in core.take(10, 1_000)] == [0, 1]
    # A says that entry 2 is not there; B said that of entry 1 and is asked again, C is still out.
    assert core.verdict is ReadVerdict.WAITING
    again = core.orders()
    assert [(order.member, order.first) for order in again] == [("B", 2)]
    core.answered(again[0], [], NO_ENTRY)
    assert core.verdict is ReadVerdict.END
    assert core.next_entry == 2
    core.check()


def test_a_late_answer_about_entries_decided_long_ago_changes_nothing() -> None:
    core, orders = _reading()
    core.answered(orders["A"], [_record(0), _record(1)], 0)
    core.take(10, 1_000)
    core.answered(orders["C"], [], NO_ENTRY)
    core.check()
    assert core.verdict is ReadVerdict.WAITING
    assert core.next_entry == 2


def test_a_bad_checksum_in_a_run_is_unknown_for_that_entry_only() -> None:
    core, orders = _reading()
    core.failed(orders["A"], [_record(0)], "does not match its CRC32C")
    assert core.verdict is ReadVerdict.FOUND
    core.take(10, 1_000)
    core.answered(orders["B"], [_record(0)], NO_ENTRY)
    core.answered(orders["C"], [_record(0)], IO)
    assert core.verdict is ReadVerdict.UNDECIDED
    assert "CRC32C" in core.what_was_said()
    assert "BookieIOError" in core.what_was_said()


def test_nobody_is_asked_twice_at_a_time_nor_for_what_it_answered() -> None:
    core, orders = _reading()
    assert list(orders) == ["A", "B", "C"]
    assert core.orders() == []
    core.answered(orders["A"], [], NO_ENTRY)
    assert core.orders() == []


def test_striped_entries_are_asked_one_by_one_of_their_write_set() -> None:
    """A member that does not hold entry 2 says "not there" about it, and must not be believed."""
    core = ReadingCore(_metadata((4, 2, 2)), 0, read_ahead=50)
    orders = core.orders()
    assert [(order.member, order.first, order.last) for order in orders] == [
        ("B", 1, 1),
        ("C", 1, 1),
    ]
    core.answered(orders[0], [_record(1)], 0)
    assert core.verdict is ReadVerdict.FOUND
    core.take(10, 1_000)
    # C is still out with the question about entry 1; D can be asked already.
    assert [(order.member, order.first) for order in core.orders()] == [("D", 2)]


def test_reads_go_to_the_ensemble_of_the_start() -> None:
    """Bug 4: a change that recovery makes for its writes is no business of its reads, so the core
    never learns of one.
    """
    core = ReadingCore(
        _metadata((3, 3, 2), Segment(0, ("A", "B", "C")), Segment(4, ("D", "B", "C"))),
        3,
        read_ahead=10,
    )
    assert [order.member for order in core.orders()] == ["B", "C", "D"]


# What comes with the answers to fences.


def _order(member: str, first: int) -> ReadOrder:
    return ReadOrder(member, first, first + 3)


def test_an_idle_ledger_ends_by_what_came_with_the_fences() -> None:
    core = ReadingCore(_metadata(), 0, read_ahead=10)
    core.shown(_order("A", 0), [_record(0)], NO_ENTRY)
    assert core.verdict is ReadVerdict.WAITING  # one negative is not Qw - Qa + 1
    core.shown(_order("C", 0), [_record(0)], NO_ENTRY)
    core.check()
    assert core.verdict is ReadVerdict.END
    assert core.orders() == []
    assert core.next_entry == 1


def test_what_a_fence_has_shown_is_not_asked_again() -> None:
    core = ReadingCore(_metadata(), 0, read_ahead=10)
    core.shown(_order("A", 0), [_record(0)], NO_ENTRY)
    assert [order.member for order in core.orders()] == ["B", "C"]
    core.check()


@pytest.mark.parametrize(
    ("first", "records", "code"),
    [
        (0, [], NO_ENTRY),  # it misses the confirmed entry itself: of the next one it says nothing
        (0, [0], 0),  # a limit ended the answer
        (1, [], 0),  # nothing was read
        (0, [], IO),
        (1, [], IO),  # perhaps of another ledger of the call
        (1, [], LIMBO),
        (0, [0], IO),
        (2, [2], NO_ENTRY),  # late, from a member that knew a later LAC
        (2, [], NO_ENTRY),
    ],
)
def test_what_says_nothing_of_the_next_entry_is_asked_again(
    first: int, records: list[int], code: int
) -> None:
    core = ReadingCore(_metadata(), 0, read_ahead=10)
    core.shown(_order("A", first), [_record(entry) for entry in records], code)
    orders = core.orders()
    assert sorted(order.member for order in orders) == ["A", "B", "C"]
    for order in orders:
        core.answered(order, [_record(1)], NO_ENTRY)
    core.check()
    assert [record.entry_id for record in core.take(10, 1_000)] == [1]
    assert core.verdict is ReadVerdict.END


def test_one_copy_that_a_fence_has_shown_is_enough() -> None:
    core = ReadingCore(_metadata(), 0, read_ahead=10)
    for member in "AB":
        core.shown(_order(member, 0), [_record(0)], NO_ENTRY)
    core.shown(_order("C", 0), [_record(0), _record(1), _record(2)], NO_ENTRY)
    assert core.verdict is ReadVerdict.FOUND
    assert [record.entry_id for record in core.take(10, 1_000)] == [1, 2]
    # C denied entry 3; A and B have said nothing about it.
    assert [(order.member, order.first) for order in core.orders()] == [("A", 3), ("B", 3)]


def test_all_must_deny_what_a_restored_record_does_not_name() -> None:
    core = ReadingCore(_metadata(), 0, read_ahead=10, needs_all=True)
    for member in "AB":
        core.shown(_order(member, 0), [_record(0)], NO_ENTRY)
    assert [order.member for order in core.orders()] == ["C"]


def test_a_striped_ledger_is_read_entry_by_entry() -> None:
    """Its members miss what they should not have."""
    core = ReadingCore(_metadata((3, 2, 2)), 0, read_ahead=10)
    for member in "ABC":
        core.shown(_order(member, 0), [], NO_ENTRY)
        core.shown(_order(member, 1), [], NO_ENTRY)
    assert [(order.member, order.first) for order in core.orders()] == [("B", 1), ("C", 1)]


def _what_fences_show(
    rng: random.Random, core: ReadingCore, entries: set[int], lac: int, member: str
) -> None:
    """Hand over what a member with these entries shows when it is fenced, as ``BookieService``
    answers it.
    """
    first = max(lac, 0)
    count = 0
    while count < 4 and first + count in entries:
        count += 1
    limit = rng.randrange(1, 5)
    code = 0 if count in (4, limit) else rng.choice((NO_ENTRY, NO_ENTRY, IO, LIMBO))
    records = [_record(first + place) for place in range(min(count, limit))]
    core.shown(_order(member, first), records, code if len(records) == count else 0)


@pytest.mark.parametrize("quorums", [(3, 3, 2), (3, 3, 1), (2, 2, 2), (5, 3, 2), (4, 2, 1)])
def test_whatever_fences_show_the_end_is_right(quorums: tuple[int, int, int]) -> None:
    """Some members answer late, or never, or with limits; and some know a later LAC."""
    ends = 0
    for seed in range(200):
        rng = random.Random(f"{quorums} {seed}")
        metadata = _metadata(quorums, Segment(2, tuple("ABCDE"[: quorums[0]])))
        lac = rng.randrange(1, 4)
        members = metadata.last_segment.members
        held: dict[str, set[int]] = {member: set() for member in members}
        for entry in range(lac + rng.randrange(6) + 1):
            copies = rng.randrange(quorums[2] if entry <= lac else 0, quorums[1] + 1)
            for member in rng.sample(metadata.write_set(max(entry, 2)), copies):
                held[member].add(entry)
        core = ReadingCore(metadata, lac, read_ahead=10)
        for member in rng.sample(members, rng.randrange(len(members) + 1)):
            known = rng.randrange(-1, lac + 3)
            _what_fences_show(rng, core, held[member], known, member)
        asked: list[ReadOrder] = []
        while core.verdict in (ReadVerdict.WAITING, ReadVerdict.FOUND):
            core.check()
            for record in core.take(rng.randrange(1, 4), 1_000):
                assert any(record.entry_id in entries for entries in held.values())
            asked += core.orders()
            if core.verdict is not ReadVerdict.WAITING:
                continue
            order = asked.pop(rng.randrange(len(asked)))
            if rng.random() < 0.1:
                core.failed(order, [], "no answer")
                continue
            found = []
            while order.first + len(found) in held[order.member] and len(found) < 3:
                found.append(_record(order.first + len(found)))
            core.answered(order, found, 0 if len(found) == 3 else NO_ENTRY)
        core.check()
        if core.verdict is ReadVerdict.END:
            ends += 1
            absent = [
                member
                for member in metadata.write_set(core.next_entry)
                if core.next_entry not in held[member]
            ]
            assert len(absent) > quorums[1] - quorums[2]
    assert ends > 100
