from typing import Any, TypedDict, assert_type

import msgspec

import pulsarish


class Order(msgspec.Struct):
    number: int


class Line(TypedDict):
    count: int


client = pulsarish.Client("pulsarish://localhost")
assert_type(
    client.create_producer("orders", schema=pulsarish.JsonSchema(Order)),
    pulsarish.Producer[Order],
)
lines = client.create_producer("lines", schema=pulsarish.JsonSchema(Line))
lines.send({"count": 5})
numbers = client.subscribe("numbers", "all", schema=pulsarish.JsonSchema(list[int]))
assert_type(numbers.receive().value(), list[int])
anything = client.subscribe("any", "all", schema=pulsarish.JsonSchema())
assert_type(anything, pulsarish.Consumer[Any])
either = client.subscribe("any", "all", schema=pulsarish.JsonSchema(int | str))
assert_type(either, pulsarish.Consumer[Any])
