"""``pulsarish autorecovery``, and the warning of commands that wait for copies."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.support.admin_server import AdminServer, run

ROOT = "/admin/v2/bookies/autorecovery"


def state(**fields: Any) -> dict[str, Any]:
    return {
        "enabled": True,
        "offSinceMs": 0,
        "reason": "",
        "lostBookieRecoveryDelaySeconds": None,
        "auditor": "bookie-1~00",
        "looksAsked": 0,
        "looksDone": 0,
        "underReplicatedLedgers": 3,
        "givenUpBookies": [],
        **fields,
    }


def off() -> dict[str, Any]:
    return state(enabled=False, reason="new disks", offSinceMs=int(time.time() * 1000) - 90_000)


@pytest.mark.parametrize(
    ("arguments", "request_made", "said"),
    [
        (["enable"], "PUT /enable", "auto-recovery is on"),
        (
            ["disable", "--reason", "disks"],
            "PUT /disable?reason=disks",
            "before `autorecovery enable`",
        ),
        (["trigger"], "PUT /trigger", "looks through"),
        (["trigger", "--ask-bookies"], "PUT /trigger?askBookies=true", "looks through"),
        (
            ["set-lost-bookie-delay", "30m"],
            "PUT /lost-bookie-delay?seconds=1800",
            "away for 1800 s",
        ),
        (["set-lost-bookie-delay", "default"], "DELETE /lost-bookie-delay", "each node's"),
    ],
)
def test_a_command_makes_its_request_and_says_what_follows(
    server: AdminServer, arguments: list[str], request_made: str, said: str
) -> None:
    method, _, path = request_made.partition(" ")
    server.answer(f"{method} {ROOT}{path.partition('?')[0]}", body=state())
    server.answer(f"GET {ROOT}", body=state())
    done = run(server, "autorecovery", *arguments)
    assert said.replace("looks", "look") in done.stderr
    assert (method, ROOT + path) in [(method, path) for method, path, _ in server.requests]
    assert json.loads(run(server, "autorecovery", *arguments, "-o", "json").stdout) == state()


def test_the_auditor_is_named_and_its_absence_is_a_failure(server: AdminServer) -> None:
    server.answer(f"GET {ROOT}", body=state())
    assert run(server, "autorecovery", "who-is-auditor").stdout == "bookie-1~00\n"
    server.answer(f"GET {ROOT}", body=state(auditor=""))
    none = run(server, "autorecovery", "who-is-auditor")
    assert (none.exit_code, none.stdout) == (1, "")
    assert "no process with auto-recovery runs" in none.stderr


def test_a_delay_without_a_unit_is_refused(server: AdminServer) -> None:
    refused = run(server, "autorecovery", "set-lost-bookie-delay", "30")
    assert (refused.exit_code, server.requests) == (2, [])
    assert "30m" in refused.stderr


def test_commands_about_copies_say_that_auto_recovery_is_off(server: AdminServer) -> None:
    server.answer(f"GET {ROOT}", body=off())
    server.answer("GET /admin/v2/bookies", body=[])
    server.answer("GET /admin/v2/bookies/underreplicated", body=[])
    for command in (
        ["bookies", "list"],
        ["bookies", "under-replicated"],
        ["autorecovery", "status"],
    ):
        said = run(server, *command).stderr
        assert "off for 1m30s (new disks)" in said
        assert "pulsarish autorecovery enable" in said


def test_commands_that_wait_for_copies_say_that_no_process_makes_them(server: AdminServer) -> None:
    server.answer(f"GET {ROOT}", body=state(auditor=""))
    server.answer("GET /admin/v2/bookies", body=[])
    server.answer("GET /admin/v2/bookies/underreplicated", body=[])
    assert "auto_recovery_daemon_enabled" in run(server, "bookies", "under-replicated").stderr
    assert "no process" not in run(server, "bookies", "list").stderr


def test_a_broker_that_cannot_switch_it_off_is_no_error(server: AdminServer) -> None:
    server.answer(f"GET {ROOT}", 404, body={"reason": "no such path"})
    server.answer("GET /admin/v2/bookies", body=[])
    assert run(server, "bookies", "list").exit_code == 0
