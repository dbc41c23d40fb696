"""When schedules are due, and what becomes of instants that were missed."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pulsarish.model.errors import InvalidArgument
from pulsarish.model.schedule import (
    CAUGHT_UP_MAX,
    LATE_MS,
    PAYLOAD_BYTES_MAX,
    Due,
    Schedule,
    check_schedule,
    due,
    instant_text,
    next_instants,
)

HOUR_MS = 3_600_000


def ms(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp()) * 1000  # type: ignore[arg-type, misc]


NOW_MS = ms(2026, 11, 27, 12)
HOURLY = Schedule("0 * * * *")


def texts(schedule: Schedule, after_ms: int, count: int) -> list[str]:
    return [instant_text(each) for each in next_instants(schedule, after_ms, count)]


def test_the_next_instants_are_those_of_the_time_zone() -> None:
    berlin = Schedule("0 8 * * MON-FRI", "Europe/Berlin")
    assert texts(berlin, NOW_MS, 2) == ["2026-11-30T07:00:00Z", "2026-12-01T07:00:00Z"]
    assert texts(Schedule("*/20 * * * * *"), NOW_MS, 2) == [
        "2026-11-27T12:00:20Z",
        "2026-11-27T12:00:40Z",
    ]
    assert next_instants(Schedule("* * * * *", paused=True), NOW_MS, 2) == []


def test_a_fixed_time_comes_once_where_clocks_are_set() -> None:
    berlin = Schedule("30 2 * * *", "Europe/Berlin")
    forward, back = ms(2026, 3, 28, 12), ms(2026, 10, 24, 12)
    assert texts(berlin, forward, 2) == ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
    assert texts(berlin, back, 2) == ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
    often = Schedule("*/30 2 * * *", "Europe/Berlin")
    assert texts(often, back, 5) == [
        "2026-10-25T00:00:00Z",
        "2026-10-25T00:30:00Z",
        "2026-10-25T01:00:00Z",
        "2026-10-25T01:30:00Z",
        "2026-10-26T01:00:00Z",
    ]


def test_an_instant_is_decided_once() -> None:
    first = due(HOURLY, NOW_MS - HOUR_MS, NOW_MS)
    assert first == Due((NOW_MS,), 0, NOW_MS)
    assert due(HOURLY, first.decided_ms, NOW_MS + 5_000) == Due((), 0, NOW_MS)
    assert due(HOURLY, NOW_MS, NOW_MS - 10 * HOUR_MS) == Due((), 0, NOW_MS), "the clock was set"


def test_a_changed_schedule_begins_now_and_never_before_what_was_published() -> None:
    assert due(HOURLY, 0, NOW_MS) == Due((), 0, NOW_MS)
    assert due(HOURLY, -(NOW_MS - 1), NOW_MS) == Due((), 0, NOW_MS)
    assert due(HOURLY, -(NOW_MS + HOUR_MS), NOW_MS) == Due((), 0, NOW_MS + HOUR_MS)


@pytest.mark.parametrize(
    ("missed", "late_ms", "expected"),
    [
        # the instant of now is in time; the others are missed
        ("last", 0, [0]),
        ("skip", 0, [0]),
        ("all", 0, [-2, -1, 0]),
        # in time up to a minute
        ("last", LATE_MS - 1, [0]),
        ("skip", LATE_MS - 1, [0]),
        # all are missed
        ("last", LATE_MS, [0]),
        ("skip", LATE_MS, []),
        ("all", LATE_MS, [-2, -1, 0]),
    ],
)
def test_missed_instants(missed: str, late_ms: int, expected: list[int]) -> None:
    schedule = Schedule("0 * * * *", missed=missed)  # type: ignore[arg-type]
    found = due(schedule, NOW_MS - 3 * HOUR_MS, NOW_MS + late_ms)
    assert found.instants == tuple(NOW_MS + each * HOUR_MS for each in expected)
    assert found.decided_ms == NOW_MS
    assert found.skipped_count == 3 - len(expected)


def test_a_minute_of_each_second_is_in_time() -> None:
    found = due(Schedule("* * * * * *"), NOW_MS, NOW_MS + 59_000)
    assert found.instants == tuple(range(NOW_MS + 1_000, NOW_MS + 59_001, 1_000))


def test_years_of_each_second_are_caught_up_with_the_newest() -> None:
    found = due(Schedule("* * * * * *", missed="all"), ms(2020, 1, 1), NOW_MS)
    in_time = range(NOW_MS - LATE_MS + 1_000, NOW_MS + 1, 1_000)
    missed = range(in_time.start - CAUGHT_UP_MAX * 1_000, in_time.start, 1_000)
    assert found.instants == (*missed, *in_time)
    # nothing for years, then each second of a month
    january = due(Schedule("* * * * 1 *"), ms(2020, 2, 1), ms(2026, 6, 1))
    assert january.instants == (ms(2026, 1, 31, 23, 59, 59),)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
@pytest.mark.parametrize("cron", ["30 2 * * *", "*/20 * * * *", "0 30 2 * * *", "0,30 1-3 * * *"])
def test_what_is_due_is_what_comes_next(zone: str, cron: str) -> None:
    schedule = Schedule(cron, zone, missed="all")
    every = next_instants(schedule, ms(2026, 2, 1), 600)
    rng = random.Random(f"{zone}{cron}")
    for _ in range(8):
        decided, until = sorted(rng.sample(range(every[0], every[-1]), 2))
        wanted = [each for each in every if decided < each <= until]
        found = due(schedule, decided, until)
        assert list(found.instants[-CAUGHT_UP_MAX:]) == wanted[-CAUGHT_UP_MAX:]


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        (Schedule("* * *"), "has 3 fields; use five"),
        (Schedule("0 25 * * *"), "field 2 (hour), '25' at character 3, is not valid; use 0-23"),
        (Schedule("0 0 0 * * FOO"), "field 6 (day-of-week), 'FOO' at character 11"),
        (Schedule("61 * * * * *"), "field 1 (second), '61' at character 1"),
        (Schedule("*  * 5-1 * *"), "field 3 (day-of-month), '5-1' at character 6"),
        (Schedule("0 0 31 2 *"), "field 3 (day-of-month), '31'"),
        (Schedule("0 0 " + "1," * 200 + "1 * *"), "at most 200 characters"),
        (Schedule("* * * * *", "Europe/Nowhere"), "timezone 'Europe/Nowhere' is not known"),
        (Schedule("* * * * *", "../../etc/passwd"), "is not known"),
        (Schedule("* * * * *", ""), "timezone '' is not known"),
        (Schedule("* * * * *", payload=bytes(PAYLOAD_BYTES_MAX + 1)), "16384 is the most"),
        (Schedule("* * * * *", key="k" * 1_001), "1000 characters"),
        (Schedule("* * * * *", properties={str(n): "" for n in range(33)}), "at most 32"),
    ],
)
def test_what_cannot_be_is_refused_with_the_place(schedule: Schedule, problem: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        check_schedule("daily", schedule, NOW_MS)
    assert problem in str(refused.value)
    assert "schedule 'daily'" in str(refused.value)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="0123456789*/,-#LW SUNJAé\x00", max_size=30))
def test_any_text_is_an_expression_or_refused(cron: str) -> None:
    schedule = Schedule(cron, "Europe/Berlin")
    try:
        check_schedule("daily", schedule, NOW_MS)
    except InvalidArgument:
        return
    following = next_instants(schedule, NOW_MS, 3)
    assert following == sorted(set(following))
    assert following[0] > NOW_MS
    assert due(schedule, NOW_MS, following[0]).instants == (following[0],)


@pytest.mark.parametrize("schedule", [Schedule("* * * * *", "Mars/Base"), Schedule("* * * * X")])
def test_a_schedule_of_another_version_is_refused_by_name(schedule: Schedule) -> None:
    with pytest.raises(InvalidArgument, match="give all brokers the same version"):
        next_instants(schedule, 1_000, 1)
    with pytest.raises(InvalidArgument, match="give all brokers the same version"):
        due(schedule, 1_000, 2_000)
