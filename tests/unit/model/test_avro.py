"""Avro definitions, and the specification's table of what reads what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsarish.model.avro import COMPARISONS_MAX, DEPTH_MAX, mismatch, parse_avro
from pulsarish.model.errors import InvalidSchema


def judged(reader: Any, writer: Any) -> str:
    return mismatch(parse_avro(json.dumps(reader).encode()), parse_avro(json.dumps(writer).encode()))


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """Fields are (name, type) or (name, type, default)."""
    listed = [{"name": each[0], "type": each[1]} | ({"default": each[2]} if len(each) > 2 else {}) for each in fields]
    return {"type": "record", "name": name, "fields": listed, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "E", "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTED = {("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double")}
PROMOTED |= {("string", "bytes"), ("bytes", "string")}


@pytest.mark.parametrize("writer", PRIMITIVES)
@pytest.mark.parametrize("reader", PRIMITIVES)
def test_primitives_read_themselves_and_what_is_promoted(reader: str, writer: str) -> None:
    assert (judged(reader, writer) == "") is (reader == writer or (writer, reader) in PROMOTED)


READABLE: list[tuple[str, Any, Any]] = [
    ("fields in another order", record(("a", "int"), ("b", "string")), record(("b", "string"), ("a", "int"))),
    ("a field that nobody reads any more", record(("a", "int")), record(("a", "int"), ("b", "string"))),
    ("a new field with a default", record(("a", "int"), ("b", "string", "")), record(("a", "int"))),
    ("a new field whose default is null", record(("b", ["null", "string"], None)), record()),
    ("a field that is promoted", record(("a", "double")), record(("a", "int"))),
    ("a field under an alias", {**record(), "fields": [{"name": "b", "type": "int", "aliases": ["a"]}]}, record(("a", "int"))),
    ("another namespace", record(("a", "int"), namespace="new"), record(("a", "int"), namespace="old")),
    ("another name that is an alias", record(name="New", aliases=["Old"]), record(name="Old")),
    ("a full name that is an alias", record(name="New", aliases=["x.y.Old"]), record(name="Old")),
    ("an enum with more symbols", enum("A", "B", "C"), enum("A", "B")),
    ("an enum with fewer symbols and a default", enum("A", default="A"), enum("A", "B")),
    ("fixed of one size", fixed(4), fixed(4)),
    ("items that are promoted", {"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
    ("values that are promoted", {"type": "map", "values": "string"}, {"type": "map", "values": "bytes"}),
    ("a union that is wider", ["null", "string", "int"], ["int", "null"]),
    ("a union where there was none", ["null", "string"], "string"),
    ("a union that reads by promotion", ["null", "long"], "int"),
    ("no union where all its branches are readable", "double", ["int", "float"]),
    ("a primitive in long form", {"type": "string"}, "string"),
    ("what is written about a type is no part of it", {"type": "long", "logicalType": "timestamp-millis"}, "long"),
    (
        "a list that names itself",
        record(("next", ["null", "R"], None), ("a", "long")),
        record(("next", ["null", "R"], None), ("a", "int")),
    ),
]


@pytest.mark.parametrize(("reader", "writer"), [row[1:] for row in READABLE], ids=[row[0] for row in READABLE])
def test_what_is_readable(reader: Any, writer: Any) -> None:
    assert judged(reader, writer) == ""


UNREADABLE: list[tuple[str, Any, Any, str]] = [
    ("a new field without a default", record(("a", "int"), ("b", "string")), record(("a", "int")), "b: the field is missing"),
    ("null is no default by itself", record(("b", ["null", "string"])), record(), "b: the field is missing"),
    ("a field of another type", record(("a", "int")), record(("a", "string")), "a: int does not read string"),
    ("demotion", record(("a", "int")), record(("a", "long")), "a: int does not read long"),
    ("another name", record(name="New"), record(name="Old"), "record New has another name than record Old"),
    ("an alias of the writer", record(name="New"), record(name="Old", aliases=["New"]), "has another name"),
    ("an enum that lacks a symbol", enum("A", "C"), enum("A", "B"), "enum E lacks the symbols B and has no default"),
    ("fixed of another size", fixed(4), fixed(8), "fixed F has 4 bytes, not 8"),
    ("fixed of another name", fixed(4, "F"), fixed(4, "G"), "has another name"),
    ("items", {"type": "array", "items": "int"}, {"type": "array", "items": "string"}, "[]: int does not read string"),
    ("values deep below", record(("m", {"type": "map", "values": record(("a", "int"), name="I")})),
     record(("m", {"type": "map", "values": record(("a", "boolean"), name="I")})), "m[].a: int does not read boolean"),
    ("a union that lacks a branch", ["null", "int"], ["null", "string"], "none of [null, int] reads string"),
    ("one branch that is not readable", "int", ["null", "int"], "int does not read null"),
    ("an array is no map", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}, "array does not read map"),
]  # fmt: skip


@pytest.mark.parametrize(("reader", "writer", "words"), [row[1:] for row in UNREADABLE], ids=[row[0] for row in UNREADABLE])
def test_what_is_not_readable_is_said_with_its_place(reader: Any, writer: Any, words: str) -> None:
    assert words in judged(reader, writer)


def test_what_was_concluded_from_a_pair_that_turned_out_wrong_is_forgotten() -> None:
    """The first branch of the union fails only at its end; what it assumed of itself below must not make the second one fine."""
    inner = {"type": "record", "name": "I", "fields": [{"name": "up", "type": ["null", "R"], "default": None}]}
    reader = record(("x", inner), ("y", "int"))
    writer = record(("x", inner), ("y", "string"))
    assert "y: int does not read string" in judged(["null", reader], writer) or "none of" in judged(["null", reader], writer)
    both = record(("first", ["null", reader], None), ("second", ["null", "I"], None), name="O")
    other = record(("first", ["null", writer], None), ("second", ["null", "I"], None), name="O")
    assert judged(both, other)


INVALID: list[tuple[bytes, str]] = [
    (b"", "is not JSON"),
    (b"\xff", "is not JSON"),
    (b'"strng"', "'strng' is neither Avro's own nor defined"),
    (b"17", "an Avro type is a name, a list, or an object"),
    (b'{"type": "record", "fields": []}', "needs a name"),
    (b'{"type": "record", "name": "1x", "fields": []}', "needs a name of letters"),
    (b'{"type": "record", "name": "R"}', "needs a list of fields"),
    (b'{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "needs a name and a type"),
    (b'{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "a", "type": "int"}]}', "the field a twice"),
    (b'[{"type": "fixed", "name": "F", "size": 1}, {"type": "enum", "name": "F", "symbols": ["A"]}]', "F is defined twice"),
    (b'{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "symbols, each once"),
    (b'{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', "is none of its symbols"),
    (b'{"type": "fixed", "name": "F", "size": "4"}', "needs a size in bytes"),
    (b'{"type": "array"}', "needs items"),
    (b'["int", "int"]', "holds int twice"),
    (b'["int", ["string"]]', "holds a union"),
    (b'{"type": "array", "items":' * (DEPTH_MAX + 1) + b'"int"' + b"}" * (DEPTH_MAX + 1), "deeper than"),
    (b"[" * 100_000, "deeper than"),
]


@pytest.mark.parametrize(("data", "words"), INVALID, ids=[row[1] for row in INVALID])
def test_a_definition_that_is_none_is_refused_with_what_is_wrong(data: bytes, words: str) -> None:
    with pytest.raises(InvalidSchema, match=words.replace("[", r"\[")):
        parse_avro(data)


def test_names_are_found_in_their_namespace() -> None:
    inner = {"type": "record", "name": "I", "fields": []}
    parse_avro(json.dumps(record(("a", inner), ("b", "I"), ("c", "n.I"), namespace="n")).encode())
    parse_avro(json.dumps(record(("a", inner), ("b", "n.I"), name="n.R")).encode())
    with pytest.raises(InvalidSchema, match=r"'m\.I'"):
        parse_avro(json.dumps(record(("a", inner), ("b", "m.I"), namespace="n")).encode())


def test_a_comparison_without_end_is_given_up() -> None:
    few = [record(name=f"R{index}") for index in range(100)]
    assert judged(few, few[::-1]) == ""
    many = [record(name=f"R{index}") for index in range(int((2 * COMPARISONS_MAX) ** 0.5) + 2)]
    with pytest.raises(InvalidSchema, match=f"more than {COMPARISONS_MAX} steps"):
        judged(many, many[::-1])
