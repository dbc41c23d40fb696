"""One cluster of real processes for all official clients, which are programs of their own: PROGRAM SCENARIO SERVICE_URL ADMIN_URL NAME.

A program ends with status 0 when the scenario holds, and says on standard error what does not. In the scenario ``owner_killed`` it prints
``KILL`` once it has published enough, and goes on. ``NAME`` is the scenario's own: topics are ``persistent://public/default/NAME...``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path

import pytest

from pulsarish.admin.client import Admin
from pulsarish.cli.processes import Cluster, reap_children
from tests.support.clusters import running_cluster

__all__ = ["ClientProgram", "Site"]

SCENARIO_SECONDS_MAX = 150.0

# What a client logs when a frame was not what it expected, whatever else it then does about it.
_PROTOCOL_COMPLAINTS = re.compile(
    r"unexpected|unknown command|invalid (command|message|consumer id|producer id)|checksum mismatch|corrupt"
    r"|Received (unknown|invalid|error from server)|failed to parse|out of order|NotImplemented|not handled|unhandled",
    re.IGNORECASE,
)


class Site:
    """Where the programs connect to."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        urls = cluster.service_urls()
        self.service_url = urls["pulsar"]
        self.admin_url = urls["http"]
        self.admin = Admin(cluster.admin_url())

    def kill_owner(self, topic: str) -> None:
        """The broker that serves a topic dies, and is started again a moment later."""
        owner = self.admin.topics.lookup(topic)["brokerId"]
        self.cluster.kill(owner)
        self.cluster.start(next(node for node in self.cluster.nodes() if node.name == owner))

    @contextmanager
    def through_a_proxy(self) -> Iterator[Site]:
        """The same brokers behind a proxy of their own."""
        metadata_url = self.cluster.service_urls()["metadata"]
        settings = [f"metadata_url={metadata_url}", "pulsar_address=127.0.0.1:0", "http_address=127.0.0.1:0"]
        command = [sys.executable, "-m", "pulsarish", "proxy", *[word for setting in settings for word in ("--set", setting)]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                ready = process.stdout.readline()
                found = re.search(r"pulsar=(\S+) http=(\S+)", ready)
                assert found is not None, ready
                self._wait_well(f"http://{found[2]}/health")
                behind = copy(self)
                behind.service_url = f"pulsar://{found[1]}"
                yield behind
            finally:
                process.terminate()

    @staticmethod
    def _wait_well(url: str) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(url, timeout=5):
                    return
            except OSError:
                time.sleep(0.05)
        pytest.fail(f"{url} does not become well")


class ClientProgram:
    """``complaints_allowed``: scenarios in which the broker dies, where a client says what it likes."""

    def __init__(self, command: Sequence[str], directory: Path) -> None:
        self._command = list(command)
        self._directory = directory

    def run(self, scenario: str, site: Site, name: str) -> None:
        command = [*self._command, scenario, site.service_url, site.admin_url, name]
        log = self._directory / f"{name}.log"
        lines: list[str] = []
        with log.open("wb") as out, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, text=True) as process:
            timer = threading.Timer(SCENARIO_SECONDS_MAX, process.kill)
            timer.start()
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    lines.append(line)
                    if line.strip() == "KILL":
                        site.kill_owner(f"persistent://public/default/{name}")
                status = process.wait()
            finally:
                timer.cancel()
                process.kill()
        said = log.read_text(errors="replace")
        talk = "".join(lines) + said
        assert status == 0, f"{scenario} ended with {status}:\n{talk[-8_000:]}"
        complaints = [line for line in talk.splitlines() if _PROTOCOL_COMPLAINTS.search(line)]
        assert scenario == "owner_killed" or not complaints, "\n".join(complaints[:20])


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_cluster(tmp_path_factory.mktemp("clients"), bookies=3, brokers=2) as cluster:
        found = Site(cluster)
        # Both brokers serve: lookups are redirected in half of the cases.
        deadline = time.monotonic() + 30
        while len(found.admin.brokers.list()) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        yield found
    reap_children()
