"""The plan of a cluster: its metadata service, which all other nodes know, and the ports."""

from __future__ import annotations

from typing import Any

import pytest

from pulsarish.bookie.config import BookieConfig
from pulsarish.broker.config import BrokerConfig
from pulsarish.local_cluster.member_options import (
    bookie_members,
    broker_members,
    shared_by_brokers,
)
from pulsarish.local_cluster.plan import (
    NodePlan,
    check_removal,
    metadata_url,
    plan_cluster,
    plan_more,
)
from pulsarish.local_cluster.ports import take_consecutive
from pulsarish.model.errors import InvalidArgument, NotAllowedError
from pulsarish.runtime.network.addresses import port_of


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


def process_ports(**options: Any) -> dict[str, dict[str, int]]:
    nodes = plan_cluster(bookies=1, brokers=2, metadata="embedded", **options)
    return {name: ports for node in nodes for name, ports in node.process_ports.items()}


def test_processes_of_a_node_have_the_ports_that_their_group_gives_them() -> None:
    options = {"base_port": None, "bookie_processes": 2, "broker_processes": 3}
    nodes = plan_cluster(bookies=1, brokers=2, metadata="embedded", **options)
    _, bookie, broker, _ = nodes
    config = {key: value for key, _, value in (each.partition("=") for each in bookie.settings)}
    bookies = bookie_members(
        BookieConfig(
            bookie_id=config["bookie_id"],
            metadata_url=config["metadata_url"],
            listen_address=config["listen_address"],
            http_address=config["http_address"],
            framed_port=int(config["framed_port"]),
            data_directory="d",
        ),
        bookie.processes,
        bookie.port_step,
    )
    config = {key: value for key, _, value in (each.partition("=") for each in broker.settings)}
    found = BrokerConfig(
        broker_id=config["broker_id"],
        metadata_url=config["metadata_url"],
        listen_address=config["listen_address"],
        http_address=config["http_address"],
        pulsar_address=config["pulsar_address"],
        framed_port=int(config["framed_port"]),
    )
    brokers = broker_members(found, broker.processes, broker.port_step, shared_by_brokers(found))
    kinds = {"listen_address": "grpc", "http_address": "http", "pulsar_address": "pulsar"}
    planned = process_ports(**options)
    for member in (*bookies, *brokers):
        ports = {
            kinds.get(option, "framed"): port_of(address)
            for option, address in member.bound.items()
        }
        assert planned[member.name] == ports
    assert len(planned) == 1 + 2 + 2 * 3


@pytest.mark.parametrize("base_port", [0, 20_000])
def test_processes_of_a_node_have_the_ports_behind_its_own(base_port: int) -> None:
    nodes = plan_cluster(
        bookies=2,
        brokers=1,
        metadata="embedded",
        base_port=base_port,
        bookie_processes=2,
        broker_processes=2,
    )
    first = nodes[2].ports["grpc"]
    assert nodes[2].process_ports == {
        "bookie-2-0": {"grpc": first, "http": first + 1, "framed": first + 2},
        "bookie-2-1": {"grpc": first + 3, "http": first + 4, "framed": first + 5},
    }
    first = nodes[3].ports["grpc"]
    assert list(nodes[3].all_ports.values()) == list(range(first, first + 12))
    every = [port for node in nodes for port in node.all_ports.values()]
    assert len(set(every)) == len(every)


def test_a_plan_in_which_two_ports_clash_is_refused() -> None:
    with pytest.raises(
        InvalidArgument, match=r"^http of broker-21 and http of metadata would both"
    ):
        plan_cluster(bookies=1, brokers=21, metadata="embedded", base_port=None)


def test_ports_in_a_row_are_looked_for() -> None:
    assert take_consecutive(iter([5, 6, 9, 10, 11, 12]), 3) == 9
    with pytest.raises(InvalidArgument, match="no 3 free ports in a row"):
        take_consecutive(iter([5, 6, 9, 10, 12]), 3)


def test_further_nodes_have_the_next_names_and_the_options_of_the_others() -> None:
    nodes = plan_cluster(bookies=3, brokers=1, metadata="embedded", base_port=None)
    for node in nodes:
        node.settings.append(f"log_level=of-{node.role}")
    more = plan_more(nodes, "broker", 2, taken=[], ports=[])
    assert [(node.name, node.ports["grpc"], node.ports["pulsar"]) for node in more] == [
        ("broker-2", 6661, 6651),
        ("broker-3", 6662, 6652),
    ]
    whole = plan_cluster(bookies=3, brokers=3, metadata="embedded", base_port=None)
    for planned, wanted in zip(more, whole[-2:], strict=True):
        assert set(planned.settings) == {*wanted.settings, "log_level=of-broker"}
    (bookie,) = plan_more(nodes, "bookie", 1, taken=["bookie-7", "bookie-old"], ports=[])
    assert (bookie.name, setting(bookie, "host"), setting(bookie, "bookie_id")) == (
        "bookie-8",
        "bookie-8",
        "bookie-8",
    )
    assert setting(bookie, "log_level") == "of-bookie"


def test_further_nodes_of_other_ports_take_the_next_free_ones() -> None:
    nodes = plan_cluster(
        bookies=1, brokers=1, metadata="embedded", base_port=20_000, bookie_processes=2
    )
    (more,) = plan_more(nodes, "bookie", 1, taken=[], ports=[20_050, *range(20_060, 20_070)])
    assert more.process_ports == {
        "bookie-2-0": {"grpc": 20_060, "http": 20_061, "framed": 20_062},
        "bookie-2-1": {"grpc": 20_063, "http": 20_064, "framed": 20_065},
    }


def test_a_further_node_without_a_port_or_with_one_of_another_node_is_refused() -> None:
    known = plan_cluster(bookies=1, brokers=20, metadata="embedded", base_port=None)
    with pytest.raises(InvalidArgument, match=r"^http of broker-21 and http of metadata would"):
        plan_more(known, "broker", 1, taken=[], ports=[])
    counted = plan_cluster(bookies=1, brokers=1, metadata="embedded", base_port=20_000)
    with pytest.raises(InvalidArgument, match="bookie-2: no port is left"):
        plan_more(counted, "bookie", 1, taken=[], ports=[20_100, 20_101])


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["metadata"], "^metadata keeps the cluster's metadata"),
        (["broker-1", "broker-2"], "^no broker would be left"),
        (["bookie-1", "bookie-4"], r"^2 bookies would be left, and 3 hold each entry \(managed"),
    ],
)
def test_what_a_cluster_needs_cannot_be_removed(names: list[str], why: str) -> None:
    nodes = plan_cluster(bookies=4, brokers=2, metadata="embedded", base_port=None)
    check_removal(nodes, ["bookie-1", "broker-2"])
    with pytest.raises(NotAllowedError, match=why):
        check_removal(nodes, names)


@pytest.mark.parametrize(
    ("leaving", "name", "why"),
    [
        ("bookie-4", "bookie-3", "^2 bookies would be left"),
        ("broker-2", "broker-1", "^no broker would be left"),
    ],
)
def test_a_node_whose_removal_has_begun_does_not_count(leaving: str, name: str, why: str) -> None:
    nodes = plan_cluster(bookies=4, brokers=2, metadata="embedded", base_port=None)
    next(node for node in nodes if node.name == leaving).is_leaving = True
    with pytest.raises(NotAllowedError, match=why):
        check_removal(nodes, [name])
