"""The receive queue: order, permits, start positions; and what comes again."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.client.consumer.chunk_assembler import ChunkAssembler
from pulsarish.client.consumer.receive_queue import ReceiveQueue
from pulsarish.client.consumer.redelivery import NegativeAcks, UnackedTracker
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.entry_encoder import encode_batch, encode_head, producer_prefix
from pulsarish.client.messages.message import Entry, Message, open_entry
from pulsarish.client.schemas.schema import BytesSchema
from pulsarish.model.errors import ChecksumError


def entry(number: int, size: int = 1) -> Entry:
    """An entry of ``size`` messages whose payloads are "number.index"."""
    payloads = [b"%d.%d" % (number, index) for index in range(size)]
    payload = encode_batch(payloads, range(size), {}) if size > 1 else payloads[0]
    head = encode_head(
        producer_prefix("p"),
        sequence_id=0,
        publish_time_ms=0,
        payload=payload,
        uncompressed_size=len(payload),
        messages_count=size if size > 1 else 0,
    )
    return Entry(1, number, 0, head + payload)


def chunks() -> ChunkAssembler:
    return ChunkAssembler(
        pending_max=10, expire_seconds=60, acknowledge_oldest=False, stamp=lambda: (0.0, 0)
    )


class Queue:
    def __init__(self, size: int) -> None:
        self.ready: deque[Message] = deque()
        self.core = ReceiveQueue(
            "t",
            size,
            lambda entry: open_entry(entry, "t", -1, lambda _: BytesSchema().decode),
            self.ready,
            chunks(),
        )

    def take(self) -> list[str]:
        """Everything that is there."""
        while (opened := self.core.open_next()) is not None:
            self.core.hand_out(opened[1])
            self.core.check()
        taken = [message.data().decode() for message in self.ready]
        self.ready.clear()
        return taken


def test_messages_leave_in_order() -> None:
    queue = Queue(10)
    queue.core.add([entry(1), entry(2, 3)])
    queue.core.add([entry(3)])
    assert queue.take() == ["1.0", "2.0", "2.1", "2.2", "3.0"]
    assert queue.core.is_empty


def test_permits_of_taken_messages_are_given_back_by_half_queues() -> None:
    queue = Queue(10)
    assert queue.core.restart(keep_ready=False) == 10
    queue.core.add([entry(1, 4)])
    queue.take()
    assert not queue.core.permits_due
    queue.core.add([entry(2)])
    queue.take()
    assert queue.core.permits_due
    assert queue.core.take_permits() == 5
    assert not queue.core.permits_due


def test_queue_of_size_0_asks_while_the_program_waits() -> None:
    queue = Queue(0)
    assert queue.core.restart(keep_ready=False) == 0
    assert not queue.core.permits_due
    assert queue.core.want_one()
    assert not queue.core.want_one(), "one is enough"
    assert queue.core.permits_due
    assert queue.core.take_permits() == 1
    assert not queue.core.want_one(), "it is out already"
    queue.core.add([entry(1, 3)])
    assert len(queue.take()) == 3
    assert queue.core.want_one()


def test_dropped_and_cleared_messages_are_permits_again() -> None:
    queue = Queue(10)
    queue.core.restart(keep_ready=False)
    queue.core.add([entry(1, 3)])
    queue.core.clear()
    queue.core.return_permits([entry(2, 4)])
    assert queue.core.take_permits() == 7
    assert queue.take() == []


def test_reader_keeps_what_is_cut_and_a_durable_consumer_does_not() -> None:
    queue = Queue(10)
    queue.core.add([entry(1, 2), entry(2)])
    opened = queue.core.open_next()
    assert opened is not None
    queue.core.hand_out(opened[1])
    assert queue.core.last_taken == MessageId(-1, 1, 1, 1)
    queue.core.restart(keep_ready=True)
    assert len(queue.ready) == 2
    queue.core.restart(keep_ready=False)
    assert queue.take() == []


@pytest.mark.parametrize(
    ("start", "inclusive", "expected"),
    [
        (MessageId(-1, 1, 2), False, ["3.0", "3.1"]),
        (MessageId(-1, 1, 2), True, ["2.0", "2.1", "2.2", "3.0", "3.1"]),
        (MessageId(-1, 1, 2, 1), False, ["2.2", "3.0", "3.1"]),
        (MessageId(-1, 1, 2, 1), True, ["2.1", "2.2", "3.0", "3.1"]),
        (MessageId(-1, 1, 2, 2), False, ["3.0", "3.1"]),
        (MessageId(-1, 0, 9), False, ["1.0", "2.0", "2.1", "2.2", "3.0", "3.1"]),
        (MessageId(-1, 1, -1), False, ["1.0", "2.0", "2.1", "2.2", "3.0", "3.1"]),
        # Beyond the end when it was asked for: what comes now is behind it, and wanted.
        (MessageId(-1, 1, 9, 1), False, ["1.0", "2.0", "2.1", "2.2", "3.0", "3.1"]),
    ],
)
def test_start_positions(start: MessageId, inclusive: bool, expected: list[str]) -> None:
    queue = Queue(10)
    queue.core.start_at(start, inclusive=inclusive)
    # The broker begins at the entry of the start.
    queue.core.add([entry(1)] if (start.ledger_id(), start.entry_id()) != (1, 2) else [])
    queue.core.add([entry(2, 3), entry(3, 2)])
    assert queue.take() == expected


def test_what_a_reader_took_while_it_subscribed_again_is_dropped_when_it_comes_again() -> None:
    queue = Queue(10)
    queue.core.add([entry(1), entry(2, 3), entry(3)])
    assert queue.take() == ["1.0", "2.0", "2.1", "2.2", "3.0"]
    queue.core.start_after_taken()
    queue.core.restart(keep_ready=True)
    # Asked for when only the first entry was taken.
    queue.core.add([entry(2, 3), entry(3), entry(4, 2)])
    assert queue.take() == ["4.0", "4.1"]
    assert queue.core.take_permits() == 6
    assert queue.core.last_taken == MessageId(-1, 1, 4, 1)
    # A seek asks for what was taken on purpose.
    queue.core.clear()
    queue.core.start_at(MessageId(-1, 1, 3), inclusive=False)
    queue.core.add([entry(1)])
    assert queue.take() == ["1.0"]


def test_unreadable_entry_leaves_the_queue() -> None:
    queue = Queue(4)
    queue.core.restart(keep_ready=False)
    good = entry(1, 2)
    bad = Entry(1, 1, 0, bytes(good.data)[:-1])
    queue.core.add([bad, entry(2)])
    with pytest.raises(ChecksumError):
        queue.core.open_next()
    assert queue.take() == ["2.0"]
    assert queue.core.take_permits() == 2


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=30))
def test_negative_acks_are_due_in_time(steps: list[tuple[int, int]]) -> None:
    """Against a plain dict of due times."""
    nacks = NegativeAcks(lambda count: 1_000 * (count + 1))
    owed: dict[tuple[int, int], float] = {}
    now = 0.0
    for number, kind in steps:
        now += 0.5
        key = (1, number)
        if kind < 2:
            nacks.add(key, kind, now)
            owed.setdefault(key, now + kind + 1)
        elif kind == 2:
            nacks.remove(key)
            owed.pop(key, None)
        else:
            due = sorted(key for key, at in owed.items() if at <= now)
            assert sorted(nacks.take_due(now)) == due
            for key in due:
                del owed[key]
        assert nacks.next_due() == min(owed.values(), default=None)


def test_unacked_messages_are_taken_back_in_order() -> None:
    tracker = UnackedTracker(10)
    tracker.add((1, 1), 0)
    tracker.add((1, 2), 1)
    tracker.add((1, 3), 2)
    tracker.add((1, 1), 3)
    tracker.remove((1, 3))
    assert tracker.next_due() == 11
    assert tracker.take_due(12) == [(1, 2)]
    tracker.extend((1, 1), 5)
    tracker.extend((1, 3), 5)
    assert tracker.next_due() == 15, "only what the program holds"
    tracker.remove_up_to((1, 1))
    assert tracker.next_due() is None
