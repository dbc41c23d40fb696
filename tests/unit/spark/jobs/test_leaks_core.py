"""What is known of one ledger from all sides, and what follows from it."""

from __future__ import annotations

import msgspec
import pytest

from pulsarish.managed_ledger.options import Retention
from pulsarish.metadata.records import (
    CompactedView,
    CursorRecord,
    TopicLedger,
    TopicRecord,
    UnderReplicated,
)
from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)
from pulsarish.spark.jobs.leaks_core import (
    Evidence,
    Held,
    Known,
    MissingCopies,
    Reference,
    Rules,
    Use,
    judge,
    references_of,
    schema_gaps,
    trimmable_of,
)

HOUR_MS = 3_600_000
NOW_MS = 100 * HOUR_MS
OWNER = "persistent://public/default/t"
PATH = "/topics/public/default/t"
CLOSED = LedgerMetadata(
    7,
    2,
    2,
    2,
    LedgerPurpose(PurposeKind.TOPIC, OWNER),
    (Segment(0, ("a", "b")),),
    LedgerState.CLOSED,
    last_entry=9,
    length_bytes=1_000,
    created_ms=NOW_MS - 2 * HOUR_MS,
)
STRIPED = msgspec.structs.replace(
    CLOSED, ensemble_size=3, segments=(Segment(0, ("a", "b", "c")),), last_entry=0
)
IN_CHAIN = Reference(PATH, Use.CHAIN, OWNER)
BOTH = (Held("a"), Held("b"))
RULES = Rules(NOW_MS, HOUR_MS, frozenset("abcd"))


@pytest.mark.parametrize(
    ("evidence", "kinds"),
    [
        ([Known(CLOSED), IN_CHAIN, *BOTH], []),
        ([Known(CLOSED), Reference(PATH, Use.DELETING, OWNER), *BOTH], []),
        ([Known(CLOSED), Reference(PATH, Use.CURSOR, OWNER), *BOTH], []),
        ([Known(CLOSED), *BOTH], ["orphan"]),
        # on its way into a list
        ([Known(msgspec.structs.replace(CLOSED, created_ms=NOW_MS - HOUR_MS + 1)), *BOTH], []),
        ([IN_CHAIN], ["dangling"]),
        ([IN_CHAIN, *BOTH], ["dangling"]),  # and not a stray too
        ([Reference(PATH, Use.DELETING, OWNER)], []),  # a deletion that is nearly done
        ([Reference(PATH, Use.DELETING, OWNER), *BOTH], ["stray"]),
        ([*BOTH], ["stray"]),
        ([Known(CLOSED), IN_CHAIN, Held("a")], ["under-replicated"]),
        (
            [Known(CLOSED), IN_CHAIN, MissingCopies(UnderReplicated(7, ("b",))), *BOTH],
            ["under-replicated"],
        ),
        (
            [Known(msgspec.structs.replace(CLOSED, requested_write_quorum=3)), IN_CHAIN, *BOTH],
            ["under-replicated"],
        ),
        ([Known(CLOSED), IN_CHAIN, *BOTH, Held("c")], ["over-replicated"]),
        ([Known(CLOSED), IN_CHAIN, Held("a"), Held("c")], ["over-replicated", "under-replicated"]),
        # nothing was written, nobody holds it
        ([Known(msgspec.structs.replace(CLOSED, last_entry=-1)), IN_CHAIN], []),
        # may be on its way to b
        ([Known(msgspec.structs.replace(CLOSED, state=LedgerState.OPEN)), IN_CHAIN, Held("a")], []),
        ([Known(STRIPED), IN_CHAIN, *BOTH], []),  # the third of three has no entry of it
        ([Known(CLOSED), IN_CHAIN._replace(expired=True), *BOTH], ["expired"]),
    ],
)
def test_judging(evidence: list[Evidence], kinds: list[str]) -> None:
    for order in (evidence, evidence[::-1]):
        assert sorted(leak.kind for leak in judge(7, order, RULES)) == kinds


def test_of_a_bookie_that_did_not_answer_nothing_is_concluded() -> None:
    evidence = [Known(CLOSED), IN_CHAIN, Held("a")]
    assert judge(7, evidence, Rules(NOW_MS, HOUR_MS, frozenset("a"))) == []


