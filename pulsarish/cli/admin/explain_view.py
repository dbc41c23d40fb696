"""Print why a topic or a subscription does not progress: who waits, since when, the broker's
sentence, the command that helps.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from pulsarish.cli.output import print_json, print_line
from pulsarish.model.units import format_millis

__all__ = ["print_explanation"]


def print_explanation(report: Mapping[str, Any], output: str) -> None:
    """Print a report of a topic or a subscription; that of a partitioned topic has
    ``partitions``.
    """
    if output == "json":
        print_json(report)
        return
    now_ms = time.time_ns() // 1_000_000
    if "partitions" in report:
        print_line(f"{report['topic']}: {report['explanation']}")
    for part in report.get("partitions", {"": report}).items():
        for line in _lines(part[0], part[1], now_ms):
            print_line(line)


def _lines(partition: str, report: Mapping[str, Any], now_ms: int) -> Iterator[str]:
    topic = report.get("topic", partition)
    if "subscription" in report:
        yield from _said(f"{topic}, subscription {report['subscription']}", report, now_ms)
        return
    yield from _said(topic, report, now_ms)
    for publisher in report.get("publishers", ()):
        yield from _said(f"{topic}, producer {publisher['producerName']}", publisher, now_ms)
    for name, subscription in report.get("subscriptions", {}).items():
        yield from _said(f"{topic}, subscription {name}", subscription, now_ms)


def _said(who: str, waiting: Mapping[str, Any], now_ms: int) -> Iterator[str]:
    since = f" for {format_millis(now_ms - waiting['sinceMs'])}" if waiting.get("sinceMs") else ""
    reason = f" ({waiting['reason']})" if waiting["reason"] else ""
    yield f"{who}: {waiting['state']}{since}{reason}"
    yield f"  {waiting['explanation']}"
    if waiting.get("retryAtMs", 0) > now_ms:
        yield f"  next attempt: in {format_millis(waiting['retryAtMs'] - now_ms)}"
    if waiting["help"]:
        yield f"  see: {waiting['help']}"
