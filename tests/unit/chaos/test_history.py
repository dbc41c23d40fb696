"""The chaos test's counters and its verdict: fed with what must not be, they say so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.chaos.history import Counters, EntryId, History
from pulsarish.chaos.run import judge
from pulsarish.chaos.scenarios import SCENARIOS


def sent(count: int, *, failed: tuple[int, ...] = (), pending: tuple[int, ...] = ()) -> History:
    """``count`` messages were sent; all are acknowledged but those named."""
    history = History()
    for number in range(count):
        assert history.send() == number
        if number in failed:
            history.failed(number, "Timeout")
        elif number not in pending:
            history.acked(number)
    history.begin_reading()
    return history


def read(history: History, *values: int, partition: int = 0, key: str = "") -> Counters:
    """One entry each, in this order."""
    for place, value in enumerate(values):
        history.received(value, (partition, 7, place, -1), key)
    return history.counters()


@pytest.mark.parametrize(
    ("values", "missing", "out_of_order", "duplicates"),
    [
        ((0, 1, 2, 3, 4), 0, 0, 0),
        ((0, 1, 3, 4), 1, 0, 0),
        ((), 5, 0, 0),
        ((0, 1, 2, 1, 2, 3, 4), 0, 0, 2),
        ((0, 2, 1, 3, 4), 0, 1, 0),
        ((3, 4, 0, 1, 2), 0, 3, 0),
        ((0, 1, 2, 2, 2, 3, 4), 0, 0, 2),
        ((4, 3, 2, 1, 0), 0, 4, 0),
        ((0, 1, 2, 3, 4, 99), 0, 1, 0),  # a payload that was never sent
    ],
)
def test_lost_doubled_and_displaced_messages_are_counted(
    values: tuple[int, ...], missing: int, out_of_order: int, duplicates: int
) -> None:
    counters = read(sent(5), *values)
    assert (counters.acked_missing, counters.out_of_order, counters.duplicates) == (
        missing,
        out_of_order,
        duplicates,
    )
    assert counters.received == len(values)
    assert counters.redelivered == 0


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    counters = read(sent(6, failed=(1, 4), pending=(2,)), 0, 1, 2, 3, 5)
    assert counters == Counters(
        sent=6,
        acked_positive=3,
        acked_negative=2,
        received=5,
        acked_missing=0,
        non_acked_received=2,
        out_of_order=0,
        duplicates=0,
        redelivered=0,
    )


def test_nothing_is_missing_before_a_reading() -> None:
    history = History()
    history.acked(history.send())
    assert (history.counters().acked_missing, history.missing()) == (0, [])
    history.begin_reading()
    assert (history.counters().acked_missing, history.missing()) == (1, [0])


def test_the_same_message_again_is_redelivered_and_no_duplicate() -> None:
    history = sent(2)
    place: EntryId = (0, 7, 0, -1)
    history.received(0, place)
    history.received(0, place)
    history.received(1, (0, 7, 1, -1))
    counters = history.counters()
    assert (counters.duplicates, counters.redelivered, counters.out_of_order) == (0, 1, 0)


def test_misplaced_messages_are_named_with_both_places() -> None:
    history = sent(3)
    read(history, 1, 0, 1, 2)
    assert [anomaly.row() for anomaly in history.anomalies] == [
        {
            "kind": "out_of_order",
            "value": 0,
            "message_id": "0:7:1:-1",
            "other_value": 1,
            "other_id": "0:7:0:-1",
            "key": "",
        },
        {
            "kind": "duplicate",
            "value": 1,
            "message_id": "0:7:2:-1",
            "other_value": 1,
            "other_id": "0:7:0:-1",
            "key": "",
        },
    ]
    assert history.missing() == []


def test_order_is_that_of_the_key() -> None:
    history = sent(4)
    read(history, 0, 2, key="even")
    assert read(history, 1, 3, partition=1, key="odd").out_of_order == 0
    history = sent(4)
    read(history, 2, 0, key="even")
    assert read(history, 1, 3, key="odd").out_of_order == 1


def test_a_prefix_has_no_hole() -> None:
    history = sent(4)
    read(history, 0, 1)
    assert history.first_hole() == history.read_count() == 2
    read(history, 3)
    assert (history.first_hole(), history.read_count()) == (2, 3)


def test_reading_again_begins_anew() -> None:
    history = sent(2)
    read(history, 1, 0)
    history.begin_reading()
    assert read(history, 0, 1) == read(sent(2), 0, 1)
    assert history.anomalies == []


@given(st.lists(st.integers(0, 9), max_size=30))
def test_counters_agree_with_a_plain_count(values: list[int]) -> None:
    counters = read(sent(10), *values)
    first_copies = list(dict.fromkeys(values))
    assert counters.duplicates == len(values) - len(first_copies)
    assert counters.acked_missing == 10 - len(first_copies)
    assert counters.out_of_order == sum(
        any(earlier > value for earlier in first_copies[:at])
        for at, value in enumerate(first_copies)
    )


def counted(**given: int) -> Counters:
    names = (
        "sent",
        "acked_positive",
        "acked_negative",
        "received",
        "acked_missing",
        "non_acked_received",
        "out_of_order",
    )
    return Counters(**dict.fromkeys((*names, "duplicates", "redelivered"), 0) | given)


@pytest.mark.parametrize(
    ("scenario", "counters", "dedup", "owner_changed", "is_wrong"),
    [
        ("no-fault", counted(), False, False, False),
        ("no-fault", counted(acked_missing=1), False, False, True),
        ("no-fault", counted(out_of_order=1), False, False, True),
        ("kill-bookie", counted(duplicates=1), False, False, True),
        ("kill-bookie", counted(duplicates=1), False, True, False),
        ("kill-broker", counted(duplicates=1), False, True, False),
        ("kill-broker", counted(duplicates=1), True, True, True),
        ("kill-broker", counted(acked_negative=1), False, True, True),
        ("isolate-broker-from-zk", counted(acked_negative=1), False, True, True),
        ("isolate-broker-from-zk-dedup", counted(duplicates=1), True, True, True),
        ("kill-broker", counted(non_acked_received=5, redelivered=5), True, True, False),
    ],
)
def test_the_verdict(
    scenario: str, counters: Counters, dedup: bool, owner_changed: bool, is_wrong: bool
) -> None:
    assert (
        bool(judge(SCENARIOS[scenario], counters, dedup=dedup, owner_changed=owner_changed))
        is is_wrong
    )
