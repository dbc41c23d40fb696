"""Apache Pulsar's official Java client goes through the scenarios unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.clients.building import built_java_program
from tests.clients.programs import Complaints, Site, StandingProgram
from tests.clients.scenarios import SCENARIOS

pytestmark = pytest.mark.timeout(600)  # the first one downloads and compiles

ADMIN = (
    "admin_tenants",
    "admin_topics",
    "admin_partitions",
    "admin_subscriptions",
    "admin_namespace_policies",
    "admin_topic_policies",
    "admin_schemas",
    "admin_brokers",
)
_ADMIN_REFUSAL = r"BaseResource - .* Failed to perform http"
_REFUSAL = re.compile(r"Received error from server|Failed to (create producer|subscribe to topic)|consumer cannot be (created|subscribed)")
COMPLAINTS = Complaints(
    re.compile(r" (WARN|ERROR) "),
    allowed={
        **dict.fromkeys(ADMIN, re.compile(_ADMIN_REFUSAL)),
        "admin_namespace_policies": re.compile(f"{_ADMIN_REFUSAL}|Received error from server|error that does not support to retry"),
        "admin_topics": re.compile(f"{_ADMIN_REFUSAL}|Received error from server|error that does not support to retry"),
        "avro_schema": _REFUSAL,
        "deduplication": re.compile("can not determine whether is duplicate"),
        "json_schema": _REFUSAL,
        "primitive_schemas": _REFUSAL,
    },
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandingProgram]:
    found = StandingProgram(built_java_program(), tmp_path_factory.mktemp("java"), COMPLAINTS)
    yield found
    found.stop()


@pytest.mark.parametrize("scenario", ADMIN)
def test_the_java_admin_client(scenario: str, site: Site, program: StandingProgram) -> None:
    program.run(scenario, site, f"java-{scenario}")


@pytest.mark.parametrize("scenario", [*SCENARIOS, "key_shared", "compacted", "json_schema", "avro_schema", "primitive_schemas"])
def test_the_java_client(scenario: str, site: Site, program: StandingProgram) -> None:
    program.run(scenario, site, f"java-{scenario}")
