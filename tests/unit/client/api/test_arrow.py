"""Messages as Arrow tables and pandas frames."""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import pyarrow as pa
import pytest

import pulsarish
from pulsarish.client.arrow.message_table import message_table
from pulsarish.client.arrow.value_columns import FIXED, value_columns
from pulsarish.client.enums import InitialPosition
from pulsarish.client.message_id import MessageId
from pulsarish.client.messages.message import Entry, Message, OpenedEntry
from pulsarish.client.schemas.auto_consume import AutoConsumeSchema
from pulsarish.client.schemas.avro import AvroSchema
from pulsarish.client.schemas.key_value import KeyValueSchema
from pulsarish.client.schemas.records import Integer, Record, String
from pulsarish.client.schemas.schema import BytesSchema, JsonSchema, Schema, StringSchema
from pulsarish.model import schema as model
from pulsarish.model.schema import SchemaType
from pulsarish.spark.columns import COLUMNS
from pulsarish.wire._pb.message_pb2 import MessageMetadata
from tests.support.client_world import Cast, play


class Grade(Enum):
    GOOD = 1
    BAD = 2


@dataclass
class Order:
    number: int
    price: float
    notes: list[str]
    counts: dict[str, int]
    grade: Grade
    code: bytes
    key: str | None = None


ORDER = Order(1, 2.5, ["a"], {"x": 1}, Grade.BAD, b"\xff", "k")


class Flight(Record):
    carrier = String(required=True)
    delay = Integer()


def opened(data: bytes, schema: Schema, index: int = -1, **metadata: Any) -> Message:
    held = MessageMetadata(producer_name="p", **metadata)
    entry = OpenedEntry(
        Entry(3, 4, 0, b""),
        held,
        data,
        0,
        "persistent://public/default/t-partition-2",
        2,
        schema.decode,
    )
    return Message(entry, index, 0, 0, len(data))


def test_fixed_columns_are_those_of_the_spark_source() -> None:
    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
        "struct<ledger:bigint,entry:bigint,partition:int,batch_index:int>": pa.struct(
            [
                ("ledger", pa.int64()),
                ("entry", pa.int64()),
                ("partition", pa.int32()),
                ("batch_index", pa.int32()),
            ]
        ),
    }
    of_spark = {name: types[kind] for name, kind in COLUMNS.items() if name != "value"}
    assert {name: kind for name, kind in FIXED.items() if name != "_corrupt"} == of_spark


def test_a_row_says_all_of_a_message() -> None:
    schema = BytesSchema()
    message = opened(
        b"x",
        schema,
        partition_key="k",
        publish_time=5,
        event_time=7,
        sequence_id=9,
        properties=[{"key": "a", "value": "b"}],
    )
    (row,) = message_table([message], value_columns(schema, None)).to_pylist()
    time = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert row == {
        "value": b"x",
        "_corrupt": None,
        "key": "k",
        "properties": [("a", "b")],
        "topic": "persistent://public/default/t",
        "partition": 2,
        "message_id": {"ledger": 3, "entry": 4, "partition": 2, "batch_index": -1},
        "publish_time": time + dt.timedelta(milliseconds=5),
        "event_time": time + dt.timedelta(milliseconds=7),
        "sequence_id": 9,
        "producer_name": "p",
    }


def test_numbers_that_no_column_holds_do_not_lose_a_message() -> None:
    schema = BytesSchema()
    most = 2**64 - 1
    message = opened(b"x", schema, publish_time=most, event_time=most, sequence_id=most)
    table = message_table([message], value_columns(schema, None))
    assert table.column("sequence_id").to_pylist() == [2**63 - 1]


