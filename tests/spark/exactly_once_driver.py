"""A Spark application of its own, so that it can be killed: it copies a topic to another one, once,
until it is told to stop.

    python exactly_once_driver.py MASTER SERVICE_URL ADMIN_URL SOURCE SINK FOLDER

The checkpoint is ``FOLDER/checkpoint``; it stops when ``FOLDER/stop`` is there and all that the
source had then is written.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import pulsarish.spark


def main() -> None:
    master, service_url, admin_url, source, sink, folder = sys.argv[1:]
    stop = Path(folder) / "stop"
    spark = (
        SparkSession.builder.master(master)
        .appName("exactly-once")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .config("spark.task.maxFailures", "8")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    pulsarish.spark.register(spark)
    urls = {"service.url": service_url, "admin.url": admin_url}
    rows = (
        spark.readStream.format("pulsarish")
        .schema("value binary, key string")
        .options(**urls, topic=source, startingOffsets="earliest", maxMessagesPerTrigger="4000")
        .load()
    )
    query = (
        rows.writeStream.format("pulsarish")
        .options(**urls, topic=sink, checkpointLocation=f"{folder}/checkpoint")
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    while not stop.exists():
        query.awaitTermination(0.2)
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
