"""A few lines for operators from a topic's statistics: what is stuck, why, and since when.

The statistics have them as ``diagnosis``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pulsarish.broker.clients.wait_reasons import duration

__all__ = ["NOTHING_STUCK", "diagnose"]

NOTHING_STUCK: Final = "nothing stands still"
"""The line for a topic without stalled producers or subscriptions."""

_LINES_MAX: Final = 20
# Every working consumer has unacknowledged messages. Report them only after this time.
_UNACKNOWLEDGED_MS: Final = 60_000


def diagnose(stats: Mapping[str, Any], now_ms: int) -> list[str]:
    """Return the lines for ``stats`` of ``topic_stats``. One line when nothing is stuck."""
    lines: list[str] = []
    _say(lines, "topic", stats["waiting"], now_ms)
    missing = stats.get("underReplicated") or []
    if missing:
        since_ms = min(each["sinceMs"] for each in missing)
        lines.append(
            f"topic: copies of {len(missing)} of its ledgers are missing, the first for "
            f"{duration(now_ms - since_ms)}"
        )
    failure = stats.get("lastAddFailure")
    if failure:
        lines.append(
            f"topic: entries were last refused {duration(now_ms - failure['atMs'])} ago: "
            f"{failure['error']}"
        )
    for publisher in stats["publishers"]:
        waiting = publisher["waiting"]
        if (
            waiting["state"] == "waiting"
            and waiting["explanation"] == stats["waiting"]["explanation"]
        ):
            waiting = {**waiting, "explanation": "as the topic", "retryAtMs": 0}
        _say(lines, f"producer {publisher['producerName']}", waiting, now_ms)
    for name, subscription in stats["subscriptions"].items():
        waiting = subscription["waiting"]
        if (
            waiting["reason"] == "unacknowledged"
            and now_ms - waiting["sinceMs"] < _UNACKNOWLEDGED_MS
        ):
            continue
        said = len(lines)
        _say(lines, f"subscription {name}", waiting, now_ms)
        if len(lines) > said and subscription.get("oldestUnackedAgeMs") is not None:
            age = duration(subscription["oldestUnackedAgeMs"])
            lines[-1] += (
                f"; its oldest message, {subscription['oldestUnackedPosition']}, is {age} old"
            )
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
    lines.append(
        f"{who}: waiting{since} ({waiting['reason'].replace('_', ' ')}): "
        f"{waiting['explanation'].rstrip('.')}{again}"
    )
