"""The metadata service of a planned cluster: the daemon, one ZooKeeper, or an ensemble of them that
all other nodes know.
"""

from __future__ import annotations

import pytest

from pulsarish.local_cluster.processes import NodePlan, metadata_url, plan_cluster
from pulsarish.model.errors import InvalidArgument


def setting(node: NodePlan, name: str) -> str:
    return next(
        value for key, _, value in (each.partition("=") for each in node.settings) if key == name
    )


def test_every_node_names_all_servers_of_an_ensemble() -> None:
    nodes = plan_cluster(
        bookies=3, brokers=2, metadata="zookeeper", metadata_servers=3, base_port=20_000
    )
    servers = [node for node in nodes if node.role == "zookeeper"]
    assert [node.name for node in servers] == ["metadata-1", "metadata-2", "metadata-3"]
    assert [node.ports for node in servers] == [
        {"client": 20_000, "quorum": 20_001, "election": 20_002},
        {"client": 20_003, "quorum": 20_004, "election": 20_005},
        {"client": 20_006, "quorum": 20_007, "election": 20_008},
    ]
    url = "zk://127.0.0.1:20000,127.0.0.1:20003,127.0.0.1:20006/pulsarish"
    assert metadata_url(nodes) == url
    assert {
        setting(node, "metadata_url") for node in nodes if node.role in ("bookie", "broker")
    } == {url}
    ensemble = "127.0.0.1:20001:20002,127.0.0.1:20004:20005,127.0.0.1:20007:20008"
    assert [(setting(node, "servers"), setting(node, "server_id")) for node in servers] == [
        (ensemble, "1"),
        (ensemble, "2"),
        (ensemble, "3"),
    ]


def test_well_known_ports_of_an_ensemble_are_metadata_servers() -> None:
    nodes = plan_cluster(
        bookies=1, brokers=1, metadata="zookeeper", metadata_servers=3, base_port=None
    )
    assert [tuple(node.ports.values()) for node in nodes[:3]] == [
        (2181, 2888, 3888),
        (2182, 2889, 3889),
        (2183, 2890, 3890),
    ]


@pytest.mark.parametrize("metadata", ["embedded", "zookeeper"])
def test_a_single_server_is_no_ensemble(metadata: str) -> None:
    node, *others = plan_cluster(bookies=1, brokers=1, metadata=metadata, base_port=None)
    assert (node.name, node.ports["client"]) == ("metadata", 2181)
    assert not any(each.startswith(("servers=", "server_id=")) for each in node.settings)
    assert {setting(each, "metadata_url") for each in others} == {"zk://127.0.0.1:2181/pulsarish"}


@pytest.mark.parametrize(
    ("metadata", "metadata_servers"), [("embedded", 3), ("zookeeper", 2), ("zookeeper", 0)]
)
def test_an_ensemble_that_could_lose_nothing_is_refused(
    metadata: str, metadata_servers: int
) -> None:
    with pytest.raises(
        InvalidArgument, match=f"^{metadata_servers} metadata servers of the kind {metadata}"
    ):
        plan_cluster(
            bookies=1, brokers=1, metadata=metadata, metadata_servers=metadata_servers, base_port=0
        )
