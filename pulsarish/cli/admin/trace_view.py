"""Print the trace of a message: what it is, which bookies have it, and where it is for each
subscription.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from pulsarish.cli.output import counted, print_json, print_line, print_record, print_table
from pulsarish.model.units import format_instant, format_millis

__all__ = ["print_trace"]

_STATES: Final = {"consumer": "delivered", "waiting": "waits to be delivered", "unread": "not read"}


def print_trace(report: Mapping[str, Any], output: str) -> None:
    """Print the report of ``Admin.topics.trace_message``."""
    if output == "json":
        print_json(report)
        return
    print_line(f"{report['topic']} {report['messageId']}: {report['explanation']}")
    if report["message"]:
        known = {
            name: each for name, each in report["message"].items() if each not in ("", None, -1)
        }
        if report["expireTimestamp"]:
            known["expireTimestamp"] = report["expireTimestamp"]
        print_record(known, output)
    ledger = report["ledger"]
    if ledger:
        closed = f" at {format_instant(ledger['closedMs'])}" if ledger["closedMs"] else ""
        print_line(
            f"ledger {ledger['ledgerId']}: {ledger['state']}{closed}, "
            f"{counted(ledger['writeQuorum'], 'copy', 'copies')} of each entry, these bookies "
            f"from entry {ledger['firstEntry']} on"
        )
        rows = [{**copy, "registered": copy["isRegistered"]} for copy in ledger["copies"]]
        columns = ["bookie", "registered"]
        if any(copy["state"] for copy in rows):
            columns += ["state", "checksum", "reason"]
        print_table(rows, columns, output)
    if report["ledgerError"]:
        print_line(f"ledger: {report['ledgerError']}")
    if report["subscriptions"]:
        now_ms = time.time_ns() // 1_000_000
        rows = [
            {
                "subscription": name,
                "type": each["type"],
                "state": _state(each, now_ms),
                "consumer": each["consumerName"],
                "redelivered": each["redeliveryCount"],
                "notes": _notes(each),
            }
            for name, each in report["subscriptions"].items()
        ]
        columns = ["subscription", "type", "state", "consumer", "redelivered", "notes"]
        print_table(rows, columns, output)


def _state(body: Mapping[str, Any], now_ms: int) -> str:
    text = _STATES.get(body["state"], body["state"])
    if body["sinceMs"]:
        return f"{text} {format_millis(max(0, now_ms - body['sinceMs']))} ago or earlier"
    if body["dueMs"] > now_ms:
        return f"{text} for {format_millis(body['dueMs'] - now_ms)} at least"
    return str(text)


def _notes(body: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    if body["isHole"]:
        found.append("hole")
    if body["remainingMessages"] is not None:
        found.append(f"{body['remainingMessages']} of its batch left")
    if body["matchesFilter"] is False:
        found.append("the filter does not match")
    return found
