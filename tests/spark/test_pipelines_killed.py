"""A shipped pipeline as a process of its own, whose driver and whose brokers are killed in the
middle.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pulsarish.spark
from pulsarish.admin import Admin
from tests.spark.support import environment, until
from tests.spark.test_pipelines import EXAMPLES, hour_of, load
from tests.support.clusters import running_cluster

ROWS, BATCH = 2_000, 500
LATE = timedelta(days=1)
HOURLY = "public/default/hourly"

Sums = dict[tuple[datetime, str], list[int]]


class Running:
    """``pulsarish pipeline run`` of the hourly delays, as a process that can be started again."""

    def __init__(self, folder: Path, **options: str) -> None:
        out = folder / "out"
        settings = {
            "data": folder / "data",
            "out": out,
            "flights": "flown",
            "hourly": HOURLY,
            "late": "1d",
            "batch": BATCH,
        }
        self._command = [
            sys.executable,
            "-m",
            "pulsarish",
            "pipeline",
            "run",
            str(EXAMPLES / "hourly_delays.yaml"),
        ]
        self._command += [f"--set={name}={value}" for name, value in settings.items()]
        self._command += [f"--{name}={value}" for name, value in options.items()]
        self._commits = [
            out / "checkpoints" / f"hourly_delays-{sink}" / "commits"
            for sink in ("topic", "parquet")
        ]
        self._log = folder / "pipeline.log"
        self.start()

    def start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, env=environment(), stdout=log, stderr=log
            )

    def kill(self) -> None:
        """The driver alone. Spark's Java process ends when it notices, and may write until then."""
        self._process.kill()
        self._process.wait()

    def _has_ended(self) -> bool:
        code = self._process.poll()
        if code:
            text = self._log.read_text()
            # Spark gives a Python process ten seconds to start, whatever else the machine has to
            # do.
            assert "Python worker failed to connect back" in text, text[-4_000:]
            self.start()
        return code == 0

    def reaches(self, batch: int) -> None:
        until(
            f"batch {batch} of both sinks",
            lambda: (
                self._has_ended() or all((folder / str(batch)).exists() for folder in self._commits)
            ),
        )
        assert self._process.poll() is None

    def ends(self) -> None:
        until("the pipeline's end", self._has_ended)


def summed(messages: list[load.Message]) -> Sums:
    """What comes out when nothing is late: the hours that have ended by the watermark."""
    mark = max(message.time for message in messages) - LATE
    found: Sums = defaultdict(lambda: [0, 0, 0])
    for message in messages:
        if hour_of(message.time) + timedelta(hours=1) <= mark:
            delay = message.value["dep_delay"]
            sums = found[hour_of(message.time), message.value["carrier"]]
            sums[:] = [sums[0] + 1, sums[1] + (delay is None), sums[2] + (delay or 0)]
    return found


@pytest.mark.timeout(900)
def test_a_pipeline_goes_on_where_it_was_killed(spark: SparkSession, tmp_path: Path) -> None:
    flights = list(islice(load.read_flights(), ROWS))
    messages = load.flight_messages(flights)
    newest = messages[0].time
    for message in messages:
        newest = max(newest, message.time)
        assert newest - message.time < LATE, (
            "nothing is dropped as late, however the batches are cut"
        )
    load.write_tables(flights, tmp_path / "data")
    pulsarish.spark.register(spark)
    with running_cluster(tmp_path / "cluster", bookies=3, brokers=2) as cluster:
        service_url, admin_url = cluster.service_urls()["pulsarish"], cluster.admin_url()
        admin = Admin(admin_url)
        load.keep(admin_url)
        load.send(service_url, "flown", messages)
        running = Running(tmp_path, **{"url": service_url, "admin-url": admin_url})
        try:
            running.reaches(0)
            running.kill()
            running.start()
            running.reaches(2)
            owner = admin.topics.lookup(HOURLY)["brokerId"]
            cluster.kill(
                next(
                    node.name
                    for node in cluster.nodes()
                    if node.role == "broker" and owner.startswith(node.name)
                )
            )
            running.ends()
        finally:
            running.kill()
        expected = summed(messages)
        written = spark.read.parquet(str(tmp_path / "out/hours"))
        rows = written.collect()
        found = [
            (
                (row.window_start.astimezone(UTC), row.carrier),
                [row.flights, row.cancelled, row.delay_minutes or 0],
            )
            for row in rows
        ]
        assert len(found) == len(expected)
        assert dict(found) == expected
        fields = (
            "window_start timestamp, carrier string, flights bigint, cancelled bigint, "
            "delay_minutes bigint"
        )
        topic = (
            spark.read.format(pulsarish.spark.FORMAT)
            .options(**{"service.url": service_url, "admin.url": admin_url}, topic=HOURLY)
            .load()
        )
        values = topic.selectExpr(f"from_json(cast(value as string), '{fields}') as row").select(
            "row.*"
        )
        assert sorted(map(str, values.collect())) == sorted(
            map(str, written.select(values.columns).collect())
        )
        assert (tmp_path / "out/delays.png").exists()
