"""Commands of the administration against a broker that keeps what it was asked: what goes out, what
is printed, what errors teach.
"""

from __future__ import annotations

import json
import os
import pty
import re
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from pulsarish.admin import Admin
from pulsarish.admin.policies import POLICIES, Policy
from pulsarish.cli.admin.partitions import gone_partitions
from pulsarish.cli.main import pulsarish
from pulsarish.cli.progress import Progress
from pulsarish.model import policies as model
from pulsarish.model.errors import InvalidArgument, TopicNotFound
from pulsarish.model.topic_name import TopicName
from pulsarish.wire._pb.message_pb2 import KeyValue, SingleMessageMetadata
from tests.support.admin_server import AdminServer, admin_server
from tests.support.commands import run_command

SPACE = "/admin/v2/namespaces/acme/orders"
NEW = "/admin/v2/persistent/acme/orders/new"


@pytest.fixture
def server() -> Iterator[AdminServer]:
    with admin_server() as found:
        yield found


def run(server: AdminServer, *arguments: str) -> Result:
    return run_command({"PULSARISH_ADMIN_URL": server.url}, *arguments)


# Policies


@pytest.mark.parametrize(
    ("arguments", "request_path", "body"),
    [
        (
            "set-retention {} --time 7d --size 10GB",
            "retention",
            {"retentionTimeInMinutes": 10_080, "retentionSizeInMB": 10_240},
        ),
        (
            "set-retention {} --time forever --size -1",
            "retention",
            {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
        ),
        (
            "set-retention {} --time 0 --size 0",
            "retention",
            {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0},
        ),
        (
            "set-retention {} --time forever --size unlimited --count 500",
            "retention",
            {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1, "retentionCountLimit": 500},
        ),
        (
            "set-backlog-quota {} --limit 10GB --policy producer_exception",
            "backlogQuota",
            {"limitSize": 10 << 30, "policy": "producer_exception"},
        ),
        (
            "set-backlog-quota {} --time 1d --type message_age --policy consumer_backlog_eviction",
            "backlogQuota?backlogQuotaType=message_age",
            {"limitTime": 86_400, "policy": "consumer_backlog_eviction"},
        ),
        (
            (
                "set-persistence {} --ensemble 5 --write-quorum 3 --ack-quorum 2 "
                "--mark-delete-rate 0.5"
            ),
            "persistence",
            {
                "bookkeeperEnsemble": 5,
                "bookkeeperWriteQuorum": 3,
                "bookkeeperAckQuorum": 2,
                "managedLedgerMaxMarkDeleteRate": 0.5,
            },
        ),
        (
            "set-publish-rate {} --messages 1000 --bytes unlimited",
            "publishRate",
            {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": -1},
        ),
        (
            "set-dispatch-rate {} --bytes 1MB --period 10s",
            "dispatchRate",
            {"dispatchThrottlingRateInByte": 1 << 20, "ratePeriodInSecond": 10},
        ),
        (
            "set-auto-subscription-creation {} --allow off",
            "autoSubscriptionCreation",
            {"allowAutoSubscriptionCreation": False},
        ),
        (
            "set-subscription-types-enabled {} shared Key_Shared",
            "subscriptionTypesEnabled",
            ["Shared", "Key_Shared"],
        ),
        ("set-max-subscriptions-per-topic {} 0", "maxSubscriptionsPerTopic", 0),
    ],
)
def test_policies_are_sent_as_pulsar_has_them(
    server: AdminServer, arguments: str, request_path: str, body: Any
) -> None:
    for level, resource, path in (
        ("namespaces", "acme/orders", SPACE),
        ("topics", "acme/orders/new", NEW),
    ):
        assert run(server, level, *arguments.format(resource).split()).exit_code == 0
        assert server.requests.pop() == ("POST", f"{path}/{request_path}", body)


def test_policies_that_topics_have_elsewhere(server: AdminServer) -> None:
    for words, expected in [
        (("namespaces", "set-ttl", "acme/orders", "3d"), ("POST", f"{SPACE}/messageTTL", 259_200)),
        (
            ("topics", "set-ttl", "acme/orders/new", "3d"),
            ("POST", f"{NEW}/messageTTL?messageTTL=259200", None),
        ),
        (
            ("namespaces", "set-deduplication", "acme/orders", "on"),
            ("POST", f"{SPACE}/deduplication", True),
        ),
        (
            ("topics", "set-deduplication", "acme/orders/new", "off"),
            ("POST", f"{NEW}/deduplicationEnabled", False),
        ),
        (
            ("topics", "set-max-message-size", "acme/orders/new", "1MB"),
            ("POST", f"{NEW}/maxMessageSize", 1 << 20),
        ),
        (
            ("topics", "set-max-producers-per-topic", "acme/orders/new", "3"),
            ("POST", f"{NEW}/maxProducers", 3),
        ),
        (("topics", "remove-retention", "acme/orders/new"), ("DELETE", f"{NEW}/retention", None)),
        (
            ("namespaces", "remove-backlog-quota", "acme/orders"),
            ("DELETE", f"{SPACE}/backlogQuota", None),
        ),
        (
            ("namespaces", "remove-backlog-quota", "acme/orders", "--type", "message_age"),
            ("DELETE", f"{SPACE}/backlogQuota?backlogQuotaType=message_age", None),
        ),
    ]:
        assert run(server, *words).exit_code == 0, words
        assert server.requests.pop() == expected


def test_policies_are_read_in_peoples_units_and_in_pulsars(server: AdminServer) -> None:
    server.answer(
        f"GET {SPACE}/retention", 200, {"retentionTimeInMinutes": 10_080, "retentionSizeInMB": -1}
    )
    assert run(server, "namespaces", "get-retention", "acme/orders").stdout.split() == [
        "time",
        "7d",
        "size",
        "unlimited",
    ]
    plain = run(server, "namespaces", "get-retention", "acme/orders", "-o", "json").stdout
    assert json.loads(plain) == {"retentionTimeInMinutes": 10_080, "retentionSizeInMB": -1}
    server.answer(f"GET {NEW}/messageTTL", 200, 259_200)
    assert run(server, "topics", "get-ttl", "acme/orders/new", "--applied").stdout == "3d\n"
    assert server.requests[-1][1] == f"{NEW}/messageTTL?applied=true"
    server.answer(
        f"GET {SPACE}/backlogQuotaMap",
        200,
        {"message_age": {"limitSize": -1, "limitTime": 3600, "policy": "producer_exception"}},
    )
    shown = run(server, "namespaces", "get-backlog-quota", "acme/orders").stdout.split()
    assert shown == [
        "message_age:",
        "limit",
        "unlimited",
        "time",
        "1h",
        "policy",
        "producer_exception",
    ]
    unset = run(server, "topics", "get-retention", "acme/orders/new")
    assert (unset.stdout, unset.exit_code) == ("", 0)
    assert "not set" in unset.stderr
    assert "--applied" in unset.stderr
    assert (
        run(server, "topics", "get-retention", "acme/orders/new", "-o", "json").stdout == "null\n"
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("namespaces set-ttl a/b 10", "write 10s, 10m, 10h or 10d"),
        ("namespaces set-ttl a/b forever", "cannot be without a limit"),
        ("namespaces set-retention a/b --time 7d", "--size"),
        ("namespaces set-retention a/b --time 90s --size 1GB", "write 1m or 2m"),
        ("namespaces set-retention a/b --time 7d --size big", "512MB"),
        ("namespaces set-max-topics-per-namespace a/b many", "must be a number"),
        ("namespaces set-deduplication a/b yes", "on"),
        (
            "namespaces set-persistence a/b --ensemble 3 --write-quorum 3 --ack-quorum -2",
            "0 or more",
        ),
        ("topics set-publish-rate t", "--messages, --bytes"),
        ("topics set-backlog-quota t --policy nothing", "producer_request_hold"),
        (
            "topics set-backlog-quota t --policy producer_exception",
            "give --limit, the limit of --type destination_storage",
        ),
        (
            "topics set-backlog-quota t --policy producer_exception --type message_age",
            "give --time, the limit of --type message_age",
        ),
        (
            "topics set-backlog-quota t --policy producer_exception --time 1h",
            "add --type message_age",
        ),
        (
            (
                "namespaces set-backlog-quota a/b --policy producer_exception --limit 1GB --type "
                "message_age"
            ),
            "add --type destination_storage",
        ),
        ("topics list --partitioned --bundle 0x0_0x1", "--partitioned or --bundle"),
        ("topics create t --property x", "name=value"),
        ("subscriptions expire t --older-than 1h", "--all"),
        ("subscriptions expire t s --older-than 5", "write 5s"),
        ("subscriptions seek t s", "--to POSITION"),
        ("subscriptions seek t s --time yesterday", "an age like 2h"),
        ("topics message t 7", "LEDGER:ENTRY"),
        ("tenants update t", "--admin-role"),
        ("topics list --admin-url ftp://h", "http://host:8080"),
    ],
)
def test_what_cannot_be_meant_is_bad_usage_and_is_not_sent(
    server: AdminServer, arguments: str, text: str
) -> None:
    done = run(server, *arguments.split())
    assert (done.exit_code, server.requests) == (2, [])
    assert text in " ".join(done.stderr.split())


def test_the_table_is_the_brokers_own() -> None:
    """Each policy of the broker has commands, with its paths and its fields, and there are none for
    others.
    """
    ours = {(policy.namespace, policy.topic): policy for policy in POLICIES}
    theirs = {(policy.namespace, policy.topic): policy for policy in model.POLICIES}
    assert set(ours) == set(theirs)
    for paths, policy in ours.items():
        kind = theirs[paths].kind
        assert keys(policy) <= fields_of(kind), policy.name
        assert bool(policy.topic_query) == theirs[paths].in_query


def keys(policy: Policy) -> set[str]:
    return {field.key for field in policy.fields if field.key and field.key != policy.kind}


def fields_of(kind: Any) -> set[str]:
    info = msgspec.inspect.type_info(kind)
    if isinstance(info, msgspec.inspect.DictType):
        info = info.value_type
    return (
        {field.encode_name for field in info.fields}
        if isinstance(info, msgspec.inspect.StructType)
        else set()
    )


# What errors teach


def test_names_that_are_near(server: AdminServer) -> None:
    server.answer(
        "GET /admin/v2/persistent/acme/orders/nwe/partitions",
        404,
        {"reason": "no such topic"},
        {"X-Pulsarish-Error-Code": "21"},
    )
    server.answer(
        "GET /admin/v2/persistent/acme/orders",
        200,
        ["persistent://acme/orders/new", "persistent://acme/orders/other"],
    )
    done = run(server, "topics", "stats", "acme/orders/nwe")
    assert done.exit_code == 1
    assert "did you mean persistent://acme/orders/new?" in done.stderr
    assert "pulsarish topics create acme/orders/nwe" in done.stderr
    server.answer(
        f"PUT {NEW}-partition-7",
        404,
        {"reason": "no such partition"},
        {"X-Pulsarish-Error-Code": "21"},
    )
    assert (
        "topics create" not in run(server, "topics", "create", "acme/orders/new-partition-7").stderr
    )
    server.answer(
        "GET /admin/v2/tenants/acne",
        404,
        {"reason": "no such tenant"},
        {"X-Pulsarish-Error-Code": "20"},
    )
    server.answer("GET /admin/v2/tenants", 200, ["acme", "public"])
    assert "did you mean acme?" in run(server, "tenants", "get", "acne").stderr
    server.answer(
        f"DELETE {NEW}/subscription/bill", 404, {"reason": "none"}, {"X-Pulsarish-Error-Code": "22"}
    )
    server.answer(f"GET {NEW}/subscriptions", 200, ["billing"])
    assert (
        "did you mean billing?"
        in run(server, "subscriptions", "delete", "acme/orders/new", "bill").stderr
    )
    server.answer(
        "GET /admin/v2/namespaces/acme/order",
        404,
        {"reason": "none"},
        {"X-Pulsarish-Error-Code": "20"},
    )
    server.answer("GET /admin/v2/namespaces/acme", 200, ["acme/orders"])
    assert (
        "did you mean acme/orders?"
        in run(server, "namespaces", "get-policies", "acme/order").stderr
    )


@pytest.mark.parametrize(
    ("arguments", "request_line", "code"),
    [
        ("topics partitions grow acme/orders/new 8", f"GET {NEW}/partitions", 21),
        ("namespaces unload acme/orders --bundle 0x0_0x1", f"PUT {SPACE}/0x0_0x1/unload", 20),
        ("namespaces update acme/orders --remove-property p", f"DELETE {SPACE}/property/p", 20),
    ],
)
def test_what_is_there_is_not_offered_in_its_own_place(
    server: AdminServer, arguments: str, request_line: str, code: int
) -> None:
    server.answer("GET /admin/v2/persistent/acme/orders", 200, ["persistent://acme/orders/new"])
    server.answer("GET /admin/v2/namespaces/acme", 200, ["acme/orders"])
    server.answer(
        request_line, 404, {"reason": "no such part of it"}, {"X-Pulsarish-Error-Code": str(code)}
    )
    done = run(server, *arguments.split())
    assert done.exit_code == 1
    assert "no such part of it" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("tenants", "create", ""), "the name after 'tenants' is empty"),
        (
            ("subscriptions", "create", "acme/orders/new", ""),
            "the name after 'persistent/acme/orders/new/subscription' is empty",
        ),
        (("bookies", "decommission", ""), "is empty"),
    ],
)
def test_an_empty_name_is_not_sent_as_the_path_of_something_else(
    server: AdminServer, arguments: tuple[str, ...], text: str
) -> None:
    done = run(server, *arguments)
    assert (done.exit_code, server.requests) == (1, [])
    assert text in done.stderr


