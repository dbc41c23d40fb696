"""Requests of Apache Pulsar's tools for missing features: those that change nothing are answered
and accepted.
"""

from __future__ import annotations

import pytest

from pulsarish.runtime.seams import World
from tests.integration.test_broker_http import Web
from tests.integration.test_policies import run
from tests.support.brokers import BrokerCluster, PublishClient, find

NAMESPACE = "/admin/v2/namespaces/public/default"
NAME = "persistent://public/default/t"
TOPIC = "/admin/v2/persistent/public/default/t"
RATE = {"dispatchThrottlingRateInMsg": -1}

# Path, the answer to GET, a value that changes nothing, and one that would.
NEUTRAL: list[tuple[str, object, object, object]] = [
    (f"{NAMESPACE}/replication", ["pulsarish"], ["pulsarish"], ["pulsarish", "far"]),
    (f"{NAMESPACE}/allowedClusters", ["pulsarish"], ["pulsarish"], ["far"]),
    (f"{NAMESPACE}/replicatorDispatchRate", None, RATE, {"dispatchThrottlingRateInMsg": 3}),
    (f"{NAMESPACE}/dispatcherPauseOnAckStatePersistent", True, True, False),
    (f"{TOPIC}/replication", None, ["pulsarish"], ["far"]),
    (f"{TOPIC}/subscription/s/replicatedSubscriptionStatus", {NAME: False}, False, True),
]
# What Java's client sends for an empty namespace, and what a broker of Apache Pulsar answers.
FORM = {
    "auth_policies": {"namespace_auth": {}, "destination_auth": {}, "subscription_auth_roles": {}},
    "replication_clusters": ["pulsarish"],
    "allowed_clusters": ["pulsarish"],
    "clusterThatCanDeleteNamespace": "pulsarish",
    "backlog_quota_map": {},
    "deleted": False,
    "encryption_required": False,
    "subscription_auth_mode": "None",
    "offload_threshold": -1,
    "offload_threshold_in_seconds": -1,
    "schema_compatibility_strategy": "UNDEFINED",
    "is_allow_auto_update_schema": True,
    "schema_validation_enforced": False,
    "subscription_types_enabled": [],
    "entryFilters": {"entryFilterNames": ""},
    "properties": {},
    "migrated": False,
}


async def with_topic(world: World) -> None:
    publish = await PublishClient.connect(world, await find(world, ["broker0"], NAME))
    await publish.open(1, NAME, "p")


@pytest.mark.parametrize(
    ("path", "unset", "neutral", "effective"),
    NEUTRAL,
    ids=[row[0].rpartition("/")[2] for row in NEUTRAL],
)
def test_what_changes_nothing_is_taken_and_the_rest_refused(
    path: str, unset: object, neutral: object, effective: object
) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await with_topic(world)
        assert await web("GET", path) == ((204, None) if unset is None else (200, unset))
        assert (await web("POST", path, neutral))[0] == 204
        status, refused = await web("POST", path, effective)
        assert (status, "this version does not have" in refused["reason"]) == (501, True)
        assert await web("GET", path) == ((204, None) if unset is None else (200, unset))

    run(scenario, brokers=1)


@pytest.mark.parametrize("path", [f"{NAMESPACE}/replicatorDispatchRate", f"{TOPIC}/replication"])
def test_there_is_nothing_to_take_back(path: str) -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        await with_topic(world)
        assert (await web("DELETE", path))[0] == 204
        assert (await web("DELETE", path.replace("default", "nothing")))[0] == 404

    run(scenario, brokers=1)


def test_a_namespace_is_made_of_a_form_whose_fields_all_say_what_is_so() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        assert (await web("PUT", "/admin/v2/namespaces/public/other", FORM))[0] == 204
        for field, value in (
            ("clusterThatCanDeleteNamespace", "far"),
            ("replication_clusters", ["far"]),
        ):
            status, refused = await web(
                "PUT", "/admin/v2/namespaces/public/another", {**FORM, field: value}
            )
            assert (status, f"{field} names 'far'" in refused["reason"]) == (501, True)

    run(scenario, brokers=1)


def test_a_policy_is_taken_back_by_setting_it_to_nothing() -> None:
    async def scenario(cluster: BrokerCluster, world: World, web: Web) -> None:
        path = f"{NAMESPACE}/deduplicationSnapshotInterval"
        assert (await web("POST", path, 7))[0] == 204
        assert await web("GET", path) == (200, 7)
        assert (await web("POST", path))[0] == 204
        assert await web("GET", path) == (204, None)

    run(scenario, brokers=1)
