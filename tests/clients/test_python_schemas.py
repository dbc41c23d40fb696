"""Records of ours and of Apache Pulsar's Python client, declared alike: one definition, the same
bytes, each reads the other's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import Enum
from types import ModuleType
from typing import Any

import pytest
from google.protobuf.api_pb2 import Api, Method

import pulsarish
import pulsarish.schema as ours
from tests.clients.programs import Site

pulsar = pytest.importorskip(
    "pulsar", reason="left out: Apache Pulsar's Python client (pulsar-client) is not installed"
)
theirs = pytest.importorskip(
    "pulsar.schema",
    reason="left out: Apache Pulsar's Python client (pulsar-client) is not installed",
)


class Colour(Enum):
    RED = 1
    GREEN = 2


def plain(s: ModuleType) -> tuple[Any, list[dict[str, Any]]]:
    class Plain(s.Record):
        text = s.String()
        small = s.Integer()
        great = s.Long()
        near = s.Float()
        exact = s.Double()
        flag = s.Boolean()
        raw = s.Bytes()

    whole = {
        "text": "tëxt",
        "small": -5,
        "great": 1 << 40,
        "near": 0.5,
        "exact": 1e300,
        "flag": True,
        "raw": b"raw",
    }
    return Plain, [whole, {}, {"text": "", "small": 0}, {"flag": False, "near": 2}]


def required(s: ModuleType) -> tuple[Any, list[dict[str, Any]]]:
    class Required(s.Record):
        text = s.String(required=True)
        number = s.Long(required=True, default=7, required_default=True)
        other = s.Integer(default=3, required_default=True)
        none = s.String(required_default=True)

    return Required, [{"text": "x"}, {"text": "x", "number": 1, "other": 2, "none": "n"}]


def named(s: ModuleType) -> tuple[Any, list[dict[str, Any]]]:
    class Named(s.Record):
        _avro_namespace = "org.example"
        _sorted_fields = True
        zulu = s.Integer()
        alpha = s.Integer(required=True)

    return Named, [{"alpha": 1}, {"alpha": 1, "zulu": 2}]


def enums(s: ModuleType) -> tuple[Any, list[dict[str, Any]]]:
    class Enums(s.Record):
        colour = Colour
        other = s.CustomEnum(Colour, default=Colour.GREEN, required_default=True)
        last = s.CustomEnum(Colour, required=True)

    return Enums, [{"colour": Colour.RED, "last": Colour.GREEN}, {"last": Colour.RED}]


def nested(s: ModuleType) -> tuple[Any, list[dict[str, Any]]]:
    class Inner(s.Record):
        _avro_namespace = "inner"
        number = s.Integer(required=True, default=4)
        text = s.String()

    class Nested(s.Record):
        first = Inner()
        second = Inner(required=True)
        many = s.Array(Inner(), required=True)
        by_name = s.Map(Inner())

    many, by_name = [Inner(number=2, text="b"), Inner(number=3)], {"k": Inner(number=4)}
    return Nested, [
        {
            "first": Inner(number=1, text="a"),
            "second": Inner(number=9),
            "many": many,
            "by_name": by_name,
        },
        {"second": Inner(number=9), "many": []},
        {"first": None, "second": Inner(number=9), "many": []},
    ]


def collections(s: ModuleType) -> tuple[Any, list[dict[str, Any]]]:
    class Collections(s.Record):
        texts = s.Array(s.String())
        numbers = s.Array(s.Long(), default=[1, 2], required_default=True, required=True)
        table = s.Map(s.Double())
        matrix = s.Array(s.Array(s.Integer()))
        maps = s.Map(s.Map(s.String()))

    return Collections, [
        {
            "texts": ["a", "b"],
            "numbers": [1 << 50],
            "table": {"pi": 3.14},
            "matrix": [[1], [], [2, 3]],
            "maps": {"a": {"b": "c"}},
        },
        {"texts": []},
        {},
    ]


SHAPES: list[Callable[[ModuleType], tuple[Any, list[dict[str, Any]]]]] = [
    plain,
    required,
    named,
    enums,
    nested,
    collections,
]
ROWS = [(shape, row) for shape in SHAPES for row in range(len(shape(ours)[1]))]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_the_definition_is_the_same(
    shape: Callable[[ModuleType], tuple[Any, list[dict[str, Any]]]],
) -> None:
    mine, other = shape(ours)[0], shape(theirs)[0]
    assert mine.schema() == other.schema()
    for kind in ("AvroSchema", "JsonSchema"):
        told = getattr(ours, kind)(mine).schema_info()
        known = getattr(theirs, kind)(other).schema_info()
        assert json.loads(told.data) == json.loads(known.schema())
        assert (told.name, told.type.name.lower()) == (
            known.name(),
            kind.removesuffix("Schema").lower(),
        )


@pytest.mark.parametrize(
    ("shape", "row"), ROWS, ids=[f"{shape.__name__}-{row}" for shape, row in ROWS]
)
def test_the_content_is_the_same(
    shape: Callable[[ModuleType], tuple[Any, list[dict[str, Any]]]], row: int
) -> None:
    (mine, my_rows), (other, other_rows) = shape(ours), shape(theirs)
    value, known = mine(**my_rows[row]), other(**other_rows[row])
    avro, known_avro = ours.AvroSchema(mine), theirs.AvroSchema(other)
    data = avro.encode(value)
    assert data == known_avro.encode(known)
    assert avro.decode(data) == value
    assert ours.JsonSchema(mine).decode(theirs.JsonSchema(other).encode(known)) == value
    assert json.loads(ours.JsonSchema(mine).encode(value)) == json.loads(
        theirs.JsonSchema(other).encode(known)
    )


class Order(ours.Record):
    number = ours.Long(required=True)
    notes = ours.Array(ours.String())


class WiderOrder(ours.Record):
    number = ours.Long(required=True)
    notes = ours.Array(ours.String())
    price = ours.Double(required_default=True)


class TheirOrder(theirs.Record):  # type: ignore[misc, name-defined]
    number = theirs.Long(required=True)
    notes = theirs.Array(theirs.String())


TheirOrder.__name__ = "Order"  # the schema's name
WiderOrder.__name__ = "Order"


@pytest.mark.parametrize("kind", ["AvroSchema", "JsonSchema"])
def test_each_reads_what_the_other_has_written(site: Site, kind: str) -> None:
    topic = f"records-{kind.lower()}"
    mine, wider = getattr(ours, kind)(Order), getattr(ours, kind)(WiderOrder)
    other = getattr(theirs, kind)(TheirOrder)
    urls = site.cluster.service_urls()
    with pulsarish.Client(urls["pulsarish"]) as client:
        official = pulsar.Client(site.service_url)
        try:
            sending = official.create_producer(topic, schema=other)
            sending.send(TheirOrder(number=1, notes=["theirs"]))
            with client.create_producer(topic, schema=mine, batching_enabled=True) as producer:
                for number in (2, 3):
                    producer.send_async(Order(number=number, notes=["ours"]), lambda *_: None)
                producer.flush()
            with client.create_producer(topic, schema=wider) as producer:
                producer.send(WiderOrder(number=4, notes=["wider"], price=0.5))
            assert [each["version"] for each in site.admin.schemas.list(topic)] == [0, 1]
            with client.subscribe(
                topic, "ours", schema=wider, initial_position=pulsarish.InitialPosition.Earliest
            ) as consumer:
                found = [consumer.receive(20_000) for _ in range(4)]
                assert [
                    (
                        each.value().number,
                        each.value().notes,
                        each.value().price,
                        int.from_bytes(each.schema_version()),
                    )
                    for each in found
                ] == [
                    (1, ["theirs"], None, 0),
                    (2, ["ours"], None, 0),
                    (3, ["ours"], None, 0),
                    (4, ["wider"], 0.5, 1),
                ]
            receiving = official.subscribe(
                topic, "theirs", schema=other, initial_position=pulsar.InitialPosition.Earliest
            )
            values = [receiving.receive(20_000) for _ in range(4)]
            read = [(each.value().number, each.value().notes) for each in values]
            assert read == [(1, ["theirs"]), (2, ["ours"]), (3, ["ours"]), (4, ["wider"])]
        finally:
            official.close()


def test_what_is_not_compatible_is_refused_to_either(site: Site) -> None:
    class Other(ours.Record):
        number = ours.String(required=True)

    class TheirOther(theirs.Record):  # type: ignore[misc, name-defined]
        number = theirs.String(required=True)

    Other.__name__ = TheirOther.__name__ = "Order"
    topic = "records-refused"
    with pulsarish.Client(site.cluster.service_urls()["pulsarish"]) as client:
        client.create_producer(topic, schema=ours.AvroSchema(Order)).close()
        with pytest.raises(pulsarish.IncompatibleSchema, match="number"):
            client.create_producer(topic, schema=ours.AvroSchema(Other))
        official = pulsar.Client(site.service_url)
        try:
            with pytest.raises(pulsar.IncompatibleSchema):
                official.create_producer(topic, schema=theirs.AvroSchema(TheirOther))
            with pytest.raises(pulsar.IncompatibleSchema):
                official.subscribe(topic, "s", schema=theirs.AvroSchema(TheirOther))
            official.create_producer(topic, schema=theirs.AvroSchema(TheirOrder)).close()
        finally:
            official.close()


def test_texts_are_one_schema_to_both(site: Site) -> None:
    """Their client writes "null" where ours has no definition."""
    topic = "records-texts"
    with pulsarish.Client(site.cluster.service_urls()["pulsarish"]) as client:
        official = pulsar.Client(site.service_url)
        try:
            official.create_producer(topic, schema=theirs.StringSchema()).send("theirs")
            client.create_producer(topic, schema=ours.StringSchema()).send("ours")
            assert [(each["version"], each["type"]) for each in site.admin.schemas.list(topic)] == [
                (0, "STRING")
            ]
            receiving = official.subscribe(
                topic,
                "theirs",
                schema=theirs.StringSchema(),
                initial_position=pulsar.InitialPosition.Earliest,
            )
            assert [receiving.receive(20_000).value() for _ in range(2)] == ["theirs", "ours"]
            for schema in (ours.StringSchema(), ours.AutoConsumeSchema()):
                reader = client.create_reader(topic, pulsarish.MessageId.earliest, schema=schema)
                assert [reader.read_next(20_000).value() for _ in range(2)] == ["theirs", "ours"]
        finally:
            official.close()


def test_protobuf_is_one_schema_to_both(site: Site) -> None:
    topic = "records-protobuf"
    mine, other = ours.ProtobufNativeSchema(Api), theirs.ProtobufNativeSchema(Api)
    assert json.loads(mine.schema_info().data) == json.loads(other.schema_info().schema())
    first, second = Api(name="theirs", methods=[Method(name="get")]), Api(name="ours")
    with pulsarish.Client(site.cluster.service_urls()["pulsarish"]) as client:
        official = pulsar.Client(site.service_url)
        try:
            official.create_producer(topic, schema=other).send(first)
            client.create_producer(topic, schema=mine).send(second)
            assert [(each["version"], each["type"]) for each in site.admin.schemas.list(topic)] == [
                (0, "PROTOBUF_NATIVE")
            ]
            receiving = official.subscribe(
                topic, "theirs", schema=other, initial_position=pulsar.InitialPosition.Earliest
            )
            assert [receiving.receive(20_000).value() for _ in range(2)] == [first, second]
            reader = client.create_reader(topic, pulsarish.MessageId.earliest, schema=mine)
            assert [reader.read_next(20_000).value() for _ in range(2)] == [first, second]
        finally:
            official.close()
