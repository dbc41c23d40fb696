"""A server that other machines may use without authentication says so once at its start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_WARNING = "every program that reaches this process may use it"
_BROKER = ("listen_address", "http_address", "pulsar_address")


def started(*arguments: str) -> str:
    """Run a server until it is ready. What it printed."""
    command = [sys.executable, "-m", "pulsarish", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout is not None
    ready = process.stdout.readline()
    process.terminate()
    printed = ready + "".join(process.communicate(timeout=60))
    assert " ready " in ready, printed
    return printed


def settings(host: str, directory: Path) -> dict[str, list[str]]:
    metadata = f"metadata_url=embedded:{directory}/metadata"
    return {
        "bookie": [
            metadata,
            "bookie_id=b",
            f"data_directory={directory}/bookie",
            f"listen_address={host}:0",
            "advertised_address=127.0.0.1",
            "http_address=",
        ],
        "broker": [
            metadata,
            *(f"{name}={host}:0" for name in _BROKER),
            "advertised_address=127.0.0.1",
        ],
    }


@pytest.mark.parametrize("role", ["bookie", "broker"])
def test_a_server_warns_once_and_not_on_loopback(role: str, tmp_path: Path) -> None:
    for host, count in (("0.0.0.0", 1), ("127.0.0.1", 0)):
        flags = [part for each in settings(host, tmp_path)[role] for part in ("--set", each)]
        printed = started(role, *flags)
        assert printed.count(_WARNING) == count, printed
        assert ("options=" in printed) == bool(count)


def test_a_standalone_server_warns_once_for_both_of_its_nodes(tmp_path: Path) -> None:
    for host, count in (("0.0.0.0", 1), ("127.0.0.1", 0)):
        command = ["standalone", "--data", str(tmp_path / "data")]
        for name in _BROKER:
            command += ["--broker-set", f"{name}={host}:0"]
        command += ["--broker-set", "advertised_address=127.0.0.1"]
        command += ["--bookie-set", f"listen_address={host}:0"]
        command += ["--bookie-set", "advertised_address=127.0.0.1"]
        printed = started(*command)
        assert printed.count(_WARNING) == count, printed
        if count:
            assert "broker listen_address, broker http_address, broker pulsar_address" in printed
            assert "bookie listen_address" in printed
