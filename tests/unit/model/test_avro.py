"""Avro definitions: what is one, and what is refused with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pulsarish.model.avro import DEPTH_MAX, parse_avro
from pulsarish.model.errors import InvalidSchema


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """Fields are (name, type) or (name, type, default)."""
    listed = [
        {"name": each[0], "type": each[1]} | ({"default": each[2]} if len(each) > 2 else {})
        for each in fields
    ]
    return {"type": "record", "name": name, "fields": listed, **more}


INVALID: list[tuple[bytes, str]] = [
    (b"", "is not JSON"),
    (b"\xff", "is not JSON"),
    (b'"strng"', "'strng' is neither Avro's own nor defined"),
    (b"17", "an Avro type is a name, a list, or an object"),
    (b'{"type": "record", "fields": []}', "needs a name"),
    (b'{"type": "record", "name": "1x", "fields": []}', "needs a name of letters"),
    (b'{"type": "record", "name": "R"}', "needs a list of fields"),
    (b'{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "needs a name and a type"),
    (
        (
            b'{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": '
            b'"a", "type": "int"}]}'
        ),
        "the field a twice",
    ),
    (
        (
            b'[{"type": "fixed", "name": "F", "size": 1}, {"type": "enum", "name": "F", '
            b'"symbols": ["A"]}]'
        ),
        "F is defined twice",
    ),
    (b'{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "symbols, each once"),
    (b'{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', "is none of its symbols"),
    (b'{"type": "fixed", "name": "F", "size": "4"}', "needs a size in bytes"),
    (b'{"type": "array"}', "needs items"),
    (b'["int", "int"]', "holds int twice"),
    (b'["int", ["string"]]', "holds a union"),
    (
        b'{"type": "array", "items":' * (DEPTH_MAX + 1) + b'"int"' + b"}" * (DEPTH_MAX + 1),
        "deeper than",
    ),
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
