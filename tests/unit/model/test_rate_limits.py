"""Token buckets: over time the rate is exact, whatever is taken at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.model.rate_limits import CallerRates, CountedRateLimit, RateLimit, TokenBucket


@given(
    st.integers(1, 1_000),
    st.lists(st.tuples(st.integers(1, 50), st.floats(0, 2)), min_size=1, max_size=60),
)
def test_whoever_waits_as_told_keeps_the_rate(rate: int, takes: list[tuple[int, float]]) -> None:
    bucket, now = TokenBucket(), 100.0
    bucket.limit(rate, rate, now)
    began, taken = now, 0
    for count, idle in takes:
        now += idle + bucket.wait_seconds(now + idle)
        assert bucket.wait_seconds(now) == pytest.approx(0.0, abs=1e-6)
        # What was allowed before this never exceeds the rate plus one burst.
        assert taken <= rate * (now - began) + rate + 1e-6
        bucket.take(count, now)
        taken += count
        bucket.check()


def test_no_limit_costs_no_wait_and_a_new_one_holds_at_once() -> None:
    bucket = TokenBucket()
    bucket.take(1_000_000, 1.0)
    assert (bucket.wait_seconds(1.0), bucket.available(1.0)) == (0.0, float("inf"))
    bucket.limit(10, 10, 2.0)
    bucket.take(15, 2.0)
    assert bucket.wait_seconds(2.0) == pytest.approx(0.6)
    bucket.limit(100, 100, 2.0)
    assert bucket.wait_seconds(2.0) == pytest.approx(0.06), "the debt stays, the new rate pays it"
    bucket.limit(-1, 0, 2.0)
    assert bucket.wait_seconds(2.0) == 0.0


def test_messages_and_bytes_are_limited_each() -> None:
    limit = RateLimit()
    assert not limit.limited
    limit.limit(10, 1_000, 2.0, 0.0)
    limit.take(1, 1_500, 0.0)
    assert limit.wait_seconds(0.0) == pytest.approx(501 / 500)
    limit.take(20, 0, 0.0)
    assert limit.wait_seconds(0.0) == pytest.approx(12 / 5)


def test_limits_that_begin_and_end_share_nothing_with_others() -> None:
    first, second = RateLimit(), RateLimit()
    first.take(1_000, 1_000, 0.0)
    first.limit(10, 0, 1.0, 1.0)
    first.take(30, 1_000, 1.0)
    assert first.wait_seconds(1.0) == pytest.approx(2.1)
    second.limit(0, 5, 1.0, 1.0)
    assert (second.wait_seconds(1.0), second.messages.available(1.0)) == (0.0, float("inf"))
    first.limit(0, 0, 1.0, 2.0)
    assert not first.limited
    assert first.wait_seconds(2.0) == 0.0
    assert not RateLimit().limited


@given(
    st.integers(1, 20),
    st.sampled_from([1.0, 30.0]),
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 5)), max_size=80),
)
def test_a_caller_never_has_more_than_its_count_and_what_came_in_the_meantime(
    count: int, period_seconds: float, calls: list[tuple[str, float]]
) -> None:
    rates, now = CallerRates(), 100.0
    rates.limit(count, period_seconds)
    first: dict[str, float] = {}
    allowed = {"a": 0, "b": 0}
    for caller, idle in calls:
        now += idle
        if not rates.refused_seconds(caller, now):
            allowed[caller] += 1
        began = first.setdefault(caller, now)
        assert allowed[caller] <= count + (now - began) * count / period_seconds + 1e-6
        rates.check()


def test_a_refused_call_may_be_repeated_when_it_says() -> None:
    rates = CallerRates()
    rates.limit(2, 30)
    assert [rates.refused_seconds("a", 0.0) for _ in range(3)] == [0.0, 0.0, 15.0]
    assert rates.refused_seconds("b", 0.0) == 0.0
    assert rates.refused_seconds("a", 14.0) == pytest.approx(1.0), "refusals cost nothing"
    assert rates.refused_seconds("a", 15.0) == 0.0
    rates.limit(0, 30)
    assert rates.refused_seconds("a", 15.0) == 0.0
    rates.check()


def test_callers_are_forgotten_once_they_have_nothing_to_pay() -> None:
    rates = CallerRates()
    rates.limit(1, 1.0)
    for number in range(10_000):
        assert rates.refused_seconds(number, number / 100) == 0.0
    assert len(rates._buckets) < 500
    assert rates.refused_seconds(9_999, 99.99) > 0, "the newest are not forgotten"


def test_a_part_that_changes_all_the_time_keeps_the_rate_of_its_mean() -> None:
    """Batches of ten seconds each: no change makes the debt smaller."""
    bucket, now, taken = TokenBucket(), 0.0, 0
    bucket.limit(10, 10, now)
    while now < 1_000.0:
        if not bucket.wait_seconds(now):
            bucket.take(100, now)
            taken += 100
        now += 1.0
        bucket.rescale(9 if now % 2 else 11, now)
        bucket.check()
    assert 9_000 <= taken <= 11_500
    bucket.rescale(-1, now)
    assert bucket.wait_seconds(now) == 0.0


def test_what_is_counted_is_counted_without_a_limit_too() -> None:
    limit = CountedRateLimit()
    limit.take(2, 300, 0.0)
    limit.rescale(1.0, 0.0, 0.0)
    limit.take(3, 400, 0.0)
    assert (limit.messages_count, limit.bytes_count) == (5, 700)
    assert limit.wait_seconds(0.0) == pytest.approx(3.0)


def test_a_debt_is_paid_at_the_rate_that_a_bucket_has_now() -> None:
    bucket = TokenBucket(10.0, 0.0, 0.0, 0.0)
    bucket.take(20, 0.0)
    assert bucket.debt_seconds(0.0) == 2.0
    bucket.change_rate(20.0, 1.0)
    assert bucket.debt_seconds(1.0) == 0.5
    bucket.change_rate(2.0, 1.0)
    assert bucket.debt_seconds(1.0) == 5.0
