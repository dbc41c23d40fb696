from enum import Enum
from typing import assert_type

import pulsarish
from pulsarish.schema import (
    Array,
    Boolean,
    Bytes,
    CustomEnum,
    Double,
    Float,
    Integer,
    Long,
    Map,
    Record,
    String,
)


class Color(Enum):
    RED = 1


class Line(Record):
    article = String(required=True)


class Order(Record):
    number = Long(required=True)
    count = Integer(default=5)
    weight = Float()
    price = Double()
    paid = Boolean()
    note = String()
    seal = Bytes()
    color = CustomEnum(Color)
    first = Line()
    lines = Array(Line())
    others = Array(Line)
    tags = Array(String())
    sizes = Map(Integer(), default={})
    nested = Map(Array(Long()))


client = pulsarish.Client("pulsarish://localhost")
producer = client.create_producer("orders", schema=pulsarish.JsonSchema(Order))
assert_type(producer, pulsarish.Producer[Order])
order = Order(number=1, note="fragile", lines=[Line(article="tea")])
assert_type(order.number, int)
assert_type(order.count, int)
assert_type(order.weight, float)
assert_type(order.price, float)
assert_type(order.paid, bool)
assert_type(order.note, str)
assert_type(order.seal, bytes)
assert_type(order.color, Color)
assert_type(order.first, Line)
assert_type(order.first.article, str)
assert_type(order.lines, list[Line])
assert_type(order.others, list[Line])
assert_type(order.tags, list[str])
assert_type(order.sizes, dict[str, int])
assert_type(order.nested, dict[str, list[int]])
assert_type(Order.number, Long)
order.note = "again"
order.note = None
order.seal = "text"
order.color = "RED"
order.lines = [Line()]
producer.send(order)
