"""Commands for the schedules of topics."""

from __future__ import annotations

import json

from tests.support.admin_server import NEW, AdminServer, run

DAILY = {
    "cron": "0 8 * * *",
    "timezone": "UTC",
    "payload": "Z28=",
    "key": "",
    "properties": {},
    "missed": "last",
    "paused": False,
    "decidedUntil": "2026-11-27T08:00:00Z",
    "next": ["2026-11-28T08:00:00Z"],
}


def test_a_schedule_is_set_and_its_next_instant_shown(server: AdminServer) -> None:
    server.answer(f"GET {NEW}/schedules/daily", body=DAILY)
    options = ("--timezone", "Europe/Berlin", "--payload", "go", "--key", "k", "-p", "a=b")
    done = run(
        server, "topics", "schedules", "set", "acme/orders/new", "daily", "--cron", "0 8 * * *",
        *options, "--missed", "skip",
    )  # fmt: skip
    assert (done.exit_code, "next: 2026-11-28T08:00:00Z" in done.output) == (0, True)
    assert server.requests[0] == (
        "PUT",
        f"{NEW}/schedules/daily",
        {
            "cron": "0 8 * * *",
            "timezone": "Europe/Berlin",
            "payload": "Z28=",
            "key": "k",
            "properties": {"a": "b"},
            "missed": "skip",
        },
    )


def test_schedules_are_listed_and_shown(server: AdminServer) -> None:
    paused = {**DAILY, "paused": True, "next": []}
    server.answer(f"GET {NEW}/schedules", body={"daily": DAILY, "a": paused})
    listed = run(server, "topics", "schedules", "list", "acme/orders/new").stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["NAME", "a", "daily"]
    assert (listed[1].split()[-1], listed[2].split()[-1]) == ("paused", "2026-11-28T08:00:00Z")
    server.answer(f"GET {NEW}/schedules/daily", body=DAILY)
    command = ("topics", "schedules", "get", "acme/orders/new", "daily", "-n", "1")
    assert json.loads(run(server, *command, "-o", "json").stdout) == DAILY
    assert "payload       go" in run(server, *command).stdout
    assert server.requests[-1][1] == f"{NEW}/schedules/daily?count=1"


def test_schedules_are_paused_resumed_and_removed(server: AdminServer) -> None:
    for words in (("pause",), ("resume",), ("remove", "--yes")):
        command, *options = words
        done = run(server, "topics", "schedules", command, "acme/orders/new", "daily", *options)
        assert done.exit_code == 0, done.output
    assert [request[:2] for request in server.requests] == [
        ("POST", f"{NEW}/schedules/daily/pause"),
        ("POST", f"{NEW}/schedules/daily/resume"),
        ("DELETE", f"{NEW}/schedules/daily"),
    ]
