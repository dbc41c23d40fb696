"""Which bookie is asked for what, and what several answers say together."""

from __future__ import annotations

import pytest

from pulsarish.model.ledger_metadata import (
    LedgerMetadata,
    LedgerPurpose,
    LedgerState,
    PurposeKind,
    Segment,
)
from pulsarish.spark.jobs.verify_core import (
    CHUNK_ENTRIES,
    SUM_BYTES,
    Copy,
    CopyState,
    Finding,
    compare,
    merge,
    plan_splits,
)

PURPOSE = LedgerPurpose(PurposeKind.TOPIC, "persistent://public/default/t")


def closed(
    entries: int, *segments: Segment, quorum: int = 2, entry_bytes: int = 100
) -> LedgerMetadata:
    size = len(segments[0].members)
    return LedgerMetadata(
        7,
        size,
        quorum,
        quorum,
        PURPOSE,
        segments,
        LedgerState.CLOSED,
        last_entry=entries - 1,
        length_bytes=entries * entry_bytes,
    )


def copy(member: str, states: str, sums: str) -> Copy:
    """``states`` by letter, ``sums`` a letter for each entry's checksum."""
    letters = {
        ".": CopyState.OK,
        "-": CopyState.ELSEWHERE,
        "m": CopyState.MISSING,
        "c": CopyState.CORRUPT,
        "?": CopyState.UNKNOWN,
        "s": CopyState.SILENT,
    }
    return Copy(
        member,
        bytes(letters[each] for each in states),
        b"".join(each.encode() * SUM_BYTES for each in sums),
        0,
    )


@pytest.mark.parametrize("quorum", [1, 2, 3])
@pytest.mark.parametrize(
    "entries", [1, 5, CHUNK_ENTRIES, CHUNK_ENTRIES + 1, 3 * CHUNK_ENTRIES + 17]
)
def test_every_copy_is_read_once(entries: int, quorum: int) -> None:
    segments = [Segment(0, ("a", "b", "c"))] + (
        [Segment(3, ("a", "d", "c"))] if entries > 3 else []
    )
    metadata = closed(entries, *segments, quorum=quorum)
    asked: dict[tuple[int, str], int] = {}
    for split in plan_splits(metadata, entries - 1, 1 << 20):
        for first, last in split.chunks():
            for entry_id in range(first, last + 1):
                if split.holds(entry_id):
                    asked[entry_id, split.member] = asked.get((entry_id, split.member), 0) + 1
    assert asked == {
        (entry_id, member): 1
        for entry_id in range(entries)
        for member in metadata.write_set(entry_id)
    }


def test_members_of_a_segment_have_the_same_chunks() -> None:
    metadata = closed(
        50_000, Segment(0, ("a", "b")), Segment(12_345, ("a", "c")), entry_bytes=2_000
    )
    chunks: dict[str, list[tuple[int, int]]] = {}
    for split in plan_splits(metadata, 49_999, 20 << 20):
        chunks.setdefault(split.member, []).extend(split.chunks())
    assert sorted(chunks["b"] + chunks["c"]) == sorted(chunks["a"])
    assert len(plan_splits(metadata, 49_999, 20 << 20)) > 4, "a great ledger is cut"


def test_of_an_open_ledger_nothing_above_its_lac_is_read() -> None:
    metadata = LedgerMetadata(
        7, 2, 2, 2, PURPOSE, (Segment(0, ("a", "b")), Segment(10, ("a", "c")))
    )
    assert {
        (split.member, split.first, split.last) for split in plan_splits(metadata, 4, 1 << 20)
    } == {("a", 0, 4), ("b", 0, 4)}
    assert plan_splits(metadata, -1, 1 << 20) == []


@pytest.mark.parametrize(
    ("copies", "findings"),
    [
        ([copy("a", "...", "xyz"), copy("b", "...", "xyz")], []),
        (
            [copy("a", "...", "xyz"), copy("b", ".m.", "x z")],
            [Finding("missing", 7, 101, 101, "b")],
        ),
        (
            [copy("a", "...", "xyz"), copy("b", "mmm", "   ")],
            [Finding("missing", 7, 100, 102, "b")],
        ),
        (
            [copy("a", "c..", " yz"), copy("b", "?s.", "  z")],
            [
                Finding("corrupt", 7, 100, 100, "a"),
                Finding("unknown", 7, 100, 100, "b"),
                Finding("unreachable", 7, 101, 101, "b"),
            ],
        ),
        (
            [copy("a", "...", "xyz"), copy("b", "...", "xqz"), copy("c", "...", "xyz")],
            [Finding("divergent", 7, 101, 101, "b", "differs from most copies")],
        ),
        (
            [copy("a", ".", "x"), copy("b", ".", "y")],
            [
                Finding("divergent", 7, 100, 100, each, "no copy has a majority")
                for each in ("a", "b")
            ],
        ),
        # striped
        ([copy("a", "..-", "xy "), copy("b", "-..", " yz"), copy("c", ".-.", "x z")], []),
        (
            [copy("a", "..-", "xy "), copy("b", "-..", " qz"), copy("c", ".-.", "x z")],
            [
                Finding("divergent", 7, 101, 101, each, "no copy has a majority")
                for each in ("a", "b")
            ],
        ),
        ([copy("a", ".", "x")], []),
    ],
)
def test_comparing(copies: list[Copy], findings: list[Finding]) -> None:
    assert sorted(compare(7, 100, copies)) == sorted(findings)
    assert sorted(compare(7, 100, copies[::-1])) == sorted(findings)


def test_neighbours_are_one_finding() -> None:
    single = [
        Finding("missing", 7, entry_id, entry_id, member)
        for entry_id in (3, 4, 6, 5, 9)
        for member in ("a", "b")
    ]
    single += [Finding("missing", 8, 7, 7, "a"), Finding("corrupt", 7, 7, 7, "a")]
    assert list(merge(single)) == [
        Finding("corrupt", 7, 7, 7, "a"),
        Finding("missing", 7, 3, 6, "a"),
        Finding("missing", 7, 9, 9, "a"),
        Finding("missing", 7, 3, 6, "b"),
        Finding("missing", 7, 9, 9, "b"),
        Finding("missing", 8, 7, 7, "a"),
    ]
