"""One cluster of real processes for all official clients."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from pulsarish.local_cluster.processes import reap_children
from tests.clients.building import built_go_program, built_java_program
from tests.clients.complaints import JAVA_COMPLAINTS
from tests.clients.programs import Site, StandingProgram
from tests.support.clusters import running_cluster


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with running_cluster(
        tmp_path_factory.mktemp("clients"), bookies=3, brokers=2, balanced=False
    ) as cluster:
        found = Site(cluster)
        # Both brokers serve: lookups are redirected in half of the cases.
        deadline = time.monotonic() + 30
        while len(found.admin.brokers.list()) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        yield found
    reap_children()


@pytest.fixture(scope="session")
def go_command() -> list[str]:
    return built_go_program()


@pytest.fixture(scope="session")
def java_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandingProgram]:
    found = StandingProgram(built_java_program(), tmp_path_factory.mktemp("java"), JAVA_COMPLAINTS)
    yield found
    found.stop()
