"""Streaming reads against a real cluster: offsets, restarts, topics that change meanwhile,
checkpoints that do not fit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import pulsarish.spark
from pulsarish.local_cluster.processes import Cluster
from tests.spark.support import Collected, admin_of, publish, sink

pytestmark = pytest.mark.timeout(600)  # a Spark session, and many batches


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def test_streams_that_start_together_add_nothing_to_the_one_map_of_the_source(
    spark: SparkSession,
) -> None:
    """Spark puts variables into it without a lock."""
    before = dict(spark.sparkContext.environment)
    pulsarish.spark.register(spark)
    assert spark.sparkContext.environment == before
    sources = cast("Any", spark)._jsparkSession.sessionState().dataSourceManager()
    variables = dict(sources.lookupDataSource("pulsarish").dataSourceCls().envVars())
    assert {
        "SPARK_LOCAL_DIRS",
        "SPARK_AUTH_SOCKET_TIMEOUT",
        "SPARK_BUFFER_SIZE",
        "SPARK_PYTHON_RUNTIME",
    } <= variables.keys()


def test_a_query_goes_on_where_its_checkpoint_is(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    admin, topic, collected = admin_of(cluster), "stream-on", Collected()
    admin.topics.create(topic, partitions=2)
    publish(cluster, topic, numbers(0, 500))
    options = {"topic": topic, "startingOffsets": "earliest", "subscription": "spark"}
    sink(spark, cluster, tmp_path, collected, **options)
    assert sorted(map(int, collected.values)) == list(range(500))

    publish(cluster, topic, numbers(500, 700))
    for partition in (0, 1):
        # A closed ledger and an open one in one batch: straight from bookies, and through the
        # broker.
        admin.topics.unload(f"{topic}-partition-{partition}")
    publish(cluster, topic, numbers(700, 900))
    admin.topics.update_partitions(topic, 3)
    publish(cluster, topic, numbers(900, 1_000))

    query = sink(spark, cluster, tmp_path, collected, maxMessagesPerTrigger="200", **options)

    assert sorted(map(int, collected.values)) == list(range(1_000))
    assert len(collected.batches) > 2
    latest = json.loads(query.recentProgress[-1]["sources"][0]["latestOffset"])
    assert latest["lag_bytes"] == latest["lag_messages"] == 0
    assert len(latest["topics"]) == 3
    first = json.loads(query.recentProgress[0]["sources"][0]["latestOffset"])
    assert first["lag_bytes"] > 0
    assert first["lag_messages"] > 0


def test_a_batch_that_is_run_again_is_the_same_batch(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    admin, topic, collected = admin_of(cluster), "stream-again", Collected()
    publish(
        cluster,
        topic,
        [b"%05d" % number + b"x" * 1_000 for number in range(400)],
        batching_max_messages=20,
    )
    options = {
        "topic": topic,
        "startingOffsets": "earliest",
        "subscription": "spark",
        "splitBytes": "64k",
    }
    sink(spark, cluster, tmp_path, collected, **options)

    # The driver died before it noted the end of the batch; meanwhile the ledger was closed.
    for commit in (tmp_path / "commits").glob("[0-9]*"):
        commit.unlink()
    for checksum in (tmp_path / "commits").glob(".*"):
        checksum.unlink()
    admin.topics.unload(topic)
    sink(spark, cluster, tmp_path, collected, **options)

    before, again, *rest = collected.batches
    assert again == before
    assert not any(rest)  # the offset moves on to the ledger that is open now


class Stopped(Collected):
    """Whose run ends in its second batch, before that is finished."""

    def add(self, frame: DataFrame, batch_id: int) -> None:
        super().add(frame, batch_id)
        if batch_id == 1:
            raise RuntimeError("stopped in the middle")


def test_partitions_that_come_while_a_batch_is_unfinished_are_in_the_next_one(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    admin, topic, before, after = admin_of(cluster), "stream-growing", Stopped(), Collected()
    admin.topics.create(topic, partitions=2)
    publish(cluster, topic, numbers(0, 400), batching_max_messages=20)
    options = {"topic": topic, "startingOffsets": "earliest", "subscription": "spark"}
    with pytest.raises(StreamingQueryException, match="stopped in the middle"):
        sink(spark, cluster, tmp_path, before, maxMessagesPerTrigger="100", **options)
    admin.topics.update_partitions(topic, 3)
    publish(cluster, f"{topic}-partition-2", numbers(400, 500))

    sink(spark, cluster, tmp_path, after, maxMessagesPerTrigger="1000", **options)

    assert after.batches[0] == before.batches[1]
    assert sorted(map(int, before.batches[0] + after.values)) == list(range(500))
    assert set(numbers(400, 500)) <= set(after.batches[1])


def test_a_topic_that_was_made_anew_is_noticed(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    admin, topic = admin_of(cluster), "stream-anew"
    publish(cluster, topic, numbers(0, 10))
    sink(spark, cluster, tmp_path, Collected(), topic=topic, startingOffsets="earliest")
    admin.topics.delete(topic, force=True)
    publish(cluster, topic, numbers(10, 20))

    with pytest.raises(
        StreamingQueryException,
        match=f"{topic} was deleted and made again since the query's checkpoint was written",
    ):
        sink(spark, cluster, tmp_path, Collected(), topic=topic)


def test_a_checkpoint_of_another_topic_is_noticed(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    for topic in ("stream-one", "stream-other"):
        publish(cluster, topic, numbers(0, 10))
    sink(spark, cluster, tmp_path, Collected(), topic="stream-one", startingOffsets="earliest")

    with pytest.raises(
        StreamingQueryException,
        match=r"option 'topic' = .*stream-other.*the query's checkpoint is of topic .*stream-one",
    ):
        sink(spark, cluster, tmp_path, Collected(), topic="stream-other")


def test_topics_by_pattern_are_read_from_their_beginning_when_they_appear(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    collected = Collected()
    publish(cluster, "appear-1", numbers(0, 10))
    options = {
        "topicsPattern": "public/default/appear-.*",
        "startingOffsets": "earliest",
        "subscription": "spark",
    }
    sink(spark, cluster, tmp_path, collected, **options)
    publish(cluster, "appear-2", numbers(10, 20))
    sink(spark, cluster, tmp_path, collected, **options)

    assert collected.batches == [numbers(0, 10), numbers(10, 20)]
