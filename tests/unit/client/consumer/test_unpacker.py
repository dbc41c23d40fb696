"""Entries are opened for the program a few at a time, in their order, and no more than that."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from pulsarish.client.connection.ack_tracker import AckTracker
from pulsarish.client.consumer.message_queue import MessageQueue
from pulsarish.client.consumer.receive_queue import ReceiveQueue
from pulsarish.client.consumer.unacked_messages import UnackedMessages
from pulsarish.client.consumer.unpacker import Unpacker
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.message import Entry, Message, open_entry
from pulsarish.client.schemas.schema import BytesSchema
from pulsarish.model.errors import CryptoError
from pulsarish.model.topic_name import TopicName
from tests.unit.client.consumer.test_receiving import chunks, entry

ENCRYPTED = 7
DAMAGED = 9


def opened(delivered: Entry) -> Any:
    if delivered.entry_id == ENCRYPTED:
        raise CryptoError("no key")
    return open_entry(delivered, "t", -1, lambda _: BytesSchema().decode)


class Consumer:
    def __init__(self, *, queue_size: int = 1_000, timeout_seconds: float = 0) -> None:
        self.wakes = 0
        self.inbox = MessageQueue(threading.Lock())
        assembler = chunks()
        self.queue = ReceiveQueue("t", queue_size, opened, self.inbox.ready, assembler)
        self.queue.restart(keep_ready=False)
        self.acks = AckTracker(group_max=1_000, batch_index=True)
        self.unacked = UnackedMessages(
            self.acks,
            negative_delay_ms=lambda _count: 1_000,
            unacked_timeout_seconds=timeout_seconds,
            redeliveries_max=None,
        )
        self.now = 5.0
        clock: Any = SimpleNamespace(monotonic=lambda: self.now)
        writers: Any = SimpleNamespace(know=lambda _topic, _entry: True)
        unpacker = Unpacker(
            TopicName.parse("t"),
            ConsumerOptions("t", "s"),
            self.inbox,
            self.queue,
            assembler,
            self.unacked,
            writers,
            clock,
            self.wake,
            partition=-1,
            ordered=True,
        )
        self.inbox.sources = [unpacker]

    def wake(self) -> None:
        self.wakes += 1

    def take(self) -> str | None:
        message = self.inbox.take()
        return None if message is None else message.data().decode()

    def waiting(self) -> list[Message]:
        return list(self.inbox.ready)


def test_a_slab_of_small_entries_is_opened_at_once() -> None:
    consumer = Consumer()
    consumer.queue.add([entry(number) for number in range(100, 300)])
    assert consumer.take() == "100.0"
    assert len(consumer.waiting()) == 61, "a sixteenth of the queue"
    assert [consumer.take() for _ in range(199)] == [f"{number}.0" for number in range(101, 300)]
    assert consumer.take() is None


def test_a_batch_is_opened_alone() -> None:
    consumer = Consumer()
    consumer.queue.add([entry(1, 70), entry(2, 70), entry(3)])
    assert consumer.take() == "1.0"
    assert len(consumer.waiting()) == 69


@pytest.mark.parametrize("queue_size", [1, 16])
def test_of_a_small_queue_one_entry_is_opened(queue_size: int) -> None:
    consumer = Consumer(queue_size=queue_size)
    consumer.queue.add([entry(number) for number in range(1, 5)])
    assert consumer.take() == "1.0"
    assert consumer.waiting() == []


def test_with_a_timeout_the_next_message_only_is_opened() -> None:
    """The timeout of a message must not begin before the program has it."""
    consumer = Consumer(timeout_seconds=10)
    consumer.queue.add([entry(1), entry(2)])
    assert consumer.take() == "1.0"
    consumer.now += 9
    assert consumer.take() == "2.0"
    assert consumer.unacked.take_due(15.5) == [(1, 1)]


def test_an_encrypted_entry_keeps_its_place() -> None:
    consumer = Consumer()
    consumer.queue.add([entry(6), entry(ENCRYPTED), entry(8)])
    assert consumer.take() == "6.0"
    with pytest.raises(CryptoError):
        consumer.take()
    assert consumer.take() == "8.0"


def test_an_unreadable_entry_is_passed() -> None:
    consumer = Consumer()
    damaged = Entry(1, DAMAGED, 0, bytes(entry(DAMAGED, 2).data)[:-1])
    consumer.queue.add([entry(8), damaged, entry(10)])
    assert [consumer.take(), consumer.take(), consumer.take()] == ["8.0", "10.0", None]


def test_permits_and_full_acknowledgements_wake_the_loop() -> None:
    consumer = Consumer(queue_size=100)
    consumer.queue.add([entry(number) for number in range(10, 70)])
    while not consumer.queue.permits_due:
        assert consumer.wakes == 0
        consumer.take()
    assert consumer.wakes == 1
    consumer.queue.take_permits()
    for number in range(1_000):
        consumer.acks.acknowledge_indexes((2, number), (-1,), 0)
    while consumer.waiting():
        consumer.take()
    consumer.take()
    assert consumer.wakes == 2
