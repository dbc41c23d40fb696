"""What the deliveries of a subscription say against the promises."""

from __future__ import annotations

import pytest

from pulsarish.chaos.soak_deliveries import Deliveries, Overlap
from pulsarish.chaos.soak_history import TopicHistory


def deliveries(
    count: int,
    *,
    keys: int = 0,
    failed: tuple[int, ...] = (),
    overlaps: tuple[Overlap, ...] = (),
) -> Deliveries:
    topic = TopicHistory("t")
    for number in range(count):
        _ = topic.send()
        if number in failed:
            topic.failed(number, "Timeout")
        else:
            topic.acked(number)
    return Deliveries(topic, "s", keys=keys, overlaps=overlaps)


def kinds(found: Deliveries) -> list[tuple[str, int]]:
    return [(each.kind, each.value) for each in found.anomalies]


def test_all_delivered_once_with_receipts_breaks_no_promise() -> None:
    found = deliveries(6, failed=(2,))
    session = found.begin_session(0.0)
    for number in (5, 0, 1, 4, 3):
        found.delivered(number, (0, 1, number, -1), session)
    found.receipted(range(6), 1.0)
    found.note_missing()
    assert found.wrong() == []
    row = found.row()
    assert (row["delivered"], row["redelivered"], row["missing"]) == (5, 0, 0)


def test_a_lost_message_is_missing_unless_its_send_failed() -> None:
    found = deliveries(4, failed=(1,))
    session = found.begin_session(0.0)
    for number in (0, 3):
        found.delivered(number, (0, 1, number, -1), session)
    assert found.missing_count() == 1
    found.note_missing()
    assert kinds(found) == [("not_delivered", 2)]
    assert found.row()["missing"] == 1
    assert "1 messages that were confirmed" in found.wrong()[0]


def test_an_owner_that_began_after_a_receipt_delivers_the_message_no_more() -> None:
    found = deliveries(3)
    first = found.begin_session(0.0)
    for number in range(3):
        found.delivered(number, (0, 1, number, -1), first)
    found.receipted([0, 1], 2.0)
    under_way = found.begin_session(1.9)
    found.delivered(0, (0, 1, 0, -1), under_way)  # was sent before the receipt
    assert found.wrong() == []
    after = found.begin_session(2.1)
    found.delivered(1, (0, 1, 1, -1), after)
    found.delivered(2, (0, 1, 2, -1), after)  # has no receipt
    assert kinds(found) == [("after_receipt", 1)]
    row = found.row()
    assert (row["redelivered"], row["redelivered_after_receipt"]) == (3, 2)


def test_an_overlap_excuses_the_receipts_that_came_after_it_began() -> None:
    found = deliveries(3, overlaps=(Overlap(2.0, 5.0), Overlap(8.0, 9.0)))
    first = found.begin_session(0.0)
    for number in range(3):
        found.delivered(number, (0, 1, number, -1), first)
    found.receipted([0], 1.0)
    found.receipted([1, 2], 3.0)
    in_overlap = found.begin_session(4.0)
    found.delivered(1, (0, 1, 1, -1), in_overlap)
    assert found.wrong() == []
    assert found.row()["redelivered_by_overlapping_owner"] == 1
    found.delivered(0, (0, 1, 0, -1), in_overlap)  # every owner knew of this receipt
    assert kinds(found) == [("after_receipt", 0)]
    in_overlap.since = 6.0  # it stood on, and the former owner has learned of the other one
    found.delivered(2, (0, 1, 2, -1), in_overlap)
    assert kinds(found) == [("after_receipt", 0), ("after_receipt", 2)]


def test_without_a_receipt_nothing_is_proved() -> None:
    found = deliveries(1)
    found.delivered(0, (0, 1, 0, -1), found.begin_session(0.0))
    assert "no acknowledgement got a receipt" in found.wrong()[0]
    found.receipted([0], 1.0)
    assert found.wrong() == []


def test_a_message_comes_once_over_one_connection() -> None:
    found = deliveries(1)
    session = found.begin_session(0.0)
    found.delivered(0, (0, 1, 0, -1), session)
    found.delivered(0, (0, 1, 0, -1), None)
    assert kinds(found) == []
    found.delivered(0, (0, 1, 0, -1), session)
    found.delivered(0, (0, 1, 0, -1), session)
    assert kinds(found) == [("twice_in_session", 0)]


@pytest.mark.parametrize(("keys", "wrong"), [(0, []), (1, [1, 2]), (2, [1])])
def test_order_is_that_of_the_key(keys: int, wrong: list[int]) -> None:
    found = deliveries(4, keys=keys)
    session = found.begin_session(0.0)
    for number in (0, 3, 1, 2):
        found.delivered(number, (0, 1, number, -1), session)
    assert kinds(found) == [("order", number) for number in wrong]


def test_a_new_connection_may_go_back_but_over_no_first_delivery() -> None:
    found = deliveries(4, keys=1)
    found.delivered(0, (0, 1, 0, -1), found.begin_session(0.0))
    found.delivered(2, (0, 1, 2, -1), None)
    again = found.begin_session(0.0)
    found.delivered(0, (0, 1, 0, -1), again)
    found.delivered(1, (0, 1, 1, -1), again)
    found.delivered(2, (0, 1, 2, -1), again)
    assert kinds(found) == [("order", 1)]


def test_a_cumulative_receipt_counts_for_all_before_it() -> None:
    found = deliveries(4, keys=1)
    first = found.begin_session(0.0)
    for number in range(4):
        found.delivered(number, (0, 1, number, -1), first)
    found.receipted_up_to(2, 1.0)
    found.receipted_up_to(1, 5.0)
    assert found.row()["with_receipt"] == 3
    after = found.begin_session(2.0)
    for number in range(4):
        found.delivered(number, (0, 1, number, -1), after)
    assert kinds(found) == [("after_receipt", number) for number in range(3)]


def test_other_bytes_than_were_sent_are_no_delivery() -> None:
    found = deliveries(1)
    found.delivered(-1, (0, 1, 0, -1), None)
    found.note_missing()
    assert kinds(found) == [("content", -1), ("not_delivered", 0)]
