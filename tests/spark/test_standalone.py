"""Jobs over the ledgers of a standalone server, which serves its metadata when it is asked to."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import pulsarish
from pulsarish.admin import Admin
from pulsarish.managed_ledger.options import Retention
from pulsarish.model.errors import MetadataUnavailable
from pulsarish.spark.jobs.cluster_access import JobCluster, leave, site
from pulsarish.spark.jobs.leaks import find_leaks
from pulsarish.spark.jobs.ledger_selection import LedgerSelection
from pulsarish.spark.jobs.usage import usage
from pulsarish.spark.jobs.verify import verify

pytestmark = pytest.mark.timeout(600)  # several Spark jobs


@contextmanager
def standalone(folder: Path) -> Iterator[dict[str, str]]:
    """Its URLs by scheme. It is killed at the end."""
    command = [
        sys.executable,
        "-m",
        "pulsarish",
        "standalone",
        "--data",
        str(folder / "data"),
        "--metadata-address",
        "127.0.0.1:0",
    ]
    command += ["--bookie-set", "listen_address=127.0.0.1:0"]
    for name in ("listen_address", "http_address", "pulsar_address"):
        command += ["--broker-set", f"{name}=127.0.0.1:0"]
    with (
        (folder / "log").open("ab") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            words = process.stdout.readline().split()
            assert words[:2] == ["standalone", "ready"], (folder / "log").read_text()
            yield {url.partition(":")[0]: url for url in words[2:]}
        finally:
            process.kill()


def test_jobs_look_at_a_standalone_server_that_serves_its_metadata(
    spark: SparkSession, tmp_path: Path
) -> None:
    with standalone(tmp_path) as urls, pulsarish.Client(urls["pulsarish"]) as client:
        client.subscribe(
            "kept", "keep", initial_position=pulsarish.InitialPosition.Earliest
        ).close()
        producer = client.create_producer("kept", batching_enabled=False)
        for number in range(100):
            producer.send_async(b"%d" % number, None)
        producer.flush()
        Admin(urls["http"]).topics.unload("kept")
    # What the killed process had of sessions is in the tree still.
    with standalone(tmp_path) as urls:
        where = JobCluster(urls["zk"])
        try:
            report = verify(spark, where, LedgerSelection(("kept",)))
            assert (report.findings, report.entries, report.copies) == ([], 100, 100)
            assert find_leaks(spark, where, retention=Retention(), min_age_ms=0).gaps == []
            (row,) = usage(
                spark,
                where,
                LedgerSelection(("kept",)),
                retention=Retention(),
                samples=0,
                topics_max=1,
            ).topics
            assert row["entries"] == 100
        finally:
            leave(where)
    with pytest.raises(
        MetadataUnavailable,
        match=(
            r"no metadata server answered .* standalone server shows its metadata with "
            r"--metadata"
        ),
    ):
        site(where)
