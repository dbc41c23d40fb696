"""A few lines for people from a topic's statistics: who is stuck, why, and since when. They stand in the statistics as ``diagnosis``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pulsarish.broker.progress.reasons import duration

__all__ = ["NOTHING_STUCK", "diagnose"]

NOTHING_STUCK: Final = "nothing stands still"
"""What there is to say of a topic in which nothing does."""

_LINES_MAX: Final = 20
# Delivered and not acknowledged yet is what every working consumer has; only from here on is it worth a line.
_UNACKNOWLEDGED_MS: Final = 60_000


def diagnose(stats: Mapping[str, Any], now_ms: int) -> list[str]:
    """``stats`` as ``topic_stats`` makes them. One line when nothing stands still."""
    lines: list[str] = []
    _say(lines, "topic", stats["waiting"], now_ms)
    lacking = stats.get("underReplicated") or []
    if lacking:
        since_ms = min(each["sinceMs"] for each in lacking)
        lines.append(f"topic: copies of {len(lacking)} of its ledgers are lacking, the first for {duration(now_ms - since_ms)}")
    failure = stats.get("lastAddFailure")
    if failure:
        lines.append(f"topic: entries were last refused {duration(now_ms - failure['atMs'])} ago: {failure['error']}")
    for publisher in stats["publishers"]:
        waiting = publisher["waiting"]
        if waiting["state"] == "waiting" and waiting["explanation"] == stats["waiting"]["explanation"]:
            waiting = {**waiting, "explanation": "as the topic", "retryAtMs": 0}
        _say(lines, f"producer {publisher['producerName']}", waiting, now_ms)
    for name, subscription in stats["subscriptions"].items():
        waiting = subscription["waiting"]
        if waiting["reason"] == "unacknowledged" and now_ms - waiting["sinceMs"] < _UNACKNOWLEDGED_MS:
            continue
        said = len(lines)
        _say(lines, f"subscription {name}", waiting, now_ms)
        if len(lines) > said and subscription.get("oldestUnackedAgeMs") is not None:
            age = duration(subscription["oldestUnackedAgeMs"])
            lines[-1] += f"; its oldest message, {subscription['oldestUnackedPosition']}, is {age} old"
    if len(lines) > _LINES_MAX:
        lines[_LINES_MAX:] = [f"and {len(lines) - _LINES_MAX} more"]
    return lines or [NOTHING_STUCK]


def _say(lines: list[str], who: str, waiting: Mapping[str, Any], now_ms: int) -> None:
    if waiting["state"] != "waiting":
        return
    since = f" for {duration(now_ms - waiting['sinceMs'])}" if waiting["sinceMs"] else ""
    again = ""
    if waiting["retryAtMs"]:
        again = f"; tried again in {duration(max(0, waiting['retryAtMs'] - now_ms))}"
    lines.append(f"{who}: waiting{since} ({waiting['reason'].replace('_', ' ')}): {waiting['explanation'].rstrip('.')}{again}")
