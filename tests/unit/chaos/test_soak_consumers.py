"""What the consumers of a soak report, with a client that does as a test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

import pulsarish
from pulsarish.chaos import soak_consumers
from pulsarish.chaos.soak_consumers import SoakConsumers
from pulsarish.chaos.soak_history import SoakHistory, TopicHistory
from pulsarish.chaos.soak_load import Payloads
from tests.support.until import until

PAYLOADS = Payloads(1, 20)


class FakeConsumer:
    """One consumer of a fake client; ``feed`` has the owner send it messages."""

    def __init__(self, client: FakeClient) -> None:
        self._client = client
        self._waiting: list[Any] = []
        self.count = 1
        self.is_closed = False

    def feed(self, *numbers: int) -> None:
        self._waiting += [message(number) for number in numbers]

    def subscribed_count(self) -> int:
        return self.count

    def batch_receive(self) -> list[Any]:
        if self._client.mistake is not None:
            self._client.raised_count += 1
            raise self._client.mistake
        time.sleep(0.005)
        found, self._waiting = self._waiting, []
        return found

    def receive(self, timeout_millis: int) -> Any:
        if not self._waiting:
            raise pulsarish.Timeout("nothing came")
        return self._waiting.pop(0)

    def acknowledge(self, _messages: list[Any]) -> None:
        if not self._client.gives_receipts:
            raise pulsarish.Timeout("no receipt")

    def close(self) -> None:
        self.is_closed = True
        self._client.closing.wait()


class FakeClient:
    def __init__(self) -> None:
        self.consumers: list[FakeConsumer] = []
        self.gives_receipts = True
        self.raised_count = 0
        self.mistake: Exception | None = None
        self.feed_again: Callable[[FakeConsumer], None] | None = None
        self.closing = threading.Event()
        self.closing.set()

    def subscribe(self, *_: object, **__: object) -> FakeConsumer:
        self.consumers.append(FakeConsumer(self))
        if self.feed_again is not None:
            self.feed_again(self.consumers[-1])
        return self.consumers[-1]


def message(number: int) -> Any:
    place = pulsarish.MessageId(0, 1, number, -1)
    return SimpleNamespace(data=lambda: PAYLOADS.make(number), message_id=lambda: place)


class Run:
    """Consumers of one topic with ``confirmed`` messages."""

    def __init__(self, confirmed: int) -> None:
        self.client = FakeClient()
        self.now = 100.0
        self.topic = TopicHistory("t")
        for _ in range(confirmed):
            self.topic.acked(self.topic.send())
        history = SoakHistory()
        history.topics.append(self.topic)
        client: Any = self.client
        self.consumers = SoakConsumers(client, history, PAYLOADS, lambda: self.now)

    def receipted(self, count: int) -> Callable[[], bool]:
        return lambda: self.consumers.summary()["with_receipt"] == count

    def anomalies(self) -> list[tuple[str, int]]:
        _ = self.consumers.wrong()
        return [(each.kind, each.value) for each in self.topic.anomalies]


@contextmanager
def run_of(confirmed: int) -> Iterator[Run]:
    run = Run(confirmed)
    try:
        yield run
    finally:
        run.client.closing.set()
        _ = run.consumers.stop()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_consumers, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(soak_consumers, "_POLL_SECONDS", 0.01)


def test_all_delivered_with_receipts_is_right() -> None:
    with run_of(4) as run:
        run.client.consumers[0].feed(0, 1)
        run.client.consumers[1].feed(2, 3)
        run.consumers.wait_for_all(30.0)
        until("receipts", run.receipted(4))
        assert run.consumers.stop() == []
        run.now = 200.0
        run.consumers.receive_again()
        assert run.consumers.wrong() == []
        assert all(each.is_closed for each in run.client.consumers)


def test_what_only_the_next_owner_delivers_is_missing() -> None:
    with run_of(2) as run:
        run.client.consumers[0].feed(0)
        run.consumers.wait_for_all(0.1)
        assert run.consumers.stop() == []
        run.client.feed_again = lambda consumer: consumer.feed(1)
        run.consumers.receive_again()
        assert run.anomalies() == [("not_delivered", 1)]


def test_a_consumer_that_dies_is_reported() -> None:
    with run_of(1) as run:
        run.client.mistake = ValueError("a mistake of the client")
        until("both consumers end", lambda: run.client.raised_count == 2)
        assert (
            run.consumers.stop()
            == ["a consumer of soak-shared of t ended: ValueError('a mistake of the client')"] * 2
        )


def test_a_consumer_that_does_not_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak_consumers, "_JOIN_SECONDS", 0.1)
    with run_of(1) as run:
        run.client.closing.clear()
        (said,) = run.consumers.stop()
        assert said.startswith("2 consumers have not ended")


def test_an_error_of_the_client_is_counted_and_the_consumer_subscribes_again() -> None:
    with run_of(1) as run:
        run.client.feed_again = lambda consumer: consumer.feed(0)
        run.client.mistake = pulsarish.ConnectError("gone")
        until("both consumers subscribe again", lambda: len(run.client.consumers) >= 4)
        run.client.mistake = None
        until("receipts", run.receipted(1))
        assert run.consumers.summary()["errors"]["ConnectError"] >= 2
        assert run.consumers.stop() == []


def test_a_run_without_receipts_is_no_proof() -> None:
    with run_of(1) as run:
        run.client.gives_receipts = False
        run.client.consumers[0].feed(0)
        run.consumers.wait_for_all(30.0)
        assert run.consumers.stop() == []
        assert "no acknowledgement got a receipt" in run.consumers.wrong()[0]


def test_what_has_a_receipt_must_not_come_again_from_the_next_owner() -> None:
    with run_of(2) as run:
        run.client.consumers[0].feed(0, 1)
        until("receipts", run.receipted(2))
        assert run.consumers.stop() == []
        run.now = 200.0

        def feed(consumer: FakeConsumer) -> None:
            consumer.feed(1)
            consumer.count = 3  # the topic has moved on meanwhile

        run.client.feed_again = feed
        run.consumers.receive_again()
        assert run.anomalies() == [("after_receipt", 1)]


def test_what_has_a_receipt_must_not_come_again_over_a_connection_that_stands() -> None:
    with run_of(1) as run:
        first, second = run.client.consumers
        first.feed(0)
        until("receipts", run.receipted(1))
        second.feed(0)  # may have been under way
        until("consumers go on", lambda: run.consumers.summary()["redelivered"] == 1)
        run.now = 1_000.0
        time.sleep(0.1)  # both consumers look at their empty queues
        first.feed(0)
        until("consumers go on", lambda: run.consumers.summary()["redelivered"] == 2)
        assert run.consumers.stop() == []
        assert run.anomalies() == [("after_receipt", 0)]


def test_an_overlap_excuses_what_was_acknowledged_in_it() -> None:
    with run_of(2) as run:
        first = run.client.consumers[0]
        first.feed(0)
        until("receipts", run.receipted(1))
        run.now = 110.0
        run.consumers.begin_overlap()
        run.now = 111.0
        first.feed(1)
        until("receipts", run.receipted(2))
        run.now = 112.0
        time.sleep(0.1)
        first.count = 2
        run.now = 113.0
        time.sleep(0.1)
        run.consumers.end_overlap()
        first.feed(1, 0)
        until("consumers go on", lambda: run.consumers.summary()["redelivered"] == 2)
        assert run.consumers.stop() == []
        assert run.anomalies() == [("after_receipt", 0)]
        assert run.consumers.summary()["redelivered_by_overlapping_owner"] == 1