def test_a_removed_quota_is_named_with_its_type(server: AdminServer) -> None:
    assert (
        "backlog-quota (destination_storage) of topic"
        in run(server, "topics", "remove-backlog-quota", "acme/orders/new").stderr
    )
    done = run(server, "topics", "remove-backlog-quota", "acme/orders/new", "--type", "message_age")
    assert "backlog-quota (message_age) of topic" in done.stderr


def test_a_bookie_whose_decommissioning_has_no_end_in_time(server: AdminServer) -> None:
    going_on = {"instanceId": "b~1", "givenUp": True, "underReplicatedLedgers": 3}
    for request in (
        "PUT /admin/v2/bookies/decommission/b",
        "GET /admin/v2/bookies/decommission/b~1",
    ):
        server.answer(request, 200, going_on)
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
    ("command", "word", "reason", "notes"),
    [
        (
            "set-persistence {} --ensemble 2 --write-quorum 3 --ack-quorum 2",
            "persistence",
            "bookkeeperEnsemble 2 >= bookkeeperWriteQuorum 3 >= bookkeeperAckQuorum 2 must hold",
            [
                "bookkeeperEnsemble is --ensemble",
                "bookkeeperWriteQuorum is --write-quorum",
                "bookkeeperAckQuorum is --ack-quorum",
            ],
        ),
        (
            "set-retention {} --time 1h --size 1MB",
            "retention",
            (
                "retention of retentionSizeInMB 1 must exceed the backlog quota "
                "destination_storage of limitSize 1048576 bytes"
            ),
            ["retentionSizeInMB is --size", "limitSize is --limit of set-backlog-quota"],
        ),
        ("set-retention {} --time 1h --size 1MB", "retention", "the namespace is locked", []),
    ],
)
def test_a_refused_policy_is_told_in_the_commands_own_words(
    server: AdminServer, command: str, word: str, reason: str, notes: list[str]
) -> None:
    server.answer(
        f"POST {SPACE}/{word}",
        412,
        {"reason": reason},
        {"X-Pulsarish-Error-Code": str(InvalidArgument.code)},
    )
    done = run(server, "namespaces", *command.format("acme/orders").split())
    assert (done.exit_code, done.stderr.splitlines()) == (
        1,
        [f"error: InvalidArgument: {reason}", *(f"  {note}" for note in notes)],
    )


