"""Commands of ``pulsarish cluster`` about a cluster that does not run, or of which the plan is
damaged.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pulsarish.local_cluster.plan import plan_cluster
from pulsarish.local_cluster.processes import Cluster
from tests.support.commands import run_command


@pytest.mark.parametrize("plan", ["", "{", "{}", "[]", '[{"nam": "broker-1"}]', "[3]"])
@pytest.mark.parametrize(
    "command", [("status",), ("down",), ("up",), ("kill", "broker-1"), ("restart", "--rolling")]
)
def test_a_damaged_plan_is_said_to_be_one(
    tmp_path: Path, plan: str, command: tuple[str, ...]
) -> None:
    (tmp_path / "cluster.json").write_text(plan)
    done = run_command({}, "cluster", *command, "--dir", str(tmp_path))
    assert done.exit_code == 1
    assert done.stderr.startswith(
        f"error: CorruptData: {tmp_path}/cluster.json is no plan of a cluster"
    )


def test_a_rolling_restart_says_what_it_waits_for(tmp_path: Path) -> None:
    Cluster(tmp_path).create(plan_cluster(bookies=3, brokers=2, metadata="embedded", base_port=0))
    done = run_command(
        {}, "cluster", "restart", "--rolling", "--wait-seconds", "1.2", "--dir", str(tmp_path)
    )
    assert done.exit_code == 1
    waiting, error = done.stderr.splitlines()
    assert waiting == "nothing is stopped before the cluster is whole: metadata is down"
    assert error.startswith("error: Timeout: the cluster has not become whole within 1.2 s")
