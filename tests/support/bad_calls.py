"""Calls with bad arguments, one table for both faces of the client, and what of their methods it
covers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pulsarish
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.consumer_policies import (
    ConsumerDeadLetterPolicy,
)
from pulsarish.client.messages.message import Entry, Message, OpenedEntry
from pulsarish.client.schemas.schema import BytesSchema

__all__ = ["BAD_CALLS", "BadCall", "Things", "methods_with_arguments"]


@dataclass
class Things:
    """What one face has made."""

    client: Any
    producer: Any
    consumer: Any
    reader: Any
    view: Any


@dataclass(frozen=True)
class BadCall:
    """``method``: whose it is and its name, as in "producer.send".

    ``words``: what its error must say, a regular expression.
    """

    method: str
    call: Callable[[Any], Any]
    words: str
    error: type[pulsarish.PulsarException] = pulsarish.InvalidArgument

    def __str__(self) -> str:
        return f"{self.method} {self.words}"


_UNSUPPORTED = pulsarish.OperationNotSupported
_TIMES = r"timeout_millis is {}.*(an int|0 or more)"
_RECEIVED = "message is .*received"


def _message() -> Message:
    opened = OpenedEntry(Entry(1, 1, 0, b""), b"", b"", 0, "t", -1, BytesSchema().decode)
    return Message(opened, -1, 0, 0, 0)


def _called(name: str, arguments: dict[str, Any], thing: Any) -> Any:
    return getattr(thing, name)(**arguments)


# Each is called with the object that its method belongs to.
BAD_CALLS = [
    BadCall(
        "client.create_producer",
        lambda c: c.create_producer(5),
        "topic is 5 of type int: pass a str",
    ),
    BadCall(
        "client.create_producer",
        lambda c: c.create_producer(["a", "b"]),
        "topic is .*list: pass a str",
    ),
    BadCall(
        "client.create_producer",
        lambda c: c.create_producer("t", send_timeout_ms=5),
        "'send_timeout_ms'.*did you mean send_timeout_millis",
    ),
    BadCall(
        "client.create_producer",
        lambda c: c.create_producer("t", zzz=5),
        "'zzz': it has topic, producer_name, ",
    ),
    BadCall(
        "client.create_producer",
        lambda c: c.create_producer("t", send_timeout_millis=-1),
        "send_timeout_millis is -1.*0 or more",
    ),
    BadCall(
        "client.create_producer",
        lambda c: c.create_producer("t", max_pending_messages="5"),
        "max_pending_messages is '5' of type str",
    ),
    BadCall(
        "client.create_producer",
        lambda c: c.create_producer("t", properties={"a": 1}),
        "properties holds 'a': 1",
    ),
    BadCall(
        "client.create_producer",
        lambda c: c.create_producer("t", schema=5),
        "schema is 5.*StringSchema",
    ),
    BadCall(
        "client.create_producer",
        lambda c: c.create_producer("t", message_router=5),
        "message_router is 5.*function",
    ),
    BadCall(
        "client.create_producer",
        lambda c: c.create_producer(
            "t", message_routing_mode=pulsarish.PartitionsRoutingMode.CustomPartition
        ),
        "CustomPartition needs message_router",
    ),
    BadCall("client.subscribe", lambda c: c.subscribe(5, "s"), "topic is 5 of type int"),
    BadCall(
        "client.subscribe", lambda c: c.subscribe("t", 5), "subscription_name is 5 of type int"
    ),
    BadCall("client.subscribe", lambda c: c.subscribe("t", None), "subscription_name is None"),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe("t", "s", start=MessageId.earliest),
        "no argument 'start'",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe("t", "s", consumer_typ=1),
        "did you mean consumer_type",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe("t", "s", consumer_type=1),
        "consumer_type is 1.*ConsumerType",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe("t", "s", receiver_queue_size=-1),
        "receiver_queue_size is -1.*0 or more",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe("t", "s", receiver_queue_size=1 << 40),
        "receiver_queue_size.*at most 2147483647",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe("t", "s", message_listener=5),
        "message_listener is 5.*function",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe("t", "s", unacked_messages_timeout_ms=""),
        "unacked_messages_timeout_ms is ''",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe("t", "s", unacked_messages_timeout_ms=9_000),
        "10000 or more",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe("t", "s", batch_receive_policy=5),
        "batch_receive_policy is 5",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe("t", "s", dead_letter_policy=ConsumerDeadLetterPolicy(1)),
        "needs consumer_type Shared",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe("t", "s", retry_enabled=True),
        "retry_enabled needs consumer_type Shared or KeyShared, not Exclusive",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe(
            pulsarish.Wildcard("t.*"),
            "s",
            consumer_type=pulsarish.ConsumerType.Shared,
            retry_enabled=True,
        ),
        "retry_enabled needs topics by name",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe("t", "s", retry_enabled=1),
        "retry_enabled is 1 of type int: pass True or False",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe(
            "non-persistent://public/default/t",
            "s",
            consumer_type=pulsarish.ConsumerType.Shared,
            retry_enabled=True,
        ),
        "retry_letter_topic is non-persistent:.*-RETRY, which loses what waits in it",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe(
            "t",
            "s",
            consumer_type=pulsarish.ConsumerType.Shared,
            dead_letter_policy=ConsumerDeadLetterPolicy(1, retry_letter_topic="r"),
        ),
        "retry_letter_topic needs retry_enabled=True",
    ),
    BadCall(
        "client.subscribe",
        lambda c: c.subscribe(
            ["t", "r"],
            "s",
            consumer_type=pulsarish.ConsumerType.Shared,
            dead_letter_policy=ConsumerDeadLetterPolicy(1, retry_letter_topic="r"),
            retry_enabled=True,
        ),
        "retry_letter_topic is persistent://public/default/r, which is .*give another one",
    ),
    BadCall(
        "client.create_reader",
        lambda c: c.create_reader(["a"], MessageId.earliest),
        "topic is .*list: pass a str",
    ),
    BadCall(
        "client.create_reader",
        lambda c: c.create_reader("t", 5),
        "start_message_id is 5: pass MessageId.earliest",
    ),
    BadCall(
        "client.create_reader",
        lambda c: c.create_reader("t", MessageId.earliest, reader_listener=5),
        "reader_listener is 5.*function",
    ),
    BadCall(
        "client.create_reader",
        lambda c: c.create_reader("t", MessageId.earliest, reader_name=5),
        "reader_name is 5",
    ),
    BadCall(
        "client.create_reader",
        lambda c: c.create_reader("t", MessageId.earliest, subscription_role_prefix=5),
        "subscription_role_prefix is 5",
    ),
    BadCall(
        "client.create_reader",
        lambda c: c.create_reader("t", MessageId.earliest, consumer_type=1),
        "no argument 'consumer_type'",
    ),
    BadCall(
        "client.create_reader",
        lambda c: c.create_reader("t", MessageId.earliest, receiver_queue_size=-1),
        "receiver_queue_size is -1",
    ),
    BadCall(
        "client.create_reader",
        lambda c: c.create_reader("t", MessageId.earliest, checkpoint_topic="positions"),
        "checkpoint_topic needs reader_name",
    ),
    BadCall(
        "client.create_reader",
        lambda c: c.create_reader("t", MessageId.earliest, replica=True, is_read_compacted=True),
        "do not go together",
    ),
    *(
        BadCall("client.worker", lambda c, named=named: c.worker("t", "s", **named), words)
        for named, words in (
            ({"concurrency": 0}, "concurrency is 0.*1 or more"),
            ({"concurrency": "8"}, "concurrency is '8'"),
            ({"concurrency": 10_001}, "at most 10000, not 10001"),
            ({"attempts_max": 1}, "attempts_max is 1.*2 or more"),
            ({"retry_delay": 5}, "retry_delay is 5.*timedelta"),
            ({"retry_delay": timedelta()}, "retry_delay is at least a millisecond"),
            ({"dead_letter_topic": "d"}, "dead_letter_topic='d' needs attempts_max"),
            ({"attempts_max": 3, "dead_letter_policy": None}, "dead_letter_policy: .*alone"),
        )
    ),
    BadCall("client.create_table_view", lambda c: c.create_table_view(5), "topic is 5"),
    BadCall(
        "client.create_table_view", lambda c: c.create_table_view("t", 5), "subscription_name is 5"
    ),
    BadCall(
        "client.create_table_view", lambda c: c.create_table_view("t", schema=0), "schema is 0"
    ),
    BadCall(
        "client.get_topic_partitions",
        lambda c: c.get_topic_partitions(["a", "b"]),
        "topic is .*list: pass a str",
    ),
    BadCall(
        "client.get_topic_partitions",
        lambda c: c.get_topic_partitions("a/b"),
        "3 parts",
        pulsarish.InvalidTopicName,
    ),
    *(
        row
        # The asyncio face's ``send_soon`` and the blocking face's ``send_async`` take what ``send``
        # takes.
        for name, call in (
            ("send", lambda p, *given, **named: p.send(*given, **named)),
            ("send_soon", lambda p, *given, **named: p.send_soon(*given, **named)),
            ("send_async", lambda p, *given, **named: p.send_async(*given, None, **named)),
        )
        for row in (
            BadCall(
                f"producer.{name}",
                lambda p, call=call: call(p, "text"),
                "content is of type str: pass bytes",
            ),
            BadCall(
                f"producer.{name}",
                lambda p, call=call: call(p, b"", sequence_id="1"),
                "sequence_id is '1'",
            ),
            BadCall(
                f"producer.{name}",
                lambda p, call=call: call(p, b"", sequence_id=-1),
                "sequence_id is -1",
            ),
            BadCall(
                f"producer.{name}",
                lambda p, call=call: call(p, b"", properties=["a"]),
                "properties is .*list: pass a dict",
            ),
            BadCall(
                f"producer.{name}",
                lambda p, call=call: call(p, b"", properties=0),
                "properties is 0",
            ),
            BadCall(
                f"producer.{name}",
                lambda p, call=call: call(p, b"", partition_key=5),
                "partition_key is 5",
            ),
            BadCall(
                f"producer.{name}",
                lambda p, call=call: call(p, b"", ordering_key=b"k"),
                "ordering_key is b'k'",
            ),
            BadCall(
                f"producer.{name}",
                lambda p, call=call: call(p, b"", event_timestamp=1.5),
                "event_timestamp is 1.5",
            ),
            BadCall(
                f"producer.{name}",
                lambda p, call=call: call(p, b"", deliver_after=5),
                "deliver_after is 5.*timedelta",
            ),
            BadCall(
                f"producer.{name}",
                lambda p, call=call: call(p, b"", expires_after=5),
                "expires_after is 5.*timedelta",
            ),
            BadCall(
                f"producer.{name}",
                lambda p, call=call: call(p, b"", priority=11),
                "priority is 11.*0 .*to 9",
            ),
            BadCall(
                f"producer.{name}",
                lambda p, call=call: call(p, b"", deliver_at=-5),
                "deliver_at is -5.*0 or more",
            ),
            BadCall(
                f"producer.{name}",
                lambda p, call=call: call(p, b"", replication_clusters=["a"]),
                "one cluster",
                _UNSUPPORTED,
            ),
        )
    ),
    BadCall(
        "producer.send_soon", lambda p: p.send_soon(b"", property=5), "did you mean properties"
    ),
    BadCall(
        "producer.send_async",
        lambda p: p.send_async(b"x", 5),
        "callback is 5 of type int: pass a function",
    ),
    BadCall("consumer.receive", lambda c: c.receive("5"), _TIMES.format("'5'")),
    BadCall("consumer.receive", lambda c: c.receive(-1), _TIMES.format("-1")),
    BadCall("consumer.receive", lambda c: c.receive(True), _TIMES.format("True")),
    BadCall("consumer.acknowledge", lambda c: c.acknowledge(5), _RECEIVED),
    BadCall("consumer.acknowledge", lambda c: c.acknowledge([MessageId.latest]), _RECEIVED),
    BadCall("consumer.acknowledge", lambda c: c.acknowledge(None), _RECEIVED),
    BadCall("consumer.acknowledge_cumulative", lambda c: c.acknowledge_cumulative([]), _RECEIVED),
    BadCall(
        "consumer.acknowledge_cumulative",
        lambda c: c.acknowledge_cumulative(MessageId.earliest),
        _RECEIVED,
    ),
    BadCall("consumer.negative_acknowledge", lambda c: c.negative_acknowledge("m"), _RECEIVED),
    BadCall(
        "consumer.negative_acknowledge",
        lambda c: c.negative_acknowledge(MessageId.latest),
        _RECEIVED,
    ),
    BadCall("consumer.ack_extend", lambda c: c.ack_extend("m"), _RECEIVED),
    BadCall("consumer.ack_extend", lambda c: c.ack_extend(MessageId.latest), _RECEIVED),
    *(
        BadCall("consumer.reconsume_later", call, words, error)
        for call, words, error in (
            (
                lambda c: c.reconsume_later(MessageId.earliest, timedelta(0)),
                "message is MessageId.*pass a Message that was received",
                pulsarish.InvalidArgument,
            ),
            (
                lambda c: c.reconsume_later(_message(), 5),
                "delay is 5 of type int: pass a datetime.timedelta",
                pulsarish.InvalidArgument,
            ),
            (
                lambda c: c.reconsume_later(_message(), timedelta(seconds=-1)),
                "delay is -1 day.*0 or more",
                pulsarish.InvalidArgument,
            ),
            (
                lambda c: c.reconsume_later(_message(), timedelta(0), {"a": 1}),
                "properties holds 'a': 1",
                pulsarish.InvalidArgument,
            ),
            (
                lambda c: c.reconsume_later(_message(), timedelta(0)),
                "subscribe with retry_enabled=True",
                pulsarish.NotAllowedError,
            ),
        )
    ),
    BadCall(
        "consumer.unsubscribe",
        lambda c: c.unsubscribe(force="yes"),
        "force is 'yes'.*True or False",
    ),
    *(
        BadCall(f"{who}.seek", call, words)
        for who in ("consumer", "reader")
        for call, words in (
            (lambda c: c.seek("now"), "messageid is 'now'.*MessageId or a publish time"),
            (lambda c: c.seek(1.5), "messageid is 1.5"),
            (lambda c: c.seek(-5), "messageid is -5.*0 or more"),
            (lambda c: c.seek(1 << 63), "messageid is .*at most"),
            (lambda c: c.seek(True), "messageid is True"),
        )
    ),
    BadCall("reader.read_next", lambda r: r.read_next("5"), _TIMES.format("'5'")),
    BadCall("reader.read_next", lambda r: r.read_next(-1), _TIMES.format("-1")),
    BadCall(
        "reader.checkpoint",
        lambda r: r.checkpoint("1:2"),
        "message is '1:2'.*pass a Message or a MessageId",
    ),
    *(
        BadCall(method, partial(_called, method.partition(".")[2], arguments), words)
        for method in ("consumer.fetch_arrow", "reader.to_arrow", "reader.to_pandas")
        for arguments, words in (
            ({"max_rows": "5"}, "max_rows is '5'"),
            ({"max_rows": 0}, "max_rows is 0.*1 or more"),
            ({"max_bytes": 0}, "max_bytes is 0.*1 or more"),
            ({"timeout_millis": -1}, _TIMES.format("-1")),
        )
    ),
    BadCall("view.get", lambda v: v.get(b"k"), "key is b'k'"),
    BadCall("view.for_each", lambda v: v.for_each(5), "callback is 5.*function"),
    BadCall("view.for_each_and_listen", lambda v: v.for_each_and_listen(None), "callback is None"),
]


def methods_with_arguments(things: Things) -> set[str]:
    """The public methods that take something."""
    found: set[str] = set()
    for who, thing in vars(things).items():
        for name, method in inspect.getmembers(type(thing), inspect.isfunction):
            if not name.startswith("_") and len(inspect.signature(method).parameters) > 1:
                found.add(f"{who}.{name}")
    return found
