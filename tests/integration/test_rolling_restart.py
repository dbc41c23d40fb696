"""Every bookie and broker is restarted in turn under load: no send fails, nothing is lost, nothing
comes twice.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

import pulsarish
from pulsarish.admin import Admin
from pulsarish.local_cluster.restarts import nodes_to_restart, restart_together, rolling_restart
from pulsarish.model.errors import NotAllowedError, Timeout
from tests.integration.conftest import StartCluster
from tests.integration.test_cluster import read_all

TOPICS = [f"persistent://public/default/rolling-{number}" for number in range(6)]


class Load:
    """Producers and consumers, each in a thread; the first half of the topics is sent to one
    message at a time.
    """

    def __init__(self, url: str) -> None:
        self.failed: list[object] = []
        self.acknowledged: dict[str, int] = dict.fromkeys(TOPICS, 0)
        self.received: dict[str, list[int]] = {topic: [] for topic in TOPICS}
        self.pause_seconds_max = 0.0
        self._client = pulsarish.Client(url)
        self._sending = threading.Event()
        self._sending.set()
        self._sent = threading.Event()
        self._senders: list[threading.Thread] = []
        self._receivers: list[threading.Thread] = []
        self._consumers = [
            self._client.subscribe(topic, "s", initial_position=pulsarish.InitialPosition.Earliest)
            for topic in TOPICS
        ]
        for index, topic in enumerate(TOPICS):
            self._spawn(
                self._senders,
                lambda topic=topic, index=index: (
                    self._send_each if index < 3 else self._send_batches
                )(topic),
            )
            self._spawn(
                self._receivers,
                lambda topic=topic, index=index: self._receive(topic, self._consumers[index]),
            )

    def _spawn(self, among: list[threading.Thread], work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        among.append(thread)
        thread.start()

    def _producer(self, topic: str, *, batching: bool) -> pulsarish.Producer:
        return self._client.create_producer(
            topic, producer_name="p", batching_enabled=batching, block_if_queue_full=True
        )

    def _send_each(self, topic: str) -> None:
        producer = self._producer(topic, batching=False)
        while self._sending.is_set():
            begun = time.monotonic()
            try:
                producer.send(b"%d" % self.acknowledged[topic])
            except pulsarish.PulsarException as error:
                self.failed.append(error)
                return
            self.pause_seconds_max = max(self.pause_seconds_max, time.monotonic() - begun)
            self.acknowledged[topic] += 1
            time.sleep(0.01)
        producer.close()

    def _send_batches(self, topic: str) -> None:
        producer = self._producer(topic, batching=True)
        sent = 0

        def done(result: object, _message_id: object) -> None:
            if result == pulsarish.Result.Ok:
                self.acknowledged[topic] += 1
            else:
                self.failed.append(result)

        while self._sending.is_set():
            for _ in range(20):
                producer.send_async(b"%d" % sent, done)
                sent += 1
            time.sleep(0.05)
        producer.flush()
        producer.close()

    def _receive(self, topic: str, consumer: pulsarish.Consumer) -> None:
        found = self.received[topic]
        seen: set[int] = set()
        while not self._sent.is_set() or len(seen) < self.acknowledged[topic]:
            try:
                message = consumer.receive(timeout_millis=2_000)
            except pulsarish.Timeout:
                continue
            found.append(int(message.data()))
            seen.add(found[-1])
            consumer.acknowledge(message)

    def finish(self) -> None:
        self._sending.clear()
        for thread in self._senders:
            thread.join(60)
            assert not thread.is_alive()
        self._sent.set()
        for thread in self._receivers:
            thread.join(60)
            assert not thread.is_alive()
        self._client.close()


def test_a_rolling_restart_under_load_fails_no_send_and_loses_and_repeats_nothing(
    start_cluster: StartCluster,
) -> None:
    keep = ["default_retention_time_minutes=-1", "default_retention_size_mb=-1"]
    cluster = start_cluster(
        brokers=2, settings={"broker": ["broker_deduplication_enabled=true", *keep]}
    )
    load = Load(cluster.service_urls()["pulsarish"])
    before = {node.name: cluster.pid(node.name) for node in cluster.nodes()}
    rows = rolling_restart(cluster, nodes_to_restart(cluster, ()), 60, print)
    load.finish()
    print(
        f"longest pause of a single send: {load.pause_seconds_max:.2f} s; "
        f"{sum(load.acknowledged.values())} messages"
    )
    assert [row["node"] for row in rows] == [
        "bookie-1",
        "bookie-2",
        "bookie-3",
        "broker-1",
        "broker-2",
    ]
    changed = [node.name for node in cluster.nodes() if cluster.pid(node.name) != before[node.name]]
    assert changed == ["bookie-1", "bookie-2", "bookie-3", "broker-1", "broker-2"]
    assert load.failed == []
    client = pulsarish.Client(cluster.service_urls()["pulsarish"])
    for topic in TOPICS:
        assert load.acknowledged[topic] > 0
        # With deduplication, in the log each message is there once and in order; delivery may
        # repeat what was not yet acknowledged.
        assert read_all(client, topic) == list(range(load.acknowledged[topic]))
        assert sorted(set(load.received[topic])) == list(range(load.acknowledged[topic]))
    client.close()


def test_nothing_is_stopped_while_the_cluster_is_not_whole(start_cluster: StartCluster) -> None:
    cluster = start_cluster(bookies=2, brokers=1)
    with pytest.raises(NotAllowedError, match="one broker"):
        rolling_restart(cluster, nodes_to_restart(cluster, ()), 1, print)
    cluster.kill("bookie-2")
    pid = cluster.pid("bookie-1")
    with pytest.raises(Timeout, match="bookie-2 is down"):
        rolling_restart(cluster, nodes_to_restart(cluster, ["bookie-1"]), 0, print)
    assert cluster.pid("bookie-1") == pid
    restart_together(cluster, [cluster.node("bookie-1")], print)
    assert cluster.pid("bookie-1") != pid


def test_the_command_restarts_what_is_named(start_cluster: StartCluster) -> None:
    cluster = start_cluster(bookies=1, brokers=2)
    pids = {name: cluster.pid(name) for name in ("broker-1", "broker-2")}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pulsarish",
            "cluster",
            "restart",
            "--rolling",
            "broker-2",
            "--dir",
            str(cluster.directory),
            "-o",
            "json",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert cluster.pid("broker-1") == pids["broker-1"]
    assert cluster.pid("broker-2") != pids["broker-2"]


def test_a_decommissioned_bookie_is_not_waited_for(start_cluster: StartCluster) -> None:
    cluster = start_cluster(bookies=3, brokers=2)
    cluster.stop("bookie-3")
    said: list[str] = []
    with pytest.raises(Timeout, match="bookie-3 is down"):
        rolling_restart(cluster, nodes_to_restart(cluster, ["broker-2"]), 0, said.append)
    Admin(cluster.admin_url()).bookies.decommission("bookie-3")
    rows = rolling_restart(
        cluster, nodes_to_restart(cluster, ["bookie-3", "broker-2"]), 60, said.append
    )
    assert [row["node"] for row in rows] == ["broker-2"]
    assert "bookie-3 is decommissioned: it is left out" in said
