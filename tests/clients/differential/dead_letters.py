"""Dead letter policies."""

from __future__ import annotations

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


def _worker(pulsar: ModuleType, client: Any, topic: str, policy: Any, **options: Any) -> Any:
    return consume(
        pulsar,
        client,
        topic,
        "work",
        consumer_type=options.pop("consumer_type", pulsar.ConsumerType.Shared),
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=policy,
        **options,
    )


def _refuse(pulsar: ModuleType, consumer: Any, count: int) -> int:
    """Refuse what comes ``count`` times, and return how often something came after that."""
    for _ in range(count):
        consumer.negative_acknowledge(consumer.receive(RECEIVE_MS))
    more = 0
    while is_empty(pulsar, consumer, 1_500) is not True:
        more += 1
    return more


def policy_shows_its_values(pulsar: ModuleType, client: Any, topic: str) -> object:
    def values(*arguments: object) -> tuple[object, ...]:
        made = pulsar.ConsumerDeadLetterPolicy(*arguments)
        return made.max_redeliver_count, made.dead_letter_topic, made.initial_subscription_name

    return [
        values(3),
        values(1, "persistent://public/default/d"),
        caught(pulsar, lambda: values(2, "dead", "initial")),
    ]


def letter_of_the_default_topic(pulsar: ModuleType, client: Any, topic: str) -> object:
    graves = client.subscribe(f"{topic}-work-DLQ", "graves")
    consumer = _worker(pulsar, client, topic, pulsar.ConsumerDeadLetterPolicy(2))
    client.create_producer(topic, "p").send(
        b"x", {"a": "1"}, "key", event_timestamp=7, ordering_key="o"
    )
    more = _refuse(pulsar, consumer, 3)
    (dead,) = take(graves, 1)
    return {
        "more": more,
        "data": dead.data(),
        "properties": {
            name: "an id" if name.endswith("ID") else value
            for name, value in dead.properties().items()
        },
        "key": dead.partition_key(),
        "ordering_key": dead.ordering_key(),
        "event": dead.event_timestamp(),
        "topic": dead.topic_name(),
        "redelivered": dead.redelivery_count(),
    }


def letter_of_a_named_topic(pulsar: ModuleType, client: Any, topic: str) -> object:
    graves = client.subscribe(f"{topic}-dead", "graves")
    policy = pulsar.ConsumerDeadLetterPolicy(1, f"{topic}-dead")
    consumer = _worker(pulsar, client, topic, policy)
    publish(client, topic, 1)
    return _refuse(pulsar, consumer, 2), data_of(take(graves, 1))


def letter_of_a_short_name(pulsar: ModuleType, client: Any, topic: str) -> object:
    short = topic.rpartition("/")[2] + "-dead"
    graves = client.subscribe(short, "graves")
    consumer = _worker(pulsar, client, topic, pulsar.ConsumerDeadLetterPolicy(1, short))
    publish(client, topic, 1)
    return _refuse(pulsar, consumer, 2), take(graves, 1)[0].topic_name()


def initial_subscription(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    policy = caught(pulsar, lambda: pulsar.ConsumerDeadLetterPolicy(1, f"{topic}-dead", "initial"))
    if isinstance(policy, dict):
        return policy
    consumer = _worker(pulsar, client, topic, policy)
    publish(client, topic, 1)
    more = _refuse(pulsar, consumer, 2)
    found = client.subscribe(f"{topic}-dead", "initial")
    return more, data_of(take(found, 1)), admin.subscriptions.list(f"{topic}-dead")


def acknowledged_is_no_letter(pulsar: ModuleType, client: Any, topic: str) -> object:
    graves = client.subscribe(f"{topic}-work-DLQ", "graves")
    consumer = _worker(pulsar, client, topic, pulsar.ConsumerDeadLetterPolicy(2))
    publish(client, topic, 1)
    consumer.negative_acknowledge(consumer.receive(RECEIVE_MS))
    consumer.acknowledge(consumer.receive(RECEIVE_MS))
    return is_empty(pulsar, consumer), is_empty(pulsar, graves)


def letters_are_acknowledged(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    graves = client.subscribe(f"{topic}-work-DLQ", "graves")
    consumer = _worker(pulsar, client, topic, pulsar.ConsumerDeadLetterPolicy(1))
    publish(client, topic, 3)
    for _ in range(6):
        consumer.negative_acknowledge(consumer.receive(RECEIVE_MS))
    found = sorted(data_of(take(graves, 3)))
    consumer.close()
    return found, admin.topics.stats(topic)["subscriptions"]["work"]["msgBacklog"]


def letters_of_a_batch(pulsar: ModuleType, client: Any, topic: str) -> object:
    graves = client.subscribe(f"{topic}-work-DLQ", "graves")
    consumer = _worker(pulsar, client, topic, pulsar.ConsumerDeadLetterPolicy(1))
    batch(client, topic, 3)
    for _ in range(2):
        for message in take(consumer, 3):
            consumer.negative_acknowledge(message)
    return sorted(data_of(take(graves, 3)))


def letters_on_key_shared(pulsar: ModuleType, client: Any, topic: str) -> object:
    graves = client.subscribe(f"{topic}-work-DLQ", "graves")
    kind = pulsar.ConsumerType.KeyShared
    policy = pulsar.ConsumerDeadLetterPolicy(1)
    consumer = _worker(pulsar, client, topic, policy, consumer_type=kind)
    client.create_producer(topic).send(b"x", partition_key="k")
    return _refuse(pulsar, consumer, 2), data_of(take(graves, 1))


def policy_on_exclusive(pulsar: ModuleType, client: Any, topic: str) -> object:
    kind = pulsar.ConsumerType.Exclusive
    policy = pulsar.ConsumerDeadLetterPolicy(1)
    return caught(
        pulsar,
        lambda: _worker(pulsar, client, topic, policy, consumer_type=kind).is_connected(),
    )


def policy_on_failover(pulsar: ModuleType, client: Any, topic: str) -> object:
    kind = pulsar.ConsumerType.Failover
    policy = pulsar.ConsumerDeadLetterPolicy(1)
    return caught(
        pulsar,
        lambda: _worker(pulsar, client, topic, policy, consumer_type=kind).is_connected(),
    )


def letters_of_partitions(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    policy = pulsar.ConsumerDeadLetterPolicy(1, f"{topic}-dead")
    graves = client.subscribe(f"{topic}-dead", "graves")
    consumer = _worker(pulsar, client, topic, policy)
    publish(client, topic, 4)
    for _ in range(8):
        consumer.negative_acknowledge(consumer.receive(RECEIVE_MS))
    return sorted(data_of(take(graves, 4)))


def letters_by_redelivery_of_all(pulsar: ModuleType, client: Any, topic: str) -> object:
    graves = client.subscribe(f"{topic}-work-DLQ", "graves")
    consumer = _worker(pulsar, client, topic, pulsar.ConsumerDeadLetterPolicy(2))
    publish(client, topic, 1)
    for _ in range(3):
        take(consumer, 1)
        consumer.redeliver_unacknowledged_messages()
    return is_empty(pulsar, consumer, 1_500), data_of(take(graves, 1))


def letter_with_a_schema(pulsar: ModuleType, client: Any, topic: str) -> object:
    schema = pulsar.schema.StringSchema()
    graves = client.subscribe(f"{topic}-work-DLQ", "graves")
    consumer = _worker(pulsar, client, topic, pulsar.ConsumerDeadLetterPolicy(1), schema=schema)
    client.create_producer(topic, schema=schema).send("téxt")
    return _refuse(pulsar, consumer, 2), take(graves, 1)[0].data().decode()
