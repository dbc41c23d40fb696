"""A Spark application of its own that writes to a topic while one of its two tasks runs twice at a
time.

    python speculation_driver.py SERVICE_URL ADMIN_URL TOPIC FOLDER

Spark starts a second attempt only on another host than the first, and all executors of
``local-cluster`` are on one. So the master and two workers are started here, in the driver's Java
process as there, with a loopback address each.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

import pulsarish.spark
from pulsarish.admin import Admin

ROWS, BATCH = 6_000, 500
HOSTS = ("127.0.0.1", "127.0.0.2")


def start_cluster(folder: Path) -> str:
    """The master's URL."""
    SparkContext._ensure_initialized()
    jvm, gateway = SparkContext._jvm, SparkContext._gateway
    spark, scala = jvm.org.apache.spark, jvm.scala
    conf = spark.SparkConf().set("spark.master.rest.enabled", "false")
    url = (
        spark.deploy.master.Master.startRpcEnvAndEndpoint(HOSTS[0], 0, 0, conf)
        ._1()
        .address()
        .toSparkURL()
    )
    masters = gateway.new_array(jvm.java.lang.String, 1)
    masters[0] = url
    for number, host in enumerate(HOSTS):
        work = str(folder / f"work-{number}")
        spark.deploy.worker.Worker.startRpcEnvAndEndpoint(
            host,
            0,
            0,
            1,
            1024,
            masters,
            work,
            scala.Option.apply(number),
            conf,
            scala.Option.empty(),
        )
    return str(url)


def wait(done: Callable[[], bool]) -> None:
    while not done():
        time.sleep(0.05)


def attempts(admin_url: str, topic: str, folder: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The rows of a task; the first attempt of task 0 goes on when a second one writes, which
    begins when the first has written.
    """

    def rows(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        task, attempt = context.partitionId(), context.attemptNumber()
        for _ in batches:
            pass
        if task == 0 and attempt:
            wait(lambda: bool(Admin(admin_url).topics.stats(topic)["storageSize"]))
        for first in range(0, ROWS, BATCH):
            if task == 0 and first == ROWS // 2:
                if attempt:
                    (folder / "second").touch()
                wait((folder / "second").exists)
            numbers = range(first, first + BATCH)
            values = [b"%d" % number + b" " * 300 for number in numbers]
            yield pyarrow.RecordBatch.from_pydict(
                {"value": values, "key": [f"task-{task}"] * BATCH}
            )

    return rows


def main() -> None:
    service_url, admin_url, topic, place = sys.argv[1:]
    folder = Path(place)
    spark = (
        SparkSession.builder.master(start_cluster(folder))
        .appName("speculation")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", HOSTS[0])
        .config("spark.driver.host", HOSTS[0])
        .config("spark.executor.memory", "512m")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "100ms")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.multiplier", "1")
        .config("spark.speculation.minTaskRuntime", "100ms")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    pulsarish.spark.register(spark)
    rows = spark.range(0, 2, 1, 2).mapInArrow(
        attempts(admin_url, topic, folder), "value binary, key string"
    )
    options = {
        "service.url": service_url,
        "admin.url": admin_url,
        "exactlyOnceName": "speculative",
        "exactlyOnceVersion": "1",
    }
    rows.write.format(pulsarish.spark.FORMAT).mode("append").options(**options, topic=topic).save()
    spark.stop()


if __name__ == "__main__":
    main()
