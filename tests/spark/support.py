"""What the tests of the connector share."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import pulsarish
import pulsarish.spark
from pulsarish.admin import Admin
from pulsarish.local_cluster.processes import Cluster

__all__ = [
    "JAVA_OPTIONS",
    "Collected",
    "admin_of",
    "environment",
    "options_of",
    "publish",
    "read",
    "sink",
    "until",
]


# Most of the work of a test's Java would be to translate well what it runs a few times.
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment() -> dict[str, str]:
    """For a Spark application as a process of its own."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": JAVA_OPTIONS,
    }


def options_of(cluster: Cluster, **options: str) -> dict[str, str]:
    urls = cluster.service_urls()
    return {"service.url": urls["pulsarish"], "admin.url": urls["http"], **options}


def admin_of(cluster: Cluster) -> Admin:
    return Admin(cluster.service_urls()["http"])


def read(
    spark: SparkSession, cluster: Cluster, schema: str | None = None, **options: str
) -> DataFrame:
    """A batch."""
    pulsarish.spark.register(spark)
    reader = spark.read.format("pulsarish").options(**options_of(cluster, **options))
    return (reader.schema(schema) if schema else reader).load()


def publish(
    cluster: Cluster,
    topic: str,
    values: Sequence[bytes],
    *,
    batched: bool = True,
    **options: object,
) -> list[pulsarish.MessageId]:
    """Publish in order by one producer; the ids."""
    with pulsarish.Client(cluster.service_urls()["pulsarish"]) as client:
        producer = client.create_producer(
            topic, batching_enabled=batched, block_if_queue_full=True, **options
        )
        ids: list[pulsarish.MessageId] = []
        for value in values:
            producer.send_async(
                value,
                lambda result, message_id: (
                    ids.append(message_id) if result == pulsarish.Result.Ok else None
                ),
            )
        producer.flush()
        producer.close()
    assert len(ids) == len(values)
    return ids


def until(what: str, done: Callable[[], bool], seconds: float = 300.0) -> None:
    """Wait for a state; so many seconds are for what hangs."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"{what} did not happen in {seconds} s"
        time.sleep(0.1)


class Collected:
    """What a streaming query gave, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []

    def add(self, frame: DataFrame, _batch_id: int) -> None:
        self.batches.append([bytes(row.value) for row in frame.select("value").collect()])

    @property
    def values(self) -> list[bytes]:
        return [value for batch in self.batches for value in batch]


def sink(
    spark: SparkSession, cluster: Cluster, checkpoint: Path, collected: Collected, **options: str
) -> StreamingQuery:
    """Run a query over all that is there now, and wait for its end. Raises what it failed with."""
    pulsarish.spark.register(spark)
    frame = spark.readStream.format("pulsarish").options(**options_of(cluster, **options)).load()
    writer = frame.writeStream.foreachBatch(collected.add).option(
        "checkpointLocation", str(checkpoint)
    )
    while True:
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination(300)
        except StreamingQueryException as error:
            # Spark gives a Python process ten seconds to start, whatever else the machine has to
            # do.
            if "Python worker failed to connect back" in str(error):
                continue
            raise
        assert not query.isActive
        return query
