"""Messages that are acknowledged one by one: gathered while the loop will look at them, and never
forgotten.
"""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsarish.client.connection.ack_tracker import AckBatch
from pulsarish.client.connection.context import ClientContext
from pulsarish.client.consumer.acknowledger import Acknowledger
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.consumer.subscription_session import SubscriptionSession
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.message import Message, open_entry
from pulsarish.client.schemas.schema import BytesSchema
from pulsarish.model.topic_name import TopicName
from tests.unit.client.consumer.test_receiving import entry


class Loop:
    """A clock, timers and a session whose stream keeps what is sent."""

    def __init__(self) -> None:
        self.now = 10.0
        self.wakes = 0
        self.sent: list[AckBatch] = []
        timer = SimpleNamespace(set=lambda _due: None, cancel=lambda: None)
        parts = SimpleNamespace(
            clock=SimpleNamespace(monotonic=lambda: self.now),
            random=random.Random(1),
            alarms=SimpleNamespace(alarm=lambda _ring: timer),
            cluster="",
        )
        stream = SimpleNamespace(
            acknowledge_batch=lambda _id, batch, _answered: self.sent.append(batch)
        )
        session: Any = SimpleNamespace(
            topic=TopicName.parse("t"), stream=stream, consumer_id=1, is_loss=lambda _error: False
        )
        self.inbox = MessageQueue(threading.Lock())
        self.acks = Acknowledger(
            ConsumerOptions("t", "s"),
            cast("ClientContext", parts),
            self.inbox,
            cast("SubscriptionSession", session),
            lambda: None,
            self.wake,
            partition=-1,
        )

    def wake(self) -> None:
        self.wakes += 1

    def open(self, number: int, size: int) -> list[Message]:
        delivered = entry(number, size)
        messages = open_entry(delivered, "t", -1, lambda _: BytesSchema().decode)[1]
        with self.inbox.lock:
            self.acks.unacked.opened(delivered, messages, self.now)
        return messages

    def flush(self) -> None:
        with self.inbox.lock:
            batch = self.acks.take_due(self.now)
        if batch is not None:
            self.acks.send(batch)


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_the_loop_is_woken_once_and_sends_all_after_a_while(loop: Loop) -> None:
    for message in loop.open(1, 100):
        loop.acks.acknowledge_soon(message)
        if loop.wakes == 1:
            loop.flush()
    assert (loop.wakes, loop.sent) == (1, [])
    loop.now += 0.2
    loop.flush()
    assert [batch.ids for batch in loop.sent] == [[(1, 1, -1)]]


def test_after_they_were_sent_the_loop_is_woken_again(loop: Loop) -> None:
    messages = loop.open(1, 3)
    loop.acks.acknowledge_soon(messages[0])
    loop.flush()
    loop.now += 0.2
    loop.flush()
    assert loop.wakes == 1
    loop.acks.acknowledge_soon(messages[1])
    assert loop.wakes == 2
    loop.acks.send_waiting()
    loop.acks.acknowledge_soon(messages[2])
    assert loop.wakes == 3


def test_many_do_not_wait_for_the_loop(loop: Loop) -> None:
    messages = [loop.open(number, 1)[0] for number in range(1_256)]
    for message in messages[:700]:
        loop.acks.acknowledge_soon(message)
    assert loop.wakes == 1
    for message in messages[700:]:
        loop.acks.acknowledge_soon(message)
    assert loop.wakes > 1, "1,000 are sent at once"


def test_a_close_or_a_seek_sends_what_was_deferred(loop: Loop) -> None:
    first, second = loop.open(1, 2)
    loop.acks.acknowledge_soon(first)
    loop.acks.acknowledge_soon(second)
    loop.acks.send_waiting()
    assert [batch.ids for batch in loop.sent] == [[(1, 1, -1)]]


def test_what_another_thread_settled_still_wakes_the_loop(loop: Loop) -> None:
    (message,) = loop.open(1, 1)
    loop.acks.unacked.defer_acknowledgement(message)
    with loop.inbox.lock:
        loop.acks.unacked.settle()  # by a thread that opens an entry, before the first looks
    loop.acks.acknowledge_soon(loop.open(2, 1)[0])
    assert loop.wakes == 1


def test_none_is_lost_between_threads(loop: Loop) -> None:
    """Whenever the loop was not woken after the last acknowledgement, it has a timer."""
    messages = [message for number in range(400) for message in loop.open(number, 10)]
    half = len(messages) // 2

    def acknowledge(part: list[Message]) -> None:
        for message in part:
            loop.acks.acknowledge_soon(message)

    threads = [
        threading.Thread(target=acknowledge, args=(part,))
        for part in (messages[:half], messages[half:])
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        loop.now += 0.05
        loop.flush()
    for _ in range(3):
        loop.now += 0.2
        loop.flush()
    whole = {
        key for batch in loop.sent for *key, index in batch.ids if index < 0 for key in [tuple(key)]
    }
    assert whole == {(1, number) for number in range(400)}
