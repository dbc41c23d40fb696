"""The admin client against the document that brokers give of their routes: every request it makes
is one of them, and every route that people need has a method.
"""

from __future__ import annotations

import inspect
import itertools
import re
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pulsarish.admin import Admin
from pulsarish.admin.policies import NAMESPACE, TOPIC, policies_of
from pulsarish.admin.transport import Transport
from tests.support.admin_server import AdminServer, admin_server
from tests.support.clusters import running_cluster

RESOURCES = (
    "tenants",
    "namespaces",
    "topics",
    "subscriptions",
    "schemas",
    "brokers",
    "bookies",
    "autorecovery",
    "ledgers",
    "clusters",
    "isolation_policies",
    "failure_domains",
    "resource_groups",
    "authorization",
)

SAMPLES: dict[str, Any] = {
    "only": [1],
    "ledgers": [4711],
    "acknowledged": "stored",
    "action": "produce",
    "actions": ["produce"],
    "boundaries": [0x10000000],
    "resource": "t/n",
    "role": "r",
    "roles": ["r"],
    "proxy_role": "p",
    "bookie": "b1",
    "admin_roles": ["r"],
    "age_seconds": 1,
    "allowed_clusters": ["c"],
    "broker": "b",
    "brokers": ["b"],
    "bundle": "0x00000000_0x40000000",
    "cluster": "c",
    "condition": "a = 1",
    "count": 1,
    "cron": "0 8 * * *",
    "definition": "{}",
    "directory": "/d1/ledgers",
    "journal_directory": "/d1/journal",
    "ledger_directory": "/d1/ledgers",
    "index_directory": "/d1/index",
    "entry_id": 1,
    "group": "g",
    "given_up_bookies": ["b~1"],
    "initial_position": "earliest",
    "into": "persistent://t/n/s",
    "kind": "message_age",
    "ledger_id": 1,
    "limit": 10,
    "missed": "skip",
    "name": "n",
    "namespace": "t/n",
    "namespaces": ["t/.*"],
    "number": 1,
    "partitions": 3,
    "pattern": "a.*",
    "pending_bytes_max": 1 << 20,
    "payload": b"x",
    "key": "k",
    "position": "1:2",
    "primary": ["b"],
    "topics": ["t"],
    "properties": {"a": "b"},
    "reason": "r",
    "rule": "r",
    "seconds": 60,
    "secondary": ["c"],
    "subscription": "s",
    "syntax": "regex",
    "tenant": "t",
    "timestamp_ms": 5,
    "topic": "t/n/p",
    "timezone": "UTC",
    "type": "AVRO",
    "value": "v",
    "version": 3,
    "when_full": "pause",
}

WITHOUT_METHOD = {
    "GET /status.html": "for load balancers",
    (
        "POST /admin/v2/namespaces/{tenant}/{namespace}/{bundle}/lookAfter"
    ): "the leader's sweeper says it to owners",
    "GET /admin/v2/bookies/all": "bookies.list says more",
    "GET /admin/v2/broker-stats/metrics": "/metrics is for programs",
    "GET /admin/v2/broker-stats/topics": "topics.stats asks for one, whoever owns it",
    "GET /admin/v2/brokers": "brokers.list says more",
    "GET /admin/v2/brokers/internal-configuration": "it is in brokers.configuration",
    "GET /admin/v2/brokers/ready": "the same as health",
    "GET /admin/v2/brokers/{cluster}": "there is one cluster",
    "GET /admin/v2/clusters/{cluster}": "there is one cluster",
    "GET /admin/v2/clusters/{cluster}/peers": "there are none",
    (
        "GET /admin/v2/namespaces/{tenant}/{namespace}/schemaAutoUpdateCompatibilityStrategy"
    ): "schemaCompatibilityStrategy says it",
    (
        "PUT /admin/v2/namespaces/{tenant}/{namespace}/schemaAutoUpdateCompatibilityStrategy"
    ): "schemaCompatibilityStrategy says it",
    "GET /admin/v2/namespaces/{tenant}/{namespace}/property/{key}": "all of them come at once",
    (
        "PUT /admin/v2/namespaces/{tenant}/{namespace}/property/{key}/{value}"
    ): "several are set at once",
    "DELETE /admin/v2/namespaces/{tenant}/{namespace}/properties": "they are removed by name",
    "GET /admin/v2/namespaces/{tenant}/{namespace}/topics": "topics.list",
    "GET /admin/v2/openapi.json": "for programs",
    "POST /admin/v2/namespaces/grantPermissionsOnTopics": "topics.grant_permission",
    "POST /admin/v2/namespaces/revokePermissionsOnTopics": "topics.revoke_permission",
    (
        "GET /lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle"
    ): "topics.lookup says it, too",
    "GET /lookup/v2/native-urls": "for the client of a service URL that begins with http",
    "GET /metrics": "for programs",
    (
        "POST "
        "/admin/v2/persistent/{tenant}/{namespace}/{topic}/subscription/{subscription}/expireMessages"
    ): "subscriptions.reset_cursor",
    (
        "PUT /admin/v2/persistent/{tenant}/{namespace}/{topic}/backlogSize"
    ): "topics.stats has it for every subscription",
}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with running_cluster(tmp_path_factory.mktemp("cluster"), bookies=1, brokers=1) as cluster:
        yield Transport(cluster.admin_url(), 30.0).request("GET", ["openapi.json"])


