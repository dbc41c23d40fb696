"""Which processes a cluster takes for its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pulsarish.local_cluster import processes
from pulsarish.local_cluster.plan import NodePlan
from pulsarish.local_cluster.processes import Cluster
from tests.support.modules import changed


def test_a_process_whose_pid_an_ended_child_had_before_is_taken_for_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(*arguments, **options)
        processes._children[process.pid] = ended  # as the kernel gives pids again
        return process

    monkeypatch.setattr(processes, "subprocess", changed(subprocess, Popen=start))
    cluster = Cluster(tmp_path)
    node = NodePlan("metadata", "metadata", {})
    cluster.create([node])
    cluster.start(node)
    try:
        assert cluster.pid("metadata") is not None
    finally:
        assert cluster.kill("metadata")


def test_a_process_that_ends_before_the_signal_reaches_it_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread that looks at the nodes may have waited for the process meanwhile."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    cluster = Cluster(tmp_path)
    cluster.create([NodePlan("metadata", "metadata", {})])
    monkeypatch.setattr(Cluster, "pid", lambda _self, _name: ended.pid)
    assert not cluster.send_signal("metadata", signal.SIGKILL)
