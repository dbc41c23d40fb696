"""One Spark and one cluster of real processes for all of these tests; Spark wants Java."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from pulsarish.local_cluster.processes import Cluster
from tests.spark.support import JAVA_OPTIONS
from tests.support.clusters import running_cluster

# Where there is no Java these tests are left out, as `make test` says; CI has it.
collect_ignore_glob = [] if shutil.which("java") or os.environ.get("CI") else ["test_*.py"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["SPARK_SUBMIT_OPTS"] = JAVA_OPTIONS
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(
        tmp_path_factory.mktemp("spark") / "cluster", bookies=3, brokers=1
    ) as running:
        yield running