def test_bytes_are_those_of_all_copies_in_question() -> None:
    (orphan,) = judge(7, [Known(CLOSED), *BOTH], RULES)
    assert (orphan.size_bytes, orphan.bookies, orphan.owner) == (
        2_000,
        ("a", "b"),
        f"topic {OWNER}",
    )
    (more,) = judge(7, [Known(CLOSED), IN_CHAIN, *BOTH, Held("c")], RULES)
    assert (more.size_bytes, more.bookies) == (1_000, ("c",))
    (less,) = judge(7, [Known(CLOSED), IN_CHAIN, Held("b")], RULES)
    assert (less.size_bytes, less.bookies) == (1_000, ("a",))
    (unknown,) = judge(
        7, [Known(msgspec.structs.replace(CLOSED, state=LedgerState.OPEN)), Held("a")], RULES
    )
    assert unknown.size_bytes == -1


RECORD = TopicRecord(
    ledgers=(
        TopicLedger(1, 10, 100, NOW_MS - 9 * HOUR_MS),
        TopicLedger(2, 10, 100, NOW_MS - 5 * HOUR_MS),
        TopicLedger(3),
    ),
    deleting=(0,),
    compacted=CompactedView(2, 9, ledger_id=8, size_bytes=5),
)
CURSOR = f"{PATH}/cursors/s"


def test_all_that_a_topic_names_is_a_reference() -> None:
    cursors = {CURSOR: CursorRecord(1, cursor_ledger=5, deleting=(4,), delayed=(6, 7))}
    found = references_of(PATH, OWNER, RECORD, cursors, Retention(-1, -1), RULES)
    assert {(ledger_id, each.path, each.use) for ledger_id, each in found} == {
        (0, PATH, Use.DELETING),
        (1, PATH, Use.CHAIN),
        (2, PATH, Use.CHAIN),
        (3, PATH, Use.CHAIN),
        (8, PATH, Use.VIEW),
        (5, CURSOR, Use.CURSOR),
        (6, CURSOR, Use.CURSOR),
        (7, CURSOR, Use.CURSOR),
        (4, CURSOR, Use.DELETING),
    }
    deleted = references_of(
        PATH, OWNER, msgspec.structs.replace(RECORD, deleted=True), cursors, Retention(), RULES
    )
    assert {each.use for _, each in deleted} == {Use.DELETING}
    assert len(deleted) == len(found)


@pytest.mark.parametrize(
    ("mark", "retention", "expired"),
    [
        ((3, 0), Retention(0, 0), [1, 2]),
        ((2, 3), Retention(0, 0), [1]),  # the subscription needs the second
        ((1, -1), Retention(0, 0), []),
        ((3, 0), Retention(-1, -1), []),
        ((3, 0), Retention(6 * 60, -1), [1]),
        # its time is over, but not for as long as everything is given
        ((3, 0), Retention(9 * 60, -1), []),
        ((3, 0), Retention(-1, 1), []),
    ],
)
def test_what_is_expired(mark: tuple[int, int], retention: Retention, expired: list[int]) -> None:
    found = references_of(PATH, OWNER, RECORD, {CURSOR: CursorRecord(*mark)}, retention, RULES)
    assert [ledger_id for ledger_id, each in found if each.expired] == expired


def test_what_waits_for_its_first_compaction_has_not_expired() -> None:
    cursors = [CursorRecord(3, 0)]
    for record, count in (
        (RECORD, 2),
        (msgspec.structs.replace(RECORD, compacted=None), 0),
    ):
        retention = Retention(until_compacted=True)
        assert trimmable_of(record, cursors, retention, RULES.now_ms) == count


@pytest.mark.parametrize(
    ("nodes", "count", "gaps"),
    [
        ([], 0, []),
        (["0000000000-aa", "0000000001-bb"], 2, []),
        (["0000000001-bb"], 2, [0]),
        (["0000000000-aa", "0000000002-cc"], 4, [1, 3]),
        (["0000000002-deleted", "0000000003-dd"], 4, []),
        (["0000000000-aa", "0000000002-deleted"], 4, [3]),
        (["0000000002-deleted"], 3, []),
        (["0000000000-aa", "0000000001-bb"], 1, []),  # counted before the newest was made
    ],
)
def test_versions_of_a_schema_that_are_not_there(
    nodes: list[str], count: int, gaps: list[int]
) -> None:
    assert schema_gaps(nodes, count) == gaps
