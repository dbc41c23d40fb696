"""Schemas of the client by themselves: records, classes of Python's own, what they refuse and in
what words.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest

from pulsarish.client.schemas.auto_consume import AutoConsumeSchema
from pulsarish.client.schemas.avro import AvroSchema
from pulsarish.client.schemas.key_value import KeyValue, KeyValueEncodingType, KeyValueSchema
from pulsarish.client.schemas.records import (
    Array,
    Boolean,
    Bytes,
    CustomEnum,
    Double,
    Float,
    Integer,
    Long,
    Map,
    Null,
    Record,
    String,
)
from pulsarish.client.schemas.schema import (
    BytesSchema,
    JsonSchema,
    KeyedDecode,
    StringSchema,
    message_key,
    reader_for,
    schema_info,
)
from pulsarish.model import schema as model
from pulsarish.model.avro import parse_avro
from pulsarish.model.errors import InvalidArgument, OperationNotSupported, PulsarishError
from pulsarish.model.schema import SchemaType
from pulsarish.model.schema_compatibility import check_valid


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Line(Record):
    text = String()
    count = Integer(required=True, default=1)


class Order(Record):
    number = Long(required=True)
    flag = Boolean()
    raw = Bytes()
    colour = Colour
    price = Double(default=2.5)
    near = Float()
    nothing = Null()
    line = Line
    lines = Array(Line())
    table = Map(Array(Integer()))


# Records.


def test_a_record_holds_what_its_fields_say() -> None:
    order = Order(
        number=3,
        raw="text",
        colour="RED",
        lines=[{"text": "a"}, Line(text="b", count=2)],
        table={"k": [1]},
        unknown=4,
    )
    assert (order.number, order.flag, order.raw, order.colour, order.price) == (
        3,
        False,
        b"text",
        Colour.RED,
        2.5,
    )
    assert order.line == Line()
    assert order.line is not Order(number=3).line
    assert order.lines == [Line(text="a"), Line(text="b", count=2)]
    order.colour = "green"
    assert order.colour is Colour.GREEN
    order.line = {"text": "x"}
    assert order.line.text == "x"
    order.line = None
    assert order.line is None
    assert (
        order
        == Order.from_plain(order.to_plain(is_json=True))
        == Order.from_plain(order.to_plain(is_json=False))
    )
    assert order != Order(number=4)
    assert "number=3" in repr(order)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("number", "3", "the field number takes int, not '3' of type str"),
        ("number", None, "the field number takes int"),
        ("flag", 1, "takes bool"),
        ("raw", 1, "takes bytes or str"),
        ("colour", "BLUE", r"a member of Colour \(RED, GREEN\), not 'BLUE'"),
        ("price", "1", "takes float or int"),
        ("nothing", 1, "takes None"),
        ("number", 1 << 63, "int of 64 bits, not 9223372036854775808"),
        ("line", {"count": 1 << 31}, "int of 32 bits"),
        ("line", 1, "takes Line"),
        ("lines", "ab", "takes list"),
        ("lines", [1], "the field lines takes Line"),
        ("lines", [None], "takes no None among its values"),
        ("table", {1: [1]}, "the keys of the field table must be str"),
        ("table", {"k": ["x"]}, "the field table takes int"),
    ],
)
def test_what_does_not_fit_a_field_is_refused_where_it_is_set(
    name: str, value: object, words: str
) -> None:
    with pytest.raises(TypeError, match=words):
        Order(**{"number": 1, name: value})
    order = Order(number=1)
    with pytest.raises(TypeError, match=words):
        setattr(order, name, value)


def test_names_that_are_no_fields_are_refused_when_they_are_set() -> None:
    with pytest.raises(AttributeError, match="Line has no field txt; it has text, count"):
        Line().txt = "x"
    with pytest.raises(TypeError, match="Array takes a field or a record"):
        Array(int)
    with pytest.raises(TypeError, match="takes a subclass of Enum"):
        CustomEnum(int)  # type: ignore[arg-type]


def test_definitions_are_avro_and_names_are_defined_once() -> None:
    class Twice(Record):
        first = Line
        second = Line(required=True)
        colours = Array(CustomEnum(Colour))
        colour = CustomEnum(Colour, default="GREEN", required_default=True)

    fields = {each["name"]: each for each in Twice.schema()["fields"]}
    assert fields["second"]["type"] == "Line"
    assert fields["colour"] == {"name": "colour", "type": ["null", "Colour"], "default": "GREEN"}
    for record in (Twice, Order):
        check_valid(AvroSchema(record).schema_info())

    class Wider(Line):
        more = Long()

    assert [each["name"] for each in Wider.schema()["fields"]] == ["text", "count", "more"]


# Classes of Python's own.


@dataclass
class Point:
    x: int
    y: float = 0.5
    name: str | None = None
    label: str | None = "here"
    colour: Colour = Colour.RED
    tags: list[str] = field(default_factory=list)
    more: dict[str, list[bytes]] = field(default_factory=dict)
    next: Point | None = None


class Struct(msgspec.Struct):
    x: int
    colour: Colour | None = None


class Dict(TypedDict):
    x: int


class Pair(NamedTuple):
    x: int
    y: str = "b"


def test_the_definition_of_a_dataclass() -> None:
    definition = json.loads(AvroSchema(Point).schema_info().data)
    fields = {each["name"]: each for each in definition["fields"]}
    assert fields["x"] == {"name": "x", "type": "long"}
    assert fields["y"] == {"name": "y", "type": "double", "default": 0.5}
    assert fields["name"] == {"name": "name", "type": ["null", "string"], "default": None}
    assert fields["label"] == {"name": "label", "type": ["string", "null"], "default": "here"}
    assert fields["colour"] == {
        "name": "colour",
        "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]},
        "default": "RED",
    }
    assert fields["tags"] == {
        "name": "tags",
        "type": {"type": "array", "items": "string"},
        "default": [],
    }
    assert fields["next"] == {"name": "next", "type": ["null", "Point"], "default": None}
    assert definition == json.loads(JsonSchema(Point).schema_info().data)  # type: ignore[union-attr]


VALUES: list[tuple[Any, Any]] = [
    (Point, Point(1)),
    (
        Point,
        Point(
            -1, 1.5, "n", None, Colour.GREEN, ["a"], {"k": [b"\xff"]}, Point(2, colour=Colour.GREEN)
        ),
    ),
    (Struct, Struct(1)),
    (Struct, Struct(2, Colour.GREEN)),
    (Dict, {"x": 3}),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
@pytest.mark.parametrize("schema", [AvroSchema, JsonSchema])
def test_values_of_typed_classes_come_back(schema: Any, kind: Any, value: object) -> None:
    made = schema(kind)
    assert made.decode(made.encode(value)) == value
    check_valid(made.schema_info())


def test_what_has_no_definition_is_for_json_alone() -> None:
    with pytest.raises(InvalidArgument, match="Avro has nothing like"):
        AvroSchema(dataclasses.make_dataclass("Any", [("x", Any)]))
    assert schema_info(JsonSchema(dataclasses.make_dataclass("Any", [("x", Any)]))) is None
    assert schema_info(JsonSchema()) is None
    with pytest.raises(InvalidArgument, match="record_cls"):
        AvroSchema(int)
    with pytest.raises(InvalidArgument, match="needs record_cls or schema_definition"):
        AvroSchema()
    with pytest.raises(InvalidArgument, match="pass an Avro schema as a dict"):
        AvroSchema(None, "record")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="needs a list of fields"):
        AvroSchema(None, {"type": "record", "name": "R"})


# Encoding and decoding.


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        (AvroSchema(Order), Line(), "type Line: this producer's schema takes Order"),
        (AvroSchema(Order), {"number": 1}, "takes Order"),
        (AvroSchema(Order), Order(), "does not fit its Avro schema"),
        (AvroSchema(Point), Point(1 << 63), "more than the 64 bits"),
        (AvroSchema(Point), Struct(1), "takes Point"),
        (AvroSchema(None, Line.schema()), Line(), "takes a dict"),
        (AvroSchema(None, Line.schema()), {"text": 5, "count": 1}, "does not fit its Avro schema"),
        (JsonSchema(Order), Line(), "takes Order"),
        (JsonSchema(Order), Order(number=1, raw=b"\xff"), "cannot be written as JSON"),
        (StringSchema(), b"x", "takes str"),
        (BytesSchema(), "x", "pass bytes"),
        (AutoConsumeSchema(), b"x", "only reads"),
    ],
)
def test_content_that_a_schema_does_not_take_is_refused(
    schema: Any, value: object, words: str
) -> None:
    with pytest.raises(InvalidArgument, match=words):
        schema.encode(value)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (AvroSchema(Line), b""),
        (AvroSchema(Line), b"\x02"),
        (AvroSchema(Line), b"\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        (AvroSchema(Line), AvroSchema(Line).encode(Line(text="a")) + b"x"),
        (AvroSchema(Line), b"\x02\x04\xff\xff\x02"),
        (AvroSchema(Line), b"\x09"),
        (JsonSchema(Line), b"{"),
        (JsonSchema(Line), b"[]"),
        (JsonSchema(Line), b'{"count": "x"}'),
        (JsonSchema(Point), b'{"x": "x"}'),
        (StringSchema(), b"\xff"),
    ],
)
def test_bytes_that_hold_no_value_are_refused_with_a_way_out(schema: Any, data: bytes) -> None:
    with pytest.raises(InvalidArgument, match=r"read it with data\(\)"):
        schema.decode(data)


def told(kind: type[Record] | Any, schema: Any = AvroSchema) -> model.Schema:
    found: model.Schema = schema(kind).schema_info()
    return found


def test_avro_is_read_with_the_schema_that_it_was_written_with() -> None:
    class Old(Record):
        _avro_namespace = "java"
        text = String()
        gone = Array(String())

    data = AvroSchema(Old).encode(Old(text="a", gone=["x"]))

    class New(Record):
        count = Integer(required=True, default=7, required_default=True)
        text = String()

    read = AvroSchema(New).reader_for(told(Old))
    assert read(data) == New(text="a", count=7)
    with pytest.raises(InvalidArgument, match=r"read it with data\(\)"):
        AvroSchema(Order).reader_for(told(Old))(data)
    with pytest.raises(InvalidArgument, match="of type JSON, not AVRO"):
        AvroSchema(New).reader_for(told(Old, JsonSchema))
    with pytest.raises(InvalidArgument, match="is not JSON"):
        AvroSchema(New).reader_for(model.Schema(SchemaType.AVRO, b"{"))
    assert AvroSchema(None, New.schema()).reader_for(told(Old))(data) == {"text": "a", "count": 7}


AUTO: list[tuple[SchemaType, bytes, Any]] = [
    (SchemaType.STRING, b"text", "text"),
    (SchemaType.BOOLEAN, b"\1", True),
    (SchemaType.INT8, b"\xff", -1),
    (SchemaType.INT16, b"\1\0", 256),
    (SchemaType.INT32, b"\0\0\1\0", 256),
    (SchemaType.INT64, bytes(7) + b"\5", 5),
    (SchemaType.FLOAT, b"\x3f\0\0\0", 0.5),
    (SchemaType.DOUBLE, b"\x3f\xe0\0\0\0\0\0\0", 0.5),
    (SchemaType.TIMESTAMP, bytes(7) + b"\5", 5),
    (SchemaType.NONE, b"\xff", b"\xff"),
]


@pytest.mark.parametrize(("kind", "data", "value"), AUTO, ids=[row[0].name for row in AUTO])
def test_auto_consume_reads_each_type(kind: SchemaType, data: bytes, value: object) -> None:
    read = AutoConsumeSchema().reader_for(model.Schema(kind))
    assert read(data) == value
    if kind not in (SchemaType.STRING, SchemaType.NONE):
        with pytest.raises(InvalidArgument, match=kind.name):
            read(data + b"x")


def test_auto_consume_reads_records_as_dicts_and_refuses_what_it_cannot_read() -> None:
    auto = AutoConsumeSchema()
    line = Line(text="a", count=2)
    assert auto.reader_for(told(Line))(AvroSchema(Line).encode(line)) == {"text": "a", "count": 2}
    assert auto.reader_for(told(Line, JsonSchema))(JsonSchema(Line).encode(line)) == {
        "text": "a",
        "count": 2,
    }
    with pytest.raises(InvalidArgument, match="not JSON"):
        auto.reader_for(told(Line, JsonSchema))(b"{")
    with pytest.raises(OperationNotSupported, match="PROTOBUF"):
        auto.reader_for(model.Schema(SchemaType.PROTOBUF))
    assert auto.decode(b"x") == b"x"


PAIRS: list[KeyValue] = [
    KeyValue("k", Line(text="v")),
    KeyValue(None, Line()),
    KeyValue("", None),
    KeyValue(None, None),
]


@pytest.mark.parametrize("pair", PAIRS)
def test_a_key_and_a_value_are_one_message(pair: KeyValue) -> None:
    schema = KeyValueSchema(StringSchema(), AvroSchema(Line))
    data = schema.encode(pair)
    assert schema.decode(data) == schema.reader_for(schema.schema_info())(data) == pair
    read = AutoConsumeSchema().reader_for(schema.schema_info())(data)
    assert read == KeyValue(
        pair.key, None if pair.value is None else {"text": pair.value.text, "count": 1}
    )
    check_valid(schema.schema_info())


def test_a_key_value_is_read_with_the_schemas_that_it_was_written_with() -> None:
    class Wider(Line):
        more = Long(default=3, required=True, required_default=True)

    Wider.__name__ = "Line"
    schema = KeyValueSchema(BytesSchema(), AvroSchema(Line))
    assert schema.encode((b"k", Line(text="v"))) == b"\0\0\0\1k\0\0\0\4" + AvroSchema(Line).encode(
        Line(text="v")
    )
    wider = KeyValueSchema(BytesSchema(), AvroSchema(Wider))
    data = schema.encode((b"k", Line(text="v")))
    assert wider.reader_for(schema.schema_info())(data) == KeyValue(b"k", Wider(text="v", more=3))
    with pytest.raises(InvalidArgument, match="takes a KeyValue"):
        schema.encode(b"kv")
    with pytest.raises(InvalidArgument, match="of type AVRO, not KEY_VALUE"):
        schema.reader_for(told(Line))
    unknown = model.join_key_value(told(Line), told(Line), encoding="FOLDED")
    with pytest.raises(OperationNotSupported, match="FOLDED"):
        schema.reader_for(unknown)
    for broken in (b"", data[:-1], data + b"x", b"\0\0\0\1", b"\xff\xff\xff\xfe" + data[4:]):
        with pytest.raises(InvalidArgument, match=r"read it with data\(\)"):
            schema.decode(broken)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_separated_key_is_beside_the_payload(pair: KeyValue) -> None:
    schema = KeyValueSchema(StringSchema(), AvroSchema(Line), KeyValueEncodingType.SEPARATED)
    payload = schema.encode(pair)
    assert payload == (b"" if pair.value is None else AvroSchema(Line).encode(pair.value))
    key_of = message_key(schema)
    assert key_of is not None
    key, is_null = key_of(pair)
    assert (key, is_null) == (None if pair.key is None else pair.key.encode(), pair.value is None)
    inline = KeyValueSchema(BytesSchema(), AvroSchema(Line))
    assert message_key(inline) is None
    # The encoding is the writer's, whichever the reader would write with.
    for reader, wanted in ((schema, pair.key), (inline, key)):
        decode = reader.reader_for(schema.schema_info())
        assert isinstance(decode, KeyedDecode)
        assert decode.both(key, None if is_null else payload) == KeyValue(wanted, pair.value)
        with pytest.raises(InvalidArgument, match="the message's own"):
            decode(payload)
    auto = AutoConsumeSchema().reader_for(schema.schema_info())
    assert isinstance(auto, KeyedDecode)
    assert auto.both(key, None if is_null else payload) == KeyValue(
        pair.key, None if is_null else {"text": pair.value.text, "count": 1}
    )
    check_valid(schema.schema_info())


def test_what_is_no_encoding_of_key_and_value_is_refused() -> None:
    encoding: Any = "SEPARATED"
    with pytest.raises(InvalidArgument, match="encoding is 'SEPARATED'"):
        KeyValueSchema(StringSchema(), StringSchema(), encoding)


def test_what_schemas_say_of_themselves() -> None:
    assert schema_info(BytesSchema()) is None
    assert schema_info(StringSchema()) == model.Schema(SchemaType.STRING, b"", "STRING")
    assert schema_info(AutoConsumeSchema()) == model.Schema(
        SchemaType.AUTO_CONSUME, b"", "AUTO_CONSUME"
    )

    class Foreign(StringSchema):
        def schema_info(self) -> Any:
            return "of another library"

    assert schema_info(Foreign()) is None
    assert reader_for(JsonSchema(Line)) is None
    assert reader_for(AvroSchema(Line)) is not None
    assert parse_avro(told(Line).data).kind == "record"


def test_avro_without_its_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(PulsarishError, match=r"python -m pip install 'fastavro>=1.9'"):
        AvroSchema(Line)


def test_the_package_has_its_schemas_without_another_import() -> None:
    words = (
        "import pulsarish; print(pulsarish.schema.StringSchema().decode(b'text'), "
        "pulsarish.AvroSchema.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout == "text AvroSchema\n"


def test_a_record_within_a_record_may_be_incomplete_at_first() -> None:
    class Line(Record):
        article = String(required=True)
        tags = Array(String())

    class Order(Record):
        first = Line(tags=["tea"])

    order, other = Order(), Order()
    assert (order.first.article, order.first.tags) == (None, ["tea"])
    order.first.article = "cup"
    order.first.tags.append("china")
    assert (other.first.article, other.first.tags) == (None, ["tea"])
