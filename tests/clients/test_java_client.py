"""Apache Pulsar's official Java clients go through the scenarios unchanged: its client, and its
admin client against the HTTP side.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.complaints import JAVA_ADMIN_SCENARIOS, JAVA_COMPLAINTS, JAVA_SCENARIOS
from tests.clients.programs import ClientProgram, Site, StandingProgram
from tests.clients.scenarios import PROXIED, SCENARIOS

pytestmark = pytest.mark.timeout(600)  # the first one downloads and compiles


@pytest.mark.parametrize("scenario", JAVA_ADMIN_SCENARIOS)
def test_the_java_admin_client(scenario: str, site: Site, java_program: StandingProgram) -> None:
    java_program.run(scenario, site, f"java-{scenario}")


@pytest.mark.parametrize(
    "scenario", [*SCENARIOS, "compacted", "primitive_schemas", *JAVA_SCENARIOS]
)
def test_the_java_client(scenario: str, site: Site, java_program: StandingProgram) -> None:
    java_program.run(scenario, site, f"java-{scenario}")


@pytest.mark.parametrize("scenario", PROXIED)
def test_the_java_client_through_a_proxy(
    scenario: str, site: Site, java_program: StandingProgram, tmp_path: Path
) -> None:
    with site.through_a_proxy() as behind:
        ClientProgram(java_program.command, tmp_path, JAVA_COMPLAINTS).run(
            scenario, behind, f"java-proxy-{scenario}"
        )
        assert behind.relayed_bytes() > 0
