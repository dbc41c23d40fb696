"""Durations and sizes: what people may write, what they are told otherwise, and that what is
printed can be written.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.model.units import (
    format_duration,
    format_millis,
    format_size,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "unit_seconds", "value"),
    [
        ("0", 1, 0),
        ("0s", 60, 0),
        ("90s", 1, 90),
        ("10m", 60, 10),
        ("1h30m", 60, 90),
        ("7d", 60, 10_080),
        ("2W", 1, 1_209_600),
        ("120s", 60, 2),
        (" 12h ", 1, 43_200),
    ],
)
def test_durations(text: str, unit_seconds: int, value: int) -> None:
    assert parse_duration(text, unit_seconds=unit_seconds) == value


@pytest.mark.parametrize("text", ["forever", "-1", "unlimited", "Forever"])
def test_without_a_limit(text: str) -> None:
    assert parse_duration(text, unlimited=True) == -1
    assert parse_size(text, unlimited=True) == -1
    for parse in (parse_duration, parse_size):
        with pytest.raises(ValueError, match="cannot be without a limit"):
            parse(text)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("10", "write 10s, 10m, 10h or 10d"),
        ("ten", "1h30m"),
        ("", "1h30m"),
        ("1.5h", "1h30m"),
        ("-5m", "1h30m"),
        ("90s", "write 1m or 2m"),
    ],
)
def test_what_is_no_duration_is_told_how_to_be_one(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match="write") as raised:
        parse_duration(text, unit_seconds=60)
    assert hint in str(raised.value)


@pytest.mark.parametrize(
    ("text", "unit_bytes", "value"),
    [
        ("0", 1, 0),
        ("4096", 1, 4096),
        ("100KB", 1, 102_400),
        ("1k", 1, 1024),
        ("512MB", 1 << 20, 512),
        ("10 GB", 1 << 20, 10_240),
        ("1GiB", 1, 1 << 30),
        ("2T", 1 << 20, 2 << 20),
        ("2048K", 1 << 20, 2),
    ],
)
def test_sizes(text: str, unit_bytes: int, value: int) -> None:
    assert parse_size(text, unit_bytes=unit_bytes) == value


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ten", "512MB"),
        ("", "512MB"),
        ("1.5GB", "512MB"),
        ("-2", "512MB"),
        ("1500KB", "write 1MB or 2MB"),
    ],
)
def test_what_is_no_size_is_told_how_to_be_one(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match="write") as raised:
        parse_size(text, unit_bytes=1 << 20)
    assert hint in str(raised.value)


@given(st.integers(min_value=-1, max_value=2**50), st.sampled_from([1, 60]))
def test_a_duration_that_is_printed_can_be_written(value: int, unit_seconds: int) -> None:
    assert (
        parse_duration(
            format_duration(value, unit_seconds=unit_seconds),
            unit_seconds=unit_seconds,
            unlimited=True,
        )
        == value
    )


@given(st.integers(min_value=-1, max_value=2**60), st.sampled_from([1, 1 << 20]))
def test_a_size_that_is_printed_can_be_written(value: int, unit_bytes: int) -> None:
    assert (
        parse_size(format_size(value, unit_bytes=unit_bytes), unit_bytes=unit_bytes, unlimited=True)
        == value
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0s"), (90, "1m30s"), (604_800, "7d"), (-1, "forever"), (90_061, "1d1h1m1s")],
)
def test_durations_as_they_are_printed(value: int, shown: str) -> None:
    assert format_duration(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (1000, "1000"), (10 << 30, "10GiB"), (1536 << 20, "1536MiB"), (-1, "unlimited")],
)
def test_sizes_as_they_are_printed(value: int, shown: str) -> None:
    assert format_size(value) == shown


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (1000, "1.0s"),
        (59_940, "59.9s"),
        (60_000, "1m"),
        (3_599_999, "59m59s"),
        (90_061_000, "1d1h"),
    ],
)
def test_milliseconds_are_said_in_two_units_at_most(milliseconds: int, text: str) -> None:
    assert format_millis(milliseconds) == text
