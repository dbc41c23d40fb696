"""Runs a function in the program itself, on a client of the program."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, Final, Self

from pulsarish.client.api.blocking_client import Client
from pulsarish.client.api.blocking_producer import Producer
from pulsarish.client.checks import check_callable, check_mapping, check_text, check_type, shown
from pulsarish.client.enums import CompressionType, ConsumerType
from pulsarish.client.errors import InvalidType
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Message
from pulsarish.functions.context import Context
from pulsarish.functions.function import Function
from pulsarish.functions.serde import IdentitySerDe, SerDe
from pulsarish.model.errors import InvalidArgument, InvalidTopicName, Timeout, UnknownError
from pulsarish.model.result import Result
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger

__all__ = ["LocalRunner"]

_log = get_logger("functions")

_OFFICIAL_MODULES: Final = ("serde", "pulsar.functions.serde")
"""Modules of Apache Pulsar's own classes: those here are taken for them."""


class LocalRunner:
    """Reads topics, has a function process each message, publishes what it returns, and
    acknowledges the message when that and what the function published is stored: after a crash a
    message may be processed twice.

    A message for which the function raises is logged and delivered again after the consumer's
    delay. Counters, state and metrics are in memory.
    """

    def __init__(
        self,
        client: Client,
        function: Function | Callable[[Any], Any],
        input_topics: Sequence[str],
        *,
        output_topic: str | None = None,
        name: str | None = None,
        input_serde: SerDe | None = None,
        output_serde: SerDe | None = None,
        user_config: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """Subscribe to the topics.

        Args:
            function: or a callable that takes the value only.
            output_topic: gets what the function returns; none of ``input_topics``.
            name: of the function and its subscription, which runners share; ``None``: the name
                of its class or of the callable. A lambda or ``functools.partial`` needs one.

        Raises ``InvalidArgument``, and the errors of ``Client.subscribe``.
        """
        if not isinstance(function, Function) and not callable(function):
            raise InvalidType(f"function is {shown(function)}: pass a pulsarish.Function")
        check_type("input_topics", input_topics, (list, tuple), "a list of topics")
        if not input_topics:
            raise InvalidArgument("input_topics is empty: pass a list of topics")
        inputs = {_topic("input_topics", each).partitioned for each in input_topics}
        if output_topic is not None and _topic("output_topic", output_topic).partitioned in inputs:
            raise InvalidArgument(
                f"output_topic is {output_topic!r}, which is in input_topics: the function would "
                "process its own results; pass another topic"
            )
        self._client = client
        self._function = function
        self.name = check_text("name", name) if name is not None else _name_of(function)
        self.input_topics = list(input_topics)
        self.output_topic = output_topic
        self.input_serde = _checked("input_serde", input_serde)
        self.output_serde = _checked("output_serde", output_serde)
        self.user_config = dict(user_config or {})
        self.secrets = check_mapping("secrets", secrets)
        self.counters: Counter[str] = Counter()
        self.state: dict[str, Any] = {}
        self.metrics: dict[str, list[float]] = {}
        self._producers: dict[tuple[str, CompressionType], Producer] = {}
        self._consumer = client.subscribe(
            self.input_topics, self.name, consumer_type=ConsumerType.Shared
        )

    def run(self, count: int | None = None, timeout_millis: int | None = None) -> int:
        """Process messages until ``count`` were taken or none comes for ``timeout_millis``; without
        both, until another thread closes the runner, which raises ``AlreadyClosed``.

        Returns how many were processed without an error.
        """
        taken = processed = 0
        while count is None or taken < count:
            try:
                message = self._consumer.receive(timeout_millis)
            except Timeout:
                break
            taken += 1
            processed += self._process(message)
        return processed

    def _process(self, message: Message) -> bool:
        context = _LocalContext(self, message)
        try:
            value = self.input_serde.deserialize(message.data())
            result = (
                self._function.process(value, context)
                if isinstance(self._function, Function)
                else self._function(value)
            )
            if result is not None and self.output_topic is not None:
                self.producer(self.output_topic).send(self.output_serde.serialize(result))
            context.wait_until_published()
        except Exception as error:  # noqa: BLE001
            # The program's own code: reported, the message comes again.
            _log.error(
                "a function failed", function=self.name, id=message.message_id(), exception=error
            )
            self._consumer.negative_acknowledge(message)
            return False
        self._consumer.acknowledge(message)
        return True

    def acknowledge(self, message_id: MessageId) -> None:
        self._consumer.acknowledge(message_id)

    def producer(
        self, topic: str, compression_type: CompressionType = CompressionType.NONE
    ) -> Producer:
        """Return the runner's producer on a topic."""
        found = self._producers.get((topic, compression_type))
        if found is None:
            found = self._client.create_producer(topic, compression_type=compression_type)
            self._producers[topic, compression_type] = found
        return found

    def close(self) -> None:
        """Close the consumer, then the producers, which send what waits."""
        self._consumer.close()
        for producer in self._producers.values():
            producer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _name_of(function: object) -> str:
    """Return the name of a callable or its class. Raises ``InvalidArgument`` for one that others
    share: their runners would share a subscription, and each would miss messages.
    """
    name: str = getattr(function, "__name__", type(function).__name__)
    if name == "<lambda>" or isinstance(function, partial):
        raise InvalidArgument(f"function is a {name.strip('<>')}, which has no name: pass name")
    return name


def _topic(name: str, topic: object) -> TopicName:
    try:
        return TopicName.parse(check_text(name, topic))
    except InvalidTopicName as error:
        raise InvalidTopicName(f"{name}: {error}") from None


def _checked(name: str, serde: SerDe | None) -> SerDe:
    if serde is None:
        return IdentitySerDe()
    check_type(name, serde, SerDe, "a pulsarish.SerDe")
    return serde


def _serde_named(name: str) -> SerDe:
    """Return an instance of ``module.Class``. Raises ``InvalidArgument`` when there is none."""
    module, _, class_name = check_text("serde_class_name", name).rpartition(".")
    try:
        found = import_module(
            "pulsarish.functions.serde" if module in _OFFICIAL_MODULES else module
        )
        return _checked("serde_class_name", getattr(found, class_name)())
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgument(
            f"serde_class_name is {name!r}, which is not the module.Class of a SerDe: {error}"
        ) from None


class _LocalContext(Context):
    """The context of one message."""

    def __init__(self, runner: LocalRunner, message: Message) -> None:
        self._runner = runner
        self._message = message
        self._used: set[Producer] = set()
        self._failures: list[Result] = []

    def wait_until_published(self) -> None:
        """Wait until everything that the function published is stored, also in its callbacks.

        Raises ``UnknownError`` when a part of it is not.
        """
        while self._used:
            self._used.pop().flush()
        if self._failures:
            raise UnknownError(f"what the function published is not stored: {self._failures[0]}")

    def get_message_id(self) -> MessageId:
        return self._message.message_id()

    def get_message_key(self) -> str:
        return self._message.partition_key()

    def get_message_eventtime(self) -> int:
        return self._message.event_timestamp()

    def get_message_properties(self) -> dict[str, str]:
        return self._message.properties()

    def get_current_message_topic_name(self) -> str:
        return self._message.topic_name()

    def get_function_tenant(self) -> str:
        return "public"

    def get_function_namespace(self) -> str:
        return "default"

    def get_function_name(self) -> str:
        return self._runner.name

    def get_function_id(self) -> str:
        return self._runner.name

    def get_instance_id(self) -> str:
        return "0"

    def get_function_version(self) -> str:
        return "1"

    def get_logger(self) -> logging.Logger:
        return logging.getLogger(f"pulsarish.functions.{self._runner.name}")

    def get_user_config_value(self, key: str) -> Any:
        return self._runner.user_config.get(key)

    def get_user_config_map(self) -> dict[str, Any]:
        return dict(self._runner.user_config)

    def get_secret(self, secret_name: str) -> str | None:
        return self._runner.secrets.get(secret_name)

    def get_partition_key(self) -> str:
        return self._message.partition_key()

    def get_ordering_key(self) -> str:
        return self._message.ordering_key()

    def record_metric(self, metric_name: str, metric_value: float) -> None:
        self._runner.metrics.setdefault(metric_name, []).append(metric_value)

    def publish(
        self,
        topic_name: str,
        message: Any,
        serde_class_name: str = "serde.IdentitySerDe",
        properties: Mapping[str, str] | None = None,
        compression_type: CompressionType | None = None,
        callback: Callable[[Result, MessageId], object] | None = None,
        message_conf: Mapping[str, Any] | None = None,
    ) -> None:
        if callback is not None:
            check_callable("callback", callback, "a function (result, message_id), or None")
        content = _serde_named(serde_class_name).serialize(message)
        producer = self._runner.producer(topic_name, compression_type or CompressionType.NONE)
        named = {**(message_conf or {}), **({"properties": properties} if properties else {})}

        def on_answered(result: Result, message_id: MessageId) -> None:
            if result is not Result.Ok:
                self._failures.append(result)
            if callback is not None:
                callback(result, message_id)

        self._used.add(producer)
        producer.send_async(content, on_answered, **named)

    def get_input_topics(self) -> list[str]:
        return list(self._runner.input_topics)

    def get_output_topic(self) -> str:
        return self._runner.output_topic or ""

    def get_output_serde_class_name(self) -> str:
        kind = type(self._runner.output_serde)
        return f"{kind.__module__}.{kind.__qualname__}"

    def ack(self, msgid: MessageId, topic: str) -> None:
        self._runner.acknowledge(msgid)

    def incr_counter(self, key: str, amount: int) -> None:
        self._runner.counters[key] += amount

    def get_counter(self, key: str) -> int:
        return self._runner.counters[key]

    def del_counter(self, key: str) -> None:
        self._runner.counters.pop(key, None)

    def put_state(self, key: str, value: Any) -> None:
        self._runner.state[key] = value

    def get_state(self, key: str) -> Any:
        return self._runner.state.get(key)
