"""What reading topics with Spark costs: ``python -m bench.spark [--runs N] [--large N] [--json
FILE] [count] [tasks] [memory]``.

On a cluster of its own on this machine, with everything in the page cache:

* ``count``: ``count(*)`` and ``sum(length(value))`` on ``local[2]`` of 1,000,000 messages of 100 B
  in batches of 1,000, and of 300,000 of 1 KB (``--large``): seconds of a whole query, planning
  included, with the one column that it needs and with all of them;
* ``tasks``: the 1 KB messages with 1, 2 and 4 tasks at a time, a session each;
* ``memory``: how far a process grows that reads a ledger as one task does, for one of 30 MB and for
  that of the 1 KB messages.

Each time is the median of ``--runs`` queries after one that is not counted, with the least and the
greatest beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession, functions
from pyspark.sql.types import BinaryType, StructField, StructType

import pulsarish
import pulsarish.spark
from bench.measure import running_cluster
from pulsarish.admin import Admin
from pulsarish.local_cluster.processes import Cluster
from pulsarish.spark.access import BrokerAccess
from pulsarish.spark.options import DirectReads, read_options
from pulsarish.spark.reading.log import ClusterView
from pulsarish.spark.reading.planning import cut, pieces_of
from pulsarish.spark.reading.task import ReadSpec, read_split

TOPICS = {"small": (1_000_000, 100), "large": (300_000, 1_024), "short": (30_000, 1_024)}
"""How many messages of how many bytes."""
BATCH_MESSAGES = 1_000
TASKS = (1, 2, 4)


def fill(cluster: Cluster, topic: str) -> None:
    """Publish, and close the ledger, which is read from bookies then."""
    count, size = TOPICS[topic]
    admin = Admin(cluster.service_urls()["http"])
    admin.topics.create(topic)
    admin.subscriptions.create(topic, "keep", position="earliest")
    with pulsarish.Client(cluster.service_urls()["pulsarish"]) as client:
        producer = client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_messages=BATCH_MESSAGES,
            batching_max_allowed_size_in_bytes=2 << 20,
            batching_max_publish_delay_ms=100,
            block_if_queue_full=True,
            max_pending_messages=20_000,
        )
        value = b"x" * size
        for _ in range(count):
            producer.send_async(value, None)
        producer.flush()
    admin.topics.unload(topic)


def session(tasks: int) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{tasks}]").config("spark.ui.enabled", "false")
    spark = (
        builder.config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    pulsarish.spark.register(spark)
    return spark


def query(spark: SparkSession, cluster: Cluster, topic: str, schema: str | None) -> None:
    urls = cluster.service_urls()
    reader = (
        spark.read.format("pulsarish")
        .option("service.url", urls["pulsarish"])
        .option("admin.url", urls["http"])
    )
    frame = (
        (reader.schema(schema) if schema else reader)
        .option("topic", topic)
        .option("directReads", "always")
        .load()
    )
    count, size = TOPICS[topic]
    found = frame.agg(functions.count("*"), functions.sum(functions.length("value"))).collect()[0]
    assert (found[0], found[1]) == (count, count * size)


def timed(work: Callable[[], None], runs: int) -> dict[str, float]:
    """Seconds."""
    work()
    seconds: list[float] = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return {"median": statistics.median(seconds), "least": min(seconds), "greatest": max(seconds)}


def row(name: str, topic: str, found: dict[str, float]) -> dict[str, Any]:
    count, size = TOPICS[topic]
    rate = count * size / found["median"] / 1e6
    spread = f"({found['least']:.2f}-{found['greatest']:.2f})"
    print(
        f"{name:44} {found['median']:6.2f} s {spread:14} {count / found['median']:>11,.0f}/s  "
        f"{rate:6.0f} MB/s",
        flush=True,
    )
    return {"name": name, "messages": count, "bytes": size, "mb_per_second": rate, **found}


def counts(cluster: Cluster, runs: int) -> list[dict[str, Any]]:
    spark = session(2)
    rows: list[dict[str, Any]] = []
    for topic in ("small", "large"):
        for schema, columns in (("value binary", "one column"), (None, "all columns")):
            found = timed(
                lambda topic=topic, schema=schema: query(spark, cluster, topic, schema),
                runs,  # type: ignore[misc]
            )
            rows.append(
                row(f"count and sum, {TOPICS[topic][1]} B, {columns}, local[2]", topic, found)
            )
    spark.stop()
    return rows


def scaling(cluster: Cluster, runs: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for tasks in TASKS:
        spark = session(tasks)
        rows.append(
            row(
                f"scan, 1 KB, local[{tasks}]",
                "large",
                timed(lambda: query(spark, cluster, "large", "value binary"), runs),  # noqa: B023
            )
        )
        spark.stop()
    return rows


def memory(cluster: Cluster) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for topic in ("short", "large"):
        urls = cluster.service_urls()
        command = [
            sys.executable,
            "-m",
            "bench.spark",
            "--one-task",
            urls["pulsarish"],
            urls["http"],
            topic,
        ]
        found = json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
        first, most = found["before"] / 1e6, found["greatest"] / 1e6
        print(
            f"one task, {found['bytes'] / 1e6:.0f} MB of values: {first:.0f} MB after the first "
            f"batch, {most:.0f} MB at most",
            flush=True,
        )
        rows.append({"name": f"memory of one task, {topic}", **found})
    return rows


def one_task(service_url: str, admin_url: str, topic: str) -> None:
    """Read a whole ledger as one split, as an executor's Python worker does, and print how far this
    process grew.
    """
    brokers = BrokerAccess.at(service_url, admin_url)
    view = ClusterView(brokers)
    log = view.log(f"persistent://public/default/{topic}")
    assert log is not None
    pieces, _ = pieces_of(log, log.before_first, log.last, fail_on_loss=True, option="")
    (split,) = cut(log, pieces, 1 << 40)
    options = read_options({**brokers.options(), "topic": topic}, streaming=False)
    spec = ReadSpec(
        brokers, options.bookies, DirectReads.ALWAYS, view.bookies(options), fail_on_loss=True
    )
    batches = read_split(spec, split, StructType([StructField("value", BinaryType())]))
    size = next(batches).nbytes
    before = peak_bytes()
    for batch in batches:
        size += batch.nbytes
    print(json.dumps({"bytes": size, "before": before, "greatest": peak_bytes()}))


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="count, tasks, memory; all of them without"
    )
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument(
        "--large", type=int, default=TOPICS["large"][0], metavar="MESSAGES", help="how many of 1 KB"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--one-task", nargs=3, metavar=("URL", "ADMIN", "TOPIC"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    if arguments.one_task:
        one_task(*arguments.one_task)
        return
    TOPICS["large"] = (arguments.large, TOPICS["large"][1])
    parts = arguments.parts or ["count", "tasks", "memory"]
    rows: list[dict[str, Any]] = []
    with running_cluster() as cluster:
        for topic in TOPICS:
            fill(cluster, topic)
        print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        if "count" in parts:
            rows += counts(cluster, arguments.runs)
        if "tasks" in parts:
            rows += scaling(cluster, arguments.runs)
        if "memory" in parts:
            rows += memory(cluster)
    if arguments.json:
        arguments.json.write_text(json.dumps({"load": os.getloadavg()[0], "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
