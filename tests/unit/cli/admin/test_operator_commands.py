"""Commands for bookies, ledgers, brokers' options and rules of placement."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.admin_server import SPACE, AdminServer, run


def test_the_health_of_a_broker_has_its_warnings(server: AdminServer) -> None:
    server.answer("GET /admin/v2/brokers/health", body=b"ok")
    server.answer("GET /admin/v2/brokers/version", body=b"1.2.3")
    warning = "the metadata service has been away for 7 s"
    server.answer("GET /health", body={"status": "ok", "warnings": [warning]})
    assert json.loads(run(server, "brokers", "health", "-o", "json").stdout) == {
        "health": "ok",
        "version": "1.2.3",
        "warnings": [warning],
    }
    assert warning in run(server, "brokers", "health").stdout
    server.answer("GET /health", body={"status": "ok"})
    shown = run(server, "brokers", "health", "-o", "json").stdout
    assert json.loads(shown)["warnings"] == []


def test_a_broker_is_drained_to_a_named_one(server: AdminServer) -> None:
    state = {"draining": True, "bundlesLeft": 0, "destinationBroker": "b-1"}
    server.answer("PUT /admin/v2/brokers/b-0/drain", body=state)
    done = run(server, "brokers", "drain", "b-0", "--to", "b-1", "-o", "json")
    assert json.loads(done.stdout) == state
    assert [path for _, path, _ in server.requests] == [
        "/admin/v2/brokers/b-0/drain?destinationBroker=b-1"
    ]
    reason = "broker b-1 takes no bundles: it drains"
    server.answer("PUT /admin/v2/brokers/b-0/drain", 405, body={"reason": reason})
    refused = run(server, "brokers", "drain", "b-0", "--to", "b-1")
    assert refused.exit_code != 0
    assert reason in refused.stderr


def test_the_load_of_all_brokers_is_summed_up(server: AdminServer) -> None:
    names = ("Bundles", "Topics", "Producers", "Consumers")
    report = {
        **{f"num{name}": number for number, name in enumerate(names, 1)},
        **{f"msg{name}": 1.5 for name in ("RateIn", "RateOut", "ThroughputIn", "ThroughputOut")},
        "processCpu": 0.25,
        "memory": {"usage": 60.5, "limit": 8000.0},
        "bundleStats": {},
    }
    brokers = [{"broker_id": "b-0"}, {"broker_id": "b-1"}]
    server.answer("GET /admin/v2/brokers/registrations", body=brokers)
    server.answer("GET /admin/v2/broker-stats/load-report", body=report)
    first, _, total = json.loads(run(server, "brokers", "stats", "--all", "-o", "json").stdout)
    assert [path for _, path, _ in server.requests if "load-report" in path] == [
        f"/admin/v2/broker-stats/load-report?brokerId=b-{number}" for number in (0, 1)
    ]
    assert first["broker_id"] == "b-0"
    assert first["cpu_percent"] == 25.0
    assert total == {
        "broker_id": "(all)",
        "bundles": 2,
        "topics": 4,
        "producers": 6,
        "consumers": 8,
        "msg_rate_in": 3.0,
        "msg_rate_out": 3.0,
        "bytes_in": 3.0,
        "bytes_out": 3.0,
        "cpu_percent": 50.0,
        "memory_mb": 121.0,
    }
    assert json.loads(run(server, "brokers", "stats", "b-1", "-o", "json").stdout) == report
    assert server.requests[-1][1].endswith("load-report?brokerId=b-1")
    refused = run(server, "brokers", "stats", "b-1", "--all")
    assert (refused.exit_code, "--all is of all brokers" in refused.stderr) == (2, True)

    # One dies between the list and its report.
    answers = iter([(404, {"reason": "there is no broker 'b-0'; there are b-1"}), (200, report)])
    server.answer_each("GET /admin/v2/broker-stats/load-report", lambda: next(answers))
    partial = run(server, "brokers", "stats", "--all", "-o", "json")
    shown = json.loads(partial.stdout)
    assert [row["broker_id"] for row in shown] == ["b-1", "(all)"]
    assert (shown[1]["topics"], partial.exit_code) == (2, 1)
    assert "error: no load of broker b-0: there is no broker 'b-0'" in partial.stderr
    server.answer("GET /admin/v2/broker-stats/load-report", 403, {"reason": "not permitted"})
    refused = run(server, "brokers", "stats", "--all")
    assert (refused.exit_code, refused.stdout) == (1, "")


def test_a_bookie_whose_decommissioning_has_no_end_in_time(server: AdminServer) -> None:
    going_on = {"instanceId": "b~1", "givenUp": True, "underReplicatedLedgers": 3}
    for request in (
        "PUT /admin/v2/bookies/decommission/b",
        "GET /admin/v2/bookies/decommission/b~1",
    ):
        server.answer(request, 200, going_on)
    server.answer("GET /admin/v2/bookies/autorecovery", body={"enabled": True, "auditor": "a~1"})
    row = {"ledgerId": 7, "state": "open", "entries": 5, "isLeaving": False, "reason": ""}
    page = {"instanceId": "b~1", "ledgers": [row], "next": None}
    server.answer("GET /admin/v2/bookies/ledgers/b~1", body=page)
    assert run(server, "bookies", "decommission", "b", "--wait-seconds", "0").exit_code == 0
    done = run(server, "bookies", "decommission", "b", "--wait-seconds", "0.01", "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["done"]) == (1, False)
    assert "Run the command again to wait longer" in done.stderr


def test_orphans_are_shown_with_their_sizes_and_ages(server: AdminServer) -> None:
    row = {
        "kind": "ledger",
        "path": "/ledgers/00/0000/L0007",
        "ledgerId": 7,
        "owner": "persistent://public/default/t",
        "sizeBytes": 2_048,
        "createdMs": 1_000,
        "firstFoundMs": 7_201_000,
        "deletable": True,
        "why": "no topic names it",
    }
    node = {**row, "kind": "topic", "path": "/topics/a/b/c", "ledgerId": -1, "sizeBytes": -1}
    found = {
        "searchedMs": 10_801_000,
        "searching": False,
        "failure": "no answer",
        "deletionEnabled": False,
        "orphans": [row, {**node, "createdMs": 0}],
    }
    server.answer("GET /admin/v2/ledgers/orphans", body=found)
    done = run(server, "ledgers", "orphans", "-n", "5", "--after", "/a")
    assert server.requests[-1][1] == "/admin/v2/ledgers/orphans?after=%2Fa&limit=5"
    first, second = done.stdout.splitlines()[-2:]
    assert re.split(r" {2,}", first) == ["ledger", "7", "2.0 KiB", "3h", "1h", row["why"]]
    assert re.split(r" {2,}", second)[1:4] == ["/topics/a/b/c", "not known", "not known"]
    assert "no answer" in done.stderr
    assert json.loads(run(server, "ledgers", "orphans", "-o", "json").stdout) == found
    server.answer("GET /admin/v2/ledgers/orphans", body={**found, "searchedMs": 0, "orphans": []})
    assert "has not searched yet" in run(server, "ledgers", "orphans").stderr


def test_a_search_for_orphans_is_asked_for_and_waited_for(server: AdminServer) -> None:
    found = {
        "searchedMs": 5,
        "searching": True,
        "failure": "",
        "deletionEnabled": False,
        "orphans": [],
    }
    listing = "GET /admin/v2/ledgers/orphans"
    server.answer("POST /admin/v2/ledgers/orphans/search", 204)
    states = [found, {**found, "searching": False, "searchedMs": 9}]
    server.answer_each(listing, lambda: (200, states.pop(0)))
    done = run(server, "ledgers", "orphans", "--search", "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["searchedMs"]) == (0, 9)
    assert [method for method, _, _ in server.requests] == ["POST", "GET", "GET"]

    server.answer(listing, body=found)
    late = run(server, "ledgers", "orphans", "--search", "--wait-seconds", "0.01")
    assert late.exit_code == 1
    assert "has not ended after 0.01 s; it goes on" in late.stderr
    assert run(server, "ledgers", "orphans", "--search", "--wait-seconds", "0").exit_code == 0
    for ended, words in (({"failure": "no answer"}, "no answer"), ({"searchedMs": 0}, "not sea")):
        server.answer(listing, body={**found, "searching": False, **ended})
        failed = run(server, "ledgers", "orphans", "--search")
        assert failed.exit_code == 1
        assert words in failed.stderr


def test_options_that_no_broker_has_are_said_to_be_none(server: AdminServer) -> None:
    server.answer("GET /admin/v2/brokers/configuration/runtime", 200, {"cluster_name": "c"})
    assert (
        "no option's name contains 'zzz'"
        in run(server, "brokers", "config", "--name", "zzz").stderr
    )
    assert run(server, "brokers", "config", "--name", "name").stdout.split() == [
        "cluster_name",
        "c",
    ]


@pytest.mark.parametrize(
    ("arguments", "request_line", "body"),
    [
        (
            (
                "isolation-policies set pay --namespaces pay/.* --primary b1 --primary b2 "
                "--secondary b3 --min-limit 2 --usage-threshold 80"
            ),
            "POST /admin/v2/clusters/c/namespaceIsolationPolicies/pay",
            {
                "namespaces": ["pay/.*"],
                "primary": ["b1", "b2"],
                "secondary": ["b3"],
                "auto_failover_policy": {
                    "policy_type": "min_available",
                    "parameters": {"min_limit": "2", "usage_threshold": "80"},
                },
            },
        ),
        (
            "isolation-policies delete pay --yes",
            "DELETE /admin/v2/clusters/c/namespaceIsolationPolicies/pay",
            None,
        ),
        (
            "failure-domains set rack-1 b1 b2:8080",
            "POST /admin/v2/clusters/c/failureDomains/rack-1",
            {"brokers": ["b1", "b2:8080"]},
        ),
        (
            "failure-domains delete rack-1",
            "DELETE /admin/v2/clusters/c/failureDomains/rack-1",
            None,
        ),
        (
            "namespaces set-capture acme/orders --pattern a.* --into persistent://acme/x/t",
            f"POST {SPACE}/captures/t",
            {
                "pattern": "a.*",
                "into": "persistent://acme/x/t",
                "syntax": "wildcard",
                "acknowledged": "received",
                "whenFull": "pause",
            },
        ),
        (
            """namespaces set-capture acme/orders --name r --pattern .* --regex
            --into persistent://acme/x/t --acknowledged stored --pending-max 1MB""",
            f"POST {SPACE}/captures/r",
            {
                "pattern": ".*",
                "into": "persistent://acme/x/t",
                "syntax": "regex",
                "acknowledged": "stored",
                "whenFull": "pause",
                "pendingMaxBytes": 1 << 20,
            },
        ),
        ("namespaces remove-capture acme/orders r", f"DELETE {SPACE}/captures/r", None),
        (
            "namespaces set-anti-affinity-group acme/orders g",
            f"POST {SPACE}/antiAffinity",
            "g",
        ),
        (
            "namespaces remove-anti-affinity-group acme/orders",
            f"DELETE {SPACE}/antiAffinity",
            None,
        ),
    ],
)
def test_rules_of_placement_are_sent(
    server: AdminServer, arguments: str, request_line: str, body: object
) -> None:
    server.answer("GET /admin/v2/clusters", body=["c"])
    done = run(server, *arguments.split())
    assert done.exit_code == 0, done.stderr
    method, path = request_line.split()
    assert server.requests[-1] == (method, path, body)


