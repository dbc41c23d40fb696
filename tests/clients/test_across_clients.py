"""An entry that one client wrote is read by each other: batched or not, compressed, keyed, in
chunks, with schemas.
"""

from __future__ import annotations

import sys
from copy import copy
from pathlib import Path

import pytest

from tests.clients.complaints import GO_COMPLAINTS
from tests.clients.programs import ClientProgram, Site, StandingProgram
from tests.clients.test_python_client import COMPLAINTS

pytestmark = pytest.mark.timeout(600)  # the first one downloads and compiles

NAMES = ("ours", "python", "java", "go")
PROGRAM = str(Path(__file__).with_name("cross_client.py"))


class Clients:
    """All of them, each made when it is asked for."""

    def __init__(self, site: Site, directory: Path, request: pytest.FixtureRequest) -> None:
        self._site = site
        self._directory = directory
        self._request = request
        self._published: set[str] = set()

    def _program(self, name: str) -> ClientProgram | StandingProgram:
        if name == "java":
            found: StandingProgram = self._request.getfixturevalue("java_program")
            return found
        if name == "go":
            return ClientProgram(
                self._request.getfixturevalue("go_command"), self._directory, GO_COMPLAINTS
            )
        module = "pulsarish" if name == "ours" else "pulsar"
        return ClientProgram([sys.executable, PROGRAM, module], self._directory, COMPLAINTS)

    def _site_for(self, name: str) -> Site:
        site = copy(self._site)
        if name == "ours":
            site.service_url = site.cluster.service_urls()["pulsarish"]
        return site

    def publish(self, name: str) -> None:
        if name not in self._published:
            self._program(name).run("cross_publish", self._site_for(name), f"cross-{name}")
            self._published.add(name)

    def consume(self, name: str, publisher: str) -> None:
        self._program(name).run("cross_consume", self._site_for(name), f"cross-{publisher}")


@pytest.fixture(scope="module")
def clients(
    site: Site, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Clients:
    return Clients(site, tmp_path_factory.mktemp("across"), request)


@pytest.mark.parametrize("consumer", NAMES)
@pytest.mark.parametrize("publisher", NAMES)
def test_what_one_client_published_another_consumes(
    publisher: str, consumer: str, clients: Clients
) -> None:
    clients.publish(publisher)
    clients.consume(consumer, publisher)
