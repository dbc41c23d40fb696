"""``pulsarish bookies rebalance``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsarish.cli.admin import rebalance
from tests.support.admin_server import AdminServer, run

PATH = "/admin/v2/bookies/rebalance"
STATE: dict[str, Any] = {
    "running": True,
    "placement": False,
    "firstLedgers": [],
    "dryRun": False,
    "rateBytes": 1 << 20,
    "askedMs": 1,
    "reason": "",
    "ledgersMoved": 0,
    "bytesMoved": 0,
    "ledgersPlanned": 0,
    "bytesPlanned": 0,
    "bookies": [],
}


@pytest.fixture(autouse=True)
def no_pause(server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "_LOOK_SECONDS", 0.0)
    server.answer("GET /admin/v2/bookies/autorecovery", body={"enabled": True, "auditor": "a~1"})


def test_it_asks_waits_and_shows_what_has_moved(server: AdminServer) -> None:
    server.answer(f"PUT {PATH}", body=STATE)
    end = {
        "running": False,
        "reason": "bookies are even",
        "ledgersMoved": 4,
        "bytesMoved": 4 << 20,
        "ledgersPlanned": 4,
        "bookies": [
            {"bookieId": "b1", "instanceId": "b1~1", "bytes": 5 << 20, "bytesThen": 5 << 20}
        ],
    }
    left = [{"ledgersMoved": 1, "ledgersPlanned": 4}, end]
    server.answer_each(f"GET {PATH}", lambda: (200, {**STATE, **left.pop(0)}))
    arguments = ["--rate", "1MB", "--max-ledgers", "9", "--tolerance", "5"]
    done = run(server, "bookies", "rebalance", *arguments)
    assert (done.exit_code, left) == (0, [])
    assert server.requests[0][1] == f"{PATH}?rateBytes=1048576&maxLedgers=9&tolerancePercent=5"
    assert done.stdout.split() == ["BOOKIE", "HOLDS", "THEN", "b1", "5.0", "MiB", "5.0", "MiB"]
    assert "ended; copies of 4 of 4 ledgers, 4.0 MiB have moved: bookies are even" in done.stderr


@pytest.mark.parametrize("command", ["rebalance", "placement-audit"])
def test_without_metadata_it_says_that_the_move_goes_on(server: AdminServer, command: str) -> None:
    away = {"X-Pulsarish-Error-Code": "43"}
    server.answer(f"PUT /admin/v2/bookies/{command}", body=STATE)
    server.answer(f"GET {PATH}", 503, {"reason": "the metadata do not answer"}, away)
    done = run(server, "bookies", command)
    assert done.exit_code == 1
    assert "the metadata do not answer" in done.stderr
    assert "goes on by itself where it was: pulsarish bookies rebalance status" in done.stderr


def test_a_dry_run_says_what_would_move_and_how_long_it_takes(server: AdminServer) -> None:
    server.answer(f"PUT {PATH}", body={**STATE, "dryRun": True})
    end = {"running": False, "dryRun": True, "ledgersPlanned": 1, "bytesPlanned": 90 << 20}
    server.answer(f"GET {PATH}", body={**STATE, **end})
    done = run(server, "bookies", "rebalance", "--dry-run")
    assert "dryRun=true" in server.requests[0][1]
    assert "copies of 1 ledger would move, 90.0 MiB: 90 s at this rate" in done.stderr


def test_a_dry_run_says_that_it_plans_and_why_it_has_ended(server: AdminServer) -> None:
    server.answer(f"GET {PATH}", body={**STATE, "dryRun": True})
    now = run(server, "bookies", "rebalance", "status").stderr
    assert "planning which copies move" in now
    assert "moving" not in now
    end = {"running": False, "dryRun": True, "reason": "an operator has stopped it"}
    server.answer(f"GET {PATH}", body={**STATE, **end})
    then = run(server, "bookies", "rebalance", "status").stderr
    assert "ended: an operator has stopped it" in then


def test_an_audit_of_placement_counts_or_repairs(server: AdminServer) -> None:
    audit = "/admin/v2/bookies/placement-audit"
    server.answer(f"PUT {audit}", body={**STATE, "placement": True, "dryRun": True})
    end = {"running": False, "dryRun": True, "ledgersPlanned": 2, "firstLedgers": [4, 9]}
    server.answer(f"GET {PATH}", body={**STATE, **end})
    done = run(server, "bookies", "placement-audit")
    assert server.requests[0][1] == f"{audit}?rateBytes=16777216"
    assert "copies of 2 ledgers would move, 0 B: 0 s at this rate; the first are of" in done.stderr
    assert "ledgers 4, 9" in done.stderr
    server.requests.clear()
    run(server, "bookies", "placement-audit", "--repair", "--max-ledgers", "3")
    assert server.requests[0][1] == f"{audit}?rateBytes=16777216&maxLedgers=3&repair=true"


def test_what_still_runs_when_the_time_is_over_is_exit_status_1(server: AdminServer) -> None:
    # A slow machine may not look again within the time.
    for method in ("PUT", "GET"):
        server.answer(f"{method} {PATH}", body={**STATE, "reason": "ledger 7 has changed"})
    done = run(server, "bookies", "rebalance", "--wait-seconds", "0.01")
    assert done.exit_code == 1
    assert "moving; copies of 0 of 0 ledgers, 0 B have moved: ledger 7" in done.stderr
    assert run(server, "bookies", "rebalance", "--wait-seconds", "0").exit_code == 0


def test_status_and_stop_show_the_last_request(server: AdminServer) -> None:
    server.answer(f"GET {PATH}", body={**STATE, "running": False, "askedMs": 0})
    assert "no rebalance was asked for" in run(server, "bookies", "rebalance", "status").stderr
    server.answer(f"DELETE {PATH}", body={**STATE, "running": False})
    done = run(server, "bookies", "rebalance", "stop", "-o", "json")
    assert json.loads(done.stdout)["running"] is False
    assert [method for method, _, _ in server.requests] == ["GET", "DELETE"]


def test_a_rate_that_is_no_size_is_refused(server: AdminServer) -> None:
    refused = run(server, "bookies", "rebalance", "--rate", "fast")
    assert refused.exit_code == 2
    assert "'fast' is no size; write it like 4096" in refused.stderr
    assert server.requests == []
