"""Consumers of all four types: what they are called, what they get, and how they end."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tests.clients.differential.helpers import (
    RECEIVE_MS,
    consume,
    data_of,
    is_empty,
    publish,
    take,
)
from tests.clients.differential.outcomes import caught


def names(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = client.subscribe(topic, "sub", consumer_name="me")
    return consumer.topic(), consumer.subscription_name(), consumer.consumer_name()


def made_names_differ(pulsar: ModuleType, client: Any, topic: str) -> object:
    shared = pulsar.ConsumerType.Shared
    made = {client.subscribe(topic, "s", shared).consumer_name() for _ in range(2)}
    return len(made), all(made)


def topic_of_a_short_name(pulsar: ModuleType, client: Any, topic: str) -> object:
    return client.subscribe(topic.rpartition("/")[2], "s").topic()


def latest_is_the_default(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"new")
    return data_of(take(consumer, 1))


def earliest(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    return data_of(take(consume(pulsar, client, topic), 3))


def position_of_a_known_subscription(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = consume(pulsar, client, topic)
    take(consumer, 1, ack=True)
    consumer.close()
    # The initial position is for new subscriptions only.
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Latest)
    return data_of(take(consumer, 2))


def receive_times_out(pulsar: ModuleType, client: Any, topic: str) -> object:
    return caught(pulsar, lambda: client.subscribe(topic, "s").receive(50))


def receive_with_no_time(pulsar: ModuleType, client: Any, topic: str) -> object:
    return caught(pulsar, lambda: client.subscribe(topic, "s").receive(0))


def receive_by_name(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    return consume(pulsar, client, topic).receive(timeout_millis=RECEIVE_MS).data()


def exclusive_is_alone(pulsar: ModuleType, client: Any, topic: str) -> object:
    first = client.subscribe(topic, "s")
    return first.is_connected(), caught(pulsar, lambda: client.subscribe(topic, "s"))


def types_do_not_mix(pulsar: ModuleType, client: Any, topic: str) -> object:
    types = pulsar.ConsumerType
    first = client.subscribe(topic, "s", types.Shared)
    return first.is_connected(), [
        caught(pulsar, lambda kind=kind: client.subscribe(topic, "s", kind))
        for kind in (types.Exclusive, types.Failover, types.KeyShared)
    ]


def type_changes_when_all_are_gone(pulsar: ModuleType, client: Any, topic: str) -> object:
    types = pulsar.ConsumerType
    client.subscribe(topic, "s", types.Shared).close()
    return client.subscribe(topic, "s", types.KeyShared).is_connected()


def shared_divides(pulsar: ModuleType, client: Any, topic: str) -> object:
    shared = {"consumer_type": pulsar.ConsumerType.Shared, "receiver_queue_size": 1}
    consumers = [client.subscribe(topic, "s", **shared) for _ in range(2)]
    publish(client, topic, 10)
    found: list[str] = []
    for _ in range(5):
        for consumer in consumers:
            found += data_of(take(consumer, 1, ack=True))
    return sorted(found), [is_empty(pulsar, each) for each in consumers]


def failover_by_name(pulsar: ModuleType, client: Any, topic: str) -> object:
    options = {"consumer_type": pulsar.ConsumerType.Failover}
    first = client.subscribe(topic, "s", consumer_name="a", **options)
    second = client.subscribe(topic, "s", consumer_name="b", **options)
    publish(client, topic, 3)
    found = data_of(take(first, 3))
    alone = is_empty(pulsar, second)
    first.close()
    return found, alone, data_of(take(second, 3))


def key_shared_keeps_keys_together(pulsar: ModuleType, client: Any, topic: str) -> object:
    options = {"consumer_type": pulsar.ConsumerType.KeyShared}
    consumers = [client.subscribe(topic, "s", **options) for _ in range(2)]
    producer = client.create_producer(topic)
    for number in range(40):
        producer.send(b"%d" % number, partition_key=f"k{number % 8}")
    owners: dict[str, set[int]] = {}
    order: dict[str, list[int]] = {}
    while sum(map(len, order.values())) < 40:
        for index, consumer in enumerate(consumers):
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                continue
            owners.setdefault(message.partition_key(), set()).add(index)
            order.setdefault(message.partition_key(), []).append(int(message.data()))
            consumer.acknowledge(message)
    return (
        {len(each) for each in owners.values()},
        all(each == sorted(each) for each in order.values()),
        len(order),
    )


def key_shared_by_ordering_key(pulsar: ModuleType, client: Any, topic: str) -> object:
    options = {"consumer_type": pulsar.ConsumerType.KeyShared}
    consumers = [client.subscribe(topic, "s", **options) for _ in range(2)]
    producer = client.create_producer(topic)
    for number in range(10):
        producer.send(b"%d" % number, partition_key=f"k{number}", ordering_key="same")
    found: list[list[int]] = [[], []]
    while sum(map(len, found)) < 10:
        for index, consumer in enumerate(consumers):
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                continue
            found[index].append(int(message.data()))
            consumer.acknowledge(message)
    return sorted(found)


def sticky_ranges(pulsar: ModuleType, client: Any, topic: str) -> object:
    def subscribed(*ranges: tuple[int, int]) -> Any:
        policy = pulsar.ConsumerKeySharedPolicy(
            pulsar.KeySharedMode.Sticky, sticky_ranges=list(ranges)
        )
        return client.subscribe(topic, "s", pulsar.ConsumerType.KeyShared, key_shared_policy=policy)

    low, high = subscribed((0, 32_767)), subscribed((32_768, 65_535))
    producer = client.create_producer(topic)
    for number in range(20):
        producer.send(b"%d" % number, partition_key=str(number))
    found: list[list[int]] = [[], []]
    while sum(map(len, found)) < 20:
        for index, consumer in enumerate((low, high)):
            try:
                found[index].append(int(consumer.receive(100).data()))
            except pulsar.Timeout:
                continue
    return found, caught(pulsar, lambda: subscribed((100, 200)))


def policy_of_key_shared_on_another_type(pulsar: ModuleType, client: Any, topic: str) -> object:
    policy = pulsar.ConsumerKeySharedPolicy()
    return caught(
        pulsar, lambda: client.subscribe(topic, "s", key_shared_policy=policy).is_connected()
    )


def properties_of_a_consumer(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    consumer = client.subscribe(topic, "s", consumer_name="c", properties={"a": "1"})
    (found,) = admin.topics.stats(topic)["subscriptions"]["s"]["consumers"]
    return found["consumerName"], found["metadata"], consumer.is_connected()


def connected_until_closed(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = client.subscribe(topic, "s")
    before = consumer.is_connected()
    consumer.close()
    return before, consumer.is_connected()


def closed_twice(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = client.subscribe(topic, "s")
    return consumer.close(), caught(pulsar, consumer.close)


def receive_after_close(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    consumer = consume(pulsar, client, topic)
    consumer.close()
    return [
        caught(pulsar, lambda: consumer.receive(100).data()),
        caught(pulsar, lambda: consumer.receive().data()),
        caught(pulsar, consumer.batch_receive),
    ]


def calls_after_close(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    consumer = consume(pulsar, client, topic)
    (message,) = take(consumer, 1)
    consumer.close()
    return {
        "acknowledge": caught(pulsar, lambda: consumer.acknowledge(message)),
        "acknowledge_cumulative": caught(pulsar, lambda: consumer.acknowledge_cumulative(message)),
        "negative_acknowledge": caught(pulsar, lambda: consumer.negative_acknowledge(message)),
        "redeliver": caught(pulsar, consumer.redeliver_unacknowledged_messages),
        "seek": caught(pulsar, lambda: consumer.seek(pulsar.MessageId.earliest)),
        "last": caught(pulsar, consumer.get_last_message_id),
        "unsubscribe": caught(pulsar, consumer.unsubscribe),
        "names": (consumer.topic(), consumer.subscription_name()),
    }


def unsubscribe_removes(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    consumer = client.subscribe(topic, "s")
    before = admin.subscriptions.list(topic)
    found = consumer.unsubscribe()
    return before, found, list(admin.topics.stats(topic)["subscriptions"])


def calls_after_unsubscribe(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = client.subscribe(topic, "s")
    consumer.unsubscribe()
    return [
        caught(pulsar, lambda: consumer.receive(100)),
        caught(pulsar, consumer.unsubscribe),
        consumer.is_connected(),
    ]


def close_after_unsubscribe(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = client.subscribe(topic, "s")
    consumer.unsubscribe()
    return caught(pulsar, consumer.close)


def unsubscribe_with_others(pulsar: ModuleType, client: Any, topic: str) -> object:
    shared = pulsar.ConsumerType.Shared
    first = client.subscribe(topic, "s", shared)
    second = client.subscribe(topic, "s", shared)
    return caught(pulsar, first.unsubscribe), second.is_connected()


def last_message_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    ids = publish(client, topic, 3)
    consumer = client.subscribe(topic, "s")
    return consumer.get_last_message_id() == ids[-1]


def last_message_id_of_an_empty_topic(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = client.subscribe(topic, "s")
    return caught(pulsar, lambda: consumer.get_last_message_id().entry_id())


def queue_of_zero(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 3)
    consumer = consume(pulsar, client, topic, receiver_queue_size=0)
    return [consumer.receive().data() for _ in range(3)]


def queue_of_zero_with_a_time(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    consumer = consume(pulsar, client, topic, receiver_queue_size=0)
    return caught(pulsar, lambda: consumer.receive(RECEIVE_MS).data())


def queue_of_zero_on_partitions(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    return caught(
        pulsar, lambda: client.subscribe(topic, "s", receiver_queue_size=0).is_connected()
    )


def small_queue_gets_everything(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 10)
    return data_of(take(consume(pulsar, client, topic, receiver_queue_size=1), 10))


def two_subscriptions(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 2)
    return [data_of(take(consume(pulsar, client, topic, name), 2, ack=True)) for name in "ab"]


def partitioned_topic(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=3)
    consumer = consume(pulsar, client, topic)
    publish(client, topic, 9)
    return (
        consumer.topic(),
        sorted(data_of(take(consumer, 9))),
        is_empty(pulsar, consumer),
        consumer.is_connected(),
    )


def last_message_id_of_partitions(
    pulsar: ModuleType, client: Any, topic: str, admin: Any
) -> object:
    admin.topics.create(topic, partitions=2)
    publish(client, topic, 2)
    consumer = client.subscribe(topic, "s")
    return caught(pulsar, lambda: consumer.get_last_message_id().partition())


def topic_partitions(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=3)
    return client.get_topic_partitions(topic)


def partitions_of_a_plain_topic(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    return client.get_topic_partitions(topic), client.get_topic_partitions(topic + "-new")


def one_partition(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    client.create_producer(f"{topic}-partition-1").send(b"x")
    consumer = consume(pulsar, client, f"{topic}-partition-1")
    (message,) = take(consumer, 1)
    return consumer.topic(), message.topic_name(), message.message_id().partition()


def compacted_read(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    types = pulsar.ConsumerType
    return [
        caught(
            pulsar,
            lambda kind=kind: client.subscribe(
                topic, f"s{kind}", kind, is_read_compacted=True
            ).is_connected(),
        )
        for kind in (types.Exclusive, types.Failover, types.Shared, types.KeyShared)
    ]
