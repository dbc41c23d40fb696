"""Whether data written with one Avro definition is readable with another: the table of what Apache
Pulsar takes.

``tests/clients/test_schema_verdicts.py`` compares the same judgement with Apache Pulsar's own, over
definitions from seeds.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsarish.model.avro import parse_avro
from pulsarish.model.avro_resolution import COMPARISONS_MAX, mismatch
from pulsarish.model.errors import InvalidSchema


def judged(reader: Any, writer: Any) -> str:
    return mismatch(
        parse_avro(json.dumps(reader).encode()), parse_avro(json.dumps(writer).encode())
    )


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """Fields are (name, type) or (name, type, default)."""
    listed = [
        {"name": each[0], "type": each[1]} | ({"default": each[2]} if len(each) > 2 else {})
        for each in fields
    ]
    return {"type": "record", "name": name, "fields": listed, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTED = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
}
PROMOTED |= {("string", "bytes"), ("bytes", "string")}


@pytest.mark.parametrize("writer", PRIMITIVES)
@pytest.mark.parametrize("reader", PRIMITIVES)
def test_primitives_read_themselves_and_what_is_promoted(reader: str, writer: str) -> None:
    assert (judged(reader, writer) == "") is (reader == writer or (writer, reader) in PROMOTED)


READABLE: list[tuple[str, Any, Any]] = [
    (
        "fields in another order",
        record(("a", "int"), ("b", "string")),
        record(("b", "string"), ("a", "int")),
    ),
    (
        "a field that nobody reads any more",
        record(("a", "int")),
        record(("a", "int"), ("b", "string")),
    ),
    ("a new field with a default", record(("a", "int"), ("b", "string", "")), record(("a", "int"))),
    ("a new field whose default is null", record(("b", ["null", "string"], None)), record()),
    ("a field that is promoted", record(("a", "double")), record(("a", "int"))),
    (
        "a field under an alias",
        {**record(), "fields": [{"name": "b", "type": "int", "aliases": ["a"]}]},
        record(("a", "int")),
    ),
    (
        "another namespace",
        record(("a", "int"), namespace="new"),
        record(("a", "int"), namespace="old"),
    ),
    ("another name that is an alias", record(name="New", aliases=["Old"]), record(name="Old")),
    ("a full name that is an alias", record(name="New", aliases=["x.y.Old"]), record(name="Old")),
    ("an enum with more symbols", enum("A", "B", "C"), enum("A", "B")),
    ("an enum with fewer symbols and a default", enum("A", default="A"), enum("A", "B")),
    ("an enum with fewer symbols: only a value can fail", enum("A", "C"), enum("A", "B")),
    (
        "another name of a record",
        record(("a", "int"), name="New"),
        record(("a", "int"), name="Old"),
    ),
    (
        "another name of a record below",
        record(("r", record(name="New"))),
        record(("r", record(name="Old"))),
    ),
    (
        "a record with the same structure as the branch of a union",
        ["null", record(("a", "long"), name="New")],
        record(("a", "int"), name="Old"),
    ),
    (
        "the branch of the full name",
        [record(("a", "int"), name="Old"), record(name="New")],
        record(name="New"),
    ),
    ("an enum in another namespace", enum("A", namespace="new"), enum("A", namespace="old")),
    ("a default that nobody needs", record(("a", "int", "none")), record(("a", "int"))),
    (
        "a union with the same branches elsewhere",
        ["null", enum("A", namespace="new")],
        ["null", enum("A", namespace="old")],
    ),
    ("fixed of one size", fixed(4), fixed(4)),
    (
        "items that are promoted",
        {"type": "array", "items": "long"},
        {"type": "array", "items": "int"},
    ),
    (
        "values that are promoted",
        {"type": "map", "values": "string"},
        {"type": "map", "values": "bytes"},
    ),
    ("a union that is wider", ["null", "string", "int"], ["int", "null"]),
    ("a union where there was none", ["null", "string"], "string"),
    ("a union that reads by promotion", ["null", "long"], "int"),
    ("no union where all its branches are readable", "double", ["int", "float"]),
    ("a primitive in long form", {"type": "string"}, "string"),
    (
        "what is written about a type is no part of it",
        {"type": "long", "logicalType": "timestamp-millis"},
        "long",
    ),
    (
        "a list that names itself",
        record(("next", ["null", "R"], None), ("a", "long")),
        record(("next", ["null", "R"], None), ("a", "int")),
    ),
]


@pytest.mark.parametrize(
    ("reader", "writer"), [row[1:] for row in READABLE], ids=[row[0] for row in READABLE]
)
def test_what_is_readable(reader: Any, writer: Any) -> None:
    assert judged(reader, writer) == ""


UNREADABLE: list[tuple[str, Any, Any, str]] = [
    (
        "a new field without a default",
        record(("a", "int"), ("b", "string")),
        record(("a", "int")),
        "b: the field is missing",
    ),
    (
        "null is no default by itself",
        record(("b", ["null", "string"])),
        record(),
        "b: the field is missing",
    ),
    (
        "a field of another type",
        record(("a", "int")),
        record(("a", "string")),
        "a: int does not read string",
    ),
    ("demotion", record(("a", "int")), record(("a", "long")), "a: int does not read long"),
    (
        "a branch of the full name with another structure",
        [record(("a", "int")), record(name="S")],
        record(),
        "a: the field is missing",
    ),
    (
        "a branch of another structure",
        ["null", record(("a", "int"), name="New")],
        record(name="Old"),
        "none of",
    ),
    (
        "an enum of a union in another namespace",
        ["null", enum("A", namespace="new")],
        enum("A", namespace="old"),
        "none of",
    ),
    (
        "an enum of another name",
        enum("A"),
        {**enum("A"), "name": "D"},
        "enum E has another name than enum D",
    ),
    (
        "an alias of a field in a record of another name",
        {**record(name="New"), "fields": [{"name": "b", "type": "int", "aliases": ["a"]}]},
        record(("a", "int"), name="Old"),
        "b: the field is missing",
    ),
    (
        "two fields that aliases give one name",
        {**record(), "fields": [{"name": "b", "type": "int", "aliases": ["a"]}]},
        record(("a", "int"), ("b", "int")),
        "two parts of what was written one name",
    ),
    (
        "a default of another type",
        record(("a", "int", "none")),
        record(),
        "a: the default 'none' is not one of int",
    ),
    (
        "a default of a union's second branch",
        record(("a", ["int", "null"], None)),
        record(),
        "a: the default None is not one of int",
    ),
    ("fixed of another size", fixed(4), fixed(8), "fixed F has 4 bytes, not 8"),
    ("fixed of another name", fixed(4, "F"), fixed(4, "G"), "has another name"),
    (
        "items",
        {"type": "array", "items": "int"},
        {"type": "array", "items": "string"},
        "[]: int does not read string",
    ),
    (
        "values deep below",
        record(("m", {"type": "map", "values": record(("a", "int"), name="I")})),
        record(("m", {"type": "map", "values": record(("a", "boolean"), name="I")})),
        "m[].a: int does not read boolean",
    ),
    (
        "a union that lacks a branch",
        ["null", "int"],
        ["null", "string"],
        "none of [null, int] reads string",
    ),
    ("one branch that is not readable", "int", ["null", "int"], "int does not read null"),
    (
        "an array is no map",
        {"type": "array", "items": "int"},
        {"type": "map", "values": "int"},
        "array does not read map",
    ),
]


@pytest.mark.parametrize(
    ("reader", "writer", "words"),
    [row[1:] for row in UNREADABLE],
    ids=[row[0] for row in UNREADABLE],
)
def test_what_is_not_readable_is_said_with_its_place(reader: Any, writer: Any, words: str) -> None:
    assert words in judged(reader, writer)


def test_what_was_concluded_from_a_pair_that_turned_out_wrong_is_forgotten() -> None:
    """The first branch of the union fails only at its end; what it assumed of itself below must not
    make the second one fine.
    """
    inner = {
        "type": "record",
        "name": "I",
        "fields": [{"name": "up", "type": ["null", "R"], "default": None}],
    }
    reader = record(("x", inner), ("y", "int"))
    writer = record(("x", inner), ("y", "string"))
    assert "y: int does not read string" in judged(["null", reader], writer) or "none of" in judged(
        ["null", reader], writer
    )
    both = record(("first", ["null", reader], None), ("second", ["null", "I"], None), name="O")
    other = record(("first", ["null", writer], None), ("second", ["null", "I"], None), name="O")
    assert judged(both, other)


def test_a_comparison_without_end_is_given_up() -> None:
    few = [record(name=f"R{index}") for index in range(100)]
    assert judged(few, few[::-1]) == ""
    many = [
        record(("a", {"type": "array", "items": "int"}), name=f"R{index}")
        for index in range(int((2 * COMPARISONS_MAX) ** 0.5) + 2)
    ]
    with pytest.raises(InvalidSchema, match=f"more than {COMPARISONS_MAX} steps"):
        judged(many, many[::-1])
