"""A Spark application on a locked cluster, for ``test_locked.py``: reads, writes, streams, and what
is refused, as several roles. It writes what happened to a file as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import pulsarish.spark


def main(folder: Path, brokers: dict[str, str], cluster_key: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.log.level", "INFO")
        # What the web interface shows is made of this log.
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", f"file://{folder}/events")
        .config("spark.eventLog.compress", "false")
        .getOrCreate()
    )
    pulsarish.spark.register(spark)

    def of(role: str, **options: str) -> dict[str, str]:
        login = {"authPlugin": "token", "authParams": f"token:file://{folder}/{role}.token"}
        return {**brokers, **login, **options}

    def read(**options: str) -> list[str]:
        frame = spark.read.format("pulsarish").options(**options).load()
        frame.explain("extended")
        return sorted(bytes(row.value).decode() for row in frame.select("value").collect())

    def write(**options: str) -> None:
        rows = spark.createDataFrame([(b"w%d" % number,) for number in range(10)], "value binary")
        rows.write.format("pulsarish").mode("append").options(**options).save()

    def copy(role: str) -> str:
        frame = (
            spark.readStream.format("pulsarish")
            .options(**of(role, topic="source", startingOffsets="earliest", subscription="follow"))
            .load()
        )
        query = (
            frame.select("value")
            .writeStream.format("pulsarish")
            .options(**of(role, topic="copy"))
            .option("checkpointLocation", f"{folder}/checkpoint-{role}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        query.explain(extended=True)
        return str(query.lastProgress)

    secret = Path(folder, "reader.token").read_text()
    direct = {
        "topic": "source",
        "directReads": "always",
        "bookieTlsTrustCertsFilePath": f"{folder}/security/ca.pem",
        "bookieTlsCertificateFilePath": f"{folder}/security/server.pem",
        "bookieTlsPrivateKeyFilePath": f"{folder}/security/server.key",
    }
    tried: dict[str, Callable[[], Any]] = {
        "reader reads": lambda: read(**of("reader", topic="source")),
        "profile reads": lambda: read(profile="admin", topic="source"),
        "stranger reads": lambda: read(**of("stranger", topic="source")),
        "unknown reads": lambda: read(**brokers, topic="source"),
        "secret in options": lambda: read(
            **brokers, topic="source", authPlugin="token", authParams=f"token:{secret}"
        ),
        "secret in a wrong option": lambda: read(**brokers, topic="source", token=secret),
        "operator reads bookies": lambda: read(
            profile="admin", clusterKeyFile=cluster_key, **direct
        ),
        "bookies without the key": lambda: read(profile="admin", **direct),
        "reader lists bookies": lambda: read(**of("reader", clusterKeyFile=cluster_key, **direct)),
        "prefixed reads": lambda: read(
            **of("reader", topic="public/prefixed/t", subscriptionRolePrefix="reader")
        ),
        "reader without a prefix": lambda: read(**of("reader", topic="public/prefixed/t")),
        "writer writes": lambda: write(**of("writer", topic="written")),
        "writer pins partitions": lambda: write(
            **of("writer", topic="parts", exactlyOnceName="once", exactlyOnceVersion="1")
        ),
        "reader writes": lambda: write(**of("reader", topic="written")),
        "copier streams": lambda: copy("copier"),
        "reader streams": lambda: copy("reader"),
        "result": lambda: [read(**of("reader", topic=topic)) for topic in ("written", "copy")],
    }
    found: dict[str, Any] = {}
    for name, action in tried.items():
        try:
            found[name] = action()
        except PySparkException as error:
            found[name] = f"refused: {error}"
            print(error, flush=True)
    (folder / "found.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3])
