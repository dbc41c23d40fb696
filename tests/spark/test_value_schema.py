"""Values decoded by their topic's schema into columns."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import SparkSession

import pulsarish
from pulsarish.local_cluster.processes import Cluster
from pulsarish.schema import AvroSchema, JsonSchema, StringSchema
from tests.spark.support import Collected, admin_of, publish, read, sink


@dataclass
class Order:
    item: str
    count: int
    key: str | None = None


def send(cluster: Cluster, topic: str, schema: Any, values: list[Any]) -> None:
    with pulsarish.Client(cluster.service_urls()["pulsarish"]) as client:
        producer = client.create_producer(topic, schema=schema)
        for value in values:
            producer.send(value)


def test_avro_of_two_versions_with_nested_and_logical_types(
    spark: SparkSession, cluster: Cluster
) -> None:
    def definition(*more: dict[str, Any]) -> dict[str, Any]:
        place = {
            "type": "record",
            "name": "Place",
            "fields": [
                {"name": "x", "type": "double"},
                {"name": "tags", "type": {"type": "array", "items": "string"}},
            ],
        }
        fields = [
            {"name": "n", "type": "long"},
            {"name": "place", "type": ["null", place], "default": None},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ]
        return {"type": "record", "name": "Row", "fields": [*fields, *more]}

    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    old = {"n": 1, "place": {"x": 0.5, "tags": ["a", "b"]}, "at": when}
    send(cluster, "avro", AvroSchema(None, schema_definition=definition()), [old])
    newer = AvroSchema(
        None, schema_definition=definition({"name": "note", "type": "string", "default": "none"})
    )
    send(cluster, "avro", newer, [{"n": 2, "place": None, "at": when, "note": "new"}])

    frame = read(spark, cluster, topic="avro", valueSchema="topic")

    assert frame.columns[:5] == ["n", "place", "at", "note", "key"]
    assert dict(frame.dtypes)["place"] == "struct<x:double,tags:array<string>>"
    first, second = frame.orderBy("n").collect()
    assert (first.n, first.place.x, first.place.tags, first.at.replace(tzinfo=UTC), first.note) == (
        1,
        0.5,
        ["a", "b"],
        when,
        "none",
    )
    assert (second.n, second.place, second.note) == (2, None, "new")


def test_json_that_does_not_decode_fails_is_kept_or_dropped(
    spark: SparkSession, cluster: Cluster
) -> None:
    topic = "json-orders"
    send(cluster, topic, JsonSchema(Order), [Order("tea", 3, "k"), Order("milk", 1)])
    # A producer without a schema may write anything.
    publish(
        cluster,
        topic,
        [b"no json", b'{"item": "egg", "count": "many"}', b'{"item": "jam", "count": 2}'],
    )
    admin_of(cluster).topics.unload(topic)

    with pytest.raises(
        PythonException,
        match=(
            r"a message of topic .*/json-orders at .* does not decode by the topic's schema: "
            r".*option 'onDecodeError'"
        ),
    ):
        read(spark, cluster, topic=topic, valueSchema="topic").collect()
    dropped = (
        read(spark, cluster, topic=topic, valueSchema="topic", onDecodeError="drop")
        .orderBy("message_id")
        .collect()
    )
    assert [(row["item"], row["count"], row.value_key) for row in dropped] == [
        ("tea", 3, "k"),
        ("milk", 1, None),
        ("jam", 2, None),
    ]
    kept = read(spark, cluster, topic=topic, valueSchema="topic", onDecodeError="keep")
    assert kept.where("_corrupt is null").count() == 3
    bad = kept.where("_corrupt is not null").orderBy("message_id").collect()
    assert [(bytes(row["_corrupt"]), row["item"]) for row in bad] == [
        (b"no json", None),
        (b'{"item": "egg", "count": "many"}', None),
    ]


def test_a_text_is_a_column_of_text_in_a_stream_too(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    send(cluster, "texts", StringSchema(), ["grün", "blau"])
    assert (
        read(spark, cluster, "value string", topic="texts", valueSchema="topic").collect()[0].value
        == "grün"
    )

    class Texts(Collected):
        def add(self, frame: Any, _batch_id: int) -> None:
            self.batches.append([row.value for row in frame.select("value").collect()])

    texts = Texts()
    sink(
        spark,
        cluster,
        tmp_path / "texts",
        texts,
        topic="texts",
        valueSchema="topic",
        startingOffsets="earliest",
        subscription="spark",
    )
    assert texts.values == ["grün", "blau"]


def test_a_topic_without_a_schema_is_named(spark: SparkSession, cluster: Cluster) -> None:
    publish(cluster, "plain", [b"x"])
    with pytest.raises(
        AnalysisException,
        match=(
            "option 'valueSchema' = 'topic': topic persistent://public/default/plain has no schema"
        ),
    ):
        read(spark, cluster, topic="plain", valueSchema="topic").count()
