"""Print a topic's statistics: first what is blocked, then rates, then producers and consumers. JSON
has all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

from pulsarish.cli.output import TLS, counted, print_line, print_record, print_table
from pulsarish.model.units import human_bytes

__all__ = ["print_stats"]

_NOTHING_STUCK: Final = "nothing stands still"
_LINES_MAX: Final = 20

_PRODUCERS: Final = ["producer", "msg/s", "bytes/s", "msgs", "address", "since", "state"]
_SUBSCRIPTIONS: Final = [
    "subscription",
    "type",
    "entries",
    "messages",
    "bytes",
    "unacked",
    "msg/s",
    "redelivered/s",
    "consumers",
    "state",
]
_PARTITIONS: Final = ["partition", "msg/s in", "msg/s out", "stored", "backlog", "state"]


def print_stats(topic: str, stats: Mapping[str, Any]) -> None:
    """Print statistics of a topic, or sums over its partitions, which may then follow one by one in
    ``partitions``.
    """
    print_record(_head(topic, stats), "table")
    for line in _stuck(stats):
        print_line(f"  {line}")
    for rows, columns in (
        ([_producer(each) for each in stats.get("publishers", ())], _PRODUCERS),
        (
            [_subscription(name, each) for name, each in stats.get("subscriptions", {}).items()],
            _SUBSCRIPTIONS,
        ),
        (
            [_partition(name, each) for name, each in stats.get("partitions", {}).items()],
            _PARTITIONS,
        ),
    ):
        if rows:
            click.echo()
            print_table(rows, columns, "table")


def _owner(owner: Mapping[str, str]) -> str:
    return f"{owner['broker']} ({owner['httpAddress'] or owner['address'].removeprefix(TLS)})"


def _head(topic: str, stats: Mapping[str, Any]) -> dict[str, object]:
    owner = stats.get("owner")
    partitions = stats.get("metadata", {}).get("partitions")
    return {
        "topic": topic,
        **({"partitions": partitions} if partitions is not None else {}),
        **({"broker": _owner(owner)} if owner and partitions is None else {}),
        "in": _flow(stats, "In"),
        "out": _flow(stats, "Out"),
        "stored": (
            f"{human_bytes(stats.get('storageSize', 0))}, the largest backlog "
            f"{human_bytes(stats.get('backlogSize', 0))}"
        ),
        "diagnosis": "something stands still:" if _stuck(stats) else _NOTHING_STUCK,
    }


def _stuck(stats: Mapping[str, Any]) -> list[str]:
    """Return the broker's sentences, each once: partitions have many of them in common."""
    lines = list(
        dict.fromkeys(line for line in stats.get("diagnosis", ()) if line != _NOTHING_STUCK)
    )
    return [
        *lines[:_LINES_MAX],
        *([f"and {len(lines) - _LINES_MAX} more"] if len(lines) > _LINES_MAX else []),
    ]


def _flow(stats: Mapping[str, Any], way: str) -> str:
    messages, size = (
        stats.get(f"msg{way}Counter", 0),
        human_bytes(stats.get(f"bytes{way}Counter", 0)),
    )
    rate, throughput = (
        stats.get(f"msgRate{way}", 0),
        human_bytes(stats.get(f"msgThroughput{way}", 0)),
    )
    return (
        f"{rate:,.1f} msg/s, {throughput}/s; {counted(messages, 'message', 'messages')}, "
        f"{size} since it was opened"
    )


def _state(part: Mapping[str, Any]) -> str:
    if dropped := part.get("msgDropCounter"):
        return (
            f"{counted(dropped, 'message', 'messages')} dropped, "
            f"{part.get('msgDropRate', 0):,.1f}/s"
        )
    waiting = part.get("waiting") or {}
    return str(waiting.get("explanation") or waiting.get("state") or "")


def _producer(producer: Mapping[str, Any]) -> dict[str, object]:
    return {
        "producer": producer.get("producerName"),
        "msg/s": producer.get("msgRateIn"),
        "bytes/s": producer.get("msgThroughputIn"),
        "msgs": producer.get("msgInCounter"),
        "address": producer.get("address"),
        "since": producer.get("connectedSince"),
        "state": _state(producer),
    }


def _messages(subscription: Mapping[str, Any]) -> str:
    about = "~" if subscription.get("backlogMessagesEstimated") else ""
    return f"{about}{subscription.get('backlogMessages', 0)}"


def _subscription(name: str, subscription: Mapping[str, Any]) -> dict[str, object]:
    return {
        "subscription": name,
        "type": subscription.get("type"),
        "entries": subscription.get("msgBacklog"),
        "messages": _messages(subscription),
        "bytes": human_bytes(subscription.get("backlogSize", 0)),
        "unacked": subscription.get("unackedMessages"),
        "msg/s": subscription.get("msgRateOut"),
        "redelivered/s": subscription.get("msgRateRedeliver"),
        "consumers": len(subscription.get("consumers", ())),
        "state": _state(subscription),
    }


def _partition(name: str, stats: Mapping[str, Any]) -> dict[str, object]:
    return {
        "partition": name.rpartition("/")[2],
        "msg/s in": stats.get("msgRateIn"),
        "msg/s out": stats.get("msgRateOut"),
        "stored": human_bytes(stats.get("storageSize", 0)),
        "backlog": human_bytes(stats.get("backlogSize", 0)),
        "state": _state(stats),
    }
