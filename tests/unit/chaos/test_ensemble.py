"""What the servers of an ensemble of ZooKeepers say, and what a run concludes from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pulsarish.chaos.ensemble import Ensemble, taken_for_older
from pulsarish.chaos.observer import Owner
from pulsarish.chaos.scenarios import SCENARIOS
from pulsarish.chaos.stage import Stage
from pulsarish.chaos.standing import Standing
from pulsarish.cli.chaos import _options
from pulsarish.local_cluster.plan import plan_cluster
from pulsarish.local_cluster.processes import Cluster
from pulsarish.local_cluster.zookeeper_words import parse_mode, parse_monitored
from pulsarish.metadata.records import RestoredTree
from pulsarish.metadata.tree_age import OLDER
from pulsarish.metadata.tree_state import TreeState

WHOLE = Ensemble({"one": "follower", "two": "leader", "three": "follower"}, 2)


def ensemble(one: str, two: str, three: str, synced: int) -> Ensemble:
    return Ensemble({"one": one, "two": two, "three": three}, synced)


@pytest.mark.parametrize(
    ("found", "leader", "is_whole", "without_two"),
    [
        (WHOLE, "two", True, False),
        # one of them is not in step yet
        (ensemble("follower", "leader", "follower", 1), "two", False, False),
        (ensemble("", "", "", 0), "", False, False),  # an election
        (ensemble("follower", "", "leader", 1), "three", False, True),
        (ensemble("follower", "", "leader", 0), "three", False, False),
        (ensemble("", "", "leader", 0), "three", False, False),
        # the old one has not noticed yet
        (ensemble("leader", "leader", "follower", 1), "", False, False),
        (ensemble("leader", "follower", "follower", 2), "one", True, False),
    ],
)
def test_who_leads_and_who_has_left(
    found: Ensemble, leader: str, *, is_whole: bool, without_two: bool
) -> None:
    assert (found.leader, found.is_whole, found.serves_without("two")) == (
        leader,
        is_whole,
        without_two,
    )


def test_the_words_of_a_server() -> None:
    serves = (
        "Zookeeper version: 3.9.3\nLatency min/avg/max: 0/0.5/9\nZxid: 0x100000004\nMode: "
        "leader\nNode count: 5\n"
    )
    assert parse_mode(serves) == "leader"
    assert parse_mode("This ZooKeeper instance is not currently serving requests\n") == ""
    assert parse_monitored("zk_server_state\tleader\nzk_synced_followers\t2\n") == {
        "zk_server_state": "leader",
        "zk_synced_followers": "2",
    }
    assert parse_monitored("This ZooKeeper instance is not currently serving requests\n") == {}


STANDING = Standing(
    {"broker-1": 7, "metadata-1": 9},
    Owner("broker-1", "broker-1~a", 3),
    {"broker-1": "broker-1~a"},
    {},
    {"broker-1": 0.0},
)


def test_what_stays_as_it_is_is_no_change() -> None:
    assert STANDING.changes(STANDING) == []
    assert (
        STANDING.changes(
            replace(STANDING, pids={"broker-1": 7, "metadata-1": 10}), besides=["metadata-1"]
        )
        == []
    )


@pytest.mark.parametrize(
    ("now", "change"),
    [
        (replace(STANDING, pids={"broker-1": None, "metadata-1": 9}), "broker-1 has ended"),
        (
            replace(STANDING, owner=Owner("broker-2", "broker-2~b", 4)),
            "the topic has changed its owner",
        ),
        (replace(STANDING, brokers={}), "the registered brokers were"),
        (replace(STANDING, lost={"broker-1": 1.0}), "broker-1 has lost its session"),
    ],
)
def test_what_a_fault_elsewhere_must_not_change(now: Standing, change: str) -> None:
    (found,) = STANDING.changes(now)
    assert found.startswith(change)


def test_metadata_that_were_taken_for_older_fail_the_run() -> None:
    mark = RestoredTree("", 0, 1, older=True, found_by="bookie-2", found=TreeState(0, 1, 2))
    assert taken_for_older(None, {"broker-1": "all is well"}) == []
    assert taken_for_older(mark, {}) == ["bookie-2 has marked the metadata as older than they were"]
    assert taken_for_older(None, {"broker-1": f"ERROR {OLDER} reason=..."}) == [
        f"broker-1 has logged that {OLDER}"
    ]


GIVEN: dict[str, Any] = {
    **dict.fromkeys(
        ("quorums", "brokers", "bookies", "dedup", "fault_at", "window", "rate", "url", "admin_url")
    ),
    "metadata": "embedded",
    "messages": 10,
    "partitions": 0,
    "send_timeout": 1.0,
    "isolate": (),
    "duration": 1.0,
    "cuts": 1,
    "seed": 1,
    "secure": False,
    "settings": (),
}


def test_the_scenario_has_three_real_zookeepers_whatever_is_chosen() -> None:
    options = _options(SCENARIOS["zookeeper-ensemble"], GIVEN)
    assert (options.metadata, options.metadata_servers) == ("zookeeper", 3)
    assert options.row()["metadata_servers"] == 3
    options = _options(SCENARIOS["no-fault"], GIVEN)
    assert (options.metadata, options.metadata_servers) == ("embedded", 1)


def test_relays_stand_before_the_servers_of_an_ensemble(tmp_path: Path) -> None:
    nodes = plan_cluster(
        bookies=1, brokers=1, metadata="zookeeper", metadata_servers=3, base_port=0
    )
    options = _options(SCENARIOS["zookeeper-ensemble"], GIVEN)
    stage = Stage(options, tmp_path, relayed=frozenset({"metadata"}))
    stage._cluster = Cluster(tmp_path)
    try:
        assert stage._put_relays(nodes) == [nodes[-1].ports["grpc"]]
    finally:
        stage.act(stage.relays.stop())
    servers, (bookie, broker) = nodes[:3], nodes[3:]
    hosts = (tmp_path / "metadata-2" / "hosts").read_text().splitlines()
    assert hosts == [
        "127.0.1.1 metadata-1",
        "127.0.0.1 metadata-2",
        "127.0.1.3 metadata-3",
        "127.0.0.1 localhost",
    ]
    java = tmp_path / "metadata-2" / "java"
    assert servers[1].settings[-1] == f"java={java}"
    assert f"-Djdk.net.hosts.file={tmp_path}/metadata-2/hosts" in java.read_text()
    names = ",".join(
        f"{node.name}:{node.ports['quorum']}:{node.ports['election']}" for node in servers
    )
    assert {node.settings[-2] for node in servers} == {f"servers={names}"}
    url = ",".join(
        f"127.0.1.{number}:{node.ports['client']}" for number, node in enumerate(servers, 1)
    )
    assert bookie.settings[-1] == broker.settings[-1] == f"metadata_url=zk://{url}/pulsarish"
