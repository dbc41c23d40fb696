"""Apache Pulsar's official Python client goes through the scenarios unchanged, blocking and awaitable."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.clients.programs import ClientProgram, Complaints, Site
from tests.clients.scenarios import SCENARIOS

pytest.importorskip("pulsar", reason="left out: Apache Pulsar's Python client (pulsar-client) is not installed")

PROGRAM = Path(__file__).with_name("python_client.py")

COMPLAINTS = Complaints(
    re.compile(
        r"unexpected|unknown command|invalid (command|message|consumer id|producer id)|checksum mismatch|corrupt"
        r"|Received (unknown|invalid|error from server)|failed to parse|out of order|NotImplemented|not handled|unhandled",
        re.IGNORECASE,
    )
)


@pytest.mark.parametrize("scenario", ["produce_consume", "partitioned", "chunked", "pattern", "owner_killed"])
def test_the_python_client_through_a_proxy(scenario: str, site: Site, tmp_path: Path) -> None:
    with site.through_a_proxy() as behind:
        ClientProgram([sys.executable, str(PROGRAM)], tmp_path, COMPLAINTS).run(scenario, behind, f"python-proxy-{scenario}")


@pytest.mark.parametrize("scenario", [*SCENARIOS, "awaitable"])
def test_the_python_client(scenario: str, site: Site, tmp_path: Path) -> None:
    ClientProgram([sys.executable, str(PROGRAM)], tmp_path, COMPLAINTS).run(scenario, site, f"python-{scenario}")
