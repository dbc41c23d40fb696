"""``deploy/docker-compose.ensemble.yml``: three ZooKeepers that know each other, and are all known
to every other server.
"""

from __future__ import annotations

from typing import Any

import yaml

from pulsarish.metadata.connect import parse_metadata_url
from tests.unit.local_cluster.test_compose_processes import DEPLOY, services

OVER = "docker-compose.ensemble.yml"
SERVERS = ["zookeeper", "zookeeper-2", "zookeeper-3"]


def merged(service: str) -> dict[str, Any]:
    """What compose makes of both files, as far as these tests look."""
    plain, over = services("docker-compose.yml").get(service, {}), services(OVER).get(service, {})
    return {
        **plain,
        **over,
        "environment": {**plain.get("environment", {}), **over.get("environment", {})},
        "volumes": [*plain.get("volumes", []), *over.get("volumes", [])],
        "depends_on": {**plain.get("depends_on", {}), **over.get("depends_on", {})},
    }


def test_each_server_has_its_number_and_knows_all() -> None:
    ensemble = " ".join(
        f"server.{number}={name}:2888:3888;2181" for number, name in enumerate(SERVERS, 1)
    )
    found = [merged(name)["environment"] for name in SERVERS]
    assert [each["ZOO_MY_ID"] for each in found] == [1, 2, 3]
    assert [each["ZOO_SERVERS"] for each in found] == [ensemble] * 3


def test_each_server_has_volumes_of_its_own_and_is_watched() -> None:
    texts = [(DEPLOY / name).read_text() for name in ("docker-compose.yml", OVER)]
    declared = {name for text in texts for name in yaml.safe_load(text)["volumes"]}
    used = [mount.partition(":") for name in SERVERS for mount in merged(name)["volumes"]]
    names = [name for name, _, _ in used]
    assert [target for _, _, target in used] == ["/data", "/datalog"] * 3
    assert len(set(names)) == len(names)
    assert set(names) <= declared
    one, *others = (merged(name) for name in SERVERS)
    for other in others:
        for key in ("image", "restart", "stop_grace_period", "healthcheck", "deploy"):
            assert other[key] == one[key]


def test_an_empty_majority_cannot_form_before_the_first_server_leads() -> None:
    assert merged("zookeeper-2")["depends_on"]["zookeeper"] == {"condition": "service_started"}
    assert merged("zookeeper-3")["depends_on"]["zookeeper-2"] == {"condition": "service_healthy"}


def test_every_other_server_names_all_of_them_and_waits_for_the_last() -> None:
    others = [name for name in services("docker-compose.yml") if name != "zookeeper"]
    assert len(others) == 4
    for name in others:
        service = merged(name)
        (url,) = (
            value for key, value in service["environment"].items() if key.endswith("METADATA_URL")
        )
        assert parse_metadata_url(url).hosts == ",".join(f"{server}:2181" for server in SERVERS)
        assert service["depends_on"]["zookeeper-3"] == {"condition": "service_healthy"}