@pytest.mark.parametrize("make", [JsonSchema, AvroSchema])
def test_fields_are_columns(make: Any) -> None:
    schema = make(Order)
    columns = value_columns(schema, None)
    message = opened(schema.encode(ORDER), schema, partition_key="other")
    table = message_table([message], columns)
    assert table.schema == columns.schema()
    row = table.to_pylist()[0]
    assert {name: row[name] for name in columns.types} == {
        "number": 1,
        "price": 2.5,
        "notes": ["a"],
        "counts": [("x", 1)],
        "grade": "BAD",
        "code": b"\xff",
        "value_key": "k",
    }
    assert row["key"] == "other"
    assert message_table([], columns).schema == columns.schema()


@pytest.mark.parametrize("make", [JsonSchema, AvroSchema])
def test_records_are_columns(make: Any) -> None:
    schema = make(Flight)
    columns = value_columns(schema, None)
    assert columns.types == {"carrier": pa.string(), "delay": pa.int32()}
    message = opened(schema.encode(Flight(carrier="UA")), schema)
    row = message_table([message], columns).to_pylist()[0]
    assert (row["carrier"], row["delay"]) == ("UA", None)


def test_types_of_avro_keep_their_values() -> None:
    logical = {
        "day": {"type": "int", "logicalType": "date"},
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "noon": {"type": "int", "logicalType": "time-millis"},
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "id": {"type": "string", "logicalType": "uuid"},
        "inner": {"type": "record", "name": "I", "fields": [{"name": "n", "type": "long"}]},
    }
    definition = {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in logical.items()],
    }
    values = {
        "day": dt.date(2020, 1, 2),
        "at": dt.datetime(2020, 1, 2, 3, tzinfo=dt.UTC),
        "noon": dt.time(12),
        "price": Decimal("1.25"),
        "id": "12345678-1234-5678-1234-567812345678",
        "inner": {"n": 5},
    }
    schema = AvroSchema(schema_definition=definition)
    row = message_table(
        [opened(schema.encode(values), schema)], value_columns(schema, None)
    ).to_pylist()[0]
    assert {name: row[name] for name in values} == values


def test_what_does_not_decode_keeps_its_row_and_payload() -> None:
    schema = JsonSchema(Order)
    good = schema.encode(ORDER)
    null = opened(b"", schema, null_value=True)
    messages = [opened(good, schema), opened(b"{", schema), null]
    table = message_table(messages, value_columns(schema, None))
    assert table.column("_corrupt").to_pylist() == [None, b"{", None]
    assert table.column("number").to_pylist() == [1, None, None]


def test_a_value_that_one_column_cannot_hold_is_null_in_all() -> None:
    written = model.Schema(
        SchemaType.JSON,
        b'{"type":"record","name":"R","fields":[{"name":"a","type":"int"},'
        b'{"name":"b","type":"string"}]}',
    )
    schema = AutoConsumeSchema()
    decode = schema.reader_for(written)

    class Decoding(AutoConsumeSchema):
        def decode(self, data: bytes) -> Any:
            return decode(data)

    payloads = [b'{"a":1,"b":"x"}', b'{"a":"?","b":"y"}', b'{"a":2}', b"[1]"]
    messages = [opened(data, Decoding()) for data in payloads]
    table = message_table(messages, value_columns(schema, written))
    assert table.column("a").to_pylist() == [1, None, 2, None]
    assert table.column("b").to_pylist() == ["x", None, None, None]
    assert table.column("_corrupt").to_pylist() == [None, payloads[1], None, payloads[3]]


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        (BytesSchema(), pa.binary()),
        (StringSchema(), pa.string()),
        (JsonSchema(), pa.string()),
    ],
)
def test_other_values_are_one_column(schema: Schema, kind: Any) -> None:
    columns = value_columns(schema, None)
    assert columns.types == {"value": kind}
    value = message_table([opened(b"5", schema)], columns).column("value").to_pylist()[0]
    assert value == (b"5" if kind == pa.binary() else "5")


