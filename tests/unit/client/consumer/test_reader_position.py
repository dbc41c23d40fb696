"""Where a reader goes on, and what it tells the broker of that."""

from __future__ import annotations

from collections import deque

import pytest

from pulsarish.client.consumer.chunk_assembler import ChunkAssembler
from pulsarish.client.consumer.reader_position import ReaderPosition
from pulsarish.client.consumer.receive_queue import ReceiveQueue
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_options import ConsumerOptions
from pulsarish.client.messages.message import Message, open_entry
from pulsarish.client.schemas.schema import BytesSchema
from pulsarish.wire._pb import broker_pb2 as pb
from tests.unit.client.consumer.test_receiving import entry


def queue() -> ReceiveQueue:
    chunks = ChunkAssembler(
        pending_max=10, expire_seconds=60, acknowledge_oldest=False, stamp=lambda: (0.0, 0)
    )
    ready: deque[Message] = deque()
    return ReceiveQueue(
        "t",
        10,
        lambda each: open_entry(each, "t", -1, lambda _: BytesSchema().decode),
        ready,
        chunks,
    )


def said(place: ReaderPosition) -> tuple[int, int, int] | None:
    command = pb.Subscribe()
    place.set_start(command)
    start = command.start
    return (start.ledger, start.entry, start.batch_index) if command.HasField("start") else None


@pytest.mark.parametrize(
    ("start", "inclusive", "first", "moves"),
    [
        (MessageId.earliest, False, (-1, -1, -1), False),
        (
            MessageId.latest,
            False,
            (MessageId.latest.ledger_id(), MessageId.latest.entry_id(), -1),
            True,
        ),
        (MessageId(-1, 4, 7), False, (4, 8, -1), False),
        (MessageId(-1, 4, 7), True, (4, 7, -1), False),
    ],
)
def test_where_it_was_told_to_begin(
    start: MessageId, inclusive: bool, first: tuple[int, int, int], moves: bool
) -> None:
    place = ReaderPosition(
        ConsumerOptions("t", "r", start_message_id_inclusive=inclusive).read_from(start),
        queue(),
        persistent=True,
    )
    assert said(place) == first
    assert place.is_to_be_learned is moves
    assert place.current() == (start, inclusive)


def test_it_goes_on_after_what_its_program_took() -> None:
    incoming = queue()
    place = ReaderPosition(
        ConsumerOptions("t", "r").read_from(MessageId.earliest), incoming, persistent=True
    )
    incoming.add([entry(5)])
    assert incoming.open_next() is not None
    assert place.current()[0].entry_id() == 5
    place.continue_after_taken()
    assert said(place) == (1, 6, -1)
    # Asked for once more all the same: it is dropped.
    incoming.add([entry(5), entry(6)])
    opened = [incoming.open_next(), incoming.open_next()]
    assert [len(each[1] or []) for each in opened if each is not None] == [0, 1]


def test_what_latest_meant_is_learned_once() -> None:
    place = ReaderPosition(
        ConsumerOptions("t", "r").read_from(MessageId.latest), queue(), persistent=True
    )
    place.move_to(MessageId(-1, 4, 7), inclusive=False)
    assert not place.is_to_be_learned
    assert said(place) == (4, 8, -1)


def test_on_a_topic_that_keeps_nothing_there_is_no_place() -> None:
    incoming = queue()
    place = ReaderPosition(
        ConsumerOptions("t", "r").read_from(MessageId.latest), incoming, persistent=False
    )
    incoming.add([entry(5)])
    assert incoming.open_next() is not None
    place.continue_after_taken()
    assert not place.is_to_be_learned
    assert said(place) == (MessageId.latest.ledger_id(), MessageId.latest.entry_id(), -1)


def test_of_a_durable_subscription_the_broker_knows_the_place() -> None:
    incoming = queue()
    place = ReaderPosition(
        ConsumerOptions("t", "s", start_message_id_inclusive=True), incoming, persistent=True
    )
    assert said(place) is None
    # A seek into a batch: what of it lies before is dropped here.
    place.move_to(MessageId(-1, 1, 5, 2, batch_size=4), inclusive=True)
    assert said(place) is None
    incoming.add([entry(5, 4)])
    opened = incoming.open_next()
    assert opened is not None
    assert [message.data() for message in opened[1] or []] == [b"5.2", b"5.3"]


def test_a_time_ago_is_said_until_a_place_is_known() -> None:
    options = ConsumerOptions("t", "r").read_from(MessageId.latest, 60)
    place = ReaderPosition(options, queue(), persistent=True)
    command = pb.Subscribe()
    place.set_start(command)
    assert command.start_rollback_seconds == 60
    place.move_to(MessageId(-1, 4, 7), inclusive=False)
    later = pb.Subscribe()
    place.set_start(later)
    assert (later.start_rollback_seconds, later.start.entry) == (0, 8)
