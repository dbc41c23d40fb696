"""Which quorums are allowed and put something at risk that a person should know of."""

from __future__ import annotations

import pytest

from pulsarish.model.quorums import weak_quorum


@pytest.mark.parametrize(("write_quorum", "ack_quorum"), [(2, 2), (3, 2), (3, 3), (5, 3)])
def test_a_majority_of_at_least_two_is_not_weak(write_quorum: int, ack_quorum: int) -> None:
    assert weak_quorum(write_quorum, ack_quorum) == ""


@pytest.mark.parametrize(
    ("write_quorum", "ack_quorum", "words"),
    [
        (
            2,
            1,
            [
                "write_quorum 2 with ack_quorum 1",
                "on one bookie alone",
                "one dead bookie stops writes",
            ],
        ),
        (3, 1, ["on one bookie alone", "one dead bookie stops writes"]),
        (5, 2, ["less than half of the copies", "2 dead bookies stop writes"]),
    ],
)
def test_weak_quorums_say_what_is_lost_and_what_stops(
    write_quorum: int, ack_quorum: int, words: list[str]
) -> None:
    found = weak_quorum(write_quorum, ack_quorum)
    assert [each for each in words if each not in found] == []
