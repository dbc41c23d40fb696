"""Statistics and explanations as people and scripts see them."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.support.admin_server import NEW, AdminServer, run


def test_times_and_durations_of_a_record_are_said_to_people_and_counted_for_scripts(
    server: AdminServer,
) -> None:
    ago = int(time.time() * 1000) - 3_700_000
    subscription = {
        "type": "Shared",
        "lastAckedTimestamp": ago,
        "lastExpireTimestamp": 0,
        "oldestUnackedAgeMs": 90_061_000,
        "msgBacklog": 5,
        "subscriptionProperties": {"timestamp": 7},
        "waiting": {"state": "idle", "sinceMs": 1_767_225_600_000},
    }
    server.answer("GET /admin/v2/persistent/acme/orders/new/partitions", 200, {"partitions": 0})
    server.answer(
        "GET /admin/v2/persistent/acme/orders/new/stats",
        200,
        {"subscriptions": {"s": subscription}},
    )
    shown = dict(
        line.split(None, 1)
        for line in run(server, "subscriptions", "get", "acme/orders/new", "s").stdout.splitlines()
        if " " in line
    )
    assert shown["lastAckedTimestamp"].endswith("(1h1m ago)")
    assert (shown["lastExpireTimestamp"], shown["oldestUnackedAgeMs"], shown["msgBacklog"]) == (
        "-",
        "1d1h",
        "5",
    )
    assert shown["sinceMs"].startswith("2026-01-01T00:00:00.000+00:00 (")
    assert shown["timestamp"] == "7"  # a property is its user's own
    server.answer(
        "GET /admin/v2/ledgers/5",
        200,
        {"ledger_id": 5, "created_ms": 1_767_225_600_000, "length_bytes": 0},
    )
    assert (
        "created_ms    2026-01-01T00:00:00.000+00:00 (" in run(server, "ledgers", "get", "5").stdout
    )
    assert (
        json.loads(run(server, "subscriptions", "get", "acme/orders/new", "s", "-o", "json").stdout)
        == subscription
    )


STATS: dict[str, Any] = {
    "msgRateIn": 1234.5,
    "msgThroughputIn": 2048.0,
    "msgInCounter": 5000,
    "bytesInCounter": 3 << 20,
    "storageSize": 1 << 30,
    "backlogSize": 0,
    "owner": {"broker": "broker-1", "httpAddress": "h:8080"},
    "publishers": [
        {"producerName": "p", "msgRateIn": 1234.5, "waiting": {"state": "idle", "explanation": ""}}
    ],
    "subscriptions": {
        "s": {
            "type": "Shared",
            "msgBacklog": 7,
            "backlogMessages": 20,
            "backlogMessagesEstimated": True,
            "backlogSize": 12 << 10,
            "unackedMessages": 2,
            "consumers": [{}],
            "waiting": {"state": "waiting", "explanation": "7 entries wait for permits"},
        }
    },
    "diagnosis": ["subscription s: waiting for 3 s"],
}


def test_statistics_for_a_person_begin_with_what_stands_still(server: AdminServer) -> None:
    server.answer(f"GET {NEW}/partitions", 200, {"partitions": 0})
    server.answer(f"GET {NEW}/stats", 200, STATS)
    lines = [
        line.split()
        for line in run(server, "topics", "stats", "acme/orders/new").stdout.splitlines()
    ]
    assert lines == [
        ["topic", "persistent://acme/orders/new"],
        ["broker", "broker-1", "(h:8080)"],
        [
            "in",
            "1,234.5",
            "msg/s,",
            "2.0",
            "KiB/s;",
            "5,000",
            "messages,",
            "3.0",
            "MiB",
            "since",
            "it",
            "was",
            "opened",
        ],
        [
            "out",
            "0.0",
            "msg/s,",
            "0",
            "B/s;",
            "0",
            "messages,",
            "0",
            "B",
            "since",
            "it",
            "was",
            "opened",
        ],
        ["stored", "1.0", "GiB,", "the", "largest", "backlog", "0", "B"],
        ["diagnosis", "something", "stands", "still:"],
        ["subscription", "s:", "waiting", "for", "3", "s"],
        [],
        ["PRODUCER", "MSG/S", "BYTES/S", "MSGS", "ADDRESS", "SINCE", "STATE"],
        ["p", "1234.5", "-", "-", "-", "-", "idle"],
        [],
        [
            "SUBSCRIPTION",
            "TYPE",
            "ENTRIES",
            "MESSAGES",
            "BYTES",
            "UNACKED",
            "MSG/S",
            "REDELIVERED/S",
            "CONSUMERS",
            "STATE",
        ],
        [
            "s",
            "Shared",
            "7",
            "~20",
            "12.0",
            "KiB",
            "2",
            "-",
            "-",
            "1",
            "7",
            "entries",
            "wait",
            "for",
            "permits",
        ],
    ]
    assert (
        json.loads(run(server, "topics", "stats", "acme/orders/new", "-o", "json").stdout) == STATS
    )


def test_an_explanation_is_a_reason_a_sentence_and_a_command(server: AdminServer) -> None:
    waiting = {
        "state": "waiting",
        "reason": "no_permits",
        "explanation": "Nobody asks.",
        "help": "pulsarish subscriptions get t s",
    }
    idle = {
        "state": "idle",
        "reason": "",
        "explanation": "Nothing waits.",
        "help": "",
        "sinceMs": 0,
        "retryAtMs": 0,
    }
    report = {"topic": "t", "subscription": "s", **waiting, "sinceMs": 1, "retryAtMs": 1 << 50}
    server.answer(f"GET {NEW}/subscription/s/explain", 200, report)
    lines = run(server, "subscriptions", "explain", "acme/orders/new", "s").stdout.splitlines()
    assert lines[0].startswith("t, subscription s: waiting for ")
    assert lines[0].endswith(" (no_permits)")
    assert lines[1] == "  Nobody asks."
    assert lines[2].startswith("  next attempt: in ")
    assert lines[3] == "  see: pulsarish subscriptions get t s"
    assert (
        json.loads(
            run(server, "subscriptions", "explain", "acme/orders/new", "s", "-o", "json").stdout
        )
        == report
    )
    server.answer(
        f"GET {NEW}/explain",
        200,
        {
            "topic": "t",
            **idle,
            "publishers": [{"producerName": "p", **idle}],
            "subscriptions": {"s": waiting},
        },
    )
    assert run(server, "topics", "explain", "acme/orders/new").stdout.splitlines() == [
        "t: idle",
        "  Nothing waits.",
        "t, producer p: idle",
        "  Nothing waits.",
        "t, subscription s: waiting (no_permits)",
        "  Nobody asks.",
        "  see: pulsarish subscriptions get t s",
    ]
    partitions = {
        "t-partition-0": {"topic": "t-partition-0", "subscription": "s", **waiting},
        "t-partition-1": idle,
    }
    server.answer(
        f"GET {NEW}/subscription/s/explain",
        200,
        {"topic": "t", "explanation": "1 of 2 partitions wait.", "partitions": partitions},
    )
    lines = run(server, "subscriptions", "explain", "acme/orders/new", "s").stdout.splitlines()
    assert lines[:2] == [
        "t: 1 of 2 partitions wait.",
        "t-partition-0, subscription s: waiting (no_permits)",
    ]
    assert lines[4] == "t-partition-1: idle"


def test_holes_are_a_sentence_and_a_line_for_each(server: AdminServer) -> None:
    def holder(state: str, entries: int, **more: object) -> dict[str, object]:
        return {
            "state": state,
            "entries": entries,
            "consumerName": None,
            "sinceMs": 0,
            "dueMs": 0,
            **more,
        }

    hole = {"first": "3:5", "last": "3:9", "entries": 5, "examined": 5}
    holders = [
        holder("consumer", 2, consumerName="c", sinceMs=1),
        holder("delayed", 2, dueMs=1 << 50),
        holder("unread", 1),
    ]
    report = {
        "topic": "t",
        "subscription": "s",
        "holes": 7,
        "entriesInHoles": 9,
        "acknowledgedRanges": 6,
        "memoryBytes": 800,
        "markDeletePosition": "3:4",
        "highestAcknowledgedPosition": "3:40",
        "oldest": None,
        "explanation": "There are holes.",
        "listed": [{**hole, "holders": holders}],
        "next": "3:12",
    }
    server.answer(f"GET {NEW}/subscription/s/holes", 200, report)
    words = ("subscriptions", "holes", "acme/orders/new", "s", "--limit", "1", "--from", "3:5")
    done = run(server, *words)
    assert server.requests[-1][1].endswith("/holes?limit=1&from=3%3A5")
    lines = done.stdout.splitlines()
    assert lines[:2] == [
        "t, subscription s: There are holes.",
        "  6 acknowledged ranges above 3:4 take 800 bytes of memory",
    ]
    assert lines[2].split() == ["FIRST", "LAST", "ENTRIES", "HOLDERS"]
    assert lines[3].startswith("3:5    3:9   5        consumer c 2 (since ")
    assert ", delayed 2 (for " in lines[3]
    assert lines[3].endswith(", unread 1")
    assert "more: pulsarish subscriptions holes t s --from 3:12" in done.stderr
    assert json.loads(run(server, *words, "-o", "json").stdout) == report


def test_statistics_of_partitions_say_each_thing_once(server: AdminServer) -> None:
    server.answer(f"GET {NEW}/partitions", 200, {"partitions": 2})
    said = ["nothing stands still", *(f"s{number % 30}: waits" for number in range(60))]
    part = {"storageSize": 1024, "waiting": {"state": "idle"}}
    answer = {
        **STATS,
        "diagnosis": said,
        "metadata": {"partitions": 2},
        "partitions": {"persistent://acme/orders/new-partition-0": part},
    }
    server.answer(f"GET {NEW}/partitioned-stats", 200, answer)
    shown = run(server, "topics", "stats", "acme/orders/new", "--per-partition").stdout
    assert server.requests[-1][1] == f"{NEW}/partitioned-stats?perPartition=true"
    run(server, "topics", "stats", "acme/orders/new", "--get-precise-backlog")
    asked = f"{NEW}/partitioned-stats?perPartition=false&getPreciseBacklog=true"
    assert server.requests[-1][1] == asked
    assert shown.count("s3: waits") == 1
    assert "and 10 more" in shown
    assert "nothing stands still" not in shown
    assert "broker-1" not in shown
    assert shown.splitlines()[-1].split() == [
        "new-partition-0",
        "-",
        "-",
        "1.0",
        "KiB",
        "0",
        "B",
        "idle",
    ]