@pytest.mark.parametrize(("ack_quorum", "warned"), [(2, False), (1, True)])
def test_quorums_that_put_entries_at_risk_are_said_where_they_are_set(
    server: AdminServer, ack_quorum: int, warned: bool
) -> None:
    server.answer(f"POST {SPACE}/persistence", 204)
    words = (
        "namespaces set-persistence acme/orders --ensemble 2 --write-quorum 2 --ack-quorum "
        f"{ack_quorum}"
    )
    done = run(server, *words.split())
    assert (done.exit_code, "one dead bookie stops writes" in done.stderr) == (0, warned)


@pytest.mark.parametrize(
    ("arguments", "request_line", "body"),
    [
        (
            "namespaces grant-permission acme/orders --role a/b --action consume --action produce",
            f"POST {SPACE}/permissions/a%2Fb",
            ["consume", "produce"],
        ),
        (
            "namespaces revoke-permission acme/orders --role r",
            f"DELETE {SPACE}/permissions/r",
            None,
        ),
        (
            "namespaces grant-subscription-permission acme/orders s --role a --role b",
            f"POST {SPACE}/permissions/subscription/s",
            ["a", "b"],
        ),
        (
            "namespaces revoke-subscription-permission acme/orders s --role a",
            f"DELETE {SPACE}/permissions/s/a",
            None,
        ),
        (
            "topics grant-permission acme/orders/new --role r --action produce",
            f"POST {NEW}/permissions/r",
            ["produce"],
        ),
        ("topics revoke-permission acme/orders/new --role r", f"DELETE {NEW}/permissions/r", None),
        (
            "topics revoke-permission non-persistent://acme/orders/new --role r",
            f"DELETE {NEW.replace('persistent', 'non-persistent')}/permissions/r",
            None,
        ),
        (
            "tenants create acme --admin-role r",
            "PUT /admin/v2/tenants/acme",
            {"adminRoles": ["r"], "allowedClusters": []},
        ),
    ],
)
@pytest.mark.parametrize("enabled", [True, False, None])
def test_permissions_are_changed_and_a_change_without_effect_is_said_to_be_so(
    server: AdminServer, arguments: str, request_line: str, body: Any, enabled: bool | None
) -> None:
    if enabled is not None:
        server.answer("GET /admin/v2/authorization", 200, {"enabled": enabled})
    server.answer(f"GET {SPACE}/permissions/subscription", 200, {"s": ["b"]})
    done = run(server, *arguments.split())
    assert done.exit_code == 0, done.stderr
    assert (" ".join(server.requests[0][:2]), server.requests[0][2]) == (request_line, body)
    warned = "warning: authorization is off (authorization_enabled is false)" in done.stderr
    assert warned is (enabled is False)


