"""What chaos runs ask of brokers about subscriptions that did not move."""

from __future__ import annotations

from pathlib import Path

from pulsarish.broker.progress.watchdog import STALLED
from pulsarish.chaos.stalls import counted, found_in_logs, grown
from tests.support.admin_server import admin_server


def test_what_a_broker_wrote_counts_although_it_was_killed(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        f"1 INFO serving\n2 ERROR broker.progress {STALLED} topic=t subscription=s\n"
    )
    logs = [("broker-1", tmp_path / "log"), ("broker-2", tmp_path / "never started")]
    assert found_in_logs(logs) == [
        f"broker-1: 2 ERROR broker.progress {STALLED} topic=t subscription=s"
    ]


def test_only_what_a_counter_has_grown_by_counts() -> None:
    assert grown({"a": 2.0, "b": 2.0}, {"a": 2.0, "b": 3.0, "c": 0.0, "d": 1.0}) == [
        "broker b has restarted 3 dispatchers that did not move",
        "broker d has restarted 1 dispatchers that did not move",
    ]
    assert grown({"a": 2.0}, {"a": 1.0}), "it was started again, and counts from 0"
    assert grown({"a": 2.0}, {"a": 0.0}) == []
    assert grown({"a": 2.0}, {}) == [], "it does not run any more"


def test_counters_are_read_where_a_broker_answers() -> None:
    with admin_server() as server:
        text = (
            b'pulsarish_topics_loaded_total{cluster="c"} '
            b'7\npulsarish_dispatch_stalls_total{cluster="c"} 2\n'
        )
        server.answer("GET /metrics", 200, text)
        address = server.url.removeprefix("http://")
        assert counted([address, "127.0.0.1:1"]) == {address: 2.0}
