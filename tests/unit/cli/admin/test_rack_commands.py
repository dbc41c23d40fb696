"""``pulsarish bookies set-bookie-rack``, ``delete-bookie-rack`` and ``racks-placement``."""

from __future__ import annotations

import json

from tests.support.admin_server import AdminServer, run

RACKS = "/admin/v2/bookies/racks-info"
BOOKIE = {"bookie_id": "b", "address": "one:3181"}


def test_a_rack_and_a_group_are_set_and_removed(server: AdminServer) -> None:
    server.answer(f"POST {RACKS}/b", status=204)
    server.answer(f"DELETE {RACKS}/b", status=204)
    server.answer("GET /admin/v2/bookies", body=[BOOKIE])
    done = run(server, "bookies", "set-bookie-rack", "b", "--rack", "r1", "--group", "pay")
    assert (done.exit_code, "registered" in done.stderr) == (0, False)
    assert "bookie b is in group pay, rack r1" in done.stderr
    method, path, *_ = server.requests[0]
    assert (method, path) == ("POST", f"{RACKS}/b?group=pay")
    done = run(server, "bookies", "delete-bookie-rack", "b")
    assert "bookie b is in group default" in done.stderr


def test_a_bookie_that_is_not_there_is_named(server: AdminServer) -> None:
    server.answer(f"POST {RACKS}/typo", status=204)
    server.answer("GET /admin/v2/bookies", body=[BOOKIE])
    done = run(server, "bookies", "set-bookie-rack", "typo", "--group", "pay")
    assert (done.exit_code, "no bookie typo is registered now" in done.stderr) == (0, True)


def test_all_are_shown_by_group(server: AdminServer) -> None:
    place = {"rack": "r1", "hostname": "one"}
    server.answer(f"GET {RACKS}", body={"pay": {"b": place}, "default": {"a": place}})
    shown = run(server, "bookies", "racks-placement", "-o", "json")
    assert json.loads(shown.stdout) == [
        {"bookie": "a", "group": "default", **place},
        {"bookie": "b", "group": "pay", **place},
    ]
