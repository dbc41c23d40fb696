"""Batch reads of topics against a real cluster."""

from __future__ import annotations

from pyspark.sql import SparkSession, functions

import pulsarish
from pulsarish.cli.processes import Cluster
from tests.spark.support import publish, read


def test_every_column_of_batches_and_single_messages(spark: SparkSession, cluster: Cluster) -> None:
    with pulsarish.Client(cluster.service_urls()["pulsarish"]) as client:
        producer = client.create_producer("columns", producer_name="first", batching_enabled=True)
        for number in range(100):
            producer.send_async(
                b"v%d" % number,
                None,
                partition_key=f"k{number % 7}" if number % 2 else None,
                properties={"n": str(number)} if number % 3 == 0 else None,
                event_timestamp=1_700_000_000_000 + number if number % 5 == 0 else None,
            )
        producer.flush()
        last = client.create_producer("columns", producer_name="second").send(b"last")

    rows = read(spark, cluster, topic="columns").orderBy("message_id").collect()

    assert [bytes(row.value) for row in rows] == [*(b"v%d" % number for number in range(100)), b"last"]
    assert [row.key for row in rows] == [*(f"k{number % 7}" if number % 2 else None for number in range(100)), None]
    assert [row.properties for row in rows] == [*({"n": str(number)} if number % 3 == 0 else {} for number in range(100)), {}]
    assert {row.topic for row in rows} == {"persistent://public/default/columns"}
    assert [row.event_time is not None for row in rows] == [*(number % 5 == 0 for number in range(100)), False]
    assert [row.sequence_id for row in rows] == [*range(100), 0]
    assert [row.producer_name for row in rows] == ["first"] * 100 + ["second"]
    assert tuple(rows[-1].message_id) == (last.ledger_id(), last.entry_id(), -1, -1)


def test_only_the_columns_of_a_given_schema(spark: SparkSession, cluster: Cluster) -> None:
    publish(cluster, "columns-some", [b"x" * number for number in range(50)])

    frame = read(spark, cluster, "value binary, partition int", topic="columns-some")

    assert frame.columns == ["value", "partition"]
    assert frame.agg(functions.sum(functions.length("value")), functions.count("*")).collect()[0][:] == (sum(range(50)), 50)