def test_the_last_role_of_a_subscription_opens_it(server: AdminServer) -> None:
    server.answer(f"GET {SPACE}/permissions/subscription", 200, {"other": ["b"]})
    words = "namespaces revoke-subscription-permission acme/orders s --role a"
    assert "s is now for every role that may consume" in run(server, *words.split()).stderr


def test_permissions_are_shown_by_role_and_in_apache_pulsars_form(server: AdminServer) -> None:
    found = {"shop": ["produce"], "bank": ["consume", "produce"]}
    for path, words in (
        (SPACE, "namespaces permissions acme/orders"),
        (NEW, "topics permissions acme/orders/new"),
    ):
        server.answer(f"GET {path}/permissions", 200, found)
        lines = run(server, *words.split()).stdout.split("\n")
        assert [line.split() for line in lines if line] == [
            ["ROLE", "ACTIONS"],
            ["bank", "consume,", "produce"],
            ["shop", "produce"],
        ]
        assert json.loads(run(server, *words.split(), "-o", "json").stdout) == found
    server.answer(f"GET {SPACE}/permissions/subscription", 200, {"s": ["a", "b"]})
    words = "namespaces subscription-permissions acme/orders"
    assert run(server, *words.split()).stdout.split() == ["SUBSCRIPTION", "ROLES", "s", "a,", "b"]
    assert json.loads(run(server, *words.split(), "-o", "json").stdout) == {"s": ["a", "b"]}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("namespaces grant-permission acme/orders --role r", "Missing option '--action'"),
        ("namespaces grant-permission acme/orders --action produce", "Missing option '--role'"),
        ("topics grant-permission t --role r --action fly", "'fly' is not one of 'produce'"),
        ("namespaces grant-subscription-permission acme/orders s", "Missing option '--role'"),
    ],
)
def test_a_permission_needs_a_role_and_known_actions(
    server: AdminServer, arguments: str, text: str
) -> None:
    done = run(server, *arguments.split())
    assert (done.exit_code, server.requests) == (2, [])
    assert text in done.stderr


def test_an_explanation_has_the_rule_and_for_a_denial_the_fix(server: AdminServer) -> None:
    path = "/admin/v2/authorization/explain"
    server.answer(f"GET {path}", 200, {"permitted": True, "reason": "super user", "remedy": ""})
    done = run(server, "auth", "explain", "r", "produce", "acme/orders/new", "-s", "s")
    assert done.stdout.split() == ["permitted", "yes", "reason", "super", "user"]
    query = "role=r&action=produce&resource=acme%2Forders%2Fnew&subscription=s"
    assert server.requests[0][:2] == ("GET", f"{path}?{query}")
    denial = {"permitted": False, "reason": "no grant", "remedy": "pulsarish ..."}
    server.answer(f"GET {path}", 200, denial)
    words = "auth explain r produce acme/orders --proxy-role p -o json"
    assert json.loads(run(server, *words.split()).stdout) == denial
    assert server.requests[1][1].endswith("&proxyRole=p")


def batch(*messages: tuple[bytes, str, dict[str, str]]) -> bytes:
    """A batch's payload: content, key and properties of each message."""
    payload = b""
    for content, key, properties in messages:
        own = SingleMessageMetadata(payload_size=len(content), partition_key=key)
        own.properties.extend(KeyValue(key=name, value=value) for name, value in properties.items())
        head = own.SerializeToString()
        payload += struct.pack(">I", len(head)) + head + content
    return payload


ENTRY = "/admin/v2/persistent/acme/orders/new/ledger/3/entry/7"
BATCH_HEADERS = {
    "X-Pulsar-Message-ID": "3:7",
    "X-Pulsar-num-batch-message": "2",
    "X-Pulsar-publish-time": "2026-01-01T00:00:00.000+00:00",
}


def test_a_batch_is_shown_message_by_message(server: AdminServer) -> None:
    server.answer(
        f"GET {ENTRY}", 200, batch((b"one", "k", {"a": "1"}), (b"\xfftwo", "", {})), BATCH_HEADERS
    )
    shown = run(server, "topics", "message", "acme/orders/new", "3:7")
    assert shown.stdout_bytes == b"one\n\xfftwo\n"
    first, second = shown.stderr.splitlines()
    assert first == "3:7:0  key=k  published=2026-01-01T00:00:00.000+00:00  a=1"
    assert second == "3:7:1  key=-  published=2026-01-01T00:00:00.000+00:00"
    assert (
        run(server, "topics", "message", "acme/orders/new", "3:7", "--format", "hex").stdout
        == "6f 6e 65\nff 74 77 6f\n"
    )
    rows = json.loads(
        run(server, "topics", "message", "acme/orders/new", "3:7", "-o", "json").stdout
    )
    assert [(row["id"], row["key"], row["properties"], row["value"]) for row in rows] == [
        ("3:7:0", "k", {"a": "1"}, "one"),
        ("3:7:1", None, {}, "\ufffdtwo"),
    ]


