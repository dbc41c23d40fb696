"""The small cores between a session and its topics: the outbox, a producer's order of outcomes, the
codec's order of answers.
"""

from __future__ import annotations

import random
from collections import deque

import pytest

from pulsarish.broker.clients.commands import (
    Answer,
    Outcome,
    ProducerClosed,
    ProducerOpened,
    Receipts,
    SendFailed,
)
from pulsarish.broker.clients.consumer import Delivery
from pulsarish.broker.clients.meters import Meter
from pulsarish.broker.clients.outbox import Outbox
from pulsarish.broker.clients.producer import Flight, Producer, PublishRequest
from pulsarish.broker.sessions.grpc_codec import (
    consume_commands,
    encode_consume,
    encode_publish,
    publish_commands,
)
from pulsarish.model.errors import InvalidArgument, TopicFenced
from pulsarish.model.position import Position
from pulsarish.wire._pb import broker_pb2 as pb
from pulsarish.wire.framing import slice_records, split_records


def outbox(limit: int = 100) -> tuple[Outbox, list[None]]:
    woken: list[None] = []
    return Outbox(delivery_bytes_max=limit, changed=lambda: woken.append(None)), woken


def delivery(entry: int, size: int = 10, messages: int = 1) -> Delivery:
    return Delivery(Position(1, entry), b"x" * size, messages, 0, None)


def test_rows_that_continue_each_other_become_one() -> None:
    box, _ = outbox()
    box.put(Receipts(1, 2, 9, 0, 1))
    box.put(Receipts(1, 3, 9, 2, 4))
    box.put(Receipts(2, 1, 9, 5, 0))
    box.put(Receipts(1, 1, 9, 6, 5))
    box.put(Receipts(1, 1, -1, -1, 3))
    box.put(Receipts(1, 1, -1, -1, 4))
    assert list(box.answers) == [
        Receipts(1, 5, 9, 0, 4),
        Receipts(2, 1, 9, 5, 0),
        Receipts(1, 1, 9, 6, 5),
        Receipts(1, 2, -1, -1, 4),
    ]


def test_deliveries_are_bounded_and_taken_by_size() -> None:
    box, woken = outbox(limit=100)
    box.deliver(1, [delivery(entry) for entry in range(9)])
    assert box.has_room
    box.deliver(2, [delivery(9, size=50, messages=7)])
    assert not box.has_room
    assert len(woken) == 2
    assert [each.position.entry_id for _, each in box.take_deliveries(35)] == [0, 1, 2]
    assert box.withdraw(2) == 7
    box.check()
    assert box.withdraw(2) == 0
    assert len(box.take_deliveries(1)) == 1, "one is taken whatever its size"
    assert len(box.take_deliveries(1000)) == 5
    assert box.take_deliveries(1000) == []
    box.check()
    box.close()
    box.deliver(1, [delivery(1)])
    box.put(Outcome(1))
    assert not box.answers
    assert not box.has_room


def test_a_full_one_has_room_again_at_half() -> None:
    box, woken = outbox(limit=100)
    box.deliver(1, [delivery(entry) for entry in range(10)])
    assert not box.has_room
    box.take_deliveries(40)
    assert not box.has_room
    assert not box.take_room_again()
    box.take_deliveries(10)
    assert box.has_room
    assert box.take_room_again()
    assert not box.take_room_again(), "it is told once"
    box.deliver(1, [delivery(10, size=49)])
    assert box.has_room, "it was not full since"
    box.check()
    assert len(woken) == 2


def test_a_consumer_that_leaves_makes_room_for_the_others() -> None:
    box, woken = outbox(limit=100)
    box.deliver(1, [delivery(0, size=30)])
    box.deliver(2, [delivery(1, size=80)])
    box.withdraw(2)
    assert len(woken) == 3, "the writer looks, though it has nothing new to send"
    assert box.take_room_again()
    assert box.has_room