def test_rules_of_placement_are_shown(server: AdminServer) -> None:
    policies, domains = (
        f"/admin/v2/clusters/c/{name}" for name in ("namespaceIsolationPolicies", "failureDomains")
    )
    rule = {"namespaces": ["pay/.*", "p/x"], "primary": ["b1"], "secondary": []}
    row = {"brokerName": "b1", "policyName": "pay", "primary": True, "namespaceRegex": ["pay/.*"]}
    for path, answer in (
        ("/admin/v2/clusters", ["c"]),
        (policies, {"pay": rule}),
        (f"{policies}/pay", rule),
        (f"{policies}/brokers", [row]),
        (f"{policies}/brokers/b1", row),
        (domains, {"rack-1": {"brokers": ["b1", "b2"]}}),
        (f"{domains}/rack-1", {"brokers": ["b1", "b2"]}),
        ("/admin/v2/namespaces/c/antiAffinity/g", ["acme/orders"]),
    ):
        server.answer(f"GET {path}", body=answer)
    server.answer(f"GET {SPACE}/antiAffinity", body=b"g")
    capture = {"pattern": "a.*", "into": "persistent://acme/x/t", "acknowledged": "stored"}
    server.answer(f"GET {SPACE}/captures", body={"r": capture})
    server.answer(f"GET {SPACE}/captures/r", body=capture)
    for arguments, words in [
        ("isolation-policies list", ["pay", "pay/.*, p/x", "b1"]),
        ("isolation-policies get pay", ["pay/.*", "p/x", "b1"]),
        ("isolation-policies brokers", ["b1", "pay", "pay/.*"]),
        ("isolation-policies broker b1", ["b1", "pay", "pay/.*"]),
        ("failure-domains list", ["rack-1", "b1, b2"]),
        ("failure-domains get rack-1", ["b1", "b2"]),
        ("namespaces anti-affinity-namespaces g --tenant acme", ["acme/orders"]),
        ("namespaces get-anti-affinity-group acme/orders", ["g"]),
        ("namespaces captures acme/orders", ["r", "a.*", "stored"]),
        ("namespaces get-capture acme/orders r", ["a.*", "persistent://acme/x/t"]),
    ]:
        done = run(server, *arguments.split())
        assert done.exit_code == 0, done.stderr
        assert [word for word in words if word not in done.stdout] == [], arguments
    server.answer(f"GET {SPACE}/antiAffinity", 204)
    none = run(server, "namespaces", "get-anti-affinity-group", "acme/orders")
    assert (none.exit_code, none.stdout, none.stderr) == (0, "GROUP\n", "(none)\n")