def test_what_cannot_be_taken_apart_is_said_to_be_so(server: AdminServer) -> None:
    server.answer(
        f"GET {ENTRY}", 200, b"secret", {**BATCH_HEADERS, "X-Pulsar-Is-Encrypted": "true"}
    )
    shown = run(server, "topics", "message", "acme/orders/new", "3:7")
    assert shown.stdout == "secret\n"
    assert "encrypted: shown as stored" in shown.stderr
    server.answer(f"GET {ENTRY}", 200, b"\0\0\0\x09short", BATCH_HEADERS)
    cut = run(server, "topics", "message", "acme/orders/new", "3:7")
    assert (
        cut.exit_code,
        "a batch is cut or damaged" in cut.stderr,
        "Traceback" in cut.stderr,
    ) == (1, True, False)


def test_times_and_durations_of_a_record_are_said_to_people_and_counted_for_scripts(
    server: AdminServer,
) -> None:
    ago = int(time.time() * 1000) - 3_700_000
    subscription = {
        "type": "Shared",
        "lastAckedTimestamp": ago,
        "lastExpireTimestamp": 0,
        "oldestUnackedAgeMs": 90_061_000,
        "msgBacklog": 5,
        "subscriptionProperties": {"timestamp": 7},
        "waiting": {"state": "idle", "sinceMs": 1_767_225_600_000},
    }
    server.answer("GET /admin/v2/persistent/acme/orders/new/partitions", 200, {"partitions": 0})
    server.answer(
        "GET /admin/v2/persistent/acme/orders/new/stats",
        200,
        {"subscriptions": {"s": subscription}},
    )
    shown = dict(
        line.split(None, 1)
        for line in run(server, "subscriptions", "get", "acme/orders/new", "s").stdout.splitlines()
        if " " in line
    )
    assert shown["lastAckedTimestamp"].endswith("(1h1m ago)")
    assert (shown["lastExpireTimestamp"], shown["oldestUnackedAgeMs"], shown["msgBacklog"]) == (
        "-",
        "1d1h",
        "5",
    )
    assert shown["sinceMs"].startswith("2026-01-01T00:00:00.000+00:00 (")
    assert shown["timestamp"] == "7"  # a property is its user's own
    server.answer(
        "GET /admin/v2/ledgers/5",
        200,
        {"ledger_id": 5, "created_ms": 1_767_225_600_000, "length_bytes": 0},
    )
    assert (
        "created_ms    2026-01-01T00:00:00.000+00:00 (" in run(server, "ledgers", "get", "5").stdout
    )
    assert (
        json.loads(run(server, "subscriptions", "get", "acme/orders/new", "s", "-o", "json").stdout)
        == subscription
    )


def test_peeked_messages_have_ids_that_read_takes(server: AdminServer) -> None:
    for number, message_id in enumerate(["3:0:1", "3:1:-1"], start=1):
        server.answer(
            f"GET {NEW}/subscription/s/position/{number}",
            200,
            b"payload",
            {"X-Pulsar-Message-ID": message_id},
        )
    done = run(server, "subscriptions", "peek", "acme/orders/new", "s", "-n", "2", "-o", "json")
    assert [row["id"] for row in json.loads(done.stdout)] == ["3:0:1", "3:1"]


def test_an_error_whose_hints_cannot_be_had_is_told_all_the_same(server: AdminServer) -> None:
    server.answer(
        "GET /admin/v2/tenants/acne",
        404,
        {"reason": "no such tenant"},
        {"X-Pulsarish-Error-Code": "20"},
    )
    server.answer("GET /admin/v2/tenants", 503, {"reason": "the metadata store does not answer"})
    done = run(server, "tenants", "get", "acne")
    assert (done.exit_code, done.stderr) == (1, "error: NotFound: no such tenant\n")


@pytest.mark.parametrize(
    ("arguments", "request_line", "code", "text"),
    [
        ("namespaces delete acme/orders", f"DELETE {SPACE}", 38, "--force also deletes"),
        (
            "subscriptions delete acme/orders/new s",
            f"DELETE {NEW}/subscription/s",
            31,
            "--force disconnects",
        ),
    ],
)
def test_force_is_offered_where_it_helps(
    server: AdminServer, arguments: str, request_line: str, code: int, text: str
) -> None:
    server.answer(request_line, 409, {"reason": "in use"}, {"X-Pulsarish-Error-Code": str(code)})
    assert text in run(server, *arguments.split()).stderr
    assert text not in run(server, *arguments.split(), "--force").stderr


def test_who_cannot_be_reached_is_named_with_the_variable_that_says_so() -> None:
    with admin_server() as gone:
        pass
    done = run(gone, "topics", "list")
    assert done.exit_code == 1
    assert gone.url in done.stderr
    assert "PULSARISH_ADMIN_URL" in done.stderr


# Long work


def test_what_a_broker_is_too_slow_for_is_asked_again(server: AdminServer) -> None:
    server.answer(f"GET {NEW}/partitions", 200, {"partitions": 5000})
    answers = iter([504, 504, 204])
    path = f"DELETE {NEW}/partitions"
    server.answer_each(path, lambda: (next(answers), {"reason": "still at it"}))
    assert run(server, "topics", "delete", "acme/orders/new").exit_code == 0
    assert [method for method, *_ in server.requests].count("DELETE") == 3


def test_what_was_done_by_an_attempt_that_seemed_to_fail(server: AdminServer) -> None:
    answers = iter([504, 404])
    server.answer_each(f"DELETE {SPACE}", lambda: (next(answers), {"reason": "gone"}))
    assert run(server, "namespaces", "delete", "acme/orders", "--force").exit_code == 0
    server.answer(f"DELETE {SPACE}", 404, {"reason": "gone"})
    assert run(server, "namespaces", "delete", "acme/orders", "--force").exit_code == 1


