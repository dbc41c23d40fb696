"""``pulsarish broker --processes``: real processes behind one address."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import pulsarish
from pulsarish.admin import Admin
from pulsarish.local_cluster.processes import Cluster, metadata_url, plan_cluster, reap_children

TOPICS = [f"t{number}" for number in range(12)]  # over the four bundles of public/default
_DEADLINE_SECONDS = 60.0


@dataclass
class Group:
    """``pulsarish ROLE --processes 2``, and the lines that it has printed."""

    role: str
    settings: list[str]
    directory: Path
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        command = [sys.executable, "-m", "pulsarish", self.role, "--processes", "2"]
        command += [word for setting in self.settings for word in ("--set", setting)]
        with (self.directory / "out").open("wb") as out, (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=log
            )

    def lines(self) -> list[str]:
        return (self.directory / "out").read_text().splitlines()

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def until(self, met: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not met():
            assert time.monotonic() < deadline, self.log()
            assert self.process.poll() is None, self.log()
            time.sleep(0.05)

    def pid(self, name: str) -> int:
        """The pid of the newest process of this name."""
        started = [line for line in self.log().splitlines() if f"process={name} pid=" in line]
        return int(started[-1].rpartition("pid=")[2].split()[0])


@pytest.fixture
def below(tmp_path: Path) -> Iterator[Cluster]:
    """A metadata daemon and a bookie."""
    cluster = Cluster(tmp_path / "below")
    nodes = plan_cluster(bookies=1, brokers=1, metadata="embedded", base_port=0)
    cluster.create([node for node in nodes if node.role != "broker"])
    try:
        cluster.up()
        yield cluster
    finally:
        for node in cluster.nodes():
            if cluster.pid(node.name) is not None:
                cluster.kill(node.name)
        reap_children()


@pytest.fixture
def brokers(below: Cluster, tmp_path: Path) -> Iterator[Group]:
    settings = [
        "broker_id=b",
        *(f"{face}_address=127.0.0.1:0" for face in ("listen", "http", "pulsar")),
        f"metadata_url={metadata_url(below.nodes())}",
        *(f"managed_ledger.{size}=1" for size in ("ensemble_size", "write_quorum", "ack_quorum")),
    ]
    group = Group("broker", settings, tmp_path)
    try:
        group.until(lambda: any(line.startswith("2 brokers ready") for line in group.lines()))
        yield group
    finally:
        group.process.kill()
        group.process.wait()


def shared(group: Group) -> dict[str, str]:
    """The URLs of the address that all processes share, by scheme."""
    (line,) = [line for line in group.lines() if line.startswith("2 brokers ready")]
    urls = line.split()[3:]
    return {url.partition(":")[2].partition(":")[0]: url.partition("internal:")[2] for url in urls}


def owners(*http: str, query: str = "") -> dict[str, str]:
    """The broker of each topic. The URLs are asked in turn."""
    found = {}
    for topic, url in zip(TOPICS, itertools.cycle(http), strict=False):
        path = f"/lookup/v2/topic/persistent/public/default/{topic}{query}"
        with urllib.request.urlopen(url + path, timeout=30) as answer:
            found[topic] = json.loads(answer.read())["brokerId"]
    return found


def test_brokers_behind_one_address_outlive_one_of_them_and_stop_together(brokers: Group) -> None:
    urls = shared(brokers)
    admin = Admin(urls["http"])
    with pulsarish.Client(urls["pulsarish"]) as client:
        own = [f"http://{each['http_address']}" for each in admin.brokers.list()]
        # The broker that is asked acquires bundles without an owner.
        owners(*own, query="?authoritative=true")
        producers = {topic: client.create_producer(topic) for topic in TOPICS}
        before = owners(urls["http"])
        assert set(before.values()) == {"b-0", "b-1"}
        assert [each["broker_id"] for each in admin.brokers.list()] == ["b-0", "b-1"]

        os.kill(brokers.pid("b-0"), signal.SIGKILL)
        # The clients of its topics go to the other broker, through the address that both share.
        for topic, producer in producers.items():
            producer.send(topic.encode())
        after = owners(urls["http"])
        assert {after[topic] for topic in TOPICS if before[topic] == "b-1"} == {"b-1"}
        brokers.until(lambda: brokers.log().count("process serves process=b-0") == 2)
        assert "process died and is started again process=b-0" in brokers.log()
        assert [each["broker_id"] for each in admin.brokers.list()] == ["b-0", "b-1"]

        for topic in TOPICS:
            consumer = client.subscribe(
                topic, "s", initial_position=pulsarish.InitialPosition.Earliest
            )
            assert consumer.receive(30_000).data() == topic.encode()
    brokers.process.terminate()
    assert brokers.process.wait(_DEADLINE_SECONDS) == 0
    # Each handed over what it had and ended by itself.
    assert brokers.log().count("loop stopped") == 2
    assert {f" {name} broker" in brokers.log() for name in ("b-0", "b-1")} == {True}
