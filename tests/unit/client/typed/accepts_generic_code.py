"""What holds values of a type is itself generic."""

from collections.abc import Iterable
from typing import TypeVar, assert_type

import pulsarish

T = TypeVar("T")


def drain(consumer: pulsarish.Consumer[T], count: int) -> list[T]:
    return [consumer.receive().value() for _ in range(count)]


def publish(producer: pulsarish.Producer[T], values: Iterable[T]) -> None:
    for value in values:
        producer.send(value)


client = pulsarish.Client("pulsarish://localhost")
text = pulsarish.StringSchema()
assert_type(drain(client.subscribe("words", "all", schema=text), 5), list[str])
publish(client.create_producer("words", schema=text), ["a"])
general: pulsarish.Message[object] = client.subscribe("words", "all", schema=text).receive()