def test_options_are_changed_while_brokers_run(server: AdminServer) -> None:
    changed = "/admin/v2/brokers/configuration/slow_add_ms"
    server.answer("GET /admin/v2/brokers/configuration", 200, ["slow_add_ms"])
    server.answer("GET /admin/v2/brokers/configuration/values", 200, {"slow_add_ms": "5"})
    server.answer(f"POST {changed}/5", 204, None)
    server.answer(f"DELETE {changed}", 204, None)
    for command, words in (
        ("list-dynamic-config", "slow_add_ms"),
        ("get-all-dynamic-config", "slow_add_ms"),
        ("update-dynamic-config slow_add_ms 5", "option slow_add_ms is 5 at all brokers"),
        ("update-dynamic-config slow_add_ms -1", "option slow_add_ms is -1 at all brokers"),
        ("delete-dynamic-config slow_add_ms", "what each broker was started with"),
    ):
        done = run(server, "brokers", *command.split())
        assert (done.exit_code, words in done.output) == (0, True), done.output


GROUP_PATH = "/admin/v2/resourcegroups/gold"


@pytest.mark.parametrize(
    ("arguments", "request_line", "body"),
    [
        (
            "resourcegroups create gold --publish-messages 10 --dispatch-bytes 2MB",
            f"PUT {GROUP_PATH}",
            {"publishRateInMsgs": 10, "dispatchRateInBytes": 2 << 20},
        ),
        (
            "resourcegroups update gold --publish-bytes unlimited --dispatch-messages -1",
            f"PUT {GROUP_PATH}",
            {"publishRateInBytes": -1, "dispatchRateInMsgs": -1},
        ),
        ("resourcegroups delete gold --yes", f"DELETE {GROUP_PATH}", None),
        (
            "namespaces set-resource-group acme/orders gold",
            f"POST {SPACE}/resourcegroup/gold",
            None,
        ),
        ("namespaces remove-resource-group acme/orders", f"DELETE {SPACE}/resourcegroup", None),
        (
            "topics set-resource-group acme/orders/in gold",
            "POST /admin/v2/persistent/acme/orders/in/resourceGroup",
            "gold",
        ),
    ],
)
def test_resource_groups_are_sent(
    server: AdminServer, arguments: str, request_line: str, body: object
) -> None:
    server.answer(f"GET {GROUP_PATH}", body={})
    done = run(server, *arguments.split())
    assert done.exit_code == 0, done.stderr
    method, path = request_line.split()
    assert server.requests[-1] == (method, path, body)


