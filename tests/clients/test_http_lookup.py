"""Official clients that are given an HTTP address ask for topics, partitions and schemas there, and
publish and consume as ever.
"""

from __future__ import annotations

import sys
from copy import copy
from pathlib import Path

import pytest

from tests.clients.complaints import GO_COMPLAINTS, JAVA_COMPLAINTS
from tests.clients.programs import ClientProgram, Site, StandingProgram
from tests.clients.test_python_client import COMPLAINTS, PROGRAM

pytestmark = pytest.mark.timeout(600)  # the first one downloads and compiles


@pytest.fixture
def http_site(site: Site) -> Site:
    found = copy(site)
    found.service_url = site.admin_url
    return found


@pytest.mark.parametrize("scenario", ["partitioned", "pattern", "json_schema"])
def test_the_python_client_over_http(scenario: str, http_site: Site, tmp_path: Path) -> None:
    ClientProgram([sys.executable, str(PROGRAM)], tmp_path, COMPLAINTS).run(
        scenario, http_site, f"python-http-{scenario}"
    )


# it cannot ask for schemas over HTTP
@pytest.mark.parametrize("scenario", ["partitioned", "pattern"])
def test_the_go_client_over_http(
    scenario: str, http_site: Site, go_command: list[str], tmp_path: Path
) -> None:
    ClientProgram(go_command, tmp_path, GO_COMPLAINTS).run(
        scenario, http_site, f"go-http-{scenario}"
    )


@pytest.mark.parametrize("scenario", ["partitioned", "pattern", "json_schema"])
def test_the_java_client_over_http(
    scenario: str, http_site: Site, java_program: StandingProgram, tmp_path: Path
) -> None:
    ClientProgram(java_program.command, tmp_path, JAVA_COMPLAINTS).run(
        scenario, http_site, f"java-http-{scenario}"
    )
