"""What is held against clients of a topic that keeps nothing, tried on short histories."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pulsarish.sim.cluster.oracle import Place
from pulsarish.sim.programs.non_persistent import Fleeting, _Listening, _Sent

STAGE: Any = None
CLUSTER: Any = None


def at(entry: int) -> Place:
    return Place(-1, 0, entry, 0)


def sent(value: str, entry: int | None, **what: Any) -> _Sent:
    """Sent once, and its receipt is the tenth event."""
    place = None if entry is None else at(entry)
    return _Sent(
        **{
            "value": value,
            "producer": "p",
            "key": "k",
            "by_key": False,
            "opened": [1],
            "once": 1,
            "answered": 10,
            **what,
        },
        place=place,
    )


ONE, TWO, DROPPED = sent("one", 0), sent("two", 1), sent("dropped", None)
AGAIN, REFUSED = sent("again", 7, once=-1), sent("refused", None, once=-1, failed=True)


@pytest.mark.parametrize(
    ("found", "first", "second"),
    [
        ([], [("one", 0), ("two", 1)], []),
        ([], [("one", 0)], [("two", 1)]),
        ([], [("two", 1)], [("one", 0)]),
        ([], [("again", 3), ("one", 0), ("again", 7)], [("again", 3)]),
        (["duplicate"], [("one", 0)], [("one", 0)]),
        (["duplicate", "reorder"], [("one", 0), ("one", 0)], []),
        (["reorder"], [("two", 1), ("one", 0)], []),
        (["phantom"], [("dropped", 2)], []),
        (["phantom"], [("refused", 2)], []),
        (["phantom"], [("nobody's", 2)], []),
        (["inconsistent-offsets"], [("one", 5)], []),
    ],
)
def test_what_comes_to_two_consumers_of_a_subscription(
    found: list[str], first: list[tuple[str, int]], second: list[tuple[str, int]]
) -> None:
    came = [[(value, at(entry)) for value, entry in each] for each in (first, second)]
    assert (
        judged([ONE, TWO, DROPPED, AGAIN, REFUSED], [_Listening("s", 1, each) for each in came])
        == found
    )


def test_each_subscription_gets_it() -> None:
    assert judged([ONE], [_Listening(name, 1, [("one", at(0))]) for name in ("s", "t")]) == []


def test_whoever_subscribes_after_the_receipt_does_not_get_it() -> None:
    assert judged([ONE], [_Listening("s", 9, [("one", at(0))])]) == []
    assert judged([ONE], [_Listening("s", 11, [("one", at(0))])]) == ["kept"]


def test_positions_begin_anew_where_the_topic_is_next() -> None:
    later = sent("later", 0, once=2)
    assert judged([TWO, later], [_Listening("s", 1, [("two", at(1)), ("later", at(0))])]) == []
    assert judged([TWO, later], [_Listening("s", 1, [("later", at(0)), ("two", at(1))])]) == [
        "reorder"
    ]


@pytest.mark.parametrize(("by_key", "found"), [(False, ["nonmonotonic-send"]), (True, [])])
def test_receipts_come_in_the_order_of_sending_unless_batches_are_made_by_key(
    by_key: bool, found: list[str]
) -> None:
    assert judged([sent("a", 4, by_key=by_key), sent("b", 3, by_key=by_key)], []) == found


def judged(messages: list[_Sent], listening: list[_Listening]) -> list[str]:
    names: list[str] = []
    fleeting = Fleeting(
        STAGE, random.Random(0), CLUSTER, lambda name, _what, _value: names.append(name)
    )
    fleeting.sent = {message.value: message for message in messages}
    fleeting.listening = listening
    fleeting.judge()
    return names
