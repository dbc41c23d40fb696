"""Topic to topic through Spark, exactly once: ``python -m bench.spark_stream [--messages N]
[--per-trigger N] [--out FOLDER]``.

A source topic is filled with keyed messages in batches of 1,000; then a streaming query copies it
to a topic that drops duplicates, with triggers of a second, until nothing is left. Spark
(``local[2]``), broker, bookies and metadata share the machine. Written: messages a second over all
triggers after the first few, in which Python workers start; each trigger's figures as JSON; their
picture as PNG. At the end the sink is counted: it has each message once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pulsarish
import pulsarish.spark
from bench.measure import running_cluster
from pulsarish.admin import Admin

SOURCE, SINK = "public/default/stream-from", "public/default/stream-to"
WARM_TRIGGERS = 3
KEYS = 1_000


def fill(url: str, messages: int, size: int) -> None:
    with pulsarish.Client(url) as client:
        producer = client.create_producer(
            SOURCE, batching_enabled=True, block_if_queue_full=True, max_pending_messages=100_000
        )
        payload = b"x" * size
        for number in range(messages):
            producer.send_async(payload, None, partition_key=f"key-{number % KEYS}")
        producer.flush()


def copy(
    urls: dict[str, str], arguments: argparse.Namespace, checkpoint: str
) -> list[dict[str, Any]]:
    """The progress of each trigger that had rows."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(arguments.master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    pulsarish.spark.register(spark)
    options = {"service.url": urls["pulsarish"], "admin.url": urls["http"]}
    rows = (
        spark.readStream.format("pulsarish")
        .schema("value binary, key string")
        .options(
            **options,
            topic=SOURCE,
            startingOffsets="earliest",
            maxMessagesPerTrigger=str(arguments.per_trigger),
        )
        .load()
    )
    query = (
        rows.writeStream.format("pulsarish")
        .options(**options, topic=SINK, checkpointLocation=checkpoint)
        .trigger(processingTime=f"{arguments.trigger_ms} milliseconds")
        .start()
    )
    query.processAllAvailable()
    query.stop()
    found = [json.loads(progress.json) for progress in query.recentProgress]
    spark.stop()
    return [progress for progress in found if progress["numInputRows"]]


def in_sink(url: str) -> int:
    with pulsarish.Client(url) as client:
        count = 0
        for name in client.get_topic_partitions(SINK):
            reader = client.create_reader(
                name, pulsarish.MessageId.earliest, receiver_queue_size=10_000
            )
            while reader.has_message_available():
                reader.read_next(timeout_millis=10_000)
                count += 1
    return count


def picture(triggers: list[dict[str, Any]], title: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    figure, axes = plt.subplots(figsize=(10, 4.5))
    axes.bar(
        range(len(triggers)),
        [trigger["messages_per_second"] for trigger in triggers],
        color="#3b7dd8",
    )
    axes.axhline(50_000, color="#c0392b", linewidth=1, linestyle="--")
    axes.set(title=title, xlabel="trigger", ylabel="messages/s")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--per-trigger", type=int, default=100_000)
    parser.add_argument("--trigger-ms", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--out", type=Path, default=Path("."))
    arguments = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with (
        running_cluster(bookies=3, brokers=1) as cluster,
        tempfile.TemporaryDirectory() as checkpoint,
    ):
        urls = cluster.service_urls()
        admin = Admin(urls["http"])
        # Nobody subscribes to either topic: without retention a ledger is gone soon after it is
        # closed.
        admin.namespaces.set_policy(
            "public/default", "retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        )
        for topic in (SOURCE, SINK):
            admin.topics.create(topic, partitions=arguments.partitions)
        admin.topics.set_policy(SINK, "deduplication", True)
        fill(urls["pulsarish"], arguments.messages, arguments.size)
        started = time.perf_counter()
        progress = copy(urls, arguments, checkpoint)
        seconds = time.perf_counter() - started
        stored = in_sink(urls["pulsarish"])
    assert stored == arguments.messages, (
        f"{stored} messages are in the sink, {arguments.messages} were in the source"
    )
    triggers = []
    for each in progress:
        took = max(each["durationMs"]["triggerExecution"], arguments.trigger_ms) / 1_000
        triggers.append(
            {
                "batch": each["batchId"],
                "messages": each["numInputRows"],
                "took_ms": each["durationMs"]["triggerExecution"],
                "messages_per_second": round(each["numInputRows"] / took),
                "durations_ms": each["durationMs"],
            }
        )
    warm = triggers[WARM_TRIGGERS:-1]
    if not warm:
        raise SystemExit(
            f"{len(triggers)} triggers had rows, of which {WARM_TRIGGERS} and the last do not "
            "count: give more --messages"
        )
    rate = sum(each["messages"] for each in warm) / sum(
        max(each["took_ms"], arguments.trigger_ms) / 1_000 for each in warm
    )
    busy = sum(each["messages"] for each in warm) / sum(each["took_ms"] / 1_000 for each in warm)
    result = {
        "messages": arguments.messages,
        "size_bytes": arguments.size,
        "partitions": arguments.partitions,
        "trigger_ms": arguments.trigger_ms,
        "per_trigger": arguments.per_trigger,
        "messages_per_second": round(rate),
        "messages_per_second_while_busy": round(busy),
        "median_trigger_ms": round(statistics.median(each["took_ms"] for each in warm)),
        "seconds_with_start": round(seconds, 1),
        "stored": stored,
        "triggers": triggers,
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "spark_stream.json").write_text(json.dumps(result, indent=1))
    title = (
        f"Topic to topic, exactly once: {round(rate):,} messages/s of {arguments.size} B, a "
        f"trigger each {arguments.trigger_ms} ms"
    )
    picture(triggers, title, arguments.out / "spark_stream.png")
    print(
        json.dumps({name: value for name, value in result.items() if name != "triggers"}, indent=1)
    )


if __name__ == "__main__":
    main()
