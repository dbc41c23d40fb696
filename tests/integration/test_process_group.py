"""``--processes``: groups of real brokers and bookies."""

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
from pulsarish.local_cluster.plan import metadata_url, plan_cluster
from pulsarish.local_cluster.processes import Cluster, reap_children

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
        self.directory.mkdir()
        command = [sys.executable, "-m", "pulsarish", self.role, "--processes", "2"]
        command += [word for setting in self.settings for word in ("--set", setting)]
        with (self.directory / "out").open("wb") as out, (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=log
            )

    def ready_line(self) -> str:
        """What the supervisor has printed when all served; empty: not yet."""
        lines = (self.directory / "out").read_text().splitlines()
        return next((line for line in lines if line.startswith(f"2 {self.role}s ready")), "")

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


@dataclass
class Site:
    bookies: Group
    brokers: Group

    @property
    def urls(self) -> dict[str, str]:
        """The URLs of the address that all brokers share, by scheme."""
        urls = self.brokers.ready_line().split()[3:]
        return {
            url.partition(":")[2].partition(":")[0]: url.partition("internal:")[2] for url in urls
        }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two bookies and two brokers, each a group. At the end they have to stop gracefully."""
    home = tmp_path_factory.mktemp("groups")
    cluster = Cluster(home / "below")
    nodes = plan_cluster(bookies=1, brokers=1, metadata="embedded", base_port=0)
    cluster.create([node for node in nodes if node.role == "metadata"])
    groups: list[Group] = []

    def start(role: str, *settings: str) -> Group:
        common = ["metadata_url=" + metadata_url(cluster.nodes())]
        common += [f"{face}_address=127.0.0.1:0" for face in ("listen", "http")]
        groups.append(Group(role, [*common, *settings], home / role))
        groups[-1].until(lambda: groups[-1].ready_line() != "")
        return groups[-1]

    try:
        cluster.up()
        yield Site(
            start("bookie", "bookie_id=s", f"data_directory={home / 'data'}"),
            start(
                "broker",
                "broker_id=b",
                "pulsar_address=127.0.0.1:0",
                "managed_ledger.ensemble_size=2",
                "managed_ledger.write_quorum=2",
                "managed_ledger.ack_quorum=1",
            ),
        )
        for group in reversed(groups):
            group.process.terminate()
            assert group.process.wait(_DEADLINE_SECONDS) == 0, group.log()
            # Each process ended by itself.
            assert group.log().count("loop stopped") == 2
    finally:
        for group in groups:
            group.process.kill()
            group.process.wait()
        cluster.kill("metadata")
        reap_children()


def owners(*http: str, query: str = "") -> dict[str, str]:
    """The broker of each topic. The URLs are asked in turn."""
    found = {}
    for topic, url in zip(TOPICS, itertools.cycle(http), strict=False):
        path = f"/lookup/v2/topic/persistent/public/default/{topic}{query}"
        with urllib.request.urlopen(url + path, timeout=30) as answer:
            found[topic] = json.loads(answer.read())["brokerId"]
    return found


def received(client: pulsarish.Client, topic: str, count: int) -> list[bytes]:
    reader = client.create_reader(topic, pulsarish.MessageId.earliest)
    return [reader.read_next(30_000).data() for _ in range(count)]


def test_brokers_behind_one_address_outlive_one_of_them(site: Site) -> None:
    admin = Admin(site.urls["http"])
    with pulsarish.Client(site.urls["pulsarish"]) as client:
        assert [each["broker_id"] for each in admin.brokers.list()] == ["b-0", "b-1"]
        # The broker that is asked acquires bundles without an owner.
        own = [f"http://{each['http_address']}" for each in admin.brokers.list()]
        owners(*own, query="?authoritative=true")
        producers = {topic: client.create_producer(topic) for topic in TOPICS}
        before = owners(site.urls["http"])
        assert set(before.values()) == {"b-0", "b-1"}

        os.kill(site.brokers.pid("b-0"), signal.SIGKILL)
        # The clients of its topics go to the other broker, through the address that both share.
        for topic, producer in producers.items():
            producer.send(topic.encode())
        after = owners(site.urls["http"])
        assert {after[topic] for topic in TOPICS if before[topic] == "b-1"} == {"b-1"}
        log = site.brokers.log
        site.brokers.until(lambda: log().count("process serves process=b-0") == 2)
        assert "process ended and is started again process=b-0" in log()
        assert [each["broker_id"] for each in admin.brokers.list()] == ["b-0", "b-1"]
        for topic in TOPICS:
            assert received(client, topic, 1) == [topic.encode()]
    assert all(f" {name} broker" in log() for name in ("b-0", "b-1"))


def test_a_bookie_of_a_group_comes_back_with_its_data(site: Site) -> None:
    admin = Admin(site.urls["http"])
    # The same host: two copies of an entry lie here only when there is no other machine.
    registered = {each["bookie_id"]: each["host"] for each in admin.bookies.list()}
    assert registered.keys() == {"s-0", "s-1"}
    assert set(registered.values()) == {"127.0.0.1"}
    with pulsarish.Client(site.urls["pulsarish"]) as client:
        producer = client.create_producer("kept")
        sent = [b"%d" % number for number in range(20)]
        for content in sent[:10]:
            producer.send(content)
        os.kill(site.bookies.pid("s-0"), signal.SIGKILL)
        for content in sent[10:]:
            producer.send(content)
        log = site.bookies.log
        site.bookies.until(lambda: log().count("process serves process=s-0") == 2)
        # What was written before is read from the one that came back, too.
        os.kill(site.bookies.pid("s-1"), signal.SIGKILL)
        site.bookies.until(lambda: log().count("process serves process=s-1") == 2)
        admin.namespaces.unload("public/default")
        assert received(client, "kept", 20) == sent
