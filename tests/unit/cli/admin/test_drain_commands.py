"""``pulsarish storage drain``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsarish.cli.admin import common
from pulsarish.cli.storage import drains
from tests.support.admin_server import AdminServer, run

PATH = "/admin/v2/bookies/drained-volumes/b"
DIRECTORY = "/d1/ledgers"
RUNS = {"enabled": True, "auditor": "a~1"}


def state(**fields: Any) -> dict[str, Any]:
    return {
        "bookieId": "b",
        "instanceId": "b~1",
        "directory": DIRECTORY,
        "asked": True,
        "alive": True,
        "draining": True,
        "drained": False,
        "closedLedgers": 2,
        "openLedgers": 1,
        "waiting": [{"ledgerId": 7, "reason": "unload it"}],
        "failure": "",
        **fields,
    }


def test_the_command_shows_what_is_left_and_does_not_wait(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "_LOOK_SECONDS", 0.0)
    server.answer("GET /admin/v2/bookies/autorecovery", body=RUNS)
    server.answer(f"PUT {PATH}", body=state(draining=False))
    server.answer(f"GET {PATH}~1", body=state())
    done = run(server, "storage", "drain", "b", DIRECTORY, "--reason", "disk", "--force")
    assert done.exit_code == 0
    assert "2 closed ledgers and 1 open one are left" in done.stderr
    assert "ledger 7: unload it" in done.stderr
    asked = f"{PATH}?directory=%2Fd1%2Fledgers&reason=disk&force=true"
    assert server.requests[0][:2] == ("PUT", asked)


def test_the_command_waits_until_nothing_is_left_or_the_request_is_taken_back(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drains, "_LOOK_SECONDS", 0.0)
    server.answer("GET /admin/v2/bookies/autorecovery", body=RUNS)
    server.answer(f"PUT {PATH}", body=state())
    looks = [state(), state(closedLedgers=0, openLedgers=0, waiting=[], drained=True)]
    server.answer_each(f"GET {PATH}~1", lambda: (200, looks.pop(0)))
    done = run(server, "storage", "drain", "b", DIRECTORY, "--wait")
    assert (done.exit_code, looks) == (0, [])
    assert "is drained: no ledger that lives needs it" in done.stderr
    looks = [state(asked=False, draining=False)]
    done = run(server, "storage", "drain", "b", DIRECTORY, "--wait")
    assert (done.exit_code, "was withdrawn" in done.stderr) == (1, True)


def test_a_bookie_that_does_not_run_or_says_nothing_is_named(server: AdminServer) -> None:
    server.answer("GET /admin/v2/bookies/autorecovery", body=RUNS)
    server.answer(f"PUT {PATH}", body=state(alive=False, draining=False))
    done = run(server, "storage", "drain", "b", DIRECTORY)
    assert (done.exit_code, "when it does" in done.stderr) == (0, True)
    server.answer(f"PUT {PATH}", body=state(failure="no answer"))
    done = run(server, "storage", "drain", "b", DIRECTORY)
    assert "nothing newer is known: no answer" in done.stderr
    shown = run(server, "storage", "drain", "b", DIRECTORY, "-o", "json")
    assert json.loads(shown.stdout)["failure"] == "no answer"
