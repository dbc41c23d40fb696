"""What ``pulsarish produce`` asks the client for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from pulsarish.cli import messages
from pulsarish.cli.main import pulsarish


class Producer:
    """Takes messages, and notes how they are to be sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def topic(self) -> str:
        return "persistent://public/default/t"

    def send_async(self, payload: bytes, callback: Any, **options: Any) -> None:
        self.sent.append(options)

    def flush(self) -> None:
        pass


class Client:
    def __init__(self, producer: Producer) -> None:
        self.producer = producer

    def create_producer(self, topic: str, **options: Any) -> Producer:
        return self.producer

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("option", "text", "name", "value"),
    [
        ("--deliver-after", "1h30m", "deliver_after", timedelta(minutes=90)),
        ("--expires-after", "10m", "expires_after", timedelta(minutes=10)),
    ],
)
def test_each_message_has_the_times_that_were_asked_for(
    monkeypatch: pytest.MonkeyPatch, option: str, text: str, name: str, value: timedelta
) -> None:
    producer = Producer()
    monkeypatch.setattr(messages, "connected_client", lambda url, **options: Client(producer))
    result = CliRunner().invoke(pulsarish, ["produce", "t", "-m", "a", "-m", "b", option, text])
    assert result.exit_code == 0, result.output
    assert [each[name] for each in producer.sent] == [value, value]


@pytest.mark.parametrize("option", ["--deliver-after", "--expires-after"])
def test_a_time_without_a_unit_is_refused(option: str) -> None:
    result = CliRunner().invoke(pulsarish, ["produce", "t", "-m", "a", option, "5"])
    assert result.exit_code == 2
    assert f"'{option}': '5' has no unit; write 5s, 5m, 5h or 5d" in result.output
