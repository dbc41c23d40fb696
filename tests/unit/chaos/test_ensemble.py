"""What the servers of an ensemble of ZooKeepers say, and what a run concludes from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pulsarish.chaos.ensemble import Ensemble, taken_for_older
from pulsarish.chaos.observer import Owner
from pulsarish.chaos.scenarios import SCENARIOS
from pulsarish.chaos.standing import Standing
from pulsarish.cli.chaos import _options
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


def test_the_scenario_has_three_real_zookeepers_whatever_is_chosen() -> None:
    given = dict.fromkeys(
        ("quorums", "brokers", "bookies", "dedup", "fault_at", "window", "rate", "url", "admin_url")
    )
    given |= {
        "metadata": "embedded",
        "messages": 10,
        "partitions": 0,
        "send_timeout": 1.0,
        "isolate": (),
        "duration": 1.0,
    }
    given |= {"cuts": 1, "seed": 1, "secure": False, "settings": ()}
    options = _options(SCENARIOS["zookeeper-ensemble"], given)
    assert (options.metadata, options.metadata_servers) == ("zookeeper", 3)
    assert options.row()["metadata_servers"] == 3
    options = _options(SCENARIOS["no-fault"], given)
    assert (options.metadata, options.metadata_servers) == ("embedded", 1)
