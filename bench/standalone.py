"""A standalone server (broker, bookie and metadata in one process) that a program measures."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

from bench.measure import wait_until
from pulsarish.admin import Admin
from pulsarish.local_cluster.ports import free_ports
from pulsarish.model.errors import PulsarishError, TopicNotFound


class Standalone:
    """A standalone server on free ports.

    Args:
        directory: for its data and its log.
        settings: options of the broker, each ``KEY=VALUE``.
    """

    def __init__(self, directory: Path, *settings: str) -> None:
        self._directory = directory
        self._settings = settings
        ports = free_ports("127.0.0.1")
        self._ports = list(islice(ports, 4))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start it, and return the seconds until it answers."""
        grpc, binary, http, bookie = (f"127.0.0.1:{port}" for port in self._ports)
        words = [sys.executable, "-m", "pulsarish", "standalone"]
        words += ["--data", str(self._directory / "data")]
        for setting in (
            f"listen_address={grpc}",
            f"pulsar_address={binary}",
            f"http_address={http}",
            *self._settings,
        ):
            words += ["--broker-set", setting]
        words += ["--bookie-set", f"listen_address={bookie}"]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log)
        began = time.monotonic()
        wait_until("the server answers", self._answers)
        return time.monotonic() - began

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory / "log").read_text()[-2_000:]
        try:
            _ = self.admin().topics.stats("persistent://public/default/none")
        except TopicNotFound:
            return True
        except PulsarishError:
            return False
        return True

    @property
    def url(self) -> str:
        return f"pulsarish://127.0.0.1:{self._ports[0]}"

    def admin(self) -> Admin:
        return Admin(f"http://127.0.0.1:{self._ports[2]}")

    def subscription(self, topic: str, name: str) -> dict[str, Any]:
        """Return the statistics of a subscription."""
        found: dict[str, Any] = self.admin().topics.stats(topic)["subscriptions"][name]
        return found

    def resident_mib(self) -> float:
        assert self._process is not None
        text = Path(f"/proc/{self._process.pid}/status").read_text("ascii")
        return int(text.partition("VmRSS:")[2].split()[0]) / 1024

    def stop(self, how: int) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        _ = self._process.wait(60)
