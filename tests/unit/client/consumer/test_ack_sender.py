"""When acknowledgements go out: after a while, when there are many or somebody waits, and again
when nobody took them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

import pytest

from pulsarish.client.connection.ack_tracker import AckBatch, AckTracker
from pulsarish.client.connection.consume_stream import ConsumeStream
from pulsarish.client.connection.timers import Timer
from pulsarish.client.consumer.ack_sender import ACK_GROUP_MAX, AckSender
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.message_id import MessageId
from pulsarish.model.errors import InvalidArgument, PulsarishError, ServiceNotReady
from pulsarish.runtime.seams import Clock

Answered = Callable[[PulsarishError | None], None]


class Surroundings:
    """A clock, an alarm and a stream in one."""

    def __init__(self) -> None:
        self.now = 10.0
        self.rings_at: float | None = None
        self.sent: list[tuple[AckBatch, Answered | None]] = []
        self.acks = AckTracker(group_max=ACK_GROUP_MAX, batch_index=False)
        self.sending = AckSender(
            self.acks,
            MessageQueue(threading.RLock()),
            cast("Clock", self),
            cast("Timer", self),
            lambda error: error.retryable,
        )

    def monotonic(self) -> float:
        return self.now

    def set(self, due: float) -> None:
        self.rings_at = due

    def cancel(self) -> None:
        self.rings_at = None

    def acknowledge_batch(
        self, _consumer_id: int, batch: AckBatch, answered: Answered | None
    ) -> None:
        self.sent.append((batch, answered))

    def take_due(self, *, connected: bool = True) -> AckBatch | None:
        return self.sending.take_due(self.now, connected=connected)

    def acknowledge(self, count: int = 1) -> None:
        for entry in range(count):
            self.acks.acknowledge(MessageId(-1, 1, entry))

    def send_one_that_is_waited_for(self) -> tuple[list[BaseException | None], Answered]:
        """What who waits has heard, and how the broker answers."""
        heard: list[BaseException | None] = []
        self.acknowledge()
        assert self.acks.wait(heard.append)
        batch = self.take_due()
        assert batch is not None
        self.sending.send(cast("ConsumeStream", self), 1, batch)
        answered = self.sent[0][1]
        assert answered is not None
        return heard, answered


@pytest.fixture
def around() -> Surroundings:
    return Surroundings()


def test_a_few_wait_for_others(around: Surroundings) -> None:
    around.acknowledge()
    assert around.take_due() is None
    around.sending.set_alarm()
    assert around.rings_at == pytest.approx(10.1)
    around.now = 10.05
    assert around.take_due() is None
    around.now = 10.11
    batch = around.take_due()
    assert batch is not None
    assert batch.ids == [(1, 0, -1)]
    assert around.take_due() is None


def test_many_do_not_wait(around: Surroundings) -> None:
    around.acknowledge(ACK_GROUP_MAX)
    assert around.take_due() is not None


def test_without_a_connection_they_wait_for_the_next_one(around: Surroundings) -> None:
    around.acknowledge(ACK_GROUP_MAX)
    assert around.take_due(connected=False) is None
    around.sending.set_alarm()
    assert around.rings_at is None, "a time that is past would ring for ever"
    assert around.take_due() is not None


def test_whoever_waits_hears_the_answer(around: Surroundings) -> None:
    heard, answered = around.send_one_that_is_waited_for()
    refused = InvalidArgument("no")
    answered(refused)
    assert heard == [refused]


def test_what_nobody_took_is_sent_again_after_a_while(around: Surroundings) -> None:
    heard, answered = around.send_one_that_is_waited_for()
    around.now = 20.0
    answered(ServiceNotReady("not now"))
    assert (heard, around.rings_at) == ([], pytest.approx(20.1))
    again = around.take_due()
    assert again is not None
    assert again.ids == [(1, 0, -1)]


def test_nobody_waits_for_what_is_not_asked_for(around: Surroundings) -> None:
    around.acknowledge(ACK_GROUP_MAX)
    batch = around.take_due()
    assert batch is not None
    around.sending.send(cast("ConsumeStream", around), 1, batch)
    assert around.sent[0][1] is None


def test_at_the_end_who_waits_is_told_why(around: Surroundings) -> None:
    heard: list[BaseException | None] = []
    around.acknowledge()
    assert around.acks.wait(heard.append)
    closed = ServiceNotReady("closed")
    around.set(11.0)
    around.sending.end(closed)
    assert (heard, around.rings_at) == ([closed], None)
