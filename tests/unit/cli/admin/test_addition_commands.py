"""``pulsarish storage add-volume``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsarish.cli.storage import additions
from tests.support.admin_server import AdminServer, run

PATH = "/admin/v2/bookies/added-volumes/b"
OPTIONS = (
    "--journal-directory",
    "/d3/journal",
    "--ledger-directory",
    "/d3/ledgers",
    "--index-directory",
    "/d3/index",
)


def state(**fields: Any) -> dict[str, Any]:
    return {
        "bookieId": "b",
        "instanceId": "b~1",
        "directory": "/d3/ledgers",
        "adding": False,
        "added": False,
        "refusal": "",
        **fields,
    }


def test_the_command_waits_until_the_volume_is_added(
    server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(additions, "_LOOK_SECONDS", 0.0)
    server.answer(f"PUT {PATH}", body=state(adding=True))
    looks = [state(adding=True), state(added=True)]
    server.answer_each(f"GET {PATH}~1", lambda: (200, looks.pop(0)))
    done = run(server, "storage", "add-volume", "b", *OPTIONS)
    assert (done.exit_code, looks) == (0, [])
    assert "is added: add its directories to the lists" in done.stderr
    query = (
        "directory=%2Fd3%2Fledgers&journalDirectory=%2Fd3%2Fjournal&indexDirectory=%2Fd3%2Findex"
    )
    assert server.requests[0][:2] == ("PUT", f"{PATH}?{query}")


def test_a_refusal_is_an_error_with_its_reason(server: AdminServer) -> None:
    server.answer(f"PUT {PATH}", body=state(refusal="/d3/index is not empty"))
    done = run(server, "storage", "add-volume", "b", *OPTIONS)
    assert (done.exit_code, "not added: /d3/index is not empty" in done.stderr) == (1, True)
    server.answer(f"PUT {PATH}", body=state())
    done = run(server, "storage", "add-volume", "b", *OPTIONS, "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["added"]) == (1, False)