def test_resource_groups_are_shown_and_wrong_limits_refused(server: AdminServer) -> None:
    limits = {
        "publishRateInMsgs": 10,
        "publishRateInBytes": 3 << 20,
        "dispatchRateInMsgs": 0,
        "dispatchRateInBytes": -1,
    }
    server.answer("GET /admin/v2/resourcegroups", body=["gold"])
    server.answer(f"GET {GROUP_PATH}", body=limits)
    server.answer(f"GET {SPACE}/resourcegroup", body=b"gold")
    assert run(server, "resourcegroups", "list").stdout.split() == ["GROUP", "gold"]
    shown = run(server, "resourcegroups", "get", "gold").stdout
    assert re.split(r"\s{2,}|\n", shown.strip()) == [
        *("publish-messages", "10", "publish-bytes", "3MiB"),
        *("dispatch-messages", "unlimited", "dispatch-bytes", "unlimited"),
    ]
    assert json.loads(run(server, "resourcegroups", "get", "gold", "-o", "json").stdout) == limits
    assert run(server, "namespaces", "get-resource-group", "acme/orders").stdout == "gold\n"
    server.answer(f"GET {SPACE}/resourcegroup", 204)
    none = run(server, "namespaces", "get-resource-group", "acme/orders")
    assert "resource-group is not set" in none.stdout + none.stderr
    for words, reason in (
        ("--publish-messages -2", "must be a number"),
        ("--publish-bytes 2x", "2x"),
        ("", "give at least one of --publish-messages"),
    ):
        done = run(server, "resourcegroups", "create", "gold", *words.split())
        assert done.exit_code == 2
        assert reason in done.stderr