_ANSWERS: dict[str, Any] = {
    "array": [],
    "AuthorizationBody": {"enabled": True},
    "BookieLedgersBody": {"ledgers": [], "next": None},
    "string": "x",
    "CompatibilityBody": {"compatibility": True, "schemaCompatibilityStrategy": "FULL"},
    "FailureDomain": {"brokers": ["b"]},
    "SchemaVersionBody": {"version": 0},
    "SchemasBody": {"getSchemaResponses": []},
    "UploadedSchemaBody": {"version": {"version": 0}},
}


class Routes:
    """The operations of the document, found by requests."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.operations = {
            f"{method.upper()} {path}": operation
            for path, operations in document["paths"].items()
            for method, operation in operations.items()
        }
        self._counts = itertools.cycle([0, 3])  # a topic is deleted one way or the other
        # Fixed words before names in braces, as the broker does it.
        self._patterns = sorted(
            ((name, re.compile(re.sub(r"{\w+}", "[^/]+", name))) for name in self.operations),
            key=lambda found: found[0].count("{"),
        )

    def find(self, method: str, path: str) -> str | None:
        return next(
            (name for name, pattern in self._patterns if pattern.fullmatch(f"{method} {path}")),
            None,
        )

    def is_refused(self, name: str) -> bool:
        """Whether it is there only to say that this version does not have it."""
        operation = self.operations[name]
        return "501" in operation["responses"] and operation["summary"].startswith(
            ("Not there", "Refused")
        )

    def answer(self, name: str) -> Any:
        """Something of the form that the operation answers with."""
        found = self.operations[name]["responses"].get("200")
        if found is None:
            return None
        ((kind, content),) = found["content"].items()
        if kind != "application/json":
            return b"x"
        kind = content["schema"].get("$ref", "").rpartition("/")[2] or content["schema"].get(
            "type", ""
        )
        if kind in _ANSWERS:
            return _ANSWERS[kind]
        return {"partitions": next(self._counts)}


def calls(admin: Admin) -> Iterator[Callable[[], Any]]:
    """Every method of every resource: with what it must be given, with each thing that it can be
    given, and with all of them.
    """
    for resource in RESOURCES:
        part = getattr(admin, resource)
        for name, method in inspect.getmembers(part, inspect.ismethod):
            if name.startswith("_") or name.endswith("_policy"):
                continue
            parameters = inspect.signature(method).parameters.values()
            optional = [each.name for each in parameters if each.default is not each.empty]
            needed = {
                each.name: SAMPLES[each.name] for each in parameters if each.default is each.empty
            }
            if name == "reset_cursor":  # one of two
                yield lambda method=method, needed=needed: method(**needed, position="earliest")
                yield lambda method=method, needed=needed: method(**needed, timestamp_ms=5)
                continue
            full = {key: SAMPLES.get(key, True) for key in optional}
            full["after"] = (
                1
                if resource in ("ledgers", "bookies")
                else "persistent://t/n/p"
                if resource == "topics"
                else "t"
            )
            full = {key: value for key, value in full.items() if key in optional}
            yield lambda method=method, needed=needed: method(**needed)
            yield lambda method=method, needed=needed, full=full: method(**needed, **full)
            for key, value in full.items():
                yield lambda method=method, needed=needed, key=key, value=value: method(
                    **needed, **{key: value}
                )
    for level, part, resource in (
        (NAMESPACE, admin.namespaces, "t/n"),
        (TOPIC, admin.topics, "t/n/p"),
    ):
        for policy in policies_of(level):
            value: Any = {field.key: 1 for field in policy.fields if field.key} or 1
            yield lambda part=part, policy=policy, resource=resource: part.get_policy(
                resource, policy.name
            )
            yield lambda part=part, policy=policy, resource=resource, value=value: part.set_policy(
                resource, policy.name, value
            )
            yield lambda part=part, policy=policy, resource=resource: part.remove_policy(
                resource, policy.name
            )


def test_the_client_and_the_routes_are_made_for_each_other(document: dict[str, Any]) -> None:
    routes = Routes(document)
    used: set[str] = set()

    def check(server: AdminServer) -> None:
        for method, target, body in server.requests:
            path, _, query = target.partition("?")
            name = routes.find(method, path)
            assert name is not None, (
                f"the client asks for {method} {path}, which brokers do not have"
            )
            operation = routes.operations[name]
            known = {
                parameter["name"]
                for parameter in operation.get("parameters", ())
                if parameter["in"] == "query"
            }
            assert set(urllib.parse.parse_qs(query)) <= known, (
                f"{method} {target}: {name} takes only {known}"
            )
            sent = operation.get("requestBody")
            assert sent is not None or body is None, f"{name} takes no body"
            assert body is not None or not (sent or {}).get("required"), f"{name} needs a body"
            used.add(name)
        server.requests.clear()

    with admin_server() as server:
        server.otherwise = lambda method, path: (
            200,
            routes.answer(routes.find(method, path) or ""),
            {},
        )
        for call in calls(Admin(server.url)):
            call()
            check(server)
    # What is asked of non-persistent topics goes through the same methods, with their names.
    alike = {name for name in routes.operations if " /admin/v2/non-persistent/" in name}
    unused = {
        name
        for name in routes.operations
        if name not in used | alike and not routes.is_refused(name)
    }
    assert sorted(unused - set(WITHOUT_METHOD)) == []
    assert sorted(set(WITHOUT_METHOD) - unused) == []
