"""Topic to topic on executors of their own, with executors, the driver and the owner of the sink
killed in the middle.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import pulsarish
from pulsarish.admin import Admin
from pulsarish.local_cluster.processes import Cluster
from pulsarish.model.errors import ServiceNotReady
from pulsarish.spark.retry import retry_while_retryable
from tests.spark import exactly_once_driver
from tests.spark.support import environment, until
from tests.support.clusters import running_cluster

MASTER = "local-cluster[2,1,1024]"
KEYS, MESSAGES = 23, 60_000
SOURCE, SINK = "public/default/from", "public/default/to"


class Driver:
    """The application, as a process that can be started again from its checkpoint."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        service_url = cluster.service_urls()["pulsarish"]
        self._command = [
            sys.executable,
            exactly_once_driver.__file__,
            MASTER,
            service_url,
            cluster.admin_url(),
            SOURCE,
            SINK,
            str(folder),
        ]
        self._folder = folder
        self._sessions: list[int] = []
        self.start()

    def start(self) -> None:
        with (self._folder / "driver.log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=environment(), stdout=log, stderr=log, start_new_session=True
            )
        self._sessions.append(self.process.pid)

    def _of_session(self, words: str) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if words in command and os.getsid(int(entry.name)) in self._sessions:
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def kill_executor(self) -> None:
        """One of the two; its Python workers live on for a moment, and may write."""
        until("an executor runs", lambda: bool(self._of_session("CoarseGrainedExecutorBackend")))
        os.kill(self._of_session("CoarseGrainedExecutorBackend")[0], signal.SIGKILL)

    def kill(self) -> None:
        """The driver alone: its executors live on until they notice."""
        for pid in [self.process.pid, *self._of_session("spark.deploy.SparkSubmit")]:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        for pid in self._of_session(""):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


@contextmanager
def running_driver(cluster: Cluster, folder: Path) -> Iterator[Driver]:
    driver = Driver(cluster, folder)
    try:
        yield driver
    finally:
        driver.end()


class Feed(threading.Thread):
    """Publishes to the source in its own time; ``numbers`` of a key grow."""

    def __init__(self, client: pulsarish.Client) -> None:
        super().__init__(daemon=True)
        self._client = client
        self.allowed = threading.Semaphore(0)

    def run(self) -> None:
        producer = self._client.create_producer(
            SOURCE, batching_enabled=True, block_if_queue_full=True
        )
        for number in range(MESSAGES):
            if number % (MESSAGES // 6) == 0:
                producer.flush()
                self.allowed.acquire()
            producer.send_async(b"%d" % number, None, partition_key=f"key-{number % KEYS}")
        producer.flush()


def stored(admin: Admin) -> int:
    """Bytes in the sink. Brokers that take over are waited for."""

    def asked() -> int:
        found = [
            admin.topics.stats(f"{SINK}-partition-{index}").get("storageSize") for index in range(2)
        ]
        if None in found:
            raise ServiceNotReady("the sink is being opened")
        return sum(found)

    return retry_while_retryable(asked, 60_000)


@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_while_executors_driver_and_broker_are_killed(
    tmp_path: Path,
) -> None:
    with running_cluster(tmp_path / "cluster", bookies=3, brokers=2) as cluster:
        admin = Admin(cluster.admin_url())
        # Nobody subscribes to either topic: without retention a ledger is gone soon after it is
        # closed.
        admin.namespaces.set_policy(
            "public/default", "retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
        )
        admin.topics.create(SOURCE, partitions=2)
        admin.topics.create(SINK, partitions=2)
        admin.topics.set_policy(SINK, "deduplication", True)
        with (
            pulsarish.Client(cluster.service_urls()["pulsarish"]) as client,
            running_driver(cluster, tmp_path) as driver,
        ):
            feed = Feed(client)
            feed.start()

            def more() -> int:
                """Let more be published, and wait until the first of it is copied."""
                before = stored(admin)
                feed.allowed.release()
                until(
                    "more is written",
                    lambda: driver.process.poll() is not None or stored(admin) > before,
                )
                assert driver.process.poll() is None, (tmp_path / "driver.log").read_text()[-4_000:]
                return stored(admin)

            more()
            driver.kill_executor()
            more()
            driver.kill()
            driver.start()
            more()
            owner = admin.topics.lookup(f"{SINK}-partition-0")["brokerId"]
            broker = next(
                node
                for node in cluster.nodes()
                if node.role == "broker" and owner.startswith(node.name)
            )
            cluster.kill(broker.name)
            more()
            cluster.start(broker)
            driver.kill_executor()
            more()
            feed.allowed.release()
            feed.join()
            (tmp_path / "stop").touch()
            driver.process.wait(timeout=180)
            assert driver.process.returncode == 0, (tmp_path / "driver.log").read_text()[-4_000:]
            found: dict[str, list[int]] = {}
            for name in client.get_topic_partitions(SINK):
                reader = client.create_reader(name, pulsarish.MessageId.earliest)
                while reader.has_message_available():
                    message = reader.read_next(timeout_millis=60_000)
                    found.setdefault(message.partition_key(), []).append(int(message.data()))
        wanted = {f"key-{key}": list(range(key, MESSAGES, KEYS)) for key in range(KEYS)}
        lost = sum(len(set(wanted[key]) - set(found.get(key, []))) for key in wanted)
        doubled = sum(len(numbers) - len(set(numbers)) for numbers in found.values())
        assert (lost, doubled) == (0, 0)
        assert found == wanted