def test_a_number_by_the_topics_schema() -> None:
    columns = value_columns(AutoConsumeSchema(), model.Schema(SchemaType.INT32))
    assert columns.types == {"value": pa.int32()}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (KeyValueSchema(StringSchema(), StringSchema()), "KEY_VALUE cannot become columns"),
        (
            AvroSchema(
                schema_definition={
                    "type": "record",
                    "name": "R",
                    "fields": [{"name": "a", "type": ["int", "string"]}],
                }
            ),
            "field 'a': a union of 2 types",
        ),
        (
            AvroSchema(
                schema_definition={
                    "type": "record",
                    "name": "R",
                    "fields": [{"name": "next", "type": ["null", "R"]}],
                }
            ),
            "field 'next': a type that holds itself",
        ),
    ],
)
def test_values_that_are_no_columns_are_refused(schema: Schema, words: str) -> None:
    with pytest.raises(pulsarish.OperationNotSupported, match=words):
        value_columns(schema, None)


def test_fetching_acknowledges_nothing_and_the_batch_can_be_acknowledged() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t")
        consumer = await client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
        for number in range(5):
            await producer.send(b"%d" % number)
        batch = await consumer.fetch_arrow(max_rows=3)
        assert batch.table.column("value").to_pylist() == [b"0", b"1", b"2"]
        assert len(batch) == 3
        await consumer.acknowledge(batch.messages)
        assert len(await consumer.fetch_arrow(max_bytes=1)) == 1
        rest = await consumer.fetch_arrow(timeout_millis=100)
        assert rest.to_pandas()["value"].tolist() == [b"4"]
        await consumer.close()
        again = await client.subscribe("t", "s")
        batch = await again.fetch_arrow(timeout_millis=100)
        assert batch.table.column("value").to_pylist() == [b"3", b"4"]
        assert len(await again.fetch_arrow(timeout_millis=0)) == 0

    play(scenario)


def test_a_reader_reads_to_the_end_and_goes_on_from_there() -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t")
        reader = await client.create_reader("t", MessageId.earliest)
        assert (await reader.to_arrow()).num_rows == 0
        for number in range(5):
            await producer.send(b"%d" % number)
        assert (await reader.to_arrow(max_rows=2)).num_rows == 2
        frame = await reader.to_pandas()
        assert frame["value"].tolist() == [b"2", b"3", b"4"]
        assert frame["partition"].dtype == "Int32"

    play(scenario)


def test_a_reader_loses_nothing_by_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        producer = await client.create_producer("t")
        reader = await client.create_reader("t", MessageId.earliest)
        await producer.send(b"1")
        await reader.read_next(1_000)
        await producer.send(b"2")
        asked = reader._consuming.has_message_available

        async def fail_later() -> bool:
            if reader._inbox.taken_count == 2:
                raise pulsarish.Timeout("no answer")
            return await asked()

        with monkeypatch.context() as patched:
            patched.setattr(reader._consuming, "has_message_available", fail_later)
            assert (await reader.to_arrow()).column("value").to_pylist() == [b"2"]
            with pytest.raises(pulsarish.Timeout):
                await reader.to_arrow()
        assert (await reader.to_arrow()).num_rows == 0

    play(scenario, seeds=1)


@pytest.mark.parametrize("module", ["pyarrow", "pandas"])
def test_without_the_library_the_error_names_the_extra(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cast: Cast) -> None:
        client = cast.client()
        reader = await client.create_reader("t", MessageId.earliest)
        await (await client.create_producer("t")).send(b"there")
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, module, None)
            with pytest.raises(
                pulsarish.OperationNotSupported, match=f"needs {module}, of the extra 'arrow': "
            ):
                await reader.to_pandas()
        assert (await reader.read_next(1_000)).data() == b"there", "nothing was taken"

    play(scenario, seeds=1)


def test_a_listener_keeps_the_messages() -> None:
    async def scenario(cast: Cast) -> None:
        consumer = await cast.client().subscribe("t", "s", message_listener=lambda *_: None)
        with pytest.raises(pulsarish.InvalidConfiguration, match="go to the listener"):
            await consumer.fetch_arrow()

    play(scenario, seeds=1)
