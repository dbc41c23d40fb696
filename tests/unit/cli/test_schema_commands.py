"""``pulsarish schemas`` against a broker that keeps what it was asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from pulsarish.admin import Admin
from pulsarish.model.errors import IncompatibleSchema
from tests.support.admin_server import AdminServer, admin_server
from tests.support.commands import run_command

ORDERS = "/admin/v2/schemas/acme/shop/orders"
DEFINITION = '{"type": "record", "name": "Order", "fields": []}'
FOUND = {
    "version": 3,
    "type": "AVRO",
    "timestamp": 1_767_225_600_000,
    "data": DEFINITION,
    "properties": {"owner": "billing"},
}


@pytest.fixture
def server() -> Iterator[AdminServer]:
    with admin_server() as found:
        yield found


def run(server: AdminServer, *arguments: str) -> Result:
    return run_command({"PULSARISH_ADMIN_URL": server.url}, "schemas", *arguments)


def test_get_and_list(server: AdminServer) -> None:
    server.answer(f"GET {ORDERS}/schema", 200, FOUND)
    server.answer(f"GET {ORDERS}/schema/3", 200, FOUND)
    server.answer(
        f"GET {ORDERS}/schemas",
        200,
        {"getSchemaResponses": [FOUND, {**FOUND, "version": 4, "data": ""}]},
    )
    shown = run(server, "get", "acme/shop/orders")
    assert shown.exit_code == 0
    assert "timestamp   2026-01-01T00:00:00+00:00" in shown.stdout
    assert '  "name": "Order",' in shown.stdout, "laid out, for people"
    assert (
        json.loads(run(server, "get", "acme/shop/orders", "--version", "3", "-o", "json").stdout)
        == FOUND
    )
    lines = run(server, "list", "acme/shop/orders").stdout.splitlines()
    assert lines[0].split() == ["VERSION", "TYPE", "TIME", "DEFINITION"]
    assert lines[1].endswith(DEFINITION)
    assert lines[2].split() == ["4", "AVRO", "2026-01-01T00:00:00+00:00", "-"]


def test_upload_takes_the_definition_from_a_file(server: AdminServer, tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(DEFINITION)
    server.answer(f"POST {ORDERS}/schema", 200, {"version": {"version": 7}})
    done = run(
        server,
        "upload",
        "acme/shop/orders",
        "--type",
        "avro",
        str(file),
        "-p",
        "owner=billing",
        "-o",
        "json",
    )
    assert json.loads(done.stdout) == {"version": 7}
    assert server.requests[-1] == (
        "POST",
        f"{ORDERS}/schema",
        {"type": "AVRO", "schema": DEFINITION, "properties": {"owner": "billing"}},
    )
    run(server, "upload", "acme/shop/orders", "--type", "INT64")
    assert server.requests[-1][2] == {"type": "INT64", "schema": "", "properties": {}}
    assert run(server, "upload", "acme/shop/orders", "--type", "odd").exit_code == 2
    missing = run(server, "upload", "acme/shop/orders", "--type", "avro", str(tmp_path / "none"))
    assert missing.exit_code == 2


def test_what_is_not_compatible_is_said_with_status_1(server: AdminServer) -> None:
    headers = {"X-Pulsarish-Error-Code": str(IncompatibleSchema.code)}
    server.answer(f"POST {ORDERS}/schema", 409, {"reason": "b: the field is missing"}, headers)
    refused = run(server, "upload", "acme/shop/orders", "--type", "INT64")
    assert (refused.exit_code, "IncompatibleSchema: b: the field is missing" in refused.stderr) == (
        1,
        True,
    )
    answer = {
        "compatibility": False,
        "schemaCompatibilityStrategy": "FULL",
        "reason": "b: the field is missing",
    }
    server.answer(f"POST {ORDERS}/compatibility", 200, answer)
    asked = run(server, "compatibility", "acme/shop/orders", "--type", "INT64", "-o", "json")
    assert asked.exit_code == 1
    assert json.loads(asked.stdout) == {
        "compatible": False,
        "strategy": "FULL",
        "reason": "b: the field is missing",
    }
    server.answer(
        f"POST {ORDERS}/compatibility",
        200,
        {"compatibility": True, "schemaCompatibilityStrategy": "FULL"},
    )
    assert run(server, "compatibility", "acme/shop/orders", "--type", "INT64").exit_code == 0


def test_delete_and_what_others_call_it(server: AdminServer) -> None:
    server.answer(f"DELETE {ORDERS}/schema", 200, {"version": 4})
    assert run(server, "delete", "acme/shop/orders", "--yes").exit_code == 0
    assert run(server, "delete", "acme/shop/orders", "--force").exit_code == 0
    assert [path for _, path, _ in server.requests] == [
        f"{ORDERS}/schema",
        f"{ORDERS}/schema?force=true",
    ]
    assert "pulsarish schemas list TOPIC" in run(server, "versions").stderr


def test_the_client_knows_versions(server: AdminServer) -> None:
    server.answer(f"POST {ORDERS}/version", 200, {"version": 2})
    assert Admin(server.url).schemas.version_of("acme/shop/orders", "AVRO", DEFINITION) == 2
    server.answer(f"POST {ORDERS}/version", 200, {"version": -1})
    assert Admin(server.url).schemas.version_of("acme/shop/orders", "AVRO", DEFINITION) is None
