"""A cluster of real processes gets a bookie and a broker more, and loses the first of each."""

from __future__ import annotations

import pulsarish
from pulsarish.admin import Admin
from pulsarish.local_cluster.processes import Cluster
from tests.integration.conftest import StartCluster
from tests.integration.test_cluster import Sender, read_all
from tests.support.commands import run_command


def change(cluster: Cluster, *arguments: str) -> None:
    done = run_command({}, "cluster", *arguments, "--dir", str(cluster.directory))
    assert done.exit_code == 0, done.stderr


def test_new_nodes_take_over_from_those_that_are_removed(start_cluster: StartCluster) -> None:
    cluster = start_cluster(bookies=3, brokers=1)
    with pulsarish.Client(cluster.service_urls()["pulsarish"]) as client:
        sender = Sender(client)
        sender.send(500)
        sender.flush()
        change(cluster, "add", "bookie")
        change(cluster, "add", "broker")
        # It has the only open ledger, and the only broker all bundles.
        change(cluster, "remove", "bookie-1", "broker-1")
        sender.send(500)
        sender.flush()
        assert (sender.failed, read_all(client)) == ([], list(range(1_000)))
    assert [node.name for node in cluster.nodes()] == [
        "metadata",
        "bookie-2",
        "bookie-3",
        "bookie-4",
        "broker-2",
    ]
    admin = Admin(cluster.admin_url())
    assert sorted(row["bookie_id"] for row in admin.bookies.list()) == [
        "bookie-2",
        "bookie-3",
        "bookie-4",
    ]
    assert admin.bookies.under_replicated() == []
    for ledger_id in admin.ledgers.list():
        for segment in admin.ledgers.get(ledger_id)["segments"]:
            assert not any(member.startswith("bookie-1~") for member in segment["members"])
