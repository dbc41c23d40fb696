"""``MessageId``: parts, order, texts and bytes."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.clients.differential.helpers import batch, consume, publish, take
from tests.clients.differential.outcomes import caught


def parts_of_a_made_one(pulsar: ModuleType, client: Any, topic: str) -> object:
    made = pulsar.MessageId(1, 2, 3, 4)
    return made.partition(), made.ledger_id(), made.entry_id(), made.batch_index()


def default_parts(pulsar: ModuleType, client: Any, topic: str) -> object:
    made = pulsar.MessageId()
    return made.partition(), made.ledger_id(), made.entry_id(), made.batch_index()


def by_names(pulsar: ModuleType, client: Any, topic: str) -> object:
    made = pulsar.MessageId(batch_index=4, entry_id=3, ledger_id=2, partition=1)
    return str(made)


def texts(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = pulsar.MessageId
    return [str(each) for each in (ids(1, 2, 3, 4), ids(), ids(-1, 5, 6, -1), ids.earliest)]


def latest(pulsar: ModuleType, client: Any, topic: str) -> object:
    found = pulsar.MessageId.latest
    return found.ledger_id(), found.entry_id(), found.partition(), found.batch_index()


def earliest(pulsar: ModuleType, client: Any, topic: str) -> object:
    found = pulsar.MessageId.earliest
    return found.ledger_id(), found.entry_id(), found.partition(), found.batch_index()


def equality(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = pulsar.MessageId
    one = ids(1, 2, 3, 4)
    others = (ids(1, 2, 3, 4), ids(0, 2, 3, 4), ids(1, 0, 3, 4), ids(1, 2, 0, 4), ids(1, 2, 3, 0))
    return [(one == each, one != each) for each in others]


def order(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = pulsar.MessageId
    one = ids(1, 2, 3, 4)
    others = (ids(1, 2, 3, 4), ids(1, 2, 3, 5), ids(1, 2, 4, 0), ids(1, 3, 0, 0), ids(1, 1, 9, 9))
    return [(one < each, one <= each, one > each, one >= each) for each in others]


def order_of_the_ends(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = pulsar.MessageId
    return ids.earliest < ids.latest, ids.earliest == ids.latest, ids.latest > ids.earliest


def order_of_sent_messages(pulsar: ModuleType, client: Any, topic: str) -> object:
    first, second = publish(client, topic, 2)
    return first < second, first == second, second >= first


def order_in_a_batch(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 3)
    ids = [message.message_id() for message in take(consume(pulsar, client, topic), 3)]
    return (
        [each.batch_index() for each in ids],
        ids[0] < ids[1] < ids[2],
        len({str(e) for e in ids}),
    )


def bytes_of_a_made_one(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = pulsar.MessageId
    return [
        each.serialize() for each in (ids(1, 2, 3, 4), ids(-1, 2, 3, -1), ids(0, 300, 70_000, 0))
    ]


def bytes_both_ways(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = pulsar.MessageId
    return [
        str(ids.deserialize(each.serialize()))
        for each in (ids(1, 2, 3, 4), ids(-1, 2, 3, -1), ids(0, 0, 0, 0))
    ]


def bytes_of_the_ends(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = pulsar.MessageId
    return [ids.deserialize(each.serialize()) == each for each in (ids.earliest, ids.latest)]


def bytes_of_a_received_one(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 3)
    ids = [message.message_id() for message in take(consume(pulsar, client, topic), 3)]
    again = [pulsar.MessageId.deserialize(each.serialize()) for each in ids]
    return [each == other for each, other in zip(ids, again, strict=True)]


def wrong_bytes(pulsar: ModuleType, client: Any, topic: str) -> object:
    found = []
    for data in (b"\xff\xff", b"hello", "text", None, 5):
        outcome = caught(pulsar, lambda data=data: pulsar.MessageId.deserialize(data))
        found.append(outcome["raised"] if isinstance(outcome, dict) else "taken")
    return found


def wrong_parts(pulsar: ModuleType, client: Any, topic: str) -> object:
    found = []
    for parts in (("1",), (1, None), (1, 2, 3.5), (1, 2, 3, b"4")):
        outcome = caught(pulsar, lambda parts=parts: pulsar.MessageId(*parts))
        found.append(outcome["raised"] if isinstance(outcome, dict) else "taken")
    return found


def wrapped(pulsar: ModuleType, client: Any, topic: str) -> object:
    (sent,) = publish(client, topic, 1)
    one = pulsar.MessageId.wrap(sent)
    return (
        one.entry_id() == sent.entry_id(),
        str(one) == str(sent),
        one.serialize() == sent.serialize(),
    )


def named_topic(pulsar: ModuleType, client: Any, topic: str) -> object:
    data = pulsar.MessageId(0, 1, 2, -1).serialize()
    return pulsar.MessageId.deserialize(data, topic=topic).entry_id()


def sent_and_received_are_equal(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = publish(client, topic, 2)
    received = [message.message_id() for message in take(consume(pulsar, client, topic), 2)]
    return [each == other for each, other in zip(ids, received, strict=True)]


def ids_of_a_batch_are_those_of_its_callbacks(
    pulsar: ModuleType, client: Any, topic: str
) -> object:
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=60_000
    )
    ids: list[Any] = []
    for number in range(3):
        producer.send_async(b"%d" % number, lambda _result, sent: ids.append(sent))
    producer.flush()
    received = [message.message_id() for message in take(consume(pulsar, client, topic), 3)]
    return [each == other for each, other in zip(ids, received, strict=False)], len(ids)
