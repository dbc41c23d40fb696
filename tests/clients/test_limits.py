"""What is refused for good reaches Apache Pulsar's Python client under the name that it has there,
and not as a timeout after retries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.clients.programs import Site

pulsar = pytest.importorskip(
    "pulsar", reason="left out: Apache Pulsar's Python client (pulsar-client) is not installed"
)

NAMESPACE = "public/limited"
TIMEOUT_SECONDS = 20
LIMITS = {
    "max-producers-per-topic": 1,
    "max-consumers-per-topic": 2,
    "max-consumers-per-subscription": 1,
    "max-subscriptions-per-topic": 2,
}


@pytest.fixture(scope="module")
def limited(site: Site) -> Iterator[Any]:
    site.admin.namespaces.create(NAMESPACE)
    for name, value in LIMITS.items():
        site.admin.namespaces.set_policy(NAMESPACE, name, value)
    client = pulsar.Client(site.service_url, operation_timeout_seconds=TIMEOUT_SECONDS)
    yield client
    client.close()


def topic(name: str) -> str:
    return f"persistent://{NAMESPACE}/{name}"


def shared(client: Any, name: str, subscription: str) -> Any:
    return client.subscribe(topic(name), subscription, consumer_type=pulsar.ConsumerType.Shared)


def second_producer(client: Any) -> list[Any]:
    return [client.create_producer(topic("p")), client.create_producer(topic("p"))]


def second_of_a_subscription(client: Any) -> list[Any]:
    return [shared(client, "c", "s"), shared(client, "c", "s")]


def third_of_a_topic(client: Any) -> list[Any]:
    return [shared(client, "d", "s1"), shared(client, "d", "s2"), shared(client, "d", "s2")]


def third_subscription(client: Any) -> list[Any]:
    for name in ("s1", "s2"):
        shared(client, "e", name).close()
    return [shared(client, "e", "s3")]


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (second_producer, pulsar.ProducerBusy),
        (second_of_a_subscription, pulsar.ConsumerBusy),
        (third_of_a_topic, pulsar.ConsumerBusy),
        (third_subscription, pulsar.NotAllowedError),
    ],
)
def test_a_limit_has_its_own_name(
    limited: Any, work: Callable[[Any], list[Any]], error: type[Exception]
) -> None:
    with pytest.raises(error):
        work(limited)


def test_a_pattern_over_a_namespace_that_does_not_exist_has_no_topics_yet(limited: Any) -> None:
    """An error would be asked about again until the client's timeout."""
    consumer = limited.subscribe(re.compile("persistent://public/nowhere/.*"), "s")
    with pytest.raises(pulsar.Timeout):
        consumer.receive(timeout_millis=1)
