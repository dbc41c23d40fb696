"""What a person is shown of a topic's statistics."""

from __future__ import annotations

import pytest

from pulsarish.cli.admin.stats_view import print_stats


def test_what_was_dropped_is_said_where_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    slow = {"type": "Shared", "msgDropCounter": 1_234, "msgDropRate": 7.25, "consumers": []}
    quick = {"type": "Shared", "msgDropCounter": 0, "msgDropRate": 0.0, "consumers": []}
    print_stats(
        "non-persistent://public/default/t", {"subscriptions": {"slow": slow, "quick": quick}}
    )
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith("slow")).endswith(
        "1,234 messages dropped, 7.2/s"
    )
    assert "dropped" not in next(line for line in lines if line.startswith("quick"))


def test_one_message_is_no_messages(capsys: pytest.CaptureFixture[str]) -> None:
    dropped = {"type": "Shared", "msgDropCounter": 1, "consumers": []}
    print_stats("t", {"msgInCounter": 1, "msgOutCounter": 1_000, "subscriptions": {"s": dropped}})
    out = capsys.readouterr().out
    assert "; 1 message, " in out
    assert "; 1,000 messages, " in out
    assert "1 message dropped" in out
