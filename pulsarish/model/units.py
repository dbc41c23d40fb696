"""Durations and sizes as people write them: ``7d``, ``1h30m``, ``512MB``, ``forever``.

Parses and formats them.

A duration needs a unit, since Apache Pulsar counts retention in minutes, TTL in seconds and delays
in milliseconds. A size without a unit is in bytes. When parsed, KB, MB, GB and TB are powers of
1,024, as in Apache Pulsar's administration, and so are KiB, MiB, GiB and TiB. Formatted sizes use
KiB, MiB, GiB and TiB, so that they are not mistaken for powers of 1,000.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

__all__ = [
    "UNLIMITED",
    "format_duration",
    "format_instant",
    "format_millis",
    "format_size",
    "human_bytes",
    "parse_duration",
    "parse_size",
]

UNLIMITED: Final = -1
"""The value of "no limit" in Apache Pulsar's policies."""

_UNLIMITED_WORDS: Final = ("forever", "unlimited", "-1")
_SECONDS: Final = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION: Final = re.compile(r"(?:\d+[wdhms])+")
_DURATION_PART: Final = re.compile(r"(\d+)([wdhms])")
_SIZE: Final = re.compile(r"(\d+)\s*([KMGT]?)(?:I?B)?", re.IGNORECASE)
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_SIZE_UNITS: Final = ("TiB", "GiB", "MiB", "KiB")


def parse_duration(text: str, *, unit_seconds: int = 1, unlimited: bool = False) -> int:
    """Return the duration in units of ``unit_seconds`` (1 or 60).

    Raises ``ValueError`` that describes the accepted form.
    """
    word = text.strip().lower()
    if word in _UNLIMITED_WORDS:
        if unlimited:
            return UNLIMITED
        raise ValueError(
            f"{text!r}: this cannot be without a limit; write it like 90s, 10m, 12h or 7d"
        )
    if word == "0":
        return 0
    if word.isdecimal():
        raise ValueError(f"{text!r} has no unit; write {word}s, {word}m, {word}h or {word}d")
    if not _DURATION.fullmatch(word):
        raise ValueError(
            f"{text!r} is no duration; write it like 90s, 10m, 1h30m or 7d"
            + (", or forever" if unlimited else "")
        )
    seconds = sum(int(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(word))
    if seconds % unit_seconds:
        raise ValueError(
            f"{text!r} is not a whole number of minutes; write {seconds // 60}m or "
            f"{seconds // 60 + 1}m"
        )
    return seconds // unit_seconds


def parse_size(text: str, *, unit_bytes: int = 1, unlimited: bool = False) -> int:
    """Return the size in units of ``unit_bytes`` (1, or 1,048,576).

    Raises ``ValueError`` that describes the accepted form.
    """
    word = text.strip()
    if word.lower() in _UNLIMITED_WORDS:
        if unlimited:
            return UNLIMITED
        raise ValueError(
            f"{text!r}: this cannot be without a limit; write it like 100KB, 512MB or 10GB"
        )
    match = _SIZE.fullmatch(word)
    if match is None:
        raise ValueError(
            f"{text!r} is no size; write it like 4096, 100KB, 512MB or 10GB"
            + (", or unlimited" if unlimited else "")
        )
    size = int(match[1]) << 10 * _POWERS[match[2].upper()]
    if size % unit_bytes:
        megabytes = size // unit_bytes
        raise ValueError(
            f"{text!r} is not a whole number of megabytes; write {megabytes}MB or {megabytes + 1}MB"
        )
    return size // unit_bytes


def format_duration(value: int, *, unit_seconds: int = 1) -> str:
    """Return a text that ``parse_duration`` accepts, with at most two units where that is exact."""
    if value == UNLIMITED:
        return "forever"
    rest = value * unit_seconds
    if rest == 0:
        return "0s"
    parts = []
    for name, seconds in _SECONDS.items():
        if name != "w" and rest >= seconds:
            parts.append(f"{rest // seconds}{name}")
            rest %= seconds
    return "".join(parts)


def format_millis(value: int) -> str:
    """Return a duration in milliseconds as text, in at most its two largest units."""
    if value < 1000:
        return f"{value}ms"
    if value < 60_000:
        return f"{value / 1000:.1f}s"
    units = _DURATION_PART.findall(format_duration(value // 1000))
    return "".join(number + unit for number, unit in units[:2])


def format_instant(value: int) -> str:
    """Return milliseconds since the epoch as a date and time.

    Options for times accept this form too.
    """
    return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")


def human_bytes(count: float) -> str:
    """Return a size for a person: two or three digits, in binary units."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.0f} GiB" if count >= 100 else f"{count:.1f} GiB"


def format_size(value: int, *, unit_bytes: int = 1) -> str:
    """Return a text that ``parse_size`` accepts, in the largest unit that divides the size."""
    if value == UNLIMITED:
        return "unlimited"
    size = value * unit_bytes
    for index, unit in enumerate(_SIZE_UNITS):
        power = 1024 ** (len(_SIZE_UNITS) - index)
        if size and size % power == 0:
            return f"{size // power}{unit}"
    return str(size)
