"""Arguments of a wrong type or beyond their range."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import ModuleType
from typing import Any

from tests.clients.differential.helpers import publish
from tests.clients.differential.outcomes import caught

_NUMBERS = (None, "1", 1.5, b"1", True, [])
_FLAGS = (None, 1, 0, "yes")
_TEXTS = (1, b"x", [], True)


def _each(
    pulsar: ModuleType, work: Callable[..., Any], name: str, values: tuple[object, ...]
) -> list[Any]:
    """Return for each value of an argument what is raised, or ``taken``."""
    found = []
    for value in values:
        outcome = caught(pulsar, lambda value=value: work(**{name: value}))
        if isinstance(outcome, dict):
            found.append(outcome["raised"])
        else:
            outcome.close()
            found.append("taken")
    return found


def _producer(client: Any, topic: str) -> Callable[..., Any]:
    return lambda **options: client.create_producer(topic, **options)


def _consumer(client: Any, topic: str) -> Callable[..., Any]:
    return lambda **options: client.subscribe(topic, "s", **options)


def _reader(pulsar: ModuleType, client: Any, topic: str) -> Callable[..., Any]:
    return lambda **options: client.create_reader(topic, pulsar.MessageId.earliest, **options)


def topic_of_a_producer(pulsar: ModuleType, client: Any, topic: str) -> object:
    return [
        caught(pulsar, lambda value=value: client.create_producer(value))
        for value in (None, 1, b"t", [topic])
    ]


def topic_of_a_consumer(pulsar: ModuleType, client: Any, topic: str) -> object:
    return [
        caught(pulsar, lambda value=value: client.subscribe(value, "s"))
        for value in (None, 1, b"t", (topic,), {topic})
    ]


def topic_of_a_reader(pulsar: ModuleType, client: Any, topic: str) -> object:
    start = pulsar.MessageId.earliest
    return [
        caught(pulsar, lambda value=value: client.create_reader(value, start))
        for value in (None, 1, b"t", [topic])
    ]


def names_of_topics(pulsar: ModuleType, client: Any, topic: str) -> object:
    wrong = (
        "",
        "a/b",
        "a/b/c/d/e/f",
        "http://a/b/c",
        "persistent://a/b",
        "persistent:/a/b/c",
        "://a/b/c",
    )
    return {
        name: caught(pulsar, lambda name=name: client.create_producer(name).topic())
        for name in wrong
    }


def tenant_that_does_not_exist(pulsar: ModuleType, client: Any, topic: str) -> object:
    wrong = "persistent://nowhere/default/t"
    return caught(pulsar, lambda: client.create_producer(wrong)), caught(
        pulsar, lambda: client.subscribe(wrong, "s")
    )


def namespace_that_does_not_exist(pulsar: ModuleType, client: Any, topic: str) -> object:
    wrong = "persistent://public/nowhere/t"
    return caught(pulsar, lambda: client.create_producer(wrong)), caught(
        pulsar, lambda: client.subscribe(wrong, "s")
    )


def subscription_name(pulsar: ModuleType, client: Any, topic: str) -> object:
    return [
        caught(pulsar, lambda value=value: client.subscribe(topic, value).subscription_name())
        for value in (None, 1, b"s")
    ]


def producer_name(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _each(pulsar, _producer(client, topic), "producer_name", _TEXTS)


def producer_schema(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _each(
        pulsar, _producer(client, topic), "schema", (None, 1, "s", pulsar.schema.StringSchema)
    )


def consumer_schema(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _each(
        pulsar, _consumer(client, topic), "schema", (None, 1, "s", pulsar.schema.StringSchema)
    )


def producer_send_timeout(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _each(pulsar, _producer(client, topic), "send_timeout_millis", _NUMBERS)


def producer_initial_sequence_id(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _each(pulsar, _producer(client, topic), "initial_sequence_id", ("1", 1.5, b"1"))


def producer_compression(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _each(pulsar, _producer(client, topic), "compression_type", (None, 1, "LZ4"))


def producer_pending(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _each(pulsar, _producer(client, topic), "max_pending_messages", (*_NUMBERS, -1, 0))


def producer_pending_across(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _each(
        pulsar,
        _producer(client, topic),
        "max_pending_messages_across_partitions",
        (*_NUMBERS, -1, 0),
    )


def producer_flags(pulsar: ModuleType, client: Any, topic: str) -> object:
    names = (
        "block_if_queue_full",
        "batching_enabled",
        "chunking_enabled",
        "lazy_start_partitioned_producers",
    )
    return {name: _each(pulsar, _producer(client, topic), name, _FLAGS) for name in names}


def producer_lazy(pulsar: ModuleType, client: Any, topic: str) -> object:
    values = (True, False)
    return _each(pulsar, _producer(client, topic), "lazy_start_partitioned_producers", values)


def producer_batch_sizes(pulsar: ModuleType, client: Any, topic: str) -> object:
    names = (
        "batching_max_messages",
        "batching_max_allowed_size_in_bytes",
        "batching_max_publish_delay_ms",
    )
    return {name: _each(pulsar, _producer(client, topic), name, _NUMBERS[:4]) for name in names}


def producer_batch_of_one(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _each(pulsar, _producer(client, topic), "batching_max_messages", (1, 0, -1))


def producer_properties(pulsar: ModuleType, client: Any, topic: str) -> object:
    values = ("a", [("a", "b")], {"a": 1}, {1: "a"}, {"a": None})
    return _each(pulsar, _producer(client, topic), "properties", values)


def producer_enumerations(pulsar: ModuleType, client: Any, topic: str) -> object:
    names = ("batching_type", "access_mode", "message_routing_mode")
    return {name: _each(pulsar, _producer(client, topic), name, (None, 0, "x")) for name in names}


def producer_router(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = caught(pulsar, lambda: client.create_producer(topic, message_router=5))
    return producer if isinstance(producer, dict) else "taken"


def batches_of_chunks(pulsar: ModuleType, client: Any, topic: str) -> object:
    return caught(
        pulsar,
        lambda: client.create_producer(topic, batching_enabled=True, chunking_enabled=True),
    )


def unknown_arguments(pulsar: ModuleType, client: Any, topic: str) -> object:
    return [
        caught(pulsar, lambda: client.create_producer(topic, batching=True)),
        caught(pulsar, lambda: client.subscribe(topic, "s", queue=1)),
        caught(pulsar, lambda: client.create_reader(topic, pulsar.MessageId.earliest, queue=1)),
        caught(pulsar, lambda: pulsar.Client("pulsar://localhost:6650", timeout=1)),
    ]


def missing_arguments(pulsar: ModuleType, client: Any, topic: str) -> object:
    return [
        caught(pulsar, client.create_producer),
        caught(pulsar, lambda: client.subscribe(topic)),
        caught(pulsar, lambda: client.create_reader(topic)),
        caught(pulsar, pulsar.Client),
        caught(pulsar, pulsar.ConsumerDeadLetterPolicy),
    ]


def argument_given_twice(pulsar: ModuleType, client: Any, topic: str) -> object:
    return [
        caught(pulsar, lambda: client.create_producer(topic, "a", producer_name="a")),
        caught(pulsar, lambda: client.subscribe(topic, "s", subscription_name="s")),
    ]


def content_that_is_not_bytes(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    found = []
    for content in ("text", 1, [b"x"], bytearray(b"x"), memoryview(b"x")):
        outcome = caught(pulsar, lambda content=content: producer.send(content))
        found.append(outcome["raised"] if isinstance(outcome, dict) else "taken")
    return found


def arguments_of_send(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    wrong: dict[str, tuple[object, ...]] = {
        "properties": ("a", [1], {"a": 1}, {1: "a"}),
        "partition_key": (1, b"k"),
        "ordering_key": (1, b"k"),
        "sequence_id": ("1", 1.5),
        "replication_clusters": ("a", ("a",)),
        "disable_replication": (None, 1),
        "event_timestamp": ("1", 1.5, -1),
        "deliver_at": ("1", 1.5),
        "deliver_after": (1, "1"),
    }
    found: dict[str, list[Any]] = {}
    for name, values in wrong.items():
        for value in values:
            outcome = caught(
                pulsar, lambda name=name, value=value: producer.send(b"x", **{name: value})
            )
            found.setdefault(name, []).append(
                outcome["raised"] if isinstance(outcome, dict) else "taken"
            )
    return found


def callback_of_send_async(pulsar: ModuleType, client: Any, topic: str) -> object:
    producer = client.create_producer(topic)
    return caught(pulsar, lambda: producer.send_async(b"x", 5)), caught(
        pulsar, lambda: producer.send_async(b"x")
    )


def consumer_type(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _each(pulsar, _consumer(client, topic), "consumer_type", (None, 1, "Shared"))


def consumer_queue(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _each(pulsar, _consumer(client, topic), "receiver_queue_size", (*_NUMBERS, -1))


def consumer_queue_in_all(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _each(
        pulsar,
        _consumer(client, topic),
        "max_total_receiver_queue_size_across_partitions",
        (*_NUMBERS[:4], -1, 0),
    )


def consumer_name(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _each(pulsar, _consumer(client, topic), "consumer_name", (*_TEXTS, ""))


def consumer_unacked_timeout(pulsar: ModuleType, client: Any, topic: str) -> object:
    values = ("1", 1.5, -1, 0, 1, 9_999, 10_000, None)
    return _each(pulsar, _consumer(client, topic), "unacked_messages_timeout_ms", values)


def consumer_negative_delay(pulsar: ModuleType, client: Any, topic: str) -> object:
    values = (None, "1", 1.5, 0)
    return _each(pulsar, _consumer(client, topic), "negative_ack_redelivery_delay_ms", values)


def consumer_stats_cache(pulsar: ModuleType, client: Any, topic: str) -> object:
    values = (None, "1", 1.5, 0, 1_000)
    return _each(pulsar, _consumer(client, topic), "broker_consumer_stats_cache_time_ms", values)


def consumer_flags(pulsar: ModuleType, client: Any, topic: str) -> object:
    names = (
        "is_read_compacted",
        "auto_ack_oldest_chunked_message_on_queue_full",
        "start_message_id_inclusive",
        "batch_index_ack_enabled",
    )
    return {name: _each(pulsar, _consumer(client, topic), name, _FLAGS) for name in names}


def consumer_replicated(pulsar: ModuleType, client: Any, topic: str) -> object:
    values = (True, False)
    return _each(pulsar, _consumer(client, topic), "replicate_subscription_state_enabled", values)


def consumer_properties(pulsar: ModuleType, client: Any, topic: str) -> object:
    values = ("a", [("a", "b")], {"a": 1}, {1: "a"})
    return _each(pulsar, _consumer(client, topic), "properties", values)


def consumer_discovery(pulsar: ModuleType, client: Any, topic: str) -> object:
    values = (None, "1", 1.5, 0, 1)
    return _each(pulsar, _consumer(client, topic), "pattern_auto_discovery_period", values)


def consumer_position(pulsar: ModuleType, client: Any, topic: str) -> object:
    values = (None, 0, "Latest", pulsar.MessageId.earliest)
    return _each(pulsar, _consumer(client, topic), "initial_position", values)


def consumer_chunks(pulsar: ModuleType, client: Any, topic: str) -> object:
    values = (None, "1", 1.5, 0, 1)
    return _each(pulsar, _consumer(client, topic), "max_pending_chunked_message", values)


def consumer_policies(pulsar: ModuleType, client: Any, topic: str) -> object:
    names = ("batch_receive_policy", "key_shared_policy", "dead_letter_policy")
    return {name: _each(pulsar, _consumer(client, topic), name, (1, "x")) for name in names}


def consumer_enumerations(pulsar: ModuleType, client: Any, topic: str) -> object:
    names = ("regex_subscription_mode", "crypto_failure_action")
    return {name: _each(pulsar, _consumer(client, topic), name, (None, 0)) for name in names}


def empty_list_of_topics(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = caught(pulsar, lambda: client.subscribe([], "s"))
    return consumer if isinstance(consumer, dict) else "taken"


def list_with_a_topic_twice(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = caught(pulsar, lambda: client.subscribe([topic, topic], "s"))
    return consumer if isinstance(consumer, dict) else "taken"


def list_of_other_things(pulsar: ModuleType, client: Any, topic: str) -> object:
    return caught(pulsar, lambda: client.subscribe([1], "s")), caught(
        pulsar, lambda: client.subscribe([topic, None], "s")
    )


def list_with_a_wrong_name(pulsar: ModuleType, client: Any, topic: str) -> object:
    return caught(pulsar, lambda: client.subscribe([topic, "a/b"], "s"))


def time_of_receive(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = client.subscribe(topic, "s")
    return [
        caught(pulsar, lambda value=value: consumer.receive(value)) for value in ("1", 1.5, b"1")
    ]


def time_of_read_next(pulsar: ModuleType, client: Any, topic: str) -> object:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    return [
        caught(pulsar, lambda value=value: reader.read_next(value)) for value in ("1", 1.5, b"1")
    ]


def acknowledged_things(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = client.subscribe(topic, "s")
    calls = (
        consumer.acknowledge,
        consumer.acknowledge_cumulative,
        consumer.negative_acknowledge,
    )
    return [
        caught(pulsar, lambda call=call, value=value: call(value))
        for call in calls
        for value in (None, 1, "x")
    ]


def seek_position(pulsar: ModuleType, client: Any, topic: str) -> object:
    consumer = client.subscribe(topic, "s")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    return [
        caught(pulsar, lambda call=call, value=value: call(value))
        for call in (consumer.seek, reader.seek)
        for value in (None, "x", 1.5, timedelta(1))
    ]


def reader_start(pulsar: ModuleType, client: Any, topic: str) -> object:
    return [
        caught(pulsar, lambda value=value: client.create_reader(topic, value))
        for value in (None, 0, "earliest", pulsar.InitialPosition.Earliest)
    ]


def reader_arguments(pulsar: ModuleType, client: Any, topic: str) -> object:
    wrong: dict[str, tuple[object, ...]] = {
        "schema": (None, 1),
        "receiver_queue_size": (None, "1", 1.5),
        "reader_name": (1, b"x"),
        "subscription_role_prefix": (1, b"x"),
        "is_read_compacted": (None, 1),
        "start_message_id_inclusive": (None, 1),
        "crypto_failure_action": (None, 0),
        "crypto_key_reader": (1,),
    }
    return {
        name: _each(pulsar, _reader(pulsar, client, topic), name, values)
        for name, values in wrong.items()
    }


def table_view_arguments(pulsar: ModuleType, client: Any, topic: str) -> object:
    return [
        caught(pulsar, lambda: client.create_table_view(1)),
        caught(pulsar, lambda: client.create_table_view(topic, 1)),
        caught(pulsar, lambda: client.create_table_view(topic, None, 1)),
        caught(pulsar, lambda: client.create_table_view(topic, schema=None)),
    ]


def topic_of_partitions(pulsar: ModuleType, client: Any, topic: str) -> object:
    return [
        caught(pulsar, lambda value=value: client.get_topic_partitions(value))
        for value in (None, 1, "a/b")
    ]


def dead_letter_policies(pulsar: ModuleType, client: Any, topic: str) -> object:
    found = []
    for arguments in ((0,), (-1,), (None,), ("3",), (1.5,), (3, 5), (3, "t", 5)):
        policy = caught(pulsar, lambda given=arguments: pulsar.ConsumerDeadLetterPolicy(*given))
        found.append(policy["raised"] if isinstance(policy, dict) else "made")
    return found


def batch_receive_policies(pulsar: ModuleType, client: Any, topic: str) -> object:
    found = []
    for arguments in ((), (1,), (0, 0, 0), (-1, -1, -1), ("1", 1, 1), (1, None, 1), (10, 10, 10)):
        policy = caught(pulsar, lambda given=arguments: pulsar.ConsumerBatchReceivePolicy(*given))
        found.append(policy["raised"] if isinstance(policy, dict) else "made")
    return found


def key_shared_policies(pulsar: ModuleType, client: Any, topic: str) -> object:
    modes = pulsar.KeySharedMode
    found = []
    for arguments in (
        (),
        (modes.Sticky,),
        (modes.Sticky, False, []),
        (modes.Sticky, False, [(5, 1)]),
        (modes.Sticky, False, [(0, 70_000)]),
        (modes.Sticky, False, [(-1, 5)]),
        (modes.Sticky, False, [(0, 5), (5, 9)]),
        (modes.Sticky, False, [(0, 5), (6, 9)]),
        (modes.Sticky, False, "x"),
        (modes.AutoSplit, False, [(0, 5)]),
        (None,),
        (modes.AutoSplit, None),
        (modes.AutoSplit, 1),
    ):
        policy = caught(pulsar, lambda given=arguments: pulsar.ConsumerKeySharedPolicy(*given))
        found.append(policy["raised"] if isinstance(policy, dict) else "made")
    return found


def credentials(pulsar: ModuleType, client: Any, topic: str) -> object:
    return [
        caught(pulsar, lambda: pulsar.AuthenticationToken(1)),
        caught(pulsar, lambda: pulsar.AuthenticationTLS(1, "x")),
        caught(pulsar, lambda: pulsar.AuthenticationTLS("x", None)),
        caught(pulsar, lambda: pulsar.AuthenticationBasic(1, "x")),
        caught(pulsar, lambda: pulsar.AuthenticationBasic("x")),
        caught(pulsar, lambda: pulsar.AuthenticationOauth2(1)),
        caught(pulsar, lambda: pulsar.AuthenticationAthenz(1)),
    ]


def router_out_of_range(pulsar: ModuleType, client: Any, topic: str, admin: Any) -> object:
    admin.topics.create(topic, partitions=2)
    producer = client.create_producer(topic, message_router=lambda _message, _count: 7)
    return caught(pulsar, lambda: producer.send(b"x"))


def ids_of_ack_that_stand_for_no_message(pulsar: ModuleType, client: Any, topic: str) -> object:
    publish(client, topic, 1)
    consumer = client.subscribe(topic, "s")
    ids = pulsar.MessageId
    return [
        caught(pulsar, lambda each=each: consumer.acknowledge(each))
        for each in (ids.earliest, ids.latest, ids(-1, 5, 5, -1))
    ]