def test_very_many_partitions_are_made_in_steps(server: AdminServer) -> None:
    assert run(server, "topics", "create", "acme/orders/new", "--partitions", "1200").exit_code == 0
    path = f"{NEW}/partitions"
    assert server.requests == [("PUT", path, 500), ("POST", path, 1000), ("POST", path, 1200)]
    server.requests.clear()
    server.answer(f"GET {path}", 200, {"partitions": 1200})
    assert run(server, "topics", "partitions", "grow", "acme/orders/new", "1300").exit_code == 0
    assert server.requests[1:] == [("POST", path, 1300)]
    assert (
        "has 1200 partitions already"
        in run(server, "topics", "partitions", "grow", "acme/orders/new", "1200").stderr
    )


def test_progress_says_how_far_it_has_come() -> None:
    progress = Progress("making", total=5000)
    progress.done(1500)
    assert progress.line(3.6) == "making  1,500 of 5,000 (30 %)  4 s"
    assert Progress("deleting t").line(12.0) == "deleting t  12 s"


def test_progress_of_work_that_cannot_say_how_far_it_has_come(server: AdminServer) -> None:
    path = f"{NEW}/partitions"
    server.answer(f"GET {path}", 200, {"partitions": 600})
    left = [f"persistent://acme/orders/new-partition-{number}" for number in range(300)]
    server.answer(
        "GET /admin/v2/persistent/acme/orders", 200, [*left, "persistent://acme/orders/newer"]
    )
    gone = gone_partitions(Admin(server.url), TopicName.parse("acme/orders/new"), 600)
    assert gone() == 300
    server.answer("GET /admin/v2/persistent/acme/orders", 503, {"reason": "not now"})
    assert gone() == 300
    assert run(server, "topics", "delete", "acme/orders/new").exit_code == 0
    assert server.requests[-1] == ("DELETE", path, None)


STATS: dict[str, Any] = {
    "msgRateIn": 1234.5,
    "msgThroughputIn": 2048.0,
    "msgInCounter": 5000,
    "bytesInCounter": 3 << 20,
    "storageSize": 1 << 30,
    "backlogSize": 0,
    "owner": {"broker": "broker-1", "httpAddress": "h:8080"},
    "publishers": [
        {"producerName": "p", "msgRateIn": 1234.5, "waiting": {"state": "idle", "explanation": ""}}
    ],
    "subscriptions": {
        "s": {
            "type": "Shared",
            "msgBacklog": 7,
            "backlogMessages": 20,
            "backlogMessagesEstimated": True,
            "backlogSize": 12 << 10,
            "unackedMessages": 2,
            "consumers": [{}],
            "waiting": {"state": "waiting", "explanation": "7 entries wait for permits"},
        }
    },
    "diagnosis": ["subscription s: waiting for 3 s"],
}


def test_statistics_for_a_person_begin_with_what_stands_still(server: AdminServer) -> None:
    server.answer(f"GET {NEW}/partitions", 200, {"partitions": 0})
    server.answer(f"GET {NEW}/stats", 200, STATS)
    lines = [
        line.split()
        for line in run(server, "topics", "stats", "acme/orders/new").stdout.splitlines()
    ]
    assert lines == [
        ["topic", "persistent://acme/orders/new"],
        ["broker", "broker-1", "(h:8080)"],
        [
            "in",
            "1,234.5",
            "msg/s,",
            "2.0",
            "KiB/s;",
            "5,000",
            "messages,",
            "3.0",
            "MiB",
            "since",
            "it",
            "was",
            "opened",
        ],
        [
            "out",
            "0.0",
            "msg/s,",
            "0",
            "B/s;",
            "0",
            "messages,",
            "0",
            "B",
            "since",
            "it",
            "was",
            "opened",
        ],
        ["stored", "1.0", "GiB,", "the", "largest", "backlog", "0", "B"],
        ["diagnosis", "something", "stands", "still:"],
        ["subscription", "s:", "waiting", "for", "3", "s"],
        [],
        ["PRODUCER", "MSG/S", "BYTES/S", "MSGS", "ADDRESS", "SINCE", "STATE"],
        ["p", "1234.5", "-", "-", "-", "-", "idle"],
        [],
        [
            "SUBSCRIPTION",
            "TYPE",
            "ENTRIES",
            "MESSAGES",
            "BYTES",
            "UNACKED",
            "MSG/S",
            "REDELIVERED/S",
            "CONSUMERS",
            "STATE",
        ],
        [
            "s",
            "Shared",
            "7",
            "~20",
            "12.0",
            "KiB",
            "2",
            "-",
            "-",
            "1",
            "7",
            "entries",
            "wait",
            "for",
            "permits",
        ],
    ]
    assert (
        json.loads(run(server, "topics", "stats", "acme/orders/new", "-o", "json").stdout) == STATS
    )


