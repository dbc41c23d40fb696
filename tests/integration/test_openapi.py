"""The admin interface against its own OpenAPI document: schemathesis generates requests, and
answers follow the document, never with 500.

Each operation is called with invented names, and again with names of existing objects. The examples
are the same in each run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

import pulsarish
from pulsarish.admin import Admin
from pulsarish.model.errors import AlreadyExists
from tests.integration.test_bad_input import Server

EXAMPLES = 2
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
THERE = {
    "tenant": "public",
    "namespace": "default",
    "subscription": "s",
    "domain": "persistent",
    "number": 1,
    "count": 1,
    "seconds": 0,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(tmp_path_factory.mktemp("openapi"))
    yield found
    assert found.process.poll() is None, "a request ended the server"
    found.process.terminate()
    found.process.communicate(timeout=60)
    assert "Traceback" not in found.log.read_text()


def make_what_is_there(server: Server, path: str) -> dict[str, Any]:
    """Create objects for the names in a path's braces: the operation before may have deleted
    them.
    """
    admin = Admin(server.admin_url)
    topic = "parted" if "artition" in path else "t"
    with contextlib.suppress(AlreadyExists):
        admin.namespaces.create("public/default")
    try:
        admin.topics.create(topic, partitions=2 if topic == "parted" else 0)
    except AlreadyExists:
        return {**THERE, "topic": topic}
    partition = "t" if topic == "t" else "parted-partition-0"
    admin.subscriptions.create(partition, "s", position="earliest")
    with pulsarish.Client(server.url) as client:
        producer = client.create_producer(partition)
        producer.send(b"x")
    return {**THERE, "topic": topic}


def test_every_operation_answers_as_the_document_says(server: Server) -> None:
    schema = schemathesis.openapi.from_url(f"{server.admin_url}/admin/v2/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) > 200
    for operation in operations:
        _ask(operation, make_what_is_there(server, operation.path))


def _ask(operation: Any, names: dict[str, Any]) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        _check(case)
        for name in set(names) & set(case.path_parameters or {}):
            case.path_parameters[name] = names[name]
        _check(case)

    ask()


def _check(case: Any) -> None:
    response = case.call()
    assert response.status_code != 500, response.text
    case.validate_response(response, checks=CHECKS)
