"""Print the holes of a subscription: what the broker says of them, and a line for each."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pulsarish.cli.output import print_json, print_line, print_table, say
from pulsarish.model.units import format_millis

__all__ = ["print_holes"]


def print_holes(report: Mapping[str, Any], output: str) -> None:
    """Print the report of ``Admin.subscriptions.holes``."""
    if output == "json":
        print_json(report)
        return
    topic, name = report["topic"], report["subscription"]
    print_line(f"{topic}, subscription {name}: {report['explanation']}")
    print_line(
        f"  {report['acknowledgedRanges']} acknowledged ranges above "
        f"{report['markDeletePosition']} take {report['memoryBytes']} bytes of memory"
    )
    if not report["holes"]:
        return
    now_ms = time.time_ns() // 1_000_000
    rows = [
        {**hole, "holders": [_shown(each, now_ms) for each in hole["holders"]]}
        for hole in report["listed"]
    ]
    print_table(rows, ("first", "last", "entries", "holders"), output)
    if report["next"]:
        say(f"more: pulsarish subscriptions holes {topic} {name} --from {report['next']}")


def _shown(holder: Mapping[str, Any], now_ms: int) -> str:
    text = f"{holder['state']} {holder['consumerName'] or ''}".rstrip() + f" {holder['entries']}"
    if holder["sinceMs"]:
        return f"{text} (since {format_millis(now_ms - holder['sinceMs'])} at least)"
    if holder["dueMs"] > now_ms:
        return f"{text} (for {format_millis(holder['dueMs'] - now_ms)} at least)"
    return text
