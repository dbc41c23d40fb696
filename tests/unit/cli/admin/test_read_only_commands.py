"""``pulsarish bookies set-read-only`` and ``set-writable``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsarish.cli.admin import common
from tests.support.admin_server import AdminServer, run

PATH = "/admin/v2/bookies/read-only/b"


def state(**fields: Any) -> dict[str, Any]:
    return {
        "bookieId": "b",
        "instanceId": "b~1",
        "asked": True,
        "alive": True,
        "readOnly": False,
        "reason": "",
        **fields,
    }


def test_the_command_waits_until_the_bookie_has_followed(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "_LOOK_SECONDS", 0.0)
    server.answer(f"PUT {PATH}", body=state())
    looks = [state(), state(readOnly=True, reason="an operator set it read-only")]
    server.answer_each(f"GET {PATH}~1", lambda: (200, looks.pop(0)))
    done = run(server, "bookies", "set-read-only", "b", "--reason", "disk", "--force")
    assert (done.exit_code, looks) == (0, [])
    assert "bookie b is read-only" in done.stderr
    assert server.requests[0][:2] == ("PUT", f"{PATH}?reason=disk&force=true")


def test_a_bookie_that_does_not_follow_is_an_error(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "_FOLLOW_SECONDS", 0.0)
    server.answer(f"DELETE {PATH}", body=state(readOnly=True, reason="the disk is full"))
    done = run(server, "bookies", "set-writable", "b")
    assert (done.exit_code, "the disk is full" in done.stderr) == (1, True)


def test_a_bookie_that_does_not_run_follows_later(server: AdminServer) -> None:
    asked = state(alive=False)
    server.answer(f"PUT {PATH}", body=asked)
    done = run(server, "bookies", "set-read-only", "b")
    assert (done.exit_code, "when it does" in done.stderr) == (0, True)
    shown = run(server, "bookies", "set-read-only", "b", "-o", "json")
    assert json.loads(shown.stdout) == asked
