"""Two attempts of a task that write at the same time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import pulsarish
from pulsarish.local_cluster.processes import Cluster
from tests.spark import speculation_driver
from tests.spark.support import admin_of, environment

TOPIC = "public/default/speculative"


@pytest.mark.timeout(400)  # a Spark cluster of its own
def test_two_attempts_of_a_task_at_the_same_time_write_each_row_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    admin = admin_of(cluster)
    admin.topics.create(TOPIC)
    admin.topics.set_policy(TOPIC, "deduplication", True)
    admin.subscriptions.create(TOPIC, "keep", position="earliest")
    urls = cluster.service_urls()
    command = [
        sys.executable,
        speculation_driver.__file__,
        urls["pulsarish"],
        urls["http"],
        TOPIC,
        str(tmp_path),
    ]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert (tmp_path / "second").exists()
    found: dict[str, list[int]] = {}
    with pulsarish.Client(urls["pulsarish"]) as client:
        reader = client.create_reader(TOPIC, pulsarish.MessageId.earliest)
        while reader.has_message_available():
            message = reader.read_next(timeout_millis=60_000)
            found.setdefault(message.partition_key(), []).append(int(message.data()))
    assert found == {f"task-{task}": list(range(speculation_driver.ROWS)) for task in (0, 1)}
