"""Functions of a program, run on a client that is replaced here."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, cast

import pytest

import pulsarish
from pulsarish.client.messages.message import Entry, Message, OpenedEntry
from pulsarish.client.schemas.schema import BytesSchema
from pulsarish.functions import Context, Function, IdentitySerDe, LocalRunner, PickleSerDe, SerDe
from pulsarish.wire._pb.message_pb2 import MessageMetadata


def _message(number: int, content: bytes, key: str = "") -> Message:
    metadata = MessageMetadata(partition_key=key.encode(), event_time=5)
    opened = OpenedEntry(
        Entry(1, number, 0, b""), metadata, content, 0, "in", -1, BytesSchema().decode
    )
    return Message(opened, -1, 0, 0, len(content))


class FakeConsumer:
    def __init__(self, *messages: Message) -> None:
        self.waiting = deque(messages)
        self.acknowledged: list[int] = []
        self.refused: list[int] = []
        self.is_closed = False

    def receive(self, timeout_millis: int | None) -> Message:
        if not self.waiting:
            raise pulsarish.Timeout(f"no message came within {timeout_millis} ms")
        return self.waiting.popleft()

    def acknowledge(self, message: Any) -> None:
        found = message.message_id() if isinstance(message, Message) else message
        self.acknowledged.append(found.entry_id())

    def negative_acknowledge(self, message: Message) -> None:
        self.refused.append(message.message_id().entry_id())

    def close(self) -> None:
        self.is_closed = True


class FakeProducer:
    def __init__(self) -> None:
        self.sent: list[tuple[bytes, dict[str, Any]]] = []
        self.result = pulsarish.Result.Ok

    def send(self, content: bytes) -> None:
        self.sent.append((content, {}))

    def send_async(self, content: bytes, callback: Any, **named: Any) -> None:
        self.sent.append((content, named))
        callback(self.result, pulsarish.MessageId(-1, 1, 1))

    def flush(self) -> None: ...

    def close(self) -> None: ...


class FakeClient:
    def __init__(self, consumer: FakeConsumer) -> None:
        self.consumer = consumer
        self.subscribed: Any = None
        self.producers: dict[str, FakeProducer] = {}

    def subscribe(self, topics: list[str], name: str, **options: Any) -> FakeConsumer:
        self.subscribed = (topics, name, options["consumer_type"])
        return self.consumer

    def create_producer(self, topic: str, **_options: Any) -> FakeProducer:
        return self.producers.setdefault(topic, FakeProducer())


class Adder(Function):
    """Adds a setting, counts, and publishes what is odd elsewhere."""

    def process(self, input: Any, context: Context) -> Any:  # noqa: A002
        context.incr_counter("all", 1)
        context.put_state("last", input)
        context.record_metric("value", input)
        if input % 2:
            context.publish(
                "odd", input, "serde.PickleSerDe", {"a": "b"}, None, None, {"partition_key": "k"}
            )
        return None if input == 0 else input + context.get_user_config_value("plus")


def test_a_function_is_run() -> None:
    consumer = FakeConsumer(*(_message(number, b"%d" % number) for number in range(4)))
    client = FakeClient(consumer)
    runner = LocalRunner(
        cast(Any, client), Adder(), ["in"], output_topic="out", user_config={"plus": 10}
    )
    with runner:
        assert runner.run(timeout_millis=5) == 4
    assert client.subscribed == (["in"], "Adder", pulsarish.ConsumerType.Shared)
    assert [content for content, _ in client.producers["out"].sent] == [b"11", b"12", b"13"]
    pickled = PickleSerDe().serialize(1)
    named = {"partition_key": "k", "properties": {"a": "b"}}
    assert client.producers["odd"].sent[0] == (pickled, named)
    assert (runner.counters["all"], runner.state["last"]) == (4, 3)
    assert runner.metrics == {"value": [0, 1, 2, 3]}
    assert consumer.acknowledged == [0, 1, 2, 3]
    assert consumer.is_closed


def test_what_fails_is_not_acknowledged() -> None:
    consumer = FakeConsumer(_message(0, b"word"), _message(1, b"2"), _message(2, b"3"))
    client = FakeClient(consumer)
    client.create_producer("odd").result = pulsarish.Result.Timeout
    runner = LocalRunner(cast(Any, client), Adder(), ["in"], user_config={"plus": 1})
    assert runner.run(3) == 1
    assert (consumer.acknowledged, consumer.refused) == ([1], [0, 2])


def test_a_callback_of_the_function_does_not_hide_a_failure() -> None:
    results: list[pulsarish.Result] = []

    class Publishes(Function):
        def process(self, input: Any, context: Context) -> None:  # noqa: A002
            context.publish("odd", input, callback=lambda result, _: results.append(result))

    consumer = FakeConsumer(_message(0, b"1"))
    client = FakeClient(consumer)
    client.create_producer("odd").result = pulsarish.Result.Timeout
    assert LocalRunner(cast(Any, client), Publishes(), ["in"]).run(1) == 0
    assert results == [pulsarish.Result.Timeout]
    assert (consumer.acknowledged, consumer.refused) == ([], [0])


def test_what_a_callback_publishes_is_waited_for() -> None:
    class Late(FakeProducer):
        """Answers when it is flushed."""

        def __init__(self) -> None:
            super().__init__()
            self.waiting: list[Any] = []

        def send_async(self, content: bytes, callback: Any, **named: Any) -> None:
            self.sent.append((content, named))
            self.waiting.append(callback)

        def flush(self) -> None:
            waiting, self.waiting = self.waiting, []
            for callback in waiting:
                callback(pulsarish.Result.Ok, pulsarish.MessageId(-1, 1, 1))

    class Publishes(Function):
        def process(self, input: Any, context: Context) -> None:  # noqa: A002
            context.publish("odd", 1, callback=lambda *_: context.publish("odd", 2))

    client = FakeClient(FakeConsumer(_message(0, b"1")))
    late = client.producers["odd"] = Late()
    assert LocalRunner(cast(Any, client), Publishes(), ["in"]).run(1) == 1
    assert ([content for content, _ in late.sent], late.waiting) == ([b"1", b"2"], [])


def test_what_a_function_learns() -> None:
    learned: dict[str, Any] = {}

    class Asks(Function):
        def process(self, input: Any, context: Context) -> None:  # noqa: A002
            for name in dir(Context):
                if name.startswith("get_") and name not in learned:
                    takes = {"get_user_config_value", "get_secret", "get_counter", "get_state"}
                    method = getattr(context, name)
                    learned[name] = method("key") if name in takes else method()
            context.ack(context.get_message_id(), context.get_current_message_topic_name())
            context.del_counter("key")

    consumer = FakeConsumer(_message(7, b"x", "k"))
    runner = LocalRunner(
        cast(Any, FakeClient(consumer)), Asks(), ["in"], name="asks", secrets={"key": "s"}
    )
    assert runner.run(1) == 1
    assert learned.pop("get_logger").name == "pulsarish.functions.asks"
    assert learned.pop("get_message_id").entry_id() == 7
    assert learned == {
        "get_counter": 0,
        "get_current_message_topic_name": "in",
        "get_function_id": "asks",
        "get_function_name": "asks",
        "get_function_namespace": "default",
        "get_function_tenant": "public",
        "get_function_version": "1",
        "get_input_topics": ["in"],
        "get_instance_id": "0",
        "get_message_eventtime": 5,
        "get_message_key": "k",
        "get_message_properties": {},
        "get_ordering_key": "",
        "get_output_serde_class_name": "pulsarish.functions.serde.IdentitySerDe",
        "get_output_topic": "",
        "get_partition_key": "k",
        "get_secret": "s",
        "get_state": None,
        "get_user_config_map": {},
        "get_user_config_value": None,
    }


@pytest.mark.parametrize("value", [b"\xff", 1, 1.5, 2j, "text"])
def test_values_come_back(value: Any) -> None:
    for serde in (IdentitySerDe(), PickleSerDe()):
        assert serde.deserialize(serde.serialize(value)) == value
        assert isinstance(serde, SerDe)


def test_bad_arguments() -> None:
    client = cast(Any, FakeClient(FakeConsumer(_message(0, b"1"))))
    with pytest.raises(TypeError, match="a value is of type list"):
        IdentitySerDe().serialize([])
    with pytest.raises(TypeError, match="function is 5"):
        LocalRunner(client, 5, ["in"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="input_topics is 'in'"):
        LocalRunner(client, str, "in")
    with pytest.raises(TypeError, match="input_topics is 5"):
        LocalRunner(client, str, 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="input_topics is empty"):
        LocalRunner(client, str, [])
    with pytest.raises(TypeError, match="input_topics is 5 of type int"):
        LocalRunner(client, str, ["in", 5])  # type: ignore[list-item]
    with pytest.raises(pulsarish.InvalidTopicName, match="input_topics: topic name '' is empty"):
        LocalRunner(client, str, [""])
    with pytest.raises(TypeError, match="output_topic is 5"):
        LocalRunner(client, str, ["in"], output_topic=5)  # type: ignore[arg-type]
    with pytest.raises(pulsarish.InvalidTopicName, match="output_topic: topic name '' is empty"):
        LocalRunner(client, str, ["in"], output_topic="")
    for same in ("in", "persistent://public/default/in", "in-partition-1"):
        with pytest.raises(ValueError, match=f"output_topic is '{same}', which is in input_topics"):
            LocalRunner(client, str, ["other", "in"], output_topic=same)
    for nameless in (lambda value: value, partial(str, encoding="utf-8")):
        with pytest.raises(ValueError, match="which has no name: pass name"):
            LocalRunner(client, nameless, ["in"])
        assert LocalRunner(client, nameless, ["in"], name="named").name == "named"
    with pytest.raises(TypeError, match="input_serde is 5"):
        LocalRunner(client, str, ["in"], input_serde=5)  # type: ignore[arg-type]

    class Publishes(Function):
        def process(self, input: Any, context: Context) -> None:  # noqa: A002
            for name in ("none.There", "serde.None", "SerDe"):
                with pytest.raises(pulsarish.InvalidArgument, match=r"is not the module\.Class"):
                    context.publish("t", 1, name)
            with pytest.raises(TypeError, match="callback is 5"):
                context.publish("t", 1, callback=5)  # type: ignore[arg-type]

    assert LocalRunner(client, Publishes(), ["in"]).run(1) == 1
    consumer = FakeConsumer(_message(0, b"1"))
    assert LocalRunner(cast(Any, FakeClient(consumer)), str, ["in"]).run(1) == 1
    assert consumer.acknowledged == [0]
