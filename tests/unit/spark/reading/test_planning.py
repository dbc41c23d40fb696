"""Which entries are read by which task, where a streaming batch ends, and what is said of places
that are gone.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.model.errors import CorruptData
from pulsarish.spark.positions import NOWHERE, Place
from pulsarish.spark.reading.log import Ledger, TopicLog
from pulsarish.spark.reading.offsets import (
    Offset,
    TopicOffset,
    capped,
    divided,
    end_of,
    splits_between,
)
from pulsarish.spark.reading.planning import (
    DataLoss,
    NoSuchPlace,
    Piece,
    cut,
    nth_entry,
    pieces_of,
    split_bytes_for,
)

TOPIC = "persistent://public/default/t-partition-3"


def ledger(ledger_id: int, entries: int, *, size: int = 1_000, is_open: bool = False) -> Ledger:
    return Ledger(
        ledger_id, entries, entries * size, 1, 0 if is_open else 10, "" if is_open else "{record}"
    )


def log(
    *ledgers: Ledger, trimmed: Place = NOWHERE, lost: tuple[tuple[int, int, int], ...] = ()
) -> TopicLog:
    return TopicLog(TOPIC, 99, ledgers, lost, trimmed)


def ids(pieces: list[Piece] | tuple[Piece, ...]) -> list[tuple[int, int]]:
    return [
        (piece.ledger_id, entry) for piece in pieces for entry in range(piece.first, piece.last + 1)
    ]


THREE = log(ledger(2, 10), ledger(5, 4), ledger(9, 3, is_open=True))
ALL = (
    [(2, entry) for entry in range(10)]
    + [(5, entry) for entry in range(4)]
    + [(9, entry) for entry in range(3)]
)


@pytest.mark.parametrize(
    ("start", "end", "first", "last"),
    [
        (NOWHERE, None, 0, 17),
        (Place(2, -1), Place(9, 2), 0, 17),
        (Place(2, 9), None, 10, 17),
        (Place(2, 3, 1), Place(5, 0), 3, 11),  # of entry 3 a part is consumed: it is read again
        (Place(5, 3), Place(9, 0, 4), 14, 15),
        (Place(9, 2), None, 17, 17),
    ],
)
def test_a_range_is_behind_its_start_and_up_to_its_end(
    start: Place, end: Place | None, first: int, last: int
) -> None:
    pieces, lost = pieces_of(
        THREE, start, end, fail_on_loss=True, option="option 'startingOffsets'"
    )
    assert ids(pieces) == ALL[first:last]
    assert not lost


def test_what_retention_deleted_is_said_with_option_place_and_ledger() -> None:
    kept = log(ledger(5, 4), trimmed=Place(2, 9))
    with pytest.raises(
        DataLoss,
        match=(
            r"option 'startingOffsets' names 2:3 in topic .*t-partition-3.*deleted.*up to "
            r"2:9.*ledger 5.*failOnDataLoss"
        ),
    ):
        pieces_of(kept, Place(2, 3), None, fail_on_loss=True, option="option 'startingOffsets'")
    pieces, lost = pieces_of(
        kept, Place(2, 3), None, fail_on_loss=False, option="option 'startingOffsets'"
    )
    assert ids(pieces) == [(5, entry) for entry in range(4)]
    assert len(lost) == 1


def test_who_has_read_all_that_was_deleted_has_missed_nothing() -> None:
    for place in (Place(2, 9), Place(3, -1)):  # an empty ledger 3 was there for a while
        pieces, lost = pieces_of(
            log(ledger(5, 4), trimmed=Place(2, 9)),
            place,
            None,
            fail_on_loss=True,
            option="the checkpoint",
        )
        assert ids(pieces) == [(5, entry) for entry in range(4)]
        assert not lost


@pytest.mark.parametrize("place", [Place(3, 0), Place(77, 5)])
def test_a_place_that_never_was_is_refused_whatever_failOnDataLoss_says(place: Place) -> None:  # noqa: N802 - the option's name
    with pytest.raises(
        NoSuchPlace,
        match=rf"option 'endingOffsets' names {place} in topic .*: it is a place of another topic",
    ):
        pieces_of(
            THREE,
            Place(2, 0),
            place,
            fail_on_loss=False,
            option="",
            end_option="option 'endingOffsets'",
        )


def test_entries_that_an_operator_gave_up_are_left_out_and_named() -> None:
    holed = log(ledger(2, 10), lost=((2, 3, 5),))
    with pytest.raises(DataLoss, match="entries 3 to 5 of ledger 2"):
        pieces_of(holed, NOWHERE, None, fail_on_loss=True, option="")
    pieces, _ = pieces_of(holed, NOWHERE, None, fail_on_loss=False, option="")
    assert [entry for _, entry in ids(pieces)] == [0, 1, 2, 6, 7, 8, 9]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 5_000)), min_size=1, max_size=8),
    st.integers(1_000, 60_000),
)
def test_splits_hold_every_entry_once_in_order_and_about_as_much_as_asked(
    ledgers: list[tuple[int, int]], split_bytes: int
) -> None:
    there = log(
        *(ledger(10 * number, entries, size=size) for number, (entries, size) in enumerate(ledgers))
    )
    pieces, _ = pieces_of(there, NOWHERE, None, fail_on_loss=True, option="")

    splits = cut(there, pieces, split_bytes)

    assert [each for split in splits for each in ids(split.pieces)] == ids(pieces)
    greatest = max(size for _, size in ledgers)
    assert all(split.size_bytes <= 2 * split_bytes + greatest for split in splits)
    assert all(split.pieces for split in splits)
    assert all(ids(split.before)[-1] < ids(split.pieces)[0] for split in splits if split.before)


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1_000, 30_000), st.data())
def test_a_batch_is_divided_by_its_offsets_whatever_is_closed_by_then(
    sizes: list[int], split_bytes: int, data: st.DataObject
) -> None:
    first = log(
        *(
            ledger(number, entries, is_open=number == len(sizes) - 1)
            for number, entries in enumerate(sizes)
        )
    )
    start = Place(0, data.draw(st.integers(-1, sizes[0] - 1)))
    pieces, _ = pieces_of(first, start, None, fail_on_loss=True, option="")
    if not pieces:
        return
    cuts = divided(first, pieces, split_bytes)
    end = TopicOffset(Place(pieces[-1].ledger_id, pieces[-1].last), start, 99, cuts)
    then = splits_between(first, pieces, start, end)

    # Later: all of it is closed, and there is more.
    later = log(
        *(ledger(number, entries, size=777) for number, entries in enumerate(sizes)),
        ledger(100, 5, is_open=True),
    )
    again_pieces, _ = pieces_of(later, start, end.place, fail_on_loss=True, option="")
    read_back = Offset.of_json(json.loads(json.dumps(Offset({TOPIC: end}).to_json()))).topics[TOPIC]
    again = splits_between(later, again_pieces, start, read_back)

    assert [ids(split.pieces) for split in again] == [ids(split.pieces) for split in then]
    assert len(again) == len(cuts) + 1


def test_a_split_of_which_nothing_is_left_keeps_its_number() -> None:
    kept = log(ledger(5, 4), trimmed=Place(2, 9))
    pieces, _ = pieces_of(kept, Place(2, -1), Place(5, 3), fail_on_loss=False, option="")
    splits = splits_between(
        kept,
        pieces,
        Place(2, -1),
        TopicOffset(Place(5, 3), NOWHERE, 99, (Place(2, 4), Place(2, 9))),
    )
    assert [ids(split.pieces) for split in splits] == [[], [], [(5, entry) for entry in range(4)]]


def test_the_end_of_a_closed_ledger_is_said_of_the_next_one() -> None:
    assert end_of(THREE, Place(2, 9)) == Place(5, -1)
    assert end_of(THREE, Place(5, 3)) == Place(9, -1)
    assert end_of(THREE, Place(2, 8)) == Place(2, 8)
    assert end_of(THREE, Place(9, 2)) == Place(9, 2)


def test_a_batch_holds_no_more_than_it_may_and_at_least_one_entry() -> None:
    def available() -> dict[str, list[Piece]]:
        return {
            "a": [Piece(1, 0, 9, 10_000), Piece(2, 0, 9, 10_000)],
            "b": [Piece(3, 0, 9, 10_000)],
        }

    none = float("inf")
    by_bytes = capped(available(), bytes_max=15_000, entries_max={}, ledgers_max=none)
    assert {topic: ids(pieces) for topic, pieces in by_bytes.items()} == {
        "a": [(1, e) for e in range(10)],
        "b": [(3, e) for e in range(5)],
    }
    assert ids(capped(available(), bytes_max=1, entries_max={}, ledgers_max=none)["a"]) == [(1, 0)]
    by_ledgers = capped(available(), bytes_max=none, entries_max={}, ledgers_max=2)
    assert [piece.ledger_id for pieces in by_ledgers.values() for piece in pieces] == [1, 2]
    by_messages = capped(
        available(), bytes_max=none, entries_max={"a": 3, "b": 0.5}, ledgers_max=none
    )
    assert {topic: ids(pieces) for topic, pieces in by_messages.items()} == {
        "a": [(1, 0), (1, 1), (1, 2)]
    }


def test_a_topic_whose_share_is_less_than_an_entry_has_its_turn_in_time() -> None:
    owed: dict[str, float] = {}
    turns: list[list[str]] = []
    for _ in range(8):
        available = {"great": [Piece(1, 0, 9, 1_000)], "small": [Piece(2, 0, 999, 1_000)]}
        entries_max = {"great": 0.25, "small": 100.0}
        turns.append(
            sorted(
                capped(
                    available,
                    bytes_max=float("inf"),
                    entries_max=entries_max,
                    ledgers_max=float("inf"),
                    owed=owed,
                )
            )
        )
    assert turns == [["small"]] * 3 + [["great", "small"]] + [["small"]] * 3 + [["great", "small"]]


def test_a_share_that_is_a_whole_entry_but_for_rounding_is_one() -> None:
    available = {"a": [Piece(1, 0, 48, 49_000)]}
    chosen = capped(
        available, bytes_max=float("inf"), entries_max={"a": 2 - 1e-12}, ledgers_max=float("inf")
    )
    assert ids(chosen["a"]) == [(1, 0), (1, 1)]


def test_whoever_waits_with_most_comes_first_when_ledgers_are_few() -> None:
    available = {"a": [Piece(1, 0, 1, 2_000)], "b": [Piece(3, 0, 9, 10_000)]}
    assert list(capped(available, bytes_max=float("inf"), entries_max={}, ledgers_max=1)) == ["b"]


def test_an_offset_of_another_source_is_refused() -> None:
    with pytest.raises(CorruptData, match="another source wrote it"):
        Offset.of_json({"topic": {"0": 17}})


@pytest.mark.parametrize(
    ("size", "asked", "cores", "wanted"),
    [
        (10 << 30, None, 2, 64 << 20),
        (8 << 20, None, 4, 2 << 20),
        (100, None, 4, 1 << 20),
        (100, 70_000, 4, 70_000),
    ],
)
def test_splits_are_as_large_as_asked_or_as_keeps_all_cores_busy(
    size: int, asked: int | None, cores: int, wanted: int
) -> None:
    assert split_bytes_for(size, asked, cores) == wanted


def test_an_entry_is_found_by_its_place_among_all() -> None:
    pieces = [Piece(3, 10, 11, 100), Piece(5, 0, 2, 100)]
    assert [nth_entry(pieces, index) for index in range(5)] == [
        (3, 10),
        (3, 11),
        (5, 0),
        (5, 1),
        (5, 2),
    ]
    with pytest.raises(IndexError):
        nth_entry(pieces, 5)
