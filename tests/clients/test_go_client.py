"""Apache Pulsar's official Go client goes through the scenarios unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.complaints import GO_COMPLAINTS
from tests.clients.programs import ClientProgram, Site
from tests.clients.scenarios import PROXIED, SCENARIOS

pytestmark = pytest.mark.timeout(600)  # the first one downloads and compiles

LACKS = {
    "ack_timeout": "it has no time-out of acknowledgements",
}


@pytest.mark.parametrize(
    "scenario", [*(each for each in SCENARIOS if each not in LACKS), "compacted", "bytes_schema"]
)
def test_the_go_client(scenario: str, site: Site, go_command: list[str], tmp_path: Path) -> None:
    ClientProgram(go_command, tmp_path, GO_COMPLAINTS).run(scenario, site, f"go-{scenario}")


@pytest.mark.parametrize("scenario", PROXIED)
def test_the_go_client_through_a_proxy(
    scenario: str, site: Site, go_command: list[str], tmp_path: Path
) -> None:
    with site.through_a_proxy() as behind:
        ClientProgram(go_command, tmp_path, GO_COMPLAINTS).run(
            scenario, behind, f"go-proxy-{scenario}"
        )
        assert behind.relayed_bytes() > 0
