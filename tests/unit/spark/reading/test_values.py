"""Values decoded by a topic's schema: the columns that it makes, and that what was written comes
back as it was.
"""

from __future__ import annotations

import io
import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import types

from pulsarish.model.errors import InvalidArgument
from pulsarish.model.schema import SchemaType
from pulsarish.spark.options import read_options
from pulsarish.spark.reading.arrow import binary_array
from pulsarish.spark.reading.schemas import TopicSchema, check_columns, schema_ddl, topic_schema
from pulsarish.spark.reading.unpack import Rows
from pulsarish.spark.reading.values import ValueDecoder
from pulsarish.spark.writing.records import encoder, schema_of

TOPIC = "persistent://public/default/t"


class View:
    """A topic with one version of a schema, as ``admin.schemas``."""

    def __init__(self, kind: str, definition: Any) -> None:
        self._rows = [{"version": 0, "type": kind, "data": json.dumps(definition)}]

    @property
    def admin(self) -> View:
        return self

    @property
    def schemas(self) -> View:
        return self

    def list(self, _topic: str) -> list[dict[str, Any]]:
        return self._rows


def spec_of(kind: str, definition: Any) -> TopicSchema:
    return topic_schema(
        View(kind, definition),
        read_options({"topic": "t", "valueSchema": "topic"}, streaming=False),
        [TOPIC],
    )


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def decoded(
    spec: TopicSchema, arrow: dict[str, pa.DataType], *values: bytes
) -> dict[str, list[Any]]:
    rows = Rows(
        counts=[1] * len(values),
        ledgers=[1] * len(values),
        entries=list(range(len(values))),
        count=len(values),
    )
    rows.schema_versions = [b""] * len(values)
    raw = binary_array(np.array([len(value) for value in values]), [b"".join(values)], [])
    found = ValueDecoder(TOPIC, spec, pa.schema(list(arrow.items()))).decode(rows, raw).columns
    return {name: found[name].to_pylist() for name in arrow}


WHEN = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
ROW = types.StructType(
    [
        types.StructField("amount", types.DecimalType(20, 4)),
        types.StructField("data", types.BinaryType()),
        types.StructField("number", types.LongType()),
        types.StructField("share", types.DoubleType()),
        types.StructField(
            "inner",
            types.StructType([types.StructField("datas", types.ArrayType(types.BinaryType()))]),
        ),
        types.StructField("amounts", types.MapType(types.StringType(), types.DecimalType(20, 4))),
    ]
)
VALUE = {
    "amount": Decimal("1234567890123456.7891"),
    "data": b"\x00\xff",
    "number": 2**53 + 1,
    "share": 0.1,
    "inner": {"datas": [b"\x01", None]},
    "amounts": [("a", Decimal("0.1000")), ("b", None)],
}
ARROW = {
    "amount": pa.decimal128(20, 4),
    "data": pa.binary(),
    "number": pa.int64(),
    "share": pa.float64(),
    "inner": pa.struct([("datas", pa.list_(pa.binary()))]),
    "amounts": pa.map_(pa.string(), pa.decimal128(20, 4)),
}


@pytest.mark.parametrize("kind", [SchemaType.JSON, SchemaType.AVRO])
def test_what_was_written_by_columns_is_read_as_the_same_columns(kind: SchemaType) -> None:
    schema = schema_of(ROW, kind)
    spec = spec_of(kind.name, json.loads(schema.data))
    assert spec.types["amount"] == "decimal(20,4)"
    assert spec.types["inner"] == "struct<`datas`:array<binary>>"
    found = decoded(spec, ARROW, encoder(ROW, schema)(VALUE))
    # Bytes are the text that stands in JSON, which is not told to be Base64.
    texts = (
        {"data": b"AP8=", "inner": {"datas": [b"AQ==", None]}} if kind is SchemaType.JSON else {}
    )
    assert {name: values[0] for name, values in found.items()} == VALUE | texts


def test_times_of_avro() -> None:
    definition = record(
        at={"type": "long", "logicalType": "timestamp-micros"},
        here={"type": "long", "logicalType": "local-timestamp-micros"},
        day={"type": "int", "logicalType": "date"},
        ms={"type": "int", "logicalType": "time-millis"},
        us=["null", {"type": "long", "logicalType": "time-micros"}],
        id={"type": "string", "logicalType": "uuid"},
    )
    value = {
        "at": WHEN,
        "here": WHEN.replace(tzinfo=None),
        "day": date(2026, 1, 2),
        "ms": time(0, 0, 1),
        "us": time(0, 0, 2),
    }
    value["id"] = uuid.UUID(int=7)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(definition), value)
    spec = spec_of("AVRO", definition)
    assert list(spec.types.values()) == [
        "timestamp",
        "timestamp_ntz",
        "date",
        "int",
        "bigint",
        "string",
    ]
    arrow = (
        pa.timestamp("us", tz="UTC"),
        pa.timestamp("us"),
        pa.date32(),
        pa.int32(),
        pa.int64(),
        pa.string(),
    )
    found = decoded(
        spec, dict(zip(definition_names(definition), arrow, strict=True)), out.getvalue()
    )
    assert [values[0] for values in found.values()] == [
        *list(value.values())[:3],
        1_000,
        2_000_000,
        str(uuid.UUID(int=7)),
    ]


def definition_names(definition: dict[str, Any]) -> list[str]:
    return [field["name"] for field in definition["fields"]]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"n": 1.5}', "1.5"),
        (b'{"n": 1, "amounts": {"a": 0.12345}}', "column 'amounts'"),
        (b'{"n": 1, "amount": 0.12345}', "column 'amount'"),
        (b"[1]", "no object"),
    ],
)
def test_json_that_would_lose_something_as_a_column_does_not_decode(value: bytes, why: str) -> None:
    amount = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 4}
    spec = spec_of(
        "JSON", record(n="long", amount=["null", amount], amounts={"type": "map", "values": amount})
    )
    kind = pa.decimal128(10, 4)
    with pytest.raises(InvalidArgument, match=why):
        decoded(
            spec, {"n": pa.int64(), "amount": kind, "amounts": pa.map_(pa.string(), kind)}, value
        )


def test_fields_do_not_take_the_names_of_fixed_columns_nor_of_each_other() -> None:
    spec = spec_of("JSON", record(Key="string", key="string", value_key="string", Topic="int"))
    assert len({name.lower() for name in spec.types}) == 4
    assert spec.fields["value_key"] == "value_key"
    assert spec.fields["value_Topic"] == "Topic"
    assert "`value_Topic` int" in schema_ddl(spec)


def test_a_column_that_a_read_does_not_have_is_named() -> None:
    check_columns(["value", "message_id"], None)
    with pytest.raises(
        InvalidArgument,
        match=r"there is no column 'Key'; did you mean 'key'\? The columns are value, key, ",
    ):
        check_columns(["value", "Key"], None)
    spec = spec_of("JSON", record(item="string"))
    check_columns(["item", "_corrupt", "key"], spec)
    with pytest.raises(
        InvalidArgument,
        match=r"there is no column 'count'.* The columns are item, _corrupt, value, key, ",
    ):
        check_columns(["item", "count"], spec)
