"""``pulsarish storage cordon`` and ``uncordon``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsarish.cli.admin import common
from tests.support.admin_server import AdminServer, run

PATH = "/admin/v2/bookies/cordoned/b"
DIRECTORY = "/d1/ledgers"


def state(**fields: Any) -> dict[str, Any]:
    return {
        "bookieId": "b",
        "instanceId": "b~1",
        "asked": {DIRECTORY: "disk"},
        "alive": True,
        "cordoned": [],
        "readOnly": False,
        **fields,
    }


def test_the_command_waits_until_the_bookie_has_followed(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "_LOOK_SECONDS", 0.0)
    server.answer(f"PUT {PATH}", body=state())
    looks = [state(), state(cordoned=[DIRECTORY], readOnly=True)]
    server.answer_each(f"GET {PATH}~1", lambda: (200, looks.pop(0)))
    done = run(server, "storage", "cordon", "b", DIRECTORY, "--reason", "disk", "--force")
    assert (done.exit_code, looks) == (0, [])
    assert f"volume {DIRECTORY} of bookie b is cordoned" in done.stderr
    assert "the bookie is read-only" in done.stderr
    asked = f"{PATH}?directory=%2Fd1%2Fledgers&reason=disk&force=true"
    assert server.requests[0][:2] == ("PUT", asked)


def test_a_bookie_that_does_not_follow_is_an_error(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "_FOLLOW_SECONDS", 0.0)
    server.answer(f"DELETE {PATH}", body=state(cordoned=[DIRECTORY]))
    done = run(server, "storage", "uncordon", "b", DIRECTORY)
    assert (done.exit_code, "is still cordoned" in done.stderr) == (1, True)


def test_a_bookie_that_does_not_run_follows_later(server: AdminServer) -> None:
    asked = state(alive=False)
    server.answer(f"PUT {PATH}", body=asked)
    done = run(server, "storage", "cordon", "b", DIRECTORY)
    assert (done.exit_code, "when it does" in done.stderr) == (0, True)
    shown = run(server, "storage", "cordon", "b", DIRECTORY, "-o", "json")
    assert json.loads(shown.stdout) == asked
