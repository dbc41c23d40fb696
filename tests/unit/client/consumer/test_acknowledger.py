"""Messages that are acknowledged one by one: gathered while the loop will look at them, and never
forgotten.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsarish.client.connection.ack_tracker import AckBatch
from pulsarish.client.connection.cluster_of import TopicOfCluster
from pulsarish.client.connection.context import ClientContext
from pulsarish.client.consumer.acknowledger import Acknowledger
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.consumer.subscription_session import SubscriptionSession
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.message import Message, open_entry
from pulsarish.client.schemas.schema import BytesSchema
from pulsarish.model.errors import ConnectError
from pulsarish.model.topic_name import TopicName
from tests.unit.client.consumer.test_receiving import entry


class LockThatComesLate:
    """A lock that another thread has first, and in which that does its work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.first: Callable[[], None] = lambda: None

    def __enter__(self) -> None:
        self._lock.acquire()
        work, self.first = self.first, lambda: None
        work()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Loop:
    """A clock, timers and a session whose stream keeps what is sent."""

    def __init__(self, cluster: str = "") -> None:
        self.now = 10.0
        self.wakes = 0
        self.sent: list[AckBatch] = []
        self.cluster = cluster
        self.told: list[BaseException | None] = []
        timer = SimpleNamespace(set=lambda _due: None, cancel=lambda: None)
        parts = SimpleNamespace(
            clock=SimpleNamespace(monotonic=lambda: self.now),
            random=random.Random(1),
            alarms=SimpleNamespace(alarm=lambda _ring: timer),
            cluster=cluster,
            handoff=SimpleNamespace(post=lambda work: work()),
        )
        stream = SimpleNamespace(
            acknowledge_batch=lambda _id, batch, _answered: self.sent.append(batch)
        )
        session: Any = SimpleNamespace(
            topic=TopicName.parse("t"), stream=stream, consumer_id=1, is_loss=lambda _error: False
        )
        self.lock = LockThatComesLate()
        self.inbox = MessageQueue(self.lock)
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
        topic = TopicOfCluster.of("t", self.cluster)
        messages = open_entry(delivered, topic, -1, lambda _: BytesSchema().decode)[1]
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


@pytest.mark.parametrize(
    "acknowledge",
    [
        lambda loop, message: loop.acks.acknowledge_soon(message),
        lambda loop, message: loop.acks.acknowledge_messages([message], loop.told.append),
        lambda loop, message: loop.acks.acknowledge([message.message_id()], loop.told.append),
        lambda loop, message: loop.acks.acknowledge_cumulative(
            message.message_id(), loop.told.append
        ),
        lambda loop, message: loop.acks.negative_acknowledge(message.message_id(), 0),
        lambda loop, message: loop.acks.extend(message.message_id()),
    ],
)
def test_the_client_leaves_the_cluster_while_an_acknowledgement_waits_for_the_lock(
    acknowledge: Callable[[Loop, Message], None],
) -> None:
    loop = Loop(cluster="here")
    (message,) = loop.open(1, 1)
    loop.lock.first = lambda: loop.acks.leave_cluster("there")
    acknowledge(loop, message)
    loop.acks.send_waiting()
    assert loop.sent == []
    assert loop.acks.unacked.next_due() is None
    assert all(isinstance(told, ConnectError) for told in loop.told)


def test_the_client_leaves_the_cluster_before_an_acknowledgement_is_deferred(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = Loop(cluster="here")
    (message,) = loop.open(1, 1)
    defer = loop.acks.unacked.defer_acknowledgement

    def leave() -> None:
        loop.lock.first = lambda: None
        loop.acks.leave_cluster("there")

    def defer_late(message: Message) -> int:
        leave()
        return defer(message)

    monkeypatch.setattr(loop.acks.unacked, "defer_acknowledgement", defer_late)
    loop.lock.first = leave
    loop.acks.acknowledge_soon(message)
    loop.acks.send_waiting()
    assert loop.sent == []


def test_a_message_of_the_present_cluster_is_acknowledged() -> None:
    loop = Loop(cluster="here")
    loop.acks.acknowledge_soon(loop.open(1, 1)[0])
    loop.acks.send_waiting()
    assert [batch.ids for batch in loop.sent] == [[(1, 1, -1)]]
