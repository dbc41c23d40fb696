"""``pulsarish storage remove-volume``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsarish.cli.storage import removals
from tests.support.admin_server import AdminServer, run

PATH = "/admin/v2/bookies/removed-volumes/b"
DIRECTORY = "/d1/ledgers"


def state(**fields: Any) -> dict[str, Any]:
    return {
        "bookieId": "b",
        "instanceId": "b~1",
        "directory": DIRECTORY,
        "removing": False,
        "removed": False,
        "refusal": "",
        **fields,
    }


def test_the_command_waits_for_the_proof(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removals, "_LOOK_SECONDS", 0.0)
    server.answer(f"PUT {PATH}", body=state(removing=True))
    looks = [state(removing=True), state(removed=True)]
    server.answer_each(f"GET {PATH}~1", lambda: (200, looks.pop(0)))
    done = run(server, "storage", "remove-volume", "b", DIRECTORY)
    assert (done.exit_code, looks) == (0, [])
    assert "is removed: take its directories out of the lists" in done.stderr
    assert server.requests[0][:2] == ("PUT", f"{PATH}?directory=%2Fd1%2Fledgers")


def test_a_refusal_is_an_error_with_its_reason(server: AdminServer) -> None:
    server.answer(f"PUT {PATH}", body=state(refusal="ledger 7 is in its trash"))
    done = run(server, "storage", "remove-volume", "b", DIRECTORY)
    assert (done.exit_code, "not removed: ledger 7 is in its trash" in done.stderr) == (1, True)
    server.answer(f"PUT {PATH}", body=state())
    done = run(server, "storage", "remove-volume", "b", DIRECTORY, "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["removed"]) == (1, False)
