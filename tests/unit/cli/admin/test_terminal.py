"""Commands at a terminal: questions, and completion of what is typed."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from pulsarish.cli.main import pulsarish
from tests.support.admin_server import NEW, AdminServer, run


def at_a_terminal(server: AdminServer, arguments: list[str], answer: bytes) -> tuple[int, str]:
    """Exit status and what was on the terminal."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "PULSARISH_ADMIN_URL": server.url}
    with subprocess.Popen(
        [sys.executable, "-m", "pulsarish", *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
    ) as process:
        os.close(follower)
        os.write(leader, answer)
        seen = b""
        while True:
            try:
                data = os.read(leader, 4096)
            except OSError:  # the other side has closed it
                break
            seen += data
        process.wait(timeout=30)
    os.close(leader)
    return process.returncode, seen.decode()


def test_a_person_is_asked_before_something_is_lost_and_a_script_is_not(
    server: AdminServer,
) -> None:
    server.answer(f"GET {NEW}/partitions", 200, {"partitions": 0})
    deletion = ["topics", "delete", "acme/orders/new"]
    status, seen = at_a_terminal(server, deletion, b"n\n")
    assert (status, server.requests) == (1, [])
    assert "Delete acme/orders/new and all its messages?" in seen
    assert "nothing was done" in seen
    assert at_a_terminal(server, deletion, b"y\n")[0] == 0
    assert server.requests[-1][:2] == ("DELETE", NEW)
    status, seen = at_a_terminal(server, [*deletion, "--yes"], b"")
    assert (status, "?" in seen) == (0, False)
    assert run(server, *deletion).exit_code == 0


def complete(server: AdminServer, *words: str) -> list[str]:
    """What a shell is offered for the last of these words."""
    completion = ShellComplete(pulsarish, {}, "pulsarish", "_PULSARISH_COMPLETE")
    arguments = ["--admin-url", server.url]
    return [
        item.value
        for item in completion.get_completions([*words[:2], *arguments, *words[2:-1]], words[-1])
    ]


def test_names_are_completed_in_the_form_they_were_begun(server: AdminServer) -> None:
    server.answer("GET /admin/v2/tenants", 200, ["acme", "public"])
    server.answer("GET /admin/v2/namespaces/acme", 200, ["acme/new", "acme/orders"])
    server.answer(
        "GET /admin/v2/persistent/acme/orders",
        200,
        ["persistent://acme/orders/one", "persistent://acme/orders/two"],
    )
    server.answer(
        "GET /admin/v2/persistent/public/default", 200, ["persistent://public/default/greetings"]
    )
    server.answer(
        "GET /admin/v2/persistent/public/default/greetings/subscriptions", 200, ["me", "you"]
    )
    assert complete(server, "tenants", "get", "a") == ["acme"]
    assert complete(server, "namespaces", "get-policies", "ac") == ["acme/"]
    assert complete(server, "namespaces", "get-policies", "acme/o") == ["acme/orders"]
    assert complete(server, "topics", "stats", "") == ["greetings"]
    assert complete(server, "topics", "stats", "acme/orders/t") == ["acme/orders/two"]
    assert (
        server.requests[-1][1]
        == "/admin/v2/persistent/acme/orders?after=persistent%3A%2F%2Facme%2Forders%2Ft&limit=100"
    )
    assert complete(server, "topics", "stats", "persistent://acme/orders/") == [
        "persistent://acme/orders/one",
        "persistent://acme/orders/two",
    ]
    assert complete(server, "subscriptions", "get", "greetings", "m") == ["me"]


def test_commands_are_completed_and_nobody_need_answer() -> None:
    completion = ShellComplete(pulsarish, {}, "pulsarish", "_PULSARISH_COMPLETE")
    assert [item.value for item in completion.get_completions([], "top")] == ["topics"]
    assert "set-retention" in [
        item.value for item in completion.get_completions(["namespaces"], "set-ret")
    ]
    assert (
        completion.get_completions(["topics", "stats", "--admin-url", "http://127.0.0.1:1"], "x")
        == []
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_for_shells_name_the_variable_that_asks(shell: str) -> None:
    done = CliRunner().invoke(pulsarish, ["completion", shell])
    assert done.exit_code == 0
    assert "_PULSARISH_COMPLETE" in done.stdout
