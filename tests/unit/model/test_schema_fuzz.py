"""Definitions from outside: whatever is sent, it is judged or refused, never anything else."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsarish.model.avro import parse_avro
from pulsarish.model.avro_resolution import mismatch
from pulsarish.model.errors import IncompatibleSchema, InvalidSchema
from pulsarish.model.policy_words import SchemaStrategy
from pulsarish.model.schema import Schema, SchemaType, VersionedSchema, fingerprint
from pulsarish.model.schema_compatibility import check_consumer, check_new, check_valid

WORDS = [
    "type",
    "name",
    "fields",
    "items",
    "values",
    "symbols",
    "size",
    "default",
    "aliases",
    "namespace",
    "doc",
]
KINDS = [
    "record",
    "enum",
    "fixed",
    "array",
    "map",
    "null",
    "int",
    "long",
    "string",
    "bytes",
    "R",
    "E",
    "error",
    "",
]
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from(KINDS), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
        st.fixed_dictionaries(
            {"type": st.just("record"), "name": st.sampled_from(["R", "S"])},
            optional={
                "fields": st.lists(
                    st.fixed_dictionaries(
                        {"name": st.sampled_from("ab"), "type": inner}, optional={"default": inner}
                    )
                )
            },
        ),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["array", "map"]), "items": inner, "values": inner}
        ),
    ),
    max_leaves=12,
)
definitions = st.one_of(
    st.binary(max_size=30), values.map(lambda value: json.dumps(value).encode())
)
schemas = st.builds(
    Schema,
    st.sampled_from(list(SchemaType)),
    definitions,
    st.just("n"),
    st.dictionaries(
        st.sampled_from(["key.schema.type", "value.schema.type", "key.schema.properties"]),
        st.text(max_size=8),
    ),
)


@given(schemas)
def test_a_schema_is_valid_or_refused(schema: Schema) -> None:
    assert fingerprint(schema) == fingerprint(schema)
    try:
        check_valid(schema)
    except InvalidSchema:
        return


def parsed(definition: bytes) -> Any:
    try:
        return parse_avro(definition)
    except InvalidSchema:
        return None


@given(values, values)
def test_what_is_valid_reads_itself_and_is_compared_with_anything(one: Any, other: Any) -> None:
    types = [parsed(json.dumps(each).encode()) for each in (one, other)]
    for each in types:
        assert each is None or mismatch(each, each) == ""
    if None not in types:
        _ = mismatch(types[0], types[1])


@given(st.lists(schemas, max_size=3), schemas, st.sampled_from(get_args(SchemaStrategy)))
def test_a_judgement_is_one_of_the_two_errors_or_none(
    there: list[Schema], new: Schema, strategy: SchemaStrategy
) -> None:
    versions = [VersionedSchema(number, schema) for number, schema in enumerate(there)]
    for check in (check_new, check_consumer):
        try:
            check(strategy, versions, new)
        except (IncompatibleSchema, InvalidSchema):
            continue


def nested(depth: int) -> Schema:
    return Schema(SchemaType.AVRO, b'{"type": "array", "items": ' * depth + b'"int"' + b"}" * depth)


def test_nesting_that_python_cannot_follow_is_refused() -> None:
    check_valid(nested(90))
    for depth in (500, 950, 5_000):
        assert fingerprint(nested(depth)) == fingerprint(nested(depth))
        with pytest.raises(InvalidSchema, match="deeper than"):
            check_valid(nested(depth))
