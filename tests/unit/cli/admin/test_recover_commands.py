"""``pulsarish bookies recover``, and the progress of a decommission."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsarish.cli.admin import bookies
from tests.support.admin_server import AdminServer, run

LEDGERS = "/admin/v2/bookies/ledgers/b"
RECOVER = "/admin/v2/bookies/recover/b"
STATE = {"enabled": True, "auditor": "a~1"}


@pytest.fixture(autouse=True)
def no_pause(server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookies, "_LOOK_SECONDS", 0.0)
    server.answer("GET /admin/v2/bookies/autorecovery", body=STATE)


def page(*ledgers: int, following: int | None = None) -> dict[str, Any]:
    row = {"state": "closed", "entries": 5, "isLeaving": False, "reason": ""}
    return {
        "instanceId": "b~1",
        "ledgers": [{"ledgerId": ledger, **row} for ledger in ledgers],
        "next": following,
    }


def pages(server: AdminServer, *answers: dict[str, Any]) -> list[dict[str, Any]]:
    left = list(answers)
    server.answer_each(f"GET {LEDGERS}", lambda: (200, left.pop(0)))
    return left


def test_a_dry_run_lists_all_pages_and_asks_for_nothing(server: AdminServer) -> None:
    pages(server, page(3, following=9), page(12))
    done = run(server, "bookies", "recover", "b", "--dry-run", "-o", "json")
    assert [row["ledgerId"] for row in json.loads(done.stdout)] == [3, 12]
    assert [(method, path) for method, path, _ in server.requests] == [
        ("GET", f"{LEDGERS}?after=-1"),
        ("GET", f"{LEDGERS}?after=9"),
    ]


def test_the_command_asks_for_all_ledgers_and_waits_until_none_names_the_bookie(
    server: AdminServer,
) -> None:
    left = pages(server, page(3, 12), page(3, 12), page(12), page())
    server.answer(f"PUT {RECOVER}", body={"ledgers": [3, 12]})
    done = run(server, "bookies", "recover", "b")
    assert (done.exit_code, left) == (0, [])
    assert "no ledger names bookie b any more" in done.stderr
    assert ("PUT", RECOVER, {"ledgers": [3, 12]}) in server.requests


def test_a_decommission_without_metadata_says_that_it_may_be_given_again(
    server: AdminServer,
) -> None:
    away = {"X-Pulsarish-Error-Code": "43"}
    server.otherwise = lambda _method, _path: (503, {"reason": "the metadata do not answer"}, away)
    done = run(server, "bookies", "decommission", "b", "--yes")
    assert done.exit_code == 1
    assert "the metadata do not answer" in done.stderr
    assert "run the command again: it goes on where it was" in done.stderr


def test_a_bookie_that_no_ledger_names_is_done_at_once(server: AdminServer) -> None:
    server.answer(f"GET {LEDGERS}", body=page())
    done = run(server, "bookies", "recover", "b", "-o", "json")
    assert json.loads(done.stdout) == {"ledgersLeft": 0, "ledgers": [], "done": True}
    assert "no ledger names bookie b" in run(server, "bookies", "recover", "b").stderr
    assert all(method == "GET" for method, _, _ in server.requests)


def test_one_ledger_is_asked_for_alone_and_one_that_does_not_name_it_is_refused(
    server: AdminServer,
) -> None:
    pages(server, page(12), page(12), page())
    server.answer(f"PUT {RECOVER}", body={"ledgers": [12]})
    assert run(server, "bookies", "recover", "b", "--ledger", "12").exit_code == 0
    assert ("PUT", RECOVER, {"ledgers": [12]}) in server.requests
    looks = [path for method, path, _ in server.requests if path.startswith(LEDGERS)]
    assert looks == 3 * [f"{LEDGERS}?ledgers=12"]
    # A broker of a version before this one looks at all ledgers, and says so of each.
    pages(server, page(3, 12))
    refused = run(server, "bookies", "recover", "b", "--ledger", "4", "--ledger", "3")
    assert (refused.exit_code, "no ledger of bookie b: 4" in refused.stderr) == (1, True)


def test_what_is_left_when_the_time_is_over_is_shown(server: AdminServer) -> None:
    server.answer(f"GET {LEDGERS}", body=page(3))
    server.answer(f"PUT {RECOVER}", body={"ledgers": [3]})
    done = run(server, "bookies", "recover", "b", "--wait-seconds", "0.01", "-o", "json")
    assert done.exit_code == 1
    shown = json.loads(done.stdout)
    assert (shown["ledgersLeft"], shown["done"]) == (1, False)
    assert [row["ledgerId"] for row in shown["ledgers"]] == [3]
    assert run(server, "bookies", "recover", "b", "--wait-seconds", "0").exit_code == 0


def test_a_decommission_says_how_many_ledgers_still_name_the_bookie(server: AdminServer) -> None:
    going_on = {"instanceId": "b", "givenUp": True, "underReplicatedLedgers": 7}
    server.answer("PUT /admin/v2/bookies/decommission/b", body=going_on)
    server.answer("GET /admin/v2/bookies/decommission/b", body=going_on)
    server.answer(f"GET {LEDGERS}", body=page(3, 12))
    done = run(server, "bookies", "decommission", "b", "--yes", "--wait-seconds", "0")
    assert "2 ledgers still name it, and 7 miss copies" in done.stderr
    shown = run(
        server, "bookies", "decommission", "b", "--yes", "--wait-seconds", "0", "-o", "json"
    )
    assert json.loads(shown.stdout)["ledgersLeft"] == 2