@pytest.mark.parametrize("seed", range(50))
def test_outcomes_leave_in_send_order(seed: int) -> None:
    """Confirmations come in runs, decisions at once.

    The client must see one outcome for each entry, in the order it sent them.
    """
    rng = random.Random(seed)
    box, _ = outbox()
    producer = Producer(1, "p", 0, False, box, Flight())
    expected: list[int] = []  # entry id, or -1 for a decision
    under_way = 0
    next_entry = 0
    for _ in range(60):
        action = rng.random()
        if action < 0.4:
            count = rng.randint(1, 5)
            producer.sent(count)
            under_way += count
            expected.extend(range(next_entry, next_entry + count))
            next_entry += count
        elif action < 0.6:
            if rng.random() < 0.5:
                producer.refuse(0, InvalidArgument("no"))
            else:
                producer.acknowledge(-1, -1, 0)
            expected.append(-1)
        elif under_way:
            count = rng.randint(1, under_way)
            producer.confirmed(7, next_entry - under_way, count, 0)
            under_way -= count
        producer.check()
    if under_way:
        producer.confirmed(7, next_entry - under_way, under_way, 0)
    seen: list[int] = []
    for answer in box.answers:
        if isinstance(answer, Receipts):
            seen.extend(
                [-1] * answer.count
                if answer.ledger_id < 0
                else range(answer.first_entry, answer.first_entry + answer.count)
            )
        else:
            seen.append(-1)
    assert seen == expected


def test_a_request_is_done_when_all_its_entries_are() -> None:
    done: list[tuple[int, int]] = []
    request = PublishRequest(
        3, 30, lambda r, size: done.append((r.left_entries, size)), received=0.0
    )
    request.resolve(2, 20)
    request.resolve(1, 10)
    assert done == [(1, 20), (0, 10)]
    with pytest.raises(AssertionError):
        request.resolve(1, 1)


def test_in_one_message_a_producers_answers_keep_their_order() -> None:
    fenced = TopicFenced("moving")
    answers: deque[Answer] = deque(
        [
            Receipts(1, 2, 5, 0, 1),
            SendFailed(1, 2, InvalidArgument("bad")),
            Receipts(2, 1, 5, 2, 0),
            Receipts(1, 1, 5, 3, 3),
            ProducerClosed(1, fenced),
            ProducerOpened(8, 1, None, "p"),
        ]
    )
    messages = []
    while answers:
        messages.append(pb.PublishResponse.FromString(encode_publish(answers, 3, heartbeat=False)))
    assert [(list(m.producers), len(m.failed), len(m.closed), len(m.opened)) for m in messages] == [
        ([1, 2], 1, 0, 0),
        ([1], 0, 1, 0),
        ([], 0, 0, 1),
    ]
    assert messages[0].answered == 3
    assert messages[1].closed[0].code == TopicFenced.code


def test_deliveries_survive_the_wire_with_their_ack_sets() -> None:
    sent = [
        (4, delivery(0)),
        (5, Delivery(Position(2, 3), b"abc", 9, 2, b"\xf6\x01")),
        (4, delivery(1, size=0)),
    ]
    data = b"".join(encode_consume(deque([Outcome(3)]), sent, heartbeat=False))
    head, records = split_records(data)
    message = pb.ConsumeResponse.FromString(head)
    assert [bytes(each) for each in slice_records(records, message.sizes)] == [
        b"x" * 10,
        b"abc",
        b"",
    ]
    assert list(message.consumer_ids) == [4, 5, 4]
    assert (list(message.ack_set_rows), list(message.ack_sets)) == ([1], [b"\xf6\x01"])
    assert list(message.redelivery_counts) == [0, 2, 0]
    assert message.counted
    assert message.outcomes[0].request_id == 3


@pytest.mark.parametrize(
    "message",
    [
        pb.ConsumeRequest(acks=[pb.Ack(consumer_id=1, ledgers=[1, 2], entries=[1])]),
        pb.ConsumeRequest(flow_consumers=[1, 2], flow_permits=[1]),
        pb.ConsumeRequest(redeliver=[pb.Redeliver(ledgers=[1])]),
        pb.ConsumeRequest(extend=[pb.ExtendAck(ledgers=[1])]),
        pb.ConsumeRequest(subscribe=[pb.Subscribe(type=9)]),  # type: ignore[arg-type]
    ],
)
def test_columns_that_do_not_fit_are_refused(message: pb.ConsumeRequest) -> None:
    with pytest.raises(ValueError):
        consume_commands(message)
    with pytest.raises(ValueError):
        publish_commands(pb.PublishRequest(open=[pb.OpenProducer(access_mode=77)]))  # type: ignore[arg-type]


def test_rates_need_no_timer() -> None:
    meter = Meter(0.0)
    meter.add(100, 1000, 1.0)
    assert meter.rates(2.0) == (50.0, 500.0)
    meter.add(100, 1000, 10.0)
    assert meter.rates(10.5) == (10.0, 100.0), "the last finished window"
    assert meter.rates(20.0) == (10.0, 100.0)
    assert meter.rates(30.0) == (0.0, 0.0), "nothing came"
