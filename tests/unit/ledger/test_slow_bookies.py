"""When a bookie is late, how long it is asked last, and how many second reads there may be."""

from __future__ import annotations

import pytest

from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.slow_bookies import SlowBookies
from pulsarish.model.errors import ConfigError

OPTIONS = LedgerOptions(
    speculative_read_delay_min_ms=50,
    speculative_read_delay_max_ms=2_000,
    speculative_reads_share_max=0.1,
    slow_bookie_avoided_ms=5_000,
)


def test_a_bookie_is_late_when_it_takes_longer_than_it_usually_does() -> None:
    slow = SlowBookies(OPTIONS)
    for number in range(100):
        slow.answered("steady", 0.3)
        slow.answered("uneven", 0.1 if number % 2 else 0.5)
        slow.answered("fast", 0.001)
    assert 0.3 <= slow.wait_seconds("steady") < 0.31
    assert 0.8 < slow.wait_seconds("uneven") < 1.3
    assert slow.wait_seconds("fast") == 0.05


def test_the_wait_follows_a_bookie_that_becomes_slower_and_faster_again() -> None:
    slow = SlowBookies(OPTIONS)
    for _ in range(100):
        slow.answered("b", 0.001)
    slow.answered("b", 1.0)
    assert slow.wait_seconds("b") > 0.5
    for _ in range(50):
        slow.answered("b", 1_000.0)
    assert slow.wait_seconds("b") == 2.0
    for _ in range(50):
        slow.answered("b", 0.001)
    assert slow.wait_seconds("b") < 0.1


def test_a_late_bookie_is_avoided_for_a_while() -> None:
    slow = SlowBookies(OPTIONS)
    slow.late("b", 10.0)
    assert slow.avoided(14.9) == ["b"]
    assert slow.avoided(15.0) == []


def test_an_answer_in_time_ends_it_and_a_late_one_does_not() -> None:
    slow = SlowBookies(OPTIONS)
    slow.answered("b", 0.01)
    slow.late("b", 10.0)
    slow.answered("b", 3.0)
    assert slow.avoided(11.0) == ["b"]
    slow.answered("b", 0.01)
    assert slow.avoided(11.0) == []


def test_second_reads_are_a_share_of_all_after_some_at_once() -> None:
    slow = SlowBookies(OPTIONS)
    for _ in range(1_000):  # what is saved up is bounded
        slow.read_begins()
    sent = 0
    while slow.may_send():
        slow.send()
        sent += 1
    assert sent == 20
    for _ in range(1_000):
        slow.read_begins()
        if slow.may_send():
            slow.send()
            sent += 1
    assert 115 <= sent <= 120
    assert slow.sent_count == sent


def test_what_is_known_of_a_bookie_that_is_gone_is_dropped() -> None:
    slow = SlowBookies(OPTIONS)
    unknown = slow.wait_seconds("b")
    slow.answered("b", 1.0)
    slow.late("b", 1.0)
    slow.forget("b")
    assert slow.wait_seconds("b") == unknown
    assert slow.avoided(1.0) == []


def test_a_greatest_wait_below_the_least_is_refused() -> None:
    with pytest.raises(ConfigError, match="speculative_read_delay_max_ms = 10 is below"):
        LedgerOptions(speculative_read_delay_max_ms=10).validate()
