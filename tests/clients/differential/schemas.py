"""Schemas: text, JSON, Avro, protobuf and bytes; records and what becomes of them."""

from __future__ import annotations

from enum import Enum
from types import ModuleType
from typing import Any

from google.protobuf.api_pb2 import Method

from tests.clients.differential.helpers import consume, publish, take
from tests.clients.differential.outcomes import caught


class Colour(Enum):
    RED = 1
    GREEN = 2


def _person(pulsar: ModuleType, **fields: Any) -> Any:
    types = pulsar.schema
    return type(
        "Person",
        (types.Record,),
        {"name": types.String(), "age": types.Integer(required=True), **fields},
    )


def _both_ways(pulsar: ModuleType, client: Any, topic: str, schema: Any, value: Any) -> Any:
    client.create_producer(topic, schema=schema).send(value)
    return take(consume(pulsar, client, topic, schema=schema), 1)[0]


def text(pulsar: ModuleType, client: Any, topic: str) -> object:
    message = _both_ways(pulsar, client, topic, pulsar.schema.StringSchema(), "téxt")
    return message.value(), message.data()


def empty_text(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _both_ways(pulsar, client, topic, pulsar.schema.StringSchema(), "").value()


def raw(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _both_ways(pulsar, client, topic, pulsar.schema.BytesSchema(), b"\xff").value()


def json_record(pulsar: ModuleType, client: Any, topic: str) -> object:
    person = _person(pulsar)
    schema = pulsar.schema.JsonSchema(person)
    found = _both_ways(pulsar, client, topic, schema, person(name="Ada", age=36)).value()
    return type(found).__name__, found.name, found.age, found == person(name="Ada", age=36)


def avro_record(pulsar: ModuleType, client: Any, topic: str) -> object:
    person = _person(pulsar)
    schema = pulsar.schema.AvroSchema(person)
    message = _both_ways(pulsar, client, topic, schema, person(name="Ada", age=36))
    found = message.value()
    return type(found).__name__, found.name, found.age, message.data()


def avro_definition(pulsar: ModuleType, client: Any, topic: str) -> object:
    definition = {
        "type": "record",
        "name": "P",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"]}],
    }
    schema = pulsar.schema.AvroSchema(None, schema_definition=definition)
    return _both_ways(pulsar, client, topic, schema, {"a": 1, "b": "x"}).value()


def protobuf(pulsar: ModuleType, client: Any, topic: str) -> object:
    schema = pulsar.schema.ProtobufNativeSchema(Method)
    found = _both_ways(
        pulsar, client, topic, schema, Method(name="m", request_type_url="u")
    ).value()
    return type(found).__name__, found.SerializeToString()


def missing_optional_fields(pulsar: ModuleType, client: Any, topic: str) -> object:
    person = _person(pulsar)
    found = []
    for number, kind in enumerate((pulsar.schema.JsonSchema, pulsar.schema.AvroSchema)):
        value = _both_ways(pulsar, client, f"{topic}-{number}", kind(person), person(age=1))
        found.append((value.value().name, value.value().age))
    return found


def fields_of_each_kind(pulsar: ModuleType, client: Any, topic: str) -> object:
    types = pulsar.schema
    fields = {
        "text": types.String(),
        "small": types.Integer(),
        "great": types.Long(),
        "near": types.Float(),
        "exact": types.Double(),
        "flag": types.Boolean(),
        "raw": types.Bytes(),
        "many": types.Array(types.String()),
        "by_name": types.Map(types.Integer()),
        "colour": types.CustomEnum(Colour),
    }
    record = type("Each", (types.Record,), dict(fields))
    value = record(
        text="t",
        small=1,
        great=1 << 40,
        near=0.5,
        exact=1e300,
        flag=True,
        raw=b"r",
        many=["a", "b"],
        by_name={"k": 1},
        colour=Colour.GREEN,
    )
    found = _both_ways(pulsar, client, topic, types.AvroSchema(record), value).value()
    return {name: getattr(found, name) for name in fields}


def nested_records(pulsar: ModuleType, client: Any, topic: str) -> object:
    types = pulsar.schema
    inner = type("Inner", (types.Record,), {"number": types.Integer()})
    outer = type("Outer", (types.Record,), {"one": inner(), "many": types.Array(inner())})
    value = outer(one=inner(number=1), many=[inner(number=2), inner(number=3)])
    found = []
    for number, kind in enumerate((types.JsonSchema, types.AvroSchema)):
        read = _both_ways(pulsar, client, f"{topic}-{number}", kind(outer), value).value()
        found.append((read.one.number, [each.number for each in read.many]))
    return found


def definitions_of_records(pulsar: ModuleType, client: Any, topic: str) -> object:
    return _person(pulsar).schema()


def defaults_of_records(pulsar: ModuleType, client: Any, topic: str) -> object:
    types = pulsar.schema
    fields = {"a": types.String(default="x"), "b": types.Integer(default=5), "c": types.Boolean()}
    made = type("Defaults", (types.Record,), fields)()
    return made.a, made.b, made.c


def wrong_values_of_fields(pulsar: ModuleType, client: Any, topic: str) -> object:
    person = _person(pulsar)
    wrong: tuple[dict[str, Any], ...] = (
        {"name": 5},
        {"age": "x"},
        {"age": 1.5},
        {"name": ["x"]},
    )
    found = []
    for fields in wrong:
        outcome = caught(pulsar, lambda fields=fields: person(**{"age": 1, **fields}))
        found.append(outcome["raised"] if isinstance(outcome, dict) else "taken")
    return found


def fields_that_do_not_exist(pulsar: ModuleType, client: Any, topic: str) -> object:
    made = _person(pulsar)(age=1)
    return caught(pulsar, lambda: setattr(made, "other", 1))


def values_of_another_type(pulsar: ModuleType, client: Any, topic: str) -> object:
    person = _person(pulsar)
    found = []
    for number, kind in enumerate((pulsar.schema.JsonSchema, pulsar.schema.AvroSchema)):
        producer = client.create_producer(f"{topic}-{number}", schema=kind(person))
        found += [
            caught(pulsar, lambda p=producer, v=value: p.send(v))
            for value in ("text", {"age": 1}, 5)
        ]
    producer = client.create_producer(f"{topic}-text", schema=pulsar.schema.StringSchema())
    return [*found, *(caught(pulsar, lambda v=value: producer.send(v)) for value in (b"x", 5))]


def incompatible_with_the_topic(pulsar: ModuleType, client: Any, topic: str) -> object:
    types = pulsar.schema
    client.create_producer(topic, schema=types.AvroSchema(_person(pulsar)))
    other = types.AvroSchema(_person(pulsar, name=types.Long()))
    return [
        caught(pulsar, lambda: client.create_producer(topic, schema=other)),
        caught(pulsar, lambda: client.subscribe(topic, "s", schema=other)),
        caught(pulsar, lambda: client.create_producer(topic, schema=types.StringSchema())),
    ]


def schema_that_grows(pulsar: ModuleType, client: Any, topic: str) -> object:
    types = pulsar.schema
    old = _person(pulsar)
    new = _person(pulsar, mail=types.String(required_default=True))
    client.create_producer(topic, schema=types.AvroSchema(old)).send(old(name="Ada", age=1))
    client.create_producer(topic, schema=types.AvroSchema(new)).send(
        new(name="Bea", age=2, mail="m")
    )
    consumer = consume(pulsar, client, topic, schema=types.AvroSchema(new))
    return [(each.name, each.age, each.mail) for each in (m.value() for m in take(consumer, 2))]


def bytes_read_with_a_schema(pulsar: ModuleType, client: Any, topic: str) -> object:
    schema = pulsar.schema.StringSchema()
    client.create_producer(topic, schema=schema).send("x")
    return take(consume(pulsar, client, topic), 1)[0].value()


def text_of_a_topic_with_bytes(pulsar: ModuleType, client: Any, topic: str) -> object:
    client.create_producer(topic).send(b"x")
    schema = pulsar.schema.StringSchema()
    return caught(pulsar, lambda: client.subscribe(topic, "s", schema=schema).is_connected())


def bytes_producer_of_a_topic_with_a_schema(pulsar: ModuleType, client: Any, topic: str) -> object:
    client.create_producer(topic, schema=pulsar.schema.StringSchema()).send("x")
    return caught(pulsar, lambda: len(publish(client, topic, 1)))


def reader_with_a_schema(pulsar: ModuleType, client: Any, topic: str) -> object:
    person = _person(pulsar)
    schema = pulsar.schema.JsonSchema(person)
    client.create_producer(topic, schema=schema).send(person(name="Ada", age=1))
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=schema)
    return reader.read_next(20_000).value().name
