"""Schemas as values: which are the same, how key and value go together, which may follow which."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from pulsarish.model.errors import IncompatibleSchema, InvalidSchema
from pulsarish.model.policy_words import SchemaStrategy
from pulsarish.model.schema import (
    Schema,
    SchemaType,
    VersionedSchema,
    fingerprint,
    join_key_value,
    meant,
    split_key_value,
    version_bytes,
    version_number,
)
from pulsarish.model.schema_compatibility import check_consumer, check_new, check_valid

INT, STRING = Schema(SchemaType.INT32), Schema(SchemaType.STRING)


def avro(*fields: tuple[Any, ...], kind: SchemaType = SchemaType.AVRO) -> Schema:
    """Fields are (name, type) or (name, type, default)."""
    listed = [
        {"name": each[0], "type": each[1]} | ({"default": each[2]} if len(each) > 2 else {})
        for each in fields
    ]
    return Schema(kind, json.dumps({"type": "record", "name": "R", "fields": listed}).encode())


def proto(message: str) -> Schema:
    definition = {
        "fileDescriptorSet": "",
        "rootMessageTypeName": message,
        "rootFileDescriptorName": "a.proto",
    }
    return Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(definition).encode())


BASE = avro(("a", "int"))
OPTIONAL = avro(("a", "int"), ("b", "string", ""))  # reads BASE and is read by it
REQUIRED = avro(("a", "int"), ("b", "string"))  # is read by BASE
EMPTY = avro()  # reads BASE


def test_a_version_is_eight_bytes_from_zero() -> None:
    assert version_bytes(0) == bytes(8)
    assert version_bytes(258) == b"\0\0\0\0\0\0\x01\x02"
    assert version_number(version_bytes(258)) == 258
    with pytest.raises(InvalidSchema, match="8 bytes, not 3"):
        version_number(b"abc")


def test_what_says_nothing_of_the_content_is_no_schema() -> None:
    assert (
        meant(None)
        is meant(Schema(SchemaType.NONE))
        is meant(Schema(SchemaType.AUTO_CONSUME))
        is None
    )
    assert meant(INT) is INT


def test_a_definition_is_the_same_however_it_is_written() -> None:
    spaced = json.dumps(
        {
            "name": "R",
            "fields": [{"doc": "how many", "type": "int", "name": "a"}],
            "type": "record",
        },
        indent=4,
    )
    assert fingerprint(Schema(SchemaType.AVRO, spaced.encode(), "x", {"p": "q"})) == fingerprint(
        BASE
    )
    assert fingerprint(OPTIONAL) != fingerprint(BASE)
    assert fingerprint(avro(("a", "int"), kind=SchemaType.JSON)) != fingerprint(BASE)
    named_doc = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "m", "type": "int", "default": {"doc": "a value"}}],
    }
    other_doc = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "m", "type": "int", "default": {"doc": "another"}}],
    }
    of = [
        fingerprint(Schema(SchemaType.AVRO, json.dumps(each).encode()))
        for each in (named_doc, other_doc)
    ]
    assert of[0] != of[1], "what a default holds is no documentation"
    assert fingerprint(Schema(SchemaType.STRING, b"null")) == fingerprint(STRING)
    assert fingerprint(STRING) != fingerprint(INT)


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_key_and_value_go_together_and_apart(encoding: str) -> None:
    key, value = (
        Schema(SchemaType.STRING, b"", "String", {"k": "v"}),
        Schema(SchemaType.AVRO, BASE.data, "R"),
    )
    joined = join_key_value(key, value, encoding=encoding)
    assert joined.properties["kv.encoding.type"] == encoding
    assert joined.properties["key.schema.type"] == "STRING"
    assert joined.data == b"\0\0\0\0" + len(BASE.data).to_bytes(4, "big") + BASE.data
    assert split_key_value(joined) == (key, value)
    assert (
        len(
            {
                fingerprint(join_key_value(key, value, encoding=each))
                for each in ("INLINE", "SEPARATED")
            }
        )
        == 2
    )


@pytest.mark.parametrize(
    "data", [b"", b"\0\0", b"\0\0\0\x05abc", b"\0\0\0\0", b"\0\0\0\0\0\0\0\0x"]
)
def test_a_key_value_that_is_cut_or_too_long_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidSchema):
        split_key_value(Schema(SchemaType.KEY_VALUE, data))


VALID = [
    STRING,
    Schema(SchemaType.STRING, b"null"),
    INT,
    BASE,
    avro(("a", "int"), kind=SchemaType.JSON),
    proto("x.Y"),
    join_key_value(STRING, BASE),
    join_key_value(Schema(SchemaType.NONE), INT),
    Schema(SchemaType.EXTERNAL, b"anything"),
]
INVALID = [
    (Schema(SchemaType.NONE), "says nothing"),
    (Schema(SchemaType.AUTO_CONSUME), "says nothing"),
    (Schema(SchemaType.INT8, b"{}"), "type INT8 has no definition"),
    (Schema(SchemaType.STRING, b'"string"'), "type STRING has no definition"),
    (Schema(SchemaType.AVRO, b""), "not JSON"),
    (Schema(SchemaType.JSON, b'{"type": "object", "properties": {}}'), "'object' is neither"),
    (Schema(SchemaType.PROTOBUF_NATIVE, b"{}"), "cannot be read"),
    (join_key_value(STRING, Schema(SchemaType.AVRO, b"{")), "not JSON"),
    (
        Schema(SchemaType.KEY_VALUE, bytes(8), "", {"key.schema.type": "ODD"}),
        "'ODD', which is no type",
    ),
]


@pytest.mark.parametrize("schema", VALID, ids=lambda schema: schema.type.name)
def test_definitions_of_their_type_are_valid(schema: Schema) -> None:
    check_valid(schema)


@pytest.mark.parametrize(("schema", "words"), INVALID, ids=[row[1] for row in INVALID])
def test_other_definitions_are_not(schema: Schema, words: str) -> None:
    with pytest.raises(InvalidSchema, match=words):
        check_valid(schema)


def versions(*schemas: Schema) -> list[VersionedSchema]:
    return [VersionedSchema(number, schema) for number, schema in enumerate(schemas)]


# The schemas there, the new one, and the strategies that take it, beside ALWAYS_COMPATIBLE.
ALL = set(get_args(SchemaStrategy)) - {"ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE"}
BACKWARD = {"BACKWARD", "BACKWARD_TRANSITIVE"}
FORWARD = {"FORWARD", "FORWARD_TRANSITIVE"}
ROWS: list[tuple[str, list[Schema], Schema, set[str]]] = [
    ("the first", [], BASE, ALL | {"ALWAYS_INCOMPATIBLE"}),
    ("both ways", [BASE], OPTIONAL, ALL),
    ("reads the old one", [BASE], EMPTY, BACKWARD),
    ("read by the old one", [BASE], REQUIRED, FORWARD),
    ("neither", [BASE], avro(("a", "string")), set()),
    ("another type", [BASE], avro(("a", "int"), kind=SchemaType.JSON), set()),
    (
        "JSON both ways",
        [avro(("a", "int"), kind=SchemaType.JSON)],
        avro(("a", "int"), ("b", "int", 0), kind=SchemaType.JSON),
        ALL,
    ),
    (
        "compatible with the last, not with the first",
        [EMPTY, avro(("a", "int", 0))],
        BASE,
        {"BACKWARD", "FORWARD", "FULL"} | FORWARD,
    ),
    ("the same primitive", [INT], INT, ALL),
    ("another primitive", [INT], STRING, set()),
    ("the same message", [proto("x.Y")], proto("x.Y"), ALL),
    ("another message", [proto("x.Y")], proto("x.Z"), set()),
    ("key and value", [join_key_value(INT, BASE)], join_key_value(INT, OPTIONAL), ALL),
    (
        "the value reads the old one",
        [join_key_value(INT, BASE)],
        join_key_value(INT, EMPTY),
        BACKWARD,
    ),
    ("another key", [join_key_value(INT, BASE)], join_key_value(STRING, BASE), set()),
]


@pytest.mark.parametrize("strategy", get_args(SchemaStrategy))
@pytest.mark.parametrize(
    ("there", "new", "taken"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_what_may_follow(
    there: list[Schema], new: Schema, taken: set[str], strategy: SchemaStrategy
) -> None:
    if strategy in taken or strategy == "ALWAYS_COMPATIBLE":
        check_new(strategy, versions(*there), new)
    else:
        with pytest.raises(
            IncompatibleSchema,
            match=(
                f"version {0 if strategy.endswith('TRANSITIVE') else len(there) - 1} of the topic"
            ),
        ):
            check_new(strategy, versions(*there), new)


# What a consumer brings, and the strategies that let it read a topic of BASE, then OPTIONAL.
CONSUMERS: list[tuple[str, Schema, set[str]]] = [
    ("one of the topic's", BASE, ALL | {"ALWAYS_INCOMPATIBLE"}),
    (
        "what reads both",
        EMPTY,
        {"BACKWARD", "FORWARD", "FULL", "FORWARD_TRANSITIVE", "BACKWARD_TRANSITIVE"},
    ),
    ("what reads only the newest", REQUIRED, {"BACKWARD", "FORWARD", "FULL", "FORWARD_TRANSITIVE"}),
    ("what reads none", avro(("z", "int")), set()),
    ("another type", INT, set()),
]


@pytest.mark.parametrize("strategy", get_args(SchemaStrategy))
@pytest.mark.parametrize(
    ("schema", "taken"), [row[1:] for row in CONSUMERS], ids=[row[0] for row in CONSUMERS]
)
def test_what_a_consumer_may_read_with(
    schema: Schema, taken: set[str], strategy: SchemaStrategy
) -> None:
    if strategy in taken or strategy == "ALWAYS_COMPATIBLE":
        check_consumer(strategy, versions(BASE, OPTIONAL), schema)
    else:
        with pytest.raises(IncompatibleSchema):
            check_consumer(strategy, versions(BASE, OPTIONAL), schema)
