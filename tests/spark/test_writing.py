"""Writing to topics against a real cluster: what becomes of columns, what is refused, and that
nothing is written twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

import pulsarish
import pulsarish.spark
from pulsarish.admin import Admin
from pulsarish.client.messages.message import Message
from pulsarish.client.producer.routing import HashingScheme, hash_key
from pulsarish.local_cluster.processes import Cluster
from pulsarish.model.errors import ProducerFenced
from pulsarish.spark.writing.numbering import Attempt
from pulsarish.spark.writing.task import Task
from pulsarish.spark.writing.writers import make_job


class Sink:
    """Topics to write to, read back by a client."""

    def __init__(self, cluster: Cluster, client: pulsarish.Client) -> None:
        urls = cluster.service_urls()
        self.urls = {"service.url": urls["pulsarish"], "admin.url": urls["http"]}
        self.admin = Admin(urls["http"])
        self.client = client

    def write(
        self, frame: DataFrame, topic: str | None = None, mode: str = "append", **options: str
    ) -> None:
        named = {"topic": topic} if topic is not None else {}
        frame.write.format("pulsarish").mode(mode).options(**self.urls, **named, **options).save()

    def topic(self, name: str, *, partitions: int = 0) -> str:
        """A topic that drops duplicates."""
        self.admin.topics.create(name, partitions=partitions)
        self.admin.topics.set_policy(name, "deduplication", True)
        return name

    def messages(self, topic: str) -> list[Message]:
        found = []
        for name in self.client.get_topic_partitions(topic):
            reader = self.client.create_reader(name, pulsarish.MessageId.earliest)
            while reader.has_message_available():
                found.append(reader.read_next(timeout_millis=60_000))
            reader.close()
        return found

    def values(self, topic: str) -> list[bytes]:
        return [message.data() for message in self.messages(topic)]


@pytest.fixture(scope="module")
def sink(spark: SparkSession, cluster: Cluster) -> Iterator[Sink]:
    pulsarish.spark.register(spark)
    with pulsarish.Client(cluster.service_urls()["pulsarish"]) as client:
        yield Sink(cluster, client)


def test_every_column_of_a_message(spark: SparkSession, sink: Sink) -> None:
    at = datetime(2024, 5, 6, 7, 8, 9, 123_000, tzinfo=UTC)
    rows = [
        (bytearray(b"a"), "k", {"x": "1", "y": ""}, at),
        (bytearray(b""), None, None, None),
        (None, "gone", {}, None),
    ]
    frame = spark.createDataFrame(
        rows, "value binary, key string, properties map<string,string>, event_time timestamp"
    ).coalesce(1)
    sink.write(frame, "w-columns", createTopic="0")
    found = sink.messages("w-columns")
    assert [message.data() for message in found] == [b"a", b"", b""]
    assert [message.partition_key() for message in found] == ["k", "", "gone"]
    assert [message.properties() for message in found] == [{"x": "1", "y": ""}, {}, {}]
    assert [message.event_timestamp() for message in found] == [int(at.timestamp() * 1_000), 0, 0]


def test_keys_go_where_every_producer_sends_them_and_keep_their_order(
    spark: SparkSession, sink: Sink
) -> None:
    frame = (
        spark.range(5_000)
        .selectExpr("cast(id as string) value", "concat('key-', id % 37) key")
        .repartition(1)
    )
    sink.write(frame, "w-keys", createTopic="3", compression="zstd")
    by_key: dict[str, list[int]] = {}
    for partition in range(3):
        for message in sink.messages(f"w-keys-partition-{partition}"):
            assert hash_key(HashingScheme.BoostHash, message.partition_key(), 3) == partition
            by_key.setdefault(message.partition_key(), []).append(int(message.data()))
    assert sum(map(len, by_key.values())) == 5_000
    in_plan_order = [int(row.value) for row in frame.collect()]
    place = {number: index for index, number in enumerate(in_plan_order)}
    assert all(
        [place[number] for number in numbers] == sorted(place[number] for number in numbers)
        for numbers in by_key.values()
    )


def test_a_column_routes_to_topics_and_partitions(spark: SparkSession, sink: Sink) -> None:
    for name in ("w-red", "w-blue"):
        sink.admin.topics.create(name, partitions=2)
    frame = spark.range(8).selectExpr(
        "cast(id as string) value",
        "if(id % 2 = 0, 'w-red', 'w-blue') topic",
        "cast(id div 4 as int) partition",
    )
    sink.write(frame)
    found = {
        name: sorted(sink.values(name))
        for half in (0, 1)
        for name in (f"w-red-partition-{half}", f"w-blue-partition-{half}")
    }
    assert found == {
        "w-red-partition-0": [b"0", b"2"],
        "w-red-partition-1": [b"4", b"6"],
        "w-blue-partition-0": [b"1", b"3"],
        "w-blue-partition-1": [b"5", b"7"],
    }


def test_what_was_read_is_written_as_it_is(spark: SparkSession, sink: Sink) -> None:
    sink.write(
        spark.range(300).selectExpr("cast(id as string) value", "cast(id % 5 as string) key"),
        "w-from",
        createTopic="2",
    )
    sink.write(
        spark.read.format("pulsarish").options(**sink.urls, topic="w-from").load(),
        "w-to",
        createTopic="2",
    )
    for partition in range(2):
        before, after = (
            sink.messages(f"{name}-partition-{partition}") for name in ("w-from", "w-to")
        )
        assert sorted((each.partition_key(), each.data()) for each in before) == sorted(
            (each.partition_key(), each.data()) for each in after
        )


FIELDS = (
    "cast(id as int) number",
    "id / 4 share",
    "concat('n', id) name",
    "id = 1 flag",
    "array(id, null) list",
    "map('a', id) table",
    "named_struct('at', timestamp_millis(1500 * id), 'day', date'1970-01-03') inner",
    "cast(id as decimal(6, 2)) price",
)


@pytest.mark.parametrize("kind", ["json", "avro"])
def test_other_columns_are_a_record_of_the_topics_schema(
    spark: SparkSession, sink: Sink, kind: str
) -> None:
    topic = f"w-record-{kind}"
    frame = spark.range(3).coalesce(1).selectExpr(*FIELDS, "concat('k', id) key")
    sink.write(frame, topic, createTopic="0", valueSchema=kind)
    known = sink.admin.schemas.get(topic)
    assert known["type"] == kind.upper()
    found = sink.messages(topic)
    assert [message.partition_key() for message in found] == ["k0", "k1", "k2"]
    if kind == "json":
        assert json.loads(found[1].data()) == {
            "number": 1,
            "share": 0.25,
            "name": "n1",
            "flag": True,
            "list": [1, None],
            "table": {"a": 1},
            "inner": {"at": 1_500_000, "day": 2},
            "price": 1.0,
        }
    else:
        import io

        record: Any = fastavro.schemaless_reader(
            io.BytesIO(found[1].data()), fastavro.parse_schema(json.loads(known["data"])), None
        )
        assert (record["number"], record["name"], record["list"], record["table"]) == (
            1,
            "n1",
            [1, None],
            {"a": 1},
        )
        assert record["inner"]["at"] == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    # The same again by what the registry says, and something else not at all.
    sink.write(frame, topic, valueSchema="topic")
    assert [message.data() for message in sink.messages(topic)][3:] == [
        message.data() for message in found
    ]
    with pytest.raises(PySparkException, match="does not take the columns' schema"):
        sink.write(spark.range(1).selectExpr("concat('x', id) number"), topic, valueSchema=kind)
    assert len(sink.messages(topic)) == 6


REFUSED: list[tuple[str, dict[str, str], str]] = [
    ("'x' value, 1 more", {}, "columns 'more' stand beside 'value'"),
    ("1 value", {}, "column 'value' is int: it must be binary, string or a struct"),
    ("'x' value, 1 key", {}, "column 'key' is int: it must be string or binary"),
    ("'x' value, 'x' event_time", {}, "column 'event_time' is string: it must be timestamp"),
    (
        "'x' value, map('a', 1) properties",
        {},
        r"column 'properties' is map<string,int>: it must be map<string,string>",
    ),
    ("'k' key", {}, "there is no column 'value'"),
    (
        "'x' value",
        {"topic": ""},
        "option 'topic' = None: there is no such option and no column 'topic'",
    ),
    (
        "'x' value",
        {"topic": "w-nowhere"},
        "topic persistent://public/default/w-nowhere is not there.*'createTopic'",
    ),
    (
        "'x' value",
        {"topic": "non-persistent://public/default/x"},
        "keeps nothing of what is published",
    ),
    (
        "'x' value",
        {"topik": "t"},
        "option 'topik' = 't': writing has no such option; did you mean 'topic'",
    ),
    ("'x' value", {"compression": "gzip"}, "option 'compression' = 'gzip': allowed are none, lz4"),
    (
        "'x' value",
        {"valueSchema": "json"},
        "option 'valueSchema' = 'json': column 'value' is bytes or text",
    ),
    ("1 a", {"valueSchema": "raw"}, "option 'valueSchema' = 'raw': the columns are a record"),
    ("1 a", {"valueSchema": "topic"}, "has no schema; give json or avro"),
    ("interval 1 day a", {}, "column 'a' is .*, for which a record has no type"),
    (
        "'x' value",
        {"exactlyOnceVersion": "1"},
        "it counts the runs of a write that has an exactlyOnceName",
    ),
    ("'x' value", {"deduplication": "require"}, "topic .*w-plain does not drop duplicates"),
    (
        "'x' value, 3 partition",
        {},
        "column 'partition' is 3, and topic .*w-plain has no partitions",
    ),
    ("unhex('ff') key, 'x' value", {}, "column 'key' has bytes that are no UTF-8"),
    ("repeat('x', 6000000) value", {}, "6000.* bytes is above the broker's limit"),
    (
        "'x' value, timestamp'1969-12-31' event_time",
        {},
        "column 'event_time' has a time before 1970",
    ),
    (
        "'x' value, map('a', cast(null as string)) properties",
        {},
        "column 'properties' has no value for 'a'",
    ),
]


@pytest.mark.parametrize(("columns", "options", "words"), REFUSED)
def test_what_is_refused_writes_nothing(
    spark: SparkSession, sink: Sink, columns: str, options: dict[str, str], words: str
) -> None:
    if "w-plain" not in {name.rpartition("/")[2] for name in sink.admin.topics.list()}:
        sink.admin.topics.create("w-plain")
    with pytest.raises(PySparkException, match=words):
        sink.write(spark.sql(f"select {columns}"), **{"topic": "w-plain", **options})
    assert sink.values("w-plain") == []


def test_overwriting_is_refused(spark: SparkSession, sink: Sink) -> None:
    with pytest.raises(
        PySparkException, match="mode 'overwrite' would replace what is in the topic"
    ):
        sink.write(spark.sql("select 'x' value"), "w-plain", mode="overwrite")


def test_a_named_write_that_is_repeated_writes_nothing_twice(
    spark: SparkSession, sink: Sink
) -> None:
    topic = sink.topic("w-named", partitions=2)
    frame = spark.range(0, 1_000, 1, 2).selectExpr(
        "cast(id as string) value", "cast(id % 10 as string) key"
    )
    for version in ("0", "0", "1", "1"):
        sink.write(frame, topic, exactlyOnceName="load", exactlyOnceVersion=version)
    assert sorted(map(int, sink.values(topic))) == sorted([*range(1_000), *range(1_000)])
    with pytest.raises(
        PySparkException,
        match=r"version 1, and this is version 0.*start with another exactlyOnceName",
    ):
        sink.write(frame, topic, exactlyOnceName="load", exactlyOnceVersion="0")
    # It follows a topic that has grown from the next version on, and not before.
    sink.admin.topics.update_partitions(topic, 3)
    sink.write(frame, topic, exactlyOnceName="load", exactlyOnceVersion="1")
    assert len(sink.values(topic)) == 2_000
    sink.write(frame, topic, exactlyOnceName="load", exactlyOnceVersion="2")
    assert len(sink.values(topic)) == 3_000
    assert sink.values(f"{topic}-partition-2") != []


def test_a_write_that_failed_halfway_is_finished_by_its_repetition(
    spark: SparkSession, sink: Sink, tmp_path: Path
) -> None:
    topic = sink.topic("w-again")
    url, failed = sink.urls["admin.url"], tmp_path / "failed"

    def failing_once(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            # Far enough that the writer was given some: Spark gathers rows on their way to it.
            if int(batch.column(0)[0].as_py()) >= 50_000 and not failed.exists():
                while not Admin(url).topics.stats(topic).get("storageSize"):
                    continue
                failed.touch()
                raise RuntimeError("as planned")
            yield batch

    frame = (
        spark.range(0, 70_000, 1, 1)
        .selectExpr("cast(id as string) value")
        .mapInArrow(failing_once, "value string")
    )
    named = {"exactlyOnceName": "again", "exactlyOnceVersion": "0", "deduplication": "enable"}
    with pytest.raises(PySparkException, match="as planned"):
        sink.write(frame, topic, **named)
    left = len(sink.values(topic))
    assert 0 < left < 70_000
    sink.write(frame, topic, **named)
    assert [int(value) for value in sink.values(topic)] == list(range(70_000))


def test_the_newer_of_two_attempts_ends_the_older_one_and_goes_on_where_it_was(sink: Sink) -> None:
    topic = sink.topic("w-attempts")
    schema = StructType([StructField("value", StringType())])
    job = make_job({**sink.urls, "topic": topic}, schema, streaming=True, overwrite=False)
    batches = [
        pa.record_batch({"value": [str(number) for number in range(start, start + 2_500)]})
        for start in (0, 2_500, 5_000)
    ]
    older, newer = (
        Task(job, Attempt("query", version=3, spark_partition=0, epoch=epoch))
        for epoch in (1_000, 2_000)
    )
    older.take(iter(batches[:2]))
    assert older.finish().messages == 5_000
    newer.take(iter(batches))
    with pytest.raises(
        ProducerFenced, match="a newer producer 'query-0' has taken the place of this one"
    ):
        older.take(iter(batches[2:]))
        older.finish()
    older.leave()
    written = newer.finish()
    assert (written.messages, written.repeated) == (2_500, 5_000)
    newer.leave()
    assert [int(value) for value in sink.values(topic)] == list(range(7_500))
