"""The pure parts of writing: numbers and epochs, routing that time cannot change, batches, pins of
a topic's partitions.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types

from pulsarish.client.messages.entry_encoder import NO_EXTRAS, Extras
from pulsarish.client.producer.routing import HashingScheme, hash_key
from pulsarish.model.errors import InvalidArgument
from pulsarish.model.schema import Schema, SchemaType
from pulsarish.spark.options import OptionError
from pulsarish.spark.writing.batches import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, Filling
from pulsarish.spark.writing.numbering import (
    ROWS_MAX,
    VERSION_MAX,
    Attempt,
    attempt_epoch,
    check_mark,
    sequence_id,
)
from pulsarish.spark.writing.options import Deduplication, write_options
from pulsarish.spark.writing.plan import Plan, plan_columns
from pulsarish.spark.writing.records import check_fields, encoder
from pulsarish.spark.writing.routing import KEYLESS_RUN, Routing
from pulsarish.spark.writing.rows import Row, in_content_order, rows_of
from pulsarish.spark.writing.targets import Pin, Target
from pulsarish.spark.writing.writers import make_job
from pulsarish.wire.entry import EXPIRES_PROPERTY, PRIORITY_PROPERTY

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000


def test_sequence_ids_grow_with_the_version_then_with_the_row() -> None:
    numbers = [
        sequence_id(version, row)
        for version, row in ((0, 0), (0, 1), (0, ROWS_MAX - 1), (1, 0), (VERSION_MAX, ROWS_MAX - 1))
    ]
    assert all(before < after for before, after in pairwise(numbers))
    assert numbers[-1] < 1 << 63
    with pytest.raises(InvalidArgument, match="more than 4294967296 rows"):
        sequence_id(0, ROWS_MAX)
    with pytest.raises(InvalidArgument, match="version -1"):
        sequence_id(-1, 0)


@given(
    st.integers(0, 30 * 365 * DAY_MS),
    st.integers(1, DAY_MS),
    st.integers(0, 30_000),
    st.integers(0, 30_000),
)
def test_a_later_plan_has_the_higher_epoch_whatever_its_attempts(
    since_ms: int, later_ms: int, task: int, other: int
) -> None:
    early, late = 1_577_836_800_000 + since_ms, 1_577_836_800_000 + since_ms + later_ms
    assert attempt_epoch(early, task) < attempt_epoch(late, other) < 1 << 63


def test_a_later_attempt_of_a_plan_has_the_higher_epoch_with_room_to_open_again() -> None:
    assert attempt_epoch(NOW_MS, 6) + 200 < attempt_epoch(NOW_MS, 7)


def test_a_mark_of_a_later_version_is_refused() -> None:
    attempt = Attempt("query", 5, 2, 1)
    for mark in (-1, sequence_id(4, 100), sequence_id(5, 0), sequence_id(5, 1_000)):
        check_mark(mark, attempt, "t")
    with pytest.raises(
        InvalidArgument,
        match=r"rows of 'query-2' up to version 6, and this is version 5.*another exactlyOnceName",
    ):
        check_mark(sequence_id(6, 0), attempt, "t")


def test_keys_are_routed_as_by_every_producer_and_others_in_runs() -> None:
    routing = Routing("t", 4, spark_partition=1)
    assert all(
        routing.choose(f"k{n}", n, None) == hash_key(HashingScheme.BoostHash, f"k{n}", 4)
        for n in range(100)
    )
    chosen = [routing.choose(None, row, None) for row in range(6 * KEYLESS_RUN)]
    assert [chosen[run * KEYLESS_RUN] for run in range(6)] == [1, 2, 3, 0, 1, 2]
    assert all(
        len(set(chosen[run * KEYLESS_RUN : (run + 1) * KEYLESS_RUN])) == 1 for run in range(6)
    )
    assert (routing.choose("k", 0, 3), routing.choose("k1", 0, -1)) == (
        3,
        hash_key(HashingScheme.BoostHash, "k1", 4),
    )
    with pytest.raises(
        InvalidArgument, match="column 'partition' is 4, and topic t has 4 partitions"
    ):
        routing.choose(None, 0, 4)
    assert Routing("t", 0, 7).choose("k", 0, None) == -1


def test_batches_end_by_number_and_size_and_keep_numbers_and_extras() -> None:
    sent: list[tuple[int, int, int, Extras]] = []
    filling = Filling()
    rows = [(b"x" * 100, None)] * 1_500 + [(b"y" * 70_000, Extras(partition_key="k"))] * 3
    for number, (payload, extras) in enumerate(rows):
        if (made := filling.add(payload, extras, 10 * number)) is not None:
            assert len(made[0]) <= BATCH_BYTES_MAX
            sent.append(made[1:])
    last = filling.take()
    assert last is not None
    assert filling.take() is None
    assert sent[0] == (BATCH_MESSAGES_MAX, 0, 9_990, NO_EXTRAS)
    assert sum(count for count, *_ in sent) + last[1] == 1_503


@pytest.mark.parametrize(
    ("name", "value"), [(EXPIRES_PROPERTY, "1767225600000"), (PRIORITY_PROPERTY, "7")]
)
def test_a_row_with_what_brokers_read_is_a_batch_of_its_own(name: str, value: str) -> None:
    own = {name: value, "a": "b"}
    rows = [None, None, Extras(properties=own), Extras(properties=own), None]
    filling = Filling()
    made = [filling.add(b"x", extras, number) for number, extras in enumerate(rows)]
    sent = [each[1:] for each in [*made, filling.take()] if each is not None]
    of_entry = Extras(properties={name: value})
    assert sent == [
        (2, 0, 1, NO_EXTRAS),
        (1, 2, 2, of_entry),
        (1, 3, 3, of_entry),
        (1, 4, 4, NO_EXTRAS),
    ]


def struct(**fields: Any) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in fields.items()])


TEXT, BYTES = types.StringType(), types.BinaryType()


def test_columns_have_their_places_and_what_only_a_broker_knows_is_left_out() -> None:
    read = struct(
        value=BYTES,
        key=TEXT,
        properties=types.MapType(TEXT, TEXT),
        topic=TEXT,
        partition=types.IntegerType(),
    )
    read = types.StructType(
        [
            *read.fields,
            *struct(message_id=TEXT, publish_time=types.TimestampType(), sequence_id=TEXT).fields,
        ]
    )
    assert plan_columns(read) == Plan(
        value=0, fields=(), record=None, key=1, topic=3, partition=4, event_time=-1, properties=2
    )
    record = plan_columns(struct(key=TEXT, a=TEXT, b=types.LongType()))
    assert (record.value, record.fields, record.record.names) == (-1, (1, 2), ["a", "b"])
    assert plan_columns(struct(value=struct(a=TEXT))).record.names == ["a"]


def test_rows_of_slices_nulls_and_large_types() -> None:
    plan = plan_columns(struct(value=TEXT, key=BYTES))
    for kind in (pa.string(), pa.large_string()):
        batch = pa.record_batch(
            {
                "value": pa.array(["a", None, "", "dd", "e"], kind),
                "key": pa.array([b"k", None, b"", b"x", b"y"]),
            }
        )
        found = [
            (payload, extras, key)
            for payload, extras, key, _, _ in rows_of(batch.slice(1, 3), plan, None)
        ]
        assert found == [
            (b"", Extras(is_null=True), None),
            (b"", Extras(partition_key=""), ""),
            (b"dd", Extras(partition_key="x"), "x"),
        ]
    assert list(rows_of(batch.slice(0, 0), plan, None)) == []


@given(st.permutations([(b"b", None), (b"a", "k"), (b"a", None), (b"", "k"), (b"a", None)]))
def test_content_order_is_the_same_however_rows_came(
    contents: list[tuple[bytes, str | None]],
) -> None:
    rows: list[Row] = [
        (payload, Extras(partition_key=key) if key else None, key, None, None)
        for payload, key in contents
    ]
    assert [(row[0], row[2]) for row in in_content_order(rows)] == [
        (b"a", None),
        (b"a", None),
        (b"b", None),
        (b"", "k"),
        (b"a", "k"),
    ]


def test_a_pin_routes_a_repeated_version_as_before_the_topic_grew() -> None:
    pin = Pin.parse(Pin(2).grown(4, version=7).text())
    assert [pin.routed(version) for version in (6, 7, 8, 9)] == [2, 2, 4, 4]
    again = pin.grown(5, version=8)
    assert [again.routed(version) for version in (8, 9)] == [4, 5]
    assert [Target("t", 5, again).routed(version) for version in (8, 9)] == [4, 5]
    with pytest.raises(
        InvalidArgument, match="has 3 partitions and is written to 4: it was made again"
    ):
        Target("t", 3, again).routed(8)


def test_streams_need_deduplication_and_batches_by_name_do() -> None:
    def chosen(streaming: bool, **options: str) -> Deduplication:
        return write_options(options, streaming=streaming).deduplication

    assert chosen(True, checkpointLocation="/c", topic="t") is Deduplication.REQUIRE
    assert chosen(False, topic="t") is Deduplication.AUTO
    assert chosen(False, topic="t", exactlyOnceName="n") is Deduplication.REQUIRE
    assert chosen(True, topic="t", deduplication="None") is Deduplication.NONE
    with pytest.raises(OptionError, match="'deduplication' = 'none': exactlyOnceName needs it"):
        chosen(True, deduplication="none", exactlyOnceName="n")
    with pytest.raises(OptionError, match="'exactlyOnceVersion' = 3: a streaming query counts"):
        chosen(True, exactlyOnceVersion="3")
    with pytest.raises(
        OptionError, match="'createTopic' = '-1': it must be the number of partitions"
    ):
        chosen(False, createTopic="-1")


def test_a_stream_that_replaces_its_result_is_refused() -> None:
    with pytest.raises(
        InvalidArgument, match="outputMode 'complete' would replace what is in the topic"
    ):
        make_job({"topic": "t"}, struct(value=TEXT), streaming=True, overwrite=True)


def topic_schema(kind: SchemaType, **fields: Any) -> Schema:
    definition = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": of} for name, of in fields.items()],
    }
    return Schema(kind, json.dumps(definition).encode(), kind.name)


@pytest.mark.parametrize("kind", [SchemaType.JSON, SchemaType.AVRO])
def test_columns_that_are_not_those_of_the_topics_schema_are_refused(kind: SchemaType) -> None:
    schema = topic_schema(kind, a="string", b=["null", "string"])
    check_fields(struct(a=TEXT), schema, "t")
    with pytest.raises(
        InvalidArgument, match="column 'c' is no field of the schema of topic t, which has a, b"
    ):
        check_fields(struct(a=TEXT, c=TEXT), schema, "t")
    with pytest.raises(
        InvalidArgument,
        match=(
            "field 'a' of the schema of topic t has no default, and there is no column of that name"
        ),
    ):
        check_fields(struct(b=TEXT), schema, "t")


def test_avro_drops_no_field_of_a_struct_within() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "string"}]}
    encode = encoder(struct(i=struct(x=TEXT, y=TEXT)), topic_schema(SchemaType.AVRO, i=inner))
    with pytest.raises(InvalidArgument, match="a record does not fit the Avro schema"):
        encode({"i": {"x": "1", "y": "2"}})


def test_times_in_json_have_the_unit_of_the_topics_schema() -> None:
    stamp = types.TimestampType()
    ms = {"type": "long", "logicalType": "timestamp-millis"}
    inner = {"type": "record", "name": "I", "fields": [{"name": "at", "type": ms}]}
    schema = topic_schema(
        SchemaType.JSON,
        ms=["null", ms],
        us={"type": "long", "logicalType": "timestamp-micros"},
        i=inner,
    )
    when = datetime(1970, 1, 1, 0, 0, 1, 5_000, tzinfo=UTC)
    found = encoder(struct(ms=stamp, us=stamp, i=struct(at=stamp)), schema)(
        {"ms": when, "us": when, "i": {"at": when}}
    )
    assert json.loads(found) == {"ms": 1_005, "us": 1_005_000, "i": {"at": 1_005}}
