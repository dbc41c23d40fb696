"""A short soak: faults of several kinds on nodes of a real cluster, one after another; then all is
read back and verified on every bookie.
"""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from pulsarish.cli.main import pulsarish

SEED = "5721"
"""Its faults need no long waits: what is repaired after a minute at the earliest is left out."""


def test_a_short_soak_loses_nothing_and_repairs_what_rots(tmp_path: Path) -> None:
    words = [
        *("chaos", "run", "soak", "--seed", SEED, "--duration", "30s", "--fault-every", "6s"),
        *("--rate", "200", "--topics", "2", "--results", str(tmp_path)),
        *("--set", "bookie.local_scrub_interval_seconds=2"),
        *("--set", "bookie.checkpoint_interval_seconds=2"),
    ]
    done = CliRunner().invoke(pulsarish, words)
    record = json.loads((tmp_path / "soak-1.json").read_text())
    assert record["verdict"] == "ok", (record["reasons"], done.output)
    assert done.exit_code == 0, done.output
    assert (record["acked_missing"], record["out_of_order"], record["duplicates"]) == (0, 0, 0)
    assert record["acked_positive"] > 1_000
    assert record["received"] == record["acked_positive"] + record["non_acked_received"]
    faults = record["faults"]
    kinds = ["kill", "rot-entry-log", "drain", "cut", "add-bookie", "pause"]
    # A busy machine has no time for the last ones.
    assert [fault["kind"] for fault in faults] == kinds[: len(faults)]
    assert len(faults) >= 2
    assert "the scrubber is to find it" in faults[1]["what"]
    assert record["repairs"] == 1
    assert {row["bookie"] for row in record["verified"]} >= {"bookie-1", "bookie-5"}
    assert all(row["wrong"] == 0 for row in record["verified"])
    assert {"metadata", "bookie-3", "broker-1", "harness"} <= set(record["memory_mib"])
    assert len(record["topics"]) == 2
    assert (tmp_path / "soak-1.svg").read_text().startswith("<svg")