def test_an_explanation_is_a_reason_a_sentence_and_a_command(server: AdminServer) -> None:
    waiting = {
        "state": "waiting",
        "reason": "no_permits",
        "explanation": "Nobody asks.",
        "help": "pulsarish subscriptions get t s",
    }
    idle = {
        "state": "idle",
        "reason": "",
        "explanation": "Nothing waits.",
        "help": "",
        "sinceMs": 0,
        "retryAtMs": 0,
    }
    report = {"topic": "t", "subscription": "s", **waiting, "sinceMs": 1, "retryAtMs": 1 << 50}
    server.answer(f"GET {NEW}/subscription/s/explain", 200, report)
    lines = run(server, "subscriptions", "explain", "acme/orders/new", "s").stdout.splitlines()
    assert lines[0].startswith("t, subscription s: waiting for ")
    assert lines[0].endswith(" (no_permits)")
    assert lines[1] == "  Nobody asks."
    assert lines[2].startswith("  next attempt: in ")
    assert lines[3] == "  see: pulsarish subscriptions get t s"
    assert (
        json.loads(
            run(server, "subscriptions", "explain", "acme/orders/new", "s", "-o", "json").stdout
        )
        == report
    )
    server.answer(
        f"GET {NEW}/explain",
        200,
        {
            "topic": "t",
            **idle,
            "publishers": [{"producerName": "p", **idle}],
            "subscriptions": {"s": waiting},
        },
    )
    assert run(server, "topics", "explain", "acme/orders/new").stdout.splitlines() == [
        "t: idle",
        "  Nothing waits.",
        "t, producer p: idle",
        "  Nothing waits.",
        "t, subscription s: waiting (no_permits)",
        "  Nobody asks.",
        "  see: pulsarish subscriptions get t s",
    ]
    partitions = {
        "t-partition-0": {"topic": "t-partition-0", "subscription": "s", **waiting},
        "t-partition-1": idle,
    }
    server.answer(
        f"GET {NEW}/subscription/s/explain",
        200,
        {"topic": "t", "explanation": "1 of 2 partitions wait.", "partitions": partitions},
    )
    lines = run(server, "subscriptions", "explain", "acme/orders/new", "s").stdout.splitlines()
    assert lines[:2] == [
        "t: 1 of 2 partitions wait.",
        "t-partition-0, subscription s: waiting (no_permits)",
    ]
    assert lines[4] == "t-partition-1: idle"


def test_holes_are_a_sentence_and_a_line_for_each(server: AdminServer) -> None:
    def holder(state: str, entries: int, **more: object) -> dict[str, object]:
        return {
            "state": state,
            "entries": entries,
            "consumerName": None,
            "sinceMs": 0,
            "dueMs": 0,
            **more,
        }

    hole = {"first": "3:5", "last": "3:9", "entries": 5, "examined": 5}
    holders = [
        holder("consumer", 2, consumerName="c", sinceMs=1),
        holder("delayed", 2, dueMs=1 << 50),
        holder("unread", 1),
    ]
    report = {
        "topic": "t",
        "subscription": "s",
        "holes": 7,
        "entriesInHoles": 9,
        "acknowledgedRanges": 6,
        "memoryBytes": 800,
        "markDeletePosition": "3:4",
        "highestAcknowledgedPosition": "3:40",
        "oldest": None,
        "explanation": "There are holes.",
        "listed": [{**hole, "holders": holders}],
        "next": "3:12",
    }
    server.answer(f"GET {NEW}/subscription/s/holes", 200, report)
    words = ("subscriptions", "holes", "acme/orders/new", "s", "--limit", "1", "--from", "3:5")
    done = run(server, *words)
    assert server.requests[-1][1].endswith("/holes?limit=1&from=3%3A5")
    lines = done.stdout.splitlines()
    assert lines[:2] == [
        "t, subscription s: There are holes.",
        "  6 acknowledged ranges above 3:4 take 800 bytes of memory",
    ]
    assert lines[2].split() == ["FIRST", "LAST", "ENTRIES", "HOLDERS"]
    assert lines[3].startswith("3:5    3:9   5        consumer c 2 (since ")
    assert ", delayed 2 (for " in lines[3]
    assert lines[3].endswith(", unread 1")
    assert "more: pulsarish subscriptions holes t s --from 3:12" in done.stderr
    assert json.loads(run(server, *words, "-o", "json").stdout) == report


def test_statistics_of_partitions_say_each_thing_once(server: AdminServer) -> None:
    server.answer(f"GET {NEW}/partitions", 200, {"partitions": 2})
    said = ["nothing stands still", *(f"s{number % 30}: waits" for number in range(60))]
    part = {"storageSize": 1024, "waiting": {"state": "idle"}}
    answer = {
        **STATS,
        "diagnosis": said,
        "metadata": {"partitions": 2},
        "partitions": {"persistent://acme/orders/new-partition-0": part},
    }
    server.answer(f"GET {NEW}/partitioned-stats", 200, answer)
    shown = run(server, "topics", "stats", "acme/orders/new", "--per-partition").stdout
    assert server.requests[-1][1] == f"{NEW}/partitioned-stats?perPartition=true"
    run(server, "topics", "stats", "acme/orders/new", "--get-precise-backlog")
    asked = f"{NEW}/partitioned-stats?perPartition=false&getPreciseBacklog=true"
    assert server.requests[-1][1] == asked
    assert shown.count("s3: waits") == 1
    assert "and 10 more" in shown
    assert "nothing stands still" not in shown
    assert "broker-1" not in shown
    assert shown.splitlines()[-1].split() == [
        "new-partition-0",
        "-",
        "-",
        "1.0",
        "KiB",
        "0",
        "B",
        "idle",
    ]


def test_a_tenant_is_deleted_with_what_is_in_it_only_by_force(server: AdminServer) -> None:
    server.answer("GET /admin/v2/namespaces/acme", 200, ["acme/a", "acme/b"])
    assert run(server, "tenants", "delete", "acme", "--force").exit_code == 0
    assert [path for method, path, _ in server.requests if method == "DELETE"] == [
        "/admin/v2/namespaces/acme/a?force=true",
        "/admin/v2/namespaces/acme/b?force=true",
        "/admin/v2/tenants/acme",
    ]


# Questions


