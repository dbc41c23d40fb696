"""Batch reads of topics against a real cluster."""

from __future__ import annotations

import json
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession, functions

import pulsarish
from pulsarish.local_cluster.processes import Cluster
from tests.spark.support import admin_of, publish, read
from tests.support.clusters import running_cluster

pytestmark = pytest.mark.timeout(600)  # a Spark session, and many jobs


def kept(cluster: Cluster, topic: str) -> None:
    """Make a topic that keeps what is published."""
    admin = admin_of(cluster)
    admin.topics.create(topic)
    admin.subscriptions.create(topic, "keep", position="earliest")


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

    assert [bytes(row.value) for row in rows] == [
        *(b"v%d" % number for number in range(100)),
        b"last",
    ]
    assert [row.key for row in rows] == [
        *(f"k{number % 7}" if number % 2 else None for number in range(100)),
        None,
    ]
    assert [row.properties for row in rows] == [
        *({"n": str(number)} if number % 3 == 0 else {} for number in range(100)),
        {},
    ]
    assert {row.topic for row in rows} == {"persistent://public/default/columns"}
    assert [row.event_time is not None for row in rows] == [
        *(number % 5 == 0 for number in range(100)),
        False,
    ]
    assert [row.sequence_id for row in rows] == [*range(100), 0]
    assert [row.producer_name for row in rows] == ["first"] * 100 + ["second"]
    assert tuple(rows[-1].message_id) == (last.ledger_id(), last.entry_id(), -1, -1)


def test_only_the_columns_of_a_given_schema(spark: SparkSession, cluster: Cluster) -> None:
    publish(cluster, "columns-some", [b"x" * number for number in range(50)])

    frame = read(spark, cluster, "value binary, partition int", topic="columns-some")

    assert frame.columns == ["value", "partition"]
    assert frame.agg(functions.sum(functions.length("value")), functions.count("*")).collect()[0][
        :
    ] == (sum(range(50)), 50)


def test_each_compression_single_and_batched_before_and_after_its_ledger_is_closed(
    spark: SparkSession, cluster: Cluster
) -> None:
    topic, wanted = "compressions", []
    kept(cluster, topic)
    kinds = (
        pulsarish.CompressionType.LZ4,
        pulsarish.CompressionType.ZLib,
        pulsarish.CompressionType.ZSTD,
        pulsarish.CompressionType.SNAPPY,
    )
    for closed in (True, False):
        for kind in kinds:
            for batched in (True, False):
                values = [
                    f"{closed} {kind.name} {batched} {number} ".encode() * 20
                    for number in range(30)
                ]
                publish(cluster, topic, values, batched=batched, compression_type=kind)
                wanted += values
        if closed:
            admin_of(cluster).topics.unload(topic)

    rows = read(
        spark,
        cluster,
        "value binary, message_id struct<ledger:bigint,entry:bigint,partition:int,batch_index:int>",
        topic=topic,
    )

    found = [bytes(row.value) for row in rows.orderBy("message_id").collect()]
    assert found == wanted


def test_messages_in_chunks_are_read_once_and_whole_wherever_splits_are_cut(
    spark: SparkSession, cluster: Cluster
) -> None:
    topic = "chunks"
    kept(cluster, topic)
    values = [bytes([65 + number]) * 11_000_000 for number in range(3)]
    publish(cluster, topic, values, batched=False, chunking_enabled=True)
    admin_of(cluster).topics.unload(topic)

    frame = read(
        spark, cluster, "value binary", topic=topic, splitBytes="64k", directReads="always"
    )

    assert frame.rdd.getNumPartitions() == 9
    assert sorted(bytes(row.value) for row in frame.collect()) == values


def test_a_range_by_message_ids_by_time_and_by_json(spark: SparkSession, cluster: Cluster) -> None:
    topic = "ranges"
    kept(cluster, topic)
    ids = publish(cluster, topic, [b"%d" % number for number in range(10)])
    between = max(row.publish_time for row in read(spark, cluster, topic=topic).collect()).replace(
        tzinfo=UTC
    )
    later = publish(cluster, topic, [b"%d" % number for number in range(10, 20)])

    def found(**options: str) -> list[int]:
        return [
            int(bytes(row.value))
            for row in read(spark, cluster, topic=topic, **options).orderBy("message_id").collect()
        ]

    place = [
        f"{each.ledger_id()}:{each.entry_id()}:{each.batch_index()}" for each in (*ids, *later)
    ]
    assert found(startingOffsets=place[3], endingOffsets=place[12]) == list(range(3, 13))
    assert found(startingOffsets=json.dumps({topic: place[17]})) == [17, 18, 19]
    assert found(startingOffsets="latest") == []
    after = str(round(between.timestamp() * 1_000) + 1)
    assert found(startingTime=after) == list(range(10, 20))
    assert found(endingTime=after) == list(range(10))
    with pytest.raises(
        AnalysisException,
        match=(
            r"option 'startingOffsets' names 987654321:2 in topic .*/ranges, which has no "
            r"ledger 987654321"
        ),
    ):
        found(startingOffsets="987654321:3")


