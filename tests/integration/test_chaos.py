"""Short forms of the chaos scenarios: real processes are broken, the fault is seen from outside,
and the counters say what they must.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pulsarish.chaos.scenarios import SCENARIOS
from pulsarish.chaos.stage import Stage
from pulsarish.cli.main import pulsarish
from tests.support.metadata_stores import why_no_zookeeper

# Sessions end sooner than by default, so that the tests need not wait for that; but not as soon as
# a machine may stand still for.
SHORT_SESSIONS = (
    "--set",
    "broker.metadata_session_timeout_ms=8000",
    "--set",
    "bookie.metadata_session_timeout_ms=8000",
)

# Where no session may end and nobody be suspected, a machine that stands still must not be the
# reason.
PATIENT = (
    *(
        "--set",
        "broker.metadata_session_timeout_ms=30000",
        "--set",
        "bookie.metadata_session_timeout_ms=30000",
    ),
    *("--set", "broker.broker_silence_before_eviction_ms=30000"),
)

# For faults that last: messages all the time, and cores left for the nodes that start again.
STEADY = ("--messages", "2000", "--rate", "500")


def chaos(results: Path, scenario: str, *options: str) -> dict[str, object]:
    """Run a scenario; its record."""
    words = [
        "chaos",
        "run",
        scenario,
        "--messages",
        "4000",
        *SHORT_SESSIONS,
        "--results",
        str(results),
        *options,
    ]
    done = CliRunner().invoke(pulsarish, words)
    record = json.loads((results / f"{scenario}-1.json").read_text())
    assert done.exit_code == (0 if record["verdict"] == "ok" else 1), done.output
    assert (results / f"{scenario}-1.svg").read_text().startswith("<svg")
    assert isinstance(record, dict)
    return record


@pytest.mark.parametrize(
    "scenario",
    ["kill-broker", "kill-bookie", "isolate-broker-from-zk", "isolate-broker-from-zk-dedup"],
)
def test_nothing_is_lost_or_displaced_and_no_send_fails(tmp_path: Path, scenario: str) -> None:
    record = chaos(tmp_path, scenario)
    assert record["verdict"] == "ok", record["reasons"]
    assert (record["acked_missing"], record["out_of_order"], record["acked_negative"]) == (0, 0, 0)
    assert record["acked_positive"] == record["sent"]
    assert [mark["what"] for mark in record["marks"]][:2] == ["fault", "bite"]
    assert record["owner_changed"] is (scenario != "kill-bookie")
    if scenario in ("kill-bookie", "isolate-broker-from-zk-dedup"):
        assert record["duplicates"] == 0


def test_a_locked_cluster_loses_nothing(tmp_path: Path) -> None:
    record = chaos(tmp_path, "kill-broker", "--secure")
    assert record["verdict"] == "ok", record["reasons"]
    assert (record["options"]["secure"], record["acked_missing"], record["out_of_order"]) == (
        True,
        0,
        0,
    )
    assert record["owner_changed"] is True


def test_a_rolling_restart_of_a_locked_cluster_fails_no_send(tmp_path: Path) -> None:
    record = chaos(tmp_path, "rolling-restart-dedup", "--secure", *STEADY)
    assert record["verdict"] == "ok", record["reasons"]
    assert (record["acked_missing"], record["acked_negative"], record["duplicates"]) == (0, 0, 0)
    assert record["acked_positive"] == record["sent"]


def test_the_control_shows_duplicates_and_deduplication_leaves_none(tmp_path: Path) -> None:
    assert chaos(tmp_path, "cut-clients", "--window", "2000")["duplicates"] != 0
    record = chaos(tmp_path, "cut-clients-dedup", "--window", "2000")
    assert (record["verdict"], record["duplicates"]) == ("ok", 0), record["reasons"]


def test_a_run_that_cannot_bite_is_void(tmp_path: Path) -> None:
    record = chaos(tmp_path, "isolate", "--isolate", "broker-1|nobody")
    assert record["verdict"] == "void"
    assert "nobody" in str(record["reasons"])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_run_whose_fault_is_mistaken_is_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def divide(stage: Stage) -> None:
        stage.mark("fault", f"{1 / 0}")

    monkeypatch.setitem(SCENARIOS, "no-fault", replace(SCENARIOS["no-fault"], fault=divide))
    record = chaos(tmp_path, "no-fault")
    assert (record["verdict"], record["received"]) == ("void", record["sent"])
    assert "ZeroDivisionError" in str(record["reasons"])


def test_wall_clocks_that_jump_move_nothing(tmp_path: Path) -> None:
    record = chaos(tmp_path, "clocks-jump", *STEADY, "--window", "1000", *PATIENT)
    assert record["verdict"] == "ok", record["reasons"]
    assert [mark["what"] for mark in record["marks"]] == [
        "fault",
        "bite",
        "fault",
        "bite",
        "fault",
        "heal",
    ]
    assert (record["owner_changed"], record["duplicates"]) == (False, 0)


@pytest.mark.parametrize("scenario", ["power-cut-all", "power-cut-lying-disks"])
def test_power_cuts_lose_nothing_unless_disks_lie(tmp_path: Path, scenario: str) -> None:
    record = chaos(tmp_path, scenario, "--cuts", "2")
    if record["verdict"] == "void":
        assert "mounted" in str(record["reasons"]), "only where file systems cannot be mounted"
    else:
        assert record["verdict"] == "ok", record["reasons"]
        assert (record["acked_missing"] == 0) is (scenario == "power-cut-all")


def test_partitions_and_keys(tmp_path: Path) -> None:
    record = chaos(tmp_path, "kill-broker", "--partitions", "3", "--dedup")
    assert record["verdict"] == "ok", record["reasons"]
    assert record["duplicates"] == 0


def test_an_ensemble_of_zookeepers_loses_servers_and_nothing_else_moves(tmp_path: Path) -> None:
    if (reason := why_no_zookeeper()) is not None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(
            f"left out: the ensemble of real ZooKeepers, because {reason}"
        )
    record = chaos(tmp_path, "zookeeper-ensemble", *STEADY, "--window", "1000", *PATIENT)
    assert record["verdict"] == "ok", record["reasons"]
    filled = 0 if any("no disk is filled" in note for note in record["notes"]) else 1
    assert [mark["what"] for mark in record["marks"]] == ["fault", "bite", "heal"] * (3 + filled)
    assert (record["owner_changed"], record["duplicates"], record["acked_negative"]) == (
        False,
        0,
        0,
    )
