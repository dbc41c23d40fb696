"""What a soak counts, in one byte for each message."""

from __future__ import annotations

from pulsarish.chaos.soak_history import SoakHistory, TopicHistory
from pulsarish.chaos.soak_load import Payloads


def history(count: int, *, failed: tuple[int, ...] = ()) -> TopicHistory:
    topic = TopicHistory("t")
    for number in range(count):
        assert topic.send() == number
        if number in failed:
            topic.failed(number, "Timeout")
        else:
            topic.acked(number)
    return topic


def test_all_that_was_acknowledged_and_read_is_in_order() -> None:
    topic = history(10, failed=(3,))
    for number in range(10):
        topic.received(number, (0, 5, number, 0))
    topic.note_missing()
    counters = topic.counters()
    assert (counters.acked_positive, counters.acked_negative) == (9, 1)
    assert (counters.received, counters.non_acked_received) == (10, 1)
    assert (counters.acked_missing, counters.out_of_order, counters.duplicates) == (0, 0, 0)
    assert topic.anomalies == []


def test_what_is_missing_doubled_or_misplaced_is_named() -> None:
    topic = history(6)
    for place, number in enumerate([0, 1, 3, 2, 3]):
        topic.received(number, (0, 5, place, 0))
    topic.received(-1, (0, 5, 9, 0))
    topic.note_missing()
    counters = topic.counters()
    assert (counters.acked_missing, counters.out_of_order, counters.duplicates) == (2, 2, 1)
    assert [(each.kind, each.value) for each in topic.anomalies] == [
        ("out_of_order", 2),
        ("duplicate", 3),
        ("unknown_payload", -1),
        ("missing", 4),
        ("missing", 5),
    ]


def test_the_same_place_again_is_no_duplicate_and_ids_of_ledgers_need_not_grow() -> None:
    topic = history(4)
    topic.received(0, (0, 150, 0, 0))
    topic.received(1, (0, 150, 1, 0))
    topic.received(2, (0, 20, 0, 0))
    topic.received(1, (0, 150, 1, 0))
    topic.received(2, (0, 20, 0, 0))
    topic.received(3, (0, 20, 1, 0))
    topic.note_missing()
    counters = topic.counters()
    assert (counters.redelivered, counters.duplicates) == (2, 0)
    assert (counters.acked_missing, counters.out_of_order) == (0, 0)


def test_nothing_is_missing_before_all_topics_were_read() -> None:
    both = SoakHistory()
    both.topics += [history(2, failed=(0,)), history(3)]
    assert (both.sent, both.acked_count) == (5, 4)
    assert both.counters().acked_missing == 0
    both.end_reading()
    assert both.counters().acked_missing == 4
    assert both.failures == {"Timeout": 1}
    assert len(both.anomalies) == 4


def test_a_payload_says_its_number_unless_a_bit_of_it_has_changed() -> None:
    payloads = Payloads(1, 100)
    for number in (0, 1, 999_999, 12_345_678):
        content = payloads.make(number)
        assert len(content) == 100
        assert payloads.number(content) == number
        changed = bytearray(content)
        changed[60] ^= 1
        assert payloads.number(bytes(changed)) == -1
    assert payloads.number(b"") == -1
    assert Payloads(2, 100).number(payloads.make(5)) == -1