def test_filters_are_handed_down_and_give_what_spark_itself_finds(
    spark: SparkSession, cluster: Cluster
) -> None:
    topic = "filtered"
    with pulsarish.Client(cluster.service_urls()["pulsarish"]) as client:
        producer = client.create_producer(topic, batching_enabled=True)
        for number in range(300):
            key = f"k{number % 5}" if number % 3 else None
            producer.send_async(
                b"%d" % number,
                None,
                partition_key=key,
                event_timestamp=1_700_000_000_000 + 1_000 * number,
            )
        producer.flush()
    frame = read(spark, cluster, topic=topic)
    noon = functions.lit(datetime.fromtimestamp(1_700_000_100, UTC))
    filters = [
        functions.col("key") == "k2",
        functions.col("key").isin("k1", "k4"),
        functions.col("key").isNotNull() & (functions.col("event_time") >= noon),
        (functions.col("event_time") < noon) & functions.col("key").startswith("k"),
        functions.col("publish_time") > functions.lit(datetime(2020, 1, 1, tzinfo=UTC)),
        functions.col("publish_time") <= functions.lit(datetime(2020, 1, 1, tzinfo=UTC)),
        (functions.col("partition") == -1)
        & (functions.col("topic") == f"persistent://public/default/{topic}"),
        functions.col("topic") == "persistent://public/default/other",
    ]
    # A copy without the source: Spark filters by itself.
    copy = spark.createDataFrame(frame.collect(), frame.schema)
    for each in filters:
        assert frame.where(each).count() == copy.where(each).count(), each


def test_deleted_entries_in_the_range_are_an_error_or_by_option_a_shorter_answer(
    spark: SparkSession, cluster: Cluster
) -> None:
    topic, admin = "trimmed", admin_of(cluster)
    kept(cluster, topic)
    # Whatever other tests have asked of the namespace.
    admin.topics.set_policy(
        topic, "retention", {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
    )
    gone = publish(cluster, topic, [b"old"])[0]
    admin.topics.unload(topic)
    publish(cluster, topic, [b"new"])
    admin.subscriptions.skip_all_messages(topic, "keep")
    admin.topics.trim(topic)
    start = f"{gone.ledger_id()}:{gone.entry_id()}"

    with pytest.raises(
        AnalysisException,
        match=(
            "option 'startingOffsets' names .* in topic .*/trimmed .*retention has "
            f"deleted.*up to {start}"
        ),
    ):
        read(spark, cluster, topic=topic, startingOffsets=start).count()
    found = read(
        spark, cluster, topic=topic, startingOffsets=start, failOnDataLoss="false"
    ).collect()
    assert [bytes(row.value) for row in found] == [b"new"]


def test_mistakes_are_said_before_anything_is_read(spark: SparkSession, cluster: Cluster) -> None:
    with pytest.raises(
        AnalysisException,
        match="option 'topic' names persistent://public/default/no-such, which does not exist",
    ):
        read(spark, cluster, topic="no-such").count()
    with pytest.raises(
        AnalysisException, match="option 'directReads' = 'perhaps': allowed are auto, always, never"
    ):
        read(spark, cluster, topic="no-such", directReads="perhaps").count()


def test_a_ledger_whose_bookie_is_down_is_read_from_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    with running_cluster(tmp_path / "cluster", bookies=3, brokers=1) as cluster:
        kept(cluster, "copies")
        publish(cluster, "copies", [b"%05d" % number + b"x" * 1_000 for number in range(2_000)])
        admin_of(cluster).topics.unload("copies")
        cluster.kill("bookie-2")

        # Each split begins at a replica of its own, so some meet the dead one.
        frame = read(
            spark, cluster, "value binary", topic="copies", directReads="always", splitBytes="64k"
        )

        assert sorted(int(bytes(row.value)[:5]) for row in frame.collect()) == list(range(2_000))

        for name in ("bookie-1", "bookie-3"):
            cluster.kill(name)
        with pytest.raises(
            Exception,
            match=(
                r"option 'directReads' = 'always': entry \d+ of ledger \d+ cannot be read now "
                r".*bookie-1~\w+ at 127.0.0.1:"
            ),
        ):
            frame.count()


@contextmanager
def brokers_that_say(admin_url: str, bookie: str) -> Iterator[str]:
    """An administration by which all bookies listen at another address than they do."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                with urllib.request.urlopen(admin_url + self.path) as found:
                    code, text = found.status, found.read()
            except urllib.error.HTTPError as error:
                code, text = error.code, error.read()
            if self.path.endswith("/bookies"):
                text = json.dumps(
                    [{**each, "address": bookie} for each in json.loads(text)]
                ).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: object, **kwargs: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_bookies_that_cannot_be_reached_from_executors(
    spark: SparkSession, cluster: Cluster
) -> None:
    kept(cluster, "unreachable")
    publish(cluster, "unreachable", [b"%05d" % number + b"x" * 1_000 for number in range(1_000)])
    admin_of(cluster).topics.unload("unreachable")
    publish(cluster, "unreachable", [b"%05d" % number for number in range(1_000, 1_100)])

    def values(**options: str) -> list[int]:
        frame = read(
            spark, cluster, "value binary", topic="unreachable", splitBytes="64k", **options
        )
        return sorted(int(bytes(row.value)[:5]) for row in frame.collect())

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nobody listens, and nobody else can
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with brokers_that_say(cluster.service_urls()["http"], address) as admin_url:
            wrong = {"admin.url": admin_url}
            assert values(**wrong, directReads="auto") == list(range(1_100))
            with pytest.raises(Exception, match=r"option 'directReads' = 'always'") as raised:
                values(**wrong, directReads="always")
            text = str(raised.value)
            assert re.search(
                r"topic \S+/unreachable, option 'directReads' = 'always': entry \d+ of ledger \d+ "
                r"cannot be read now",
                text,
            )
            assert f"at {address}" in text
    assert values(directReads="always") == list(range(1_100)), (
        "workers learn where bookies listen by now"
    )