def at_a_terminal(server: AdminServer, arguments: list[str], answer: bytes) -> tuple[int, str]:
    """Exit status and what was on the terminal."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "PULSARISH_ADMIN_URL": server.url}
    with subprocess.Popen(
        [sys.executable, "-m", "pulsarish", *arguments],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment,
    ) as process:
        os.close(follower)
        os.write(leader, answer)
        seen = b""
        while True:
            try:
                data = os.read(leader, 4096)
            except OSError:  # the other side has closed it
                break
            seen += data
        process.wait(timeout=30)
    os.close(leader)
    return process.returncode, seen.decode()


def test_a_person_is_asked_before_something_is_lost_and_a_script_is_not(
    server: AdminServer,
) -> None:
    server.answer(f"GET {NEW}/partitions", 200, {"partitions": 0})
    deletion = ["topics", "delete", "acme/orders/new"]
    status, seen = at_a_terminal(server, deletion, b"n\n")
    assert (status, server.requests) == (1, [])
    assert "Delete acme/orders/new and all its messages?" in seen
    assert "nothing was done" in seen
    assert at_a_terminal(server, deletion, b"y\n")[0] == 0
    assert server.requests[-1][:2] == ("DELETE", NEW)
    status, seen = at_a_terminal(server, [*deletion, "--yes"], b"")
    assert (status, "?" in seen) == (0, False)
    assert run(server, *deletion).exit_code == 0


# Completion


def complete(server: AdminServer, *words: str) -> list[str]:
    """What a shell is offered for the last of these words."""
    completion = ShellComplete(pulsarish, {}, "pulsarish", "_PULSARISH_COMPLETE")
    arguments = ["--admin-url", server.url]
    return [
        item.value
        for item in completion.get_completions([*words[:2], *arguments, *words[2:-1]], words[-1])
    ]


def test_names_are_completed_in_the_form_they_were_begun(server: AdminServer) -> None:
    server.answer("GET /admin/v2/tenants", 200, ["acme", "public"])
    server.answer("GET /admin/v2/namespaces/acme", 200, ["acme/new", "acme/orders"])
    server.answer(
        "GET /admin/v2/persistent/acme/orders",
        200,
        ["persistent://acme/orders/one", "persistent://acme/orders/two"],
    )
    server.answer(
        "GET /admin/v2/persistent/public/default", 200, ["persistent://public/default/greetings"]
    )
    server.answer(
        "GET /admin/v2/persistent/public/default/greetings/subscriptions", 200, ["me", "you"]
    )
    assert complete(server, "tenants", "get", "a") == ["acme"]
    assert complete(server, "namespaces", "get-policies", "ac") == ["acme/"]
    assert complete(server, "namespaces", "get-policies", "acme/o") == ["acme/orders"]
    assert complete(server, "topics", "stats", "") == ["greetings"]
    assert complete(server, "topics", "stats", "acme/orders/t") == ["acme/orders/two"]
    assert (
        server.requests[-1][1]
        == "/admin/v2/persistent/acme/orders?after=persistent%3A%2F%2Facme%2Forders%2Ft&limit=100"
    )
    assert complete(server, "topics", "stats", "persistent://acme/orders/") == [
        "persistent://acme/orders/one",
        "persistent://acme/orders/two",
    ]
    assert complete(server, "subscriptions", "get", "greetings", "m") == ["me"]


def test_commands_are_completed_and_nobody_need_answer() -> None:
    completion = ShellComplete(pulsarish, {}, "pulsarish", "_PULSARISH_COMPLETE")
    assert [item.value for item in completion.get_completions([], "top")] == ["topics"]
    assert "set-retention" in [
        item.value for item in completion.get_completions(["namespaces"], "set-ret")
    ]
    assert (
        completion.get_completions(["topics", "stats", "--admin-url", "http://127.0.0.1:1"], "x")
        == []
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_for_shells_name_the_variable_that_asks(shell: str) -> None:
    done = CliRunner().invoke(pulsarish, ["completion", shell])
    assert done.exit_code == 0
    assert "_PULSARISH_COMPLETE" in done.stdout


# Redrives


_DEAD = "/admin/v2/persistent/acme/orders/new-s-DLQ/subscriptions"
_RETRY = "/admin/v2/persistent/acme/orders/new-s-RETRY/subscriptions"


@pytest.mark.parametrize(
    ("dead", "arguments", "said"),
    [
        (None, (), "there is no dead letter topic .*/new-s-DLQ: .*--dead-letter-topic"),
        ([], (), "no subscription to take from: .*subscriptions create .*new-s-DLQ redrive"),
        (["a", "b"], (), "give one of a, b as --dead-letter-subscription"),
        (["a"], ("--dead-letter-subscription", "c"), "has no subscription 'c'; it has: a"),
        (["a"], (), "new-s-RETRY has no subscription 's'; .*retry_enabled.* --to topic gives"),
        (["a"], ("--to", "topic"), "orders/new has no subscription 's'$"),
    ],
)
def test_a_redrive_that_cannot_be_meant(
    server: AdminServer, dead: list[str] | None, arguments: tuple[str, ...], said: str
) -> None:
    if dead is None:
        server.otherwise = lambda _method, _path: (404, {"reason": "none"}, {})
        code = {"X-Pulsarish-Error-Code": str(TopicNotFound.code)}
        server.answer(f"GET {_DEAD}", 404, {"reason": "none"}, code)
    else:
        server.answer(f"GET {_DEAD}", body=dead)
    server.answer(f"GET {_RETRY}", body=["other"])
    server.answer(f"GET {NEW}/subscriptions", body=["other"])
    done = run(server, "subscriptions", "redrive", "acme/orders/new", "s", *arguments)
    assert done.exit_code != 0
    assert re.search(said, done.stderr.replace("\n", " ").strip()), done.stderr


# Rules of placement


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
    for arguments, words in [
        ("isolation-policies list", ["pay", "pay/.* p/x", "b1"]),
        ("isolation-policies get pay", ["pay/.*", "p/x", "b1"]),
        ("isolation-policies brokers", ["b1", "pay", "pay/.*"]),
        ("isolation-policies broker b1", ["b1", "pay", "pay/.*"]),
        ("failure-domains list", ["rack-1", "b1 b2"]),
        ("failure-domains get rack-1", ["b1", "b2"]),
        ("namespaces anti-affinity-namespaces g --tenant acme", ["acme/orders"]),
        ("namespaces get-anti-affinity-group acme/orders", ["g"]),
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
        ("delete-dynamic-config slow_add_ms", "what each broker was started with"),
    ):
        done = run(server, "brokers", *command.split())
        assert (done.exit_code, words in done.output) == (0, True), done.output
