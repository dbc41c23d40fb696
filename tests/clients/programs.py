"""The programs that speak for the official clients, as the harness runs them: PROGRAM SCENARIO
SERVICE_URL ADMIN_URL NAME.

A program ends with status 0 when the scenario holds, and says on standard error what does not. In
the scenario ``owner_killed`` it prints ``KILL`` once it has published enough, and goes on. ``NAME``
is the scenario's own: topics are ``persistent://public/default/NAME...``.

A program that is slow to start can stand: with ``-`` in place of the scenario and no name it reads
lines ``SCENARIO NAME`` and answers each with ``PASSED`` or ``FAILED``.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pytest

from pulsarish.admin.client import Admin
from pulsarish.local_cluster.processes import Cluster

__all__ = ["ClientProgram", "Complaints", "Site", "StandingProgram"]

SCENARIO_SECONDS_MAX = 150.0


class Site:
    """Where the programs connect to."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        urls = cluster.service_urls()
        self.service_url = urls["pulsar"]
        self.admin_url = urls["http"]
        self.connect_url = self.proxy_http_url = ""
        self.admin = Admin(cluster.admin_url())

    def kill_owner(self, topic: str) -> None:
        """The broker that serves a topic dies, and is started again a moment later.

        Returns when it serves again, for what follows.
        """
        owner = self.cluster.node(str(self.admin.topics.lookup(topic)["brokerId"]))
        self.cluster.kill(owner.name)
        self.cluster.start(owner)
        self.cluster.wait_ready([owner])

    def relayed_bytes(self) -> int:
        with urllib.request.urlopen(f"{self.proxy_http_url}/metrics", timeout=10) as response:
            text = response.read().decode()
        return int(
            sum(
                float(line.rpartition(" ")[2])
                for line in text.splitlines()
                if line.startswith("pulsar_proxy_binary_bytes")
            )
        )

    @contextmanager
    def through_a_proxy(self) -> Iterator[Site]:
        """The same brokers behind a proxy of their own."""
        metadata_url = self.cluster.service_urls()["metadata"]
        settings = [
            f"metadata_url={metadata_url}",
            "pulsar_address=127.0.0.1:0",
            "connect_address=127.0.0.1:0",
            "http_address=127.0.0.1:0",
        ]
        command = [
            sys.executable,
            "-m",
            "pulsarish",
            "proxy",
            *[word for setting in settings for word in ("--set", setting)],
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                ready = process.stdout.readline()
                found = re.search(r"pulsar=(\S+) connect=(\S+) http=(\S+)", ready)
                assert found is not None, ready
                self._wait_well(f"http://{found[3]}/health")
                behind = copy(self)
                behind.service_url = f"pulsar://{found[1]}"
                behind.connect_url = f"http://{found[2]}"
                behind.proxy_http_url = f"http://{found[3]}"
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


_STANDS_STILL = re.compile(r"the owner \S+ has not answered for [0-9.]+ s; try again")


@dataclass(frozen=True)
class Complaints:
    """What a client logs when a frame was not what it expected, whatever else it then does about
    it.

    ``allowed``: by scenario, what is provoked there. Where the broker dies a client says what it
    likes. That an owner has not answered for a moment is true where the machine stands still, and
    is asked again.
    """

    pattern: re.Pattern[str]
    allowed: Mapping[str, re.Pattern[str]] = field(default_factory=dict)

    def check(self, scenario: str, log: str) -> None:
        if scenario == "owner_killed":
            return
        allowed = [_STANDS_STILL, *([self.allowed[scenario]] if scenario in self.allowed else [])]
        found = [
            line
            for line in log.splitlines()
            if self.pattern.search(line) and not any(each.search(line) for each in allowed)
        ]
        assert not found, "\n".join(found[:20])


class ClientProgram:
    """Started for each scenario."""

    def __init__(self, command: Sequence[str], directory: Path, complaints: Complaints) -> None:
        self._command = list(command)
        self._directory = directory
        self._complaints = complaints

    def run(self, scenario: str, site: Site, name: str) -> None:
        command = [*self._command, scenario, site.service_url, site.admin_url, name]
        log = self._directory / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, text=True)
        timer = threading.Timer(SCENARIO_SECONDS_MAX, process.kill)
        timer.start()
        lines: list[str] = []
        with process:
            try:
                for line in _pipe(process.stdout):
                    lines.append(line)
                    if line.strip() == "KILL":
                        site.kill_owner(f"persistent://public/default/{name}")
                status = process.wait()
            finally:
                timer.cancel()
                process.kill()
        talk = "".join(lines) + log.read_text(errors="replace")
        assert status == 0, f"{scenario} ended with {status}:\n{talk[-8_000:]}"
        self._complaints.check(scenario, talk)


class StandingProgram:
    """Started once for many scenarios, and again after one that did not end by itself."""

    def __init__(self, command: Sequence[str], directory: Path, complaints: Complaints) -> None:
        self.command = list(command)
        self._log = directory / "log"
        self._complaints = complaints
        self._process: subprocess.Popen[str] | None = None

    def run(self, scenario: str, site: Site, name: str) -> None:
        process = self._running(site)
        before = self._log.stat().st_size
        timer = threading.Timer(SCENARIO_SECONDS_MAX, process.kill)
        timer.start()
        try:
            _pipe(process.stdin).write(f"{scenario} {name}\n")
            _pipe(process.stdin).flush()
            verdict = ""
            for line in _pipe(process.stdout):
                verdict = line.strip()
                if verdict != "KILL":
                    break
                site.kill_owner(f"persistent://public/default/{name}")
        finally:
            timer.cancel()
        with self._log.open("rb") as log:
            log.seek(before)
            said = log.read().decode(errors="replace")
        assert verdict == "PASSED", f"{scenario} {verdict or 'did not end'}:\n{said[-8_000:]}"
        self._complaints.check(scenario, said)

    def _running(self, site: Site) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self.stop()
            with self._log.open("ab") as log:
                command = [*self.command, "-", site.service_url, site.admin_url]
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
                )
        return self._process

    def stop(self) -> None:
        """End the program, if it is there."""
        if self._process is not None:
            with self._process:
                self._process.kill()


def _pipe(found: IO[str] | None) -> IO[str]:
    assert found is not None
    return found
