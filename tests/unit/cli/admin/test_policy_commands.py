"""Commands for policies: what goes out, what is printed, what is refused."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from pulsarish.admin.policies import POLICIES, Policy
from pulsarish.model import policies as model
from pulsarish.model.errors import InvalidArgument
from tests.support.admin_server import NEW, SPACE, AdminServer, run


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
            "'-2' must be a number, 1 or more",
        ),
        ("topics set-delayed-delivery t --active on --tick-ms 0", "'0' must be a number, 1 or mo"),
        ("topics set-delayed-delivery t --active on --max-delay-ms -1", "a number, 0 or more"),
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
        ("ledgers orphans --wait-seconds 5", "--wait-seconds is for --search"),
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
        known = fields_of(kind)
        assert keys(policy) <= set(known), policy.name
        for field in policy.fields:
            if field.unit == "count" and field.key:
                assert field.minimum == max(0, minimum_of(known[field.key])), field.option
        assert bool(policy.topic_query) == theirs[paths].in_query


def keys(policy: Policy) -> set[str]:
    return {field.key for field in policy.fields if field.key and field.key != policy.kind}


def fields_of(kind: Any) -> dict[str, msgspec.inspect.Type]:
    info = msgspec.inspect.type_info(kind)
    if isinstance(info, msgspec.inspect.DictType):
        info = info.value_type
    return (
        {field.encode_name: field.type for field in info.fields}
        if isinstance(info, msgspec.inspect.StructType)
        else {}
    )


def minimum_of(info: msgspec.inspect.Type) -> int:
    kinds = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    plain = (kind.type if isinstance(kind, msgspec.inspect.Metadata) else kind for kind in kinds)
    (number,) = (kind for kind in plain if isinstance(kind, msgspec.inspect.IntType))
    assert number.ge is not None
    return number.ge


def test_a_removed_quota_is_named_with_its_type(server: AdminServer) -> None:
    assert (
        "backlog-quota (destination_storage) of topic"
        in run(server, "topics", "remove-backlog-quota", "acme/orders/new").stderr
    )
    done = run(server, "topics", "remove-backlog-quota", "acme/orders/new", "--type", "message_age")
    assert "backlog-quota (message_age) of topic" in done.stderr


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


def test_a_namespace_is_bound_to_groups_of_bookies(server: AdminServer) -> None:
    words = "set-bookie-affinity-group acme/orders --primary-group a,b --secondary-group c"
    assert run(server, "namespaces", *words.split()).exit_code == 0
    path = f"{SPACE}/persistence/bookieAffinity"
    value = {"bookkeeperAffinityGroupPrimary": "a,b", "bookkeeperAffinityGroupSecondary": "c"}
    assert server.requests.pop() == ("POST", path, value)
    server.answer(f"GET {path}", body=value)
    shown = run(server, "namespaces", "get-bookie-affinity-group", "acme/orders", "-o", "json")
    assert "a,b" in shown.stdout
    assert run(server, "namespaces", "remove-bookie-affinity-group", "acme/orders").exit_code == 0
    assert server.requests.pop()[:2] == ("DELETE", path)
