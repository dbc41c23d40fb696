"""What the tests of the connector share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import pulsarish
import pulsarish.spark
from pulsarish.admin import Admin
from pulsarish.cli.processes import Cluster

__all__ = ["Collected", "admin_of", "options_of", "publish", "read", "sink"]


def options_of(cluster: Cluster, **options: str) -> dict[str, str]:
    urls = cluster.service_urls()
    return {"service.url": urls["pulsarish"], "admin.url": urls["http"], **options}


def admin_of(cluster: Cluster) -> Admin:
    return Admin(cluster.service_urls()["http"])


def read(spark: SparkSession, cluster: Cluster, schema: str | None = None, **options: str) -> DataFrame:
    """A batch."""
    pulsarish.spark.register(spark)
    reader = spark.read.format("pulsarish").options(**options_of(cluster, **options))
    return (reader.schema(schema) if schema else reader).load()


def publish(cluster: Cluster, topic: str, values: Sequence[bytes], *, batched: bool = True, **options: object) -> list[pulsarish.MessageId]:
    """Publish in order by one producer; the ids."""
    with pulsarish.Client(cluster.service_urls()["pulsarish"]) as client:
        producer = client.create_producer(topic, batching_enabled=batched, block_if_queue_full=True, **options)
        ids: list[pulsarish.MessageId] = []
        for value in values:
            producer.send_async(value, lambda result, message_id: ids.append(message_id) if result == pulsarish.Result.Ok else None)
        producer.flush()
        producer.close()
    assert len(ids) == len(values)
    return ids


class Collected:
    """What a streaming query gave, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []

    def add(self, frame: DataFrame, _batch_id: int) -> None:
        self.batches.append([bytes(row.value) for row in frame.select("value").collect()])

    @property
    def values(self) -> list[bytes]:
        return [value for batch in self.batches for value in batch]


def sink(spark: SparkSession, cluster: Cluster, checkpoint: Path, collected: Collected, **options: str) -> StreamingQuery:
    """Run a query over all that is there now, and wait for its end. Raises what it failed with."""
    pulsarish.spark.register(spark)
    frame = spark.readStream.format("pulsarish").options(**options_of(cluster, **options)).load()
    writer = frame.writeStream.foreachBatch(collected.add).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(60)
    assert not query.isActive
    return query
