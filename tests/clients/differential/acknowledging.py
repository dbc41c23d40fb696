"""Acknowledgements of all kinds, and what comes again."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

from tests.clients.differential.helpers import (
    RECEIVE_MS,
    batch,
    consume,
    data_of,
    is_empty,
    publish,
    take,
)
from tests.clients.differential.outcomes import caught


def _left(pulsar: ModuleType, client: Any, consumer: Any, topic: str, count: int) -> object:
    """Close a consumer, and return what its subscription still has, about ``count`` messages."""
    consumer.close()
    again = _shared(pulsar, client, topic)
    left: list[str] = []
    while True:
        wait_ms = RECEIVE_MS if len(left) < count else 300
        found = caught(pulsar, partial(again.receive, wait_ms))
        if isinstance(found, dict):
            return sorted(left), found
        left.append(found.data().decode())


def _shared(pulsar: ModuleType, client: Any, topic: str, **options: Any) -> Any:
    return consume(pulsar, client, topic, consumer_type=pulsar.ConsumerType.Shared, **options)


def by_message(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 4)
    consumer = _shared(pulsar, client, topic)
    messages = take(consumer, 4)
    found = [consumer.acknowledge(messages[index]) for index in (0, 2)]
    return found, _left(pulsar, client, consumer, topic, 2)


def by_message_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 4)
    consumer = _shared(pulsar, client, topic)
    for message in take(consumer, 4)[1:3]:
        consumer.acknowledge(message.message_id())
    return _left(pulsar, client, consumer, topic, 2)


def by_the_id_that_send_returned(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = publish(client, topic, 3)
    consumer = _shared(pulsar, client, topic)
    take(consumer, 3)
    consumer.acknowledge(ids[1])
    return _left(pulsar, client, consumer, topic, 2)


def by_a_stored_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = _shared(pulsar, client, topic)
    stored = take(consumer, 3)[2].message_id().serialize()
    consumer.acknowledge(pulsar.MessageId.deserialize(stored))
    return _left(pulsar, client, consumer, topic, 2)


def by_a_made_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    (sent,) = publish(client, topic, 1)
    consumer = _shared(pulsar, client, topic)
    consumer.acknowledge(pulsar.MessageId(-1, sent.ledger_id(), sent.entry_id(), -1))
    return _left(pulsar, client, consumer, topic, 0)


def cumulative(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 5)
    consumer = consume(pulsar, client, topic)
    found = consumer.acknowledge_cumulative(take(consumer, 5)[2])
    return found, _left(pulsar, client, consumer, topic, 2)


def cumulative_by_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 5)
    consumer = consume(pulsar, client, topic, consumer_type=pulsar.ConsumerType.Failover)
    consumer.acknowledge_cumulative(take(consumer, 5)[3].message_id())
    return _left(pulsar, client, consumer, topic, 1)


def cumulative_backwards(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 4)
    consumer = consume(pulsar, client, topic)
    messages = take(consumer, 4)
    consumer.acknowledge_cumulative(messages[2])
    consumer.acknowledge_cumulative(messages[0])
    return _left(pulsar, client, consumer, topic, 1)


def cumulative_on_shared(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    found = []
    for kind in (pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared):
        consumer = consume(pulsar, client, topic, str(kind), consumer_type=kind)
        (message,) = take(consumer, 1)
        found.append(caught(pulsar, lambda c=consumer, m=message: c.acknowledge_cumulative(m)))
    return found


def cumulative_on_partitions(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    publish(client, topic, 4)
    consumer = consume(pulsar, client, topic)
    messages = take(consumer, 4)
    return caught(pulsar, lambda: consumer.acknowledge_cumulative(messages[-1]))


def twice(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    consumer = _shared(pulsar, client, topic)
    messages = take(consumer, 2)
    found = [caught(pulsar, lambda: consumer.acknowledge(messages[0])) for _ in range(2)]
    return found, _left(pulsar, client, consumer, topic, 1)


def a_list(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    consumer = _shared(pulsar, client, topic)
    return caught(pulsar, lambda: consumer.acknowledge(take(consumer, 1)))


def in_a_batch_without_index(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 4)
    consumer = _shared(pulsar, client, topic)
    for message in take(consumer, 4)[:2]:
        consumer.acknowledge(message)
    return _left(pulsar, client, consumer, topic, 4)


def in_a_batch_with_index(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 4)
    consumer = _shared(pulsar, client, topic, batch_index_ack_enabled=True)
    for message in take(consumer, 4)[:2]:
        consumer.acknowledge(message)
    consumer.close()
    again = _shared(pulsar, client, topic, batch_index_ack_enabled=True)
    return data_of(take(again, 2)), is_empty(pulsar, again)


def whole_batch(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 3)
    consumer = _shared(pulsar, client, topic)
    take(consumer, 3, ack=True)
    return _left(pulsar, client, consumer, topic, 0)


def cumulative_inside_a_batch(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    batch(client, topic, 4)
    consumer = consume(pulsar, client, topic)
    consumer.acknowledge_cumulative(take(consumer, 5)[2])
    return _left(pulsar, client, consumer, topic, 4)


def cumulative_inside_a_batch_with_index(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 4)
    consumer = consume(pulsar, client, topic, batch_index_ack_enabled=True)
    consumer.acknowledge_cumulative(take(consumer, 4)[1])
    consumer.close()
    again = consume(pulsar, client, topic, batch_index_ack_enabled=True)
    return data_of(take(again, 2)), is_empty(pulsar, again)


def cumulative_at_the_end_of_a_batch(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 3)
    publish(client, topic, 1)
    consumer = consume(pulsar, client, topic)
    consumer.acknowledge_cumulative(take(consumer, 4)[2])
    return _left(pulsar, client, consumer, topic, 1)


def before_close(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    publish(client, topic, 10)
    consumer = consume(pulsar, client, topic)
    take(consumer, 10, ack=True)
    consumer.close()
    return admin.topics.stats(topic)["subscriptions"]["s"]["msgBacklog"]


def on_a_partition(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    publish(client, topic, 4)
    consumer = _shared(pulsar, client, topic)
    take(consumer, 4, ack=True)
    return _left(pulsar, client, consumer, topic, 0)


def stored_id_on_partitions(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    publish(client, topic, 4)
    consumer = _shared(pulsar, client, topic)
    (message, *_) = take(consumer, 4)
    stored, name = message.message_id().serialize(), message.topic_name()
    ids = pulsar.MessageId
    named = caught(pulsar, lambda: consumer.acknowledge(ids.deserialize(stored, name)))
    consumer.close()
    again = _shared(pulsar, client, topic)
    left = data_of(take(again, 3))
    return named, message.data().decode() in left, len(set(left)), is_empty(pulsar, again)


def message_of_another_topic(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    publish(client, topic + "-other", 2)
    consumer = _shared(pulsar, client, topic)
    (message, *_) = take(_shared(pulsar, client, topic + "-other"), 2)
    return caught(pulsar, lambda: consumer.acknowledge(message))


def refused_comes_again(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = _shared(pulsar, client, topic, negative_ack_redelivery_delay_ms=200)
    messages = take(consumer, 3)
    found = consumer.negative_acknowledge(messages[1])
    again = consumer.receive(RECEIVE_MS)
    return found, again.data(), again.redelivery_count(), is_empty(pulsar, consumer)


def refused_by_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    consumer = _shared(pulsar, client, topic, negative_ack_redelivery_delay_ms=200)
    messages = take(consumer, 2)
    outcome = caught(pulsar, lambda: consumer.negative_acknowledge(messages[0].message_id()))
    return outcome, data_of(take(consumer, 1))


def refused_by_a_deserialized_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    consumer = _shared(pulsar, client, topic, negative_ack_redelivery_delay_ms=200)
    stored = take(consumer, 2)[1].message_id().serialize()
    consumer.negative_acknowledge(pulsar.MessageId.deserialize(stored))
    return data_of(take(consumer, 1))


def refused_often_counts(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    consumer = _shared(pulsar, client, topic, negative_ack_redelivery_delay_ms=100)
    counts = []
    for _ in range(3):
        (message,) = take(consumer, 1)
        counts.append(message.redelivery_count())
        consumer.negative_acknowledge(message)
    return counts


def refused_in_order_on_exclusive(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = consume(pulsar, client, topic, negative_ack_redelivery_delay_ms=200)
    messages = take(consumer, 3)
    consumer.negative_acknowledge(messages[0])
    # All that is not acknowledged comes again, in the order of the log.
    return data_of(take(consumer, 3))


def refused_on_exclusive_counts(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    consumer = consume(pulsar, client, topic, negative_ack_redelivery_delay_ms=200)
    consumer.negative_acknowledge(take(consumer, 1)[0])
    return take(consumer, 1)[0].redelivery_count()


def refused_in_a_batch(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 3)
    consumer = _shared(pulsar, client, topic, negative_ack_redelivery_delay_ms=200)
    messages = take(consumer, 3)
    consumer.negative_acknowledge(messages[1])
    return data_of(take(consumer, 3))


def refused_in_a_batch_after_acks(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 3)
    consumer = _shared(pulsar, client, topic, negative_ack_redelivery_delay_ms=200)
    first, second, third = take(consumer, 3)
    consumer.acknowledge(first)
    consumer.acknowledge(third)
    consumer.negative_acknowledge(second)
    # Without acknowledgement of single messages the whole batch comes again.
    return data_of(take(consumer, 1)), second.redelivery_count()


def refused_in_a_batch_with_index(pulsar: ModuleType, client: Any, topic: str) -> object:
    batch(client, topic, 3)
    consumer = _shared(
        pulsar, client, topic, negative_ack_redelivery_delay_ms=200, batch_index_ack_enabled=True
    )
    first, second, third = take(consumer, 3)
    consumer.acknowledge(first)
    consumer.acknowledge(third)
    consumer.negative_acknowledge(second)
    return data_of(take(consumer, 1)), is_empty(pulsar, consumer)


def refused_then_acknowledged(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    consumer = _shared(pulsar, client, topic, negative_ack_redelivery_delay_ms=1_000)
    (message,) = take(consumer, 1)
    consumer.negative_acknowledge(message)
    consumer.acknowledge(message)
    return is_empty(pulsar, consumer, 2_500)


def refused_with_no_delay(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    consumer = _shared(pulsar, client, topic, negative_ack_redelivery_delay_ms=0)
    consumer.negative_acknowledge(take(consumer, 1)[0])
    return data_of(take(consumer, 1))


def refused_on_partitions(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    publish(client, topic, 4)
    consumer = _shared(pulsar, client, topic, negative_ack_redelivery_delay_ms=200)
    messages = take(consumer, 4)
    consumer.negative_acknowledge(messages[2])
    return take(consumer, 1)[0].data() == messages[2].data()


def refused_and_closed(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    consumer = _shared(pulsar, client, topic, negative_ack_redelivery_delay_ms=60_000)
    for message in take(consumer, 2):
        consumer.negative_acknowledge(message)
    return _left(pulsar, client, consumer, topic, 2)


def redelivered_all(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = _shared(pulsar, client, topic)
    consumer.acknowledge(take(consumer, 3)[0])
    found = consumer.redeliver_unacknowledged_messages()
    again = take(consumer, 2)
    return found, data_of(again), [each.redelivery_count() for each in again]


def redelivered_all_on_exclusive(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = consume(pulsar, client, topic)
    take(consumer, 2)
    consumer.redeliver_unacknowledged_messages()
    again = take(consumer, 3)
    return data_of(again), is_empty(pulsar, consumer)


def unacknowledged_comes_again_to_the_next(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    consumer = _shared(pulsar, client, topic)
    take(consumer, 2)
    consumer.close()
    again = take(_shared(pulsar, client, topic), 2)
    return data_of(again), [each.redelivery_count() for each in again]


def unacknowledged_on_exclusive(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    consumer = consume(pulsar, client, topic)
    take(consumer, 2)
    consumer.close()
    again = take(consume(pulsar, client, topic), 2)
    return data_of(again), [each.redelivery_count() for each in again]


def time_for_acknowledging(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    consumer = _shared(pulsar, client, topic, unacked_messages_timeout_ms=10_000)
    consumer.acknowledge(take(consumer, 2)[0])
    again = consumer.receive(30_000)
    return again.data(), again.redelivery_count()


def message_of_the_package_below(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    consumer = _shared(pulsar, client, topic)
    (message,) = take(consumer, 1)
    # Some programs keep ``message_id()`` and wrap it.
    wrapped = pulsar.MessageId.wrap(message.message_id())
    consumer.acknowledge(wrapped)
    return _left(pulsar, client, consumer, topic, 0)
