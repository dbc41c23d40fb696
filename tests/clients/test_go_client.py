"""Apache Pulsar's official Go client goes through the scenarios unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.clients.building import built_go_program
from tests.clients.programs import ClientProgram, Complaints, Site
from tests.clients.scenarios import SCENARIOS

pytestmark = pytest.mark.timeout(600)  # the first one downloads and compiles

LACKS = {
    "ack_timeout": "it has no time-out of acknowledgements",
}
COMPLAINTS = Complaints(
    re.compile(r"level=(WARN|ERROR)"),
)


@pytest.fixture(scope="module")
def command() -> list[str]:
    return built_go_program()


@pytest.mark.parametrize("scenario", [*[each for each in SCENARIOS if each not in LACKS], "key_shared"])
def test_the_go_client(scenario: str, site: Site, command: list[str], tmp_path: Path) -> None:
    ClientProgram(command, tmp_path, COMPLAINTS).run(scenario, site, f"go-{scenario}")
