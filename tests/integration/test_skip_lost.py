"""All replicas of a closed ledger of a real cluster are wiped.

Consumers stop before it, until an operator moves the topic past it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pulsarish
from pulsarish.admin import Admin
from pulsarish.bookie.ledger_index import LedgerIndex
from pulsarish.local_cluster.processes import Cluster
from pulsarish.model.errors import EntryUnknown, InvalidArgument, NotAllowedError
from pulsarish.runtime.lanes import OutsideWork
from pulsarish.runtime.world import production
from tests.integration.conftest import StartCluster
from tests.integration.test_cluster import Sender, read_all
from tests.support.until import until

TOPIC = "persistent://public/default/holed"
KEEP = ["default_retention_time_minutes=-1", "default_retention_size_mb=-1"]


def wipe_ledger(cluster: Cluster, name: str, ledger_id: int) -> None:
    """Remove a ledger's entries from a stopped bookie's index: the bookie knows the ledger and has
    none of its entries.
    """

    async def work() -> None:
        parts = production(outside=OutsideWork())
        rows = await parts.open_index(str(index_directory(cluster, name)))
        index = LedgerIndex(rows)
        while keys := await index.entry_keys(ledger_id, 1000):
            await rows.write([], keys, sync=True)
        await rows.close()
        await parts.close()

    asyncio.run(work())


def index_directory(cluster: Cluster, name: str) -> Path:
    return next(path.parent for path in (cluster.directory / name / "data").rglob("CURRENT"))


def test_a_wiped_ledger_is_moved_past_by_command_only(start_cluster: StartCluster) -> None:
    cluster = start_cluster(brokers=1, settings={"broker": KEEP})
    url, admin = cluster.service_urls()["pulsarish"], Admin(cluster.admin_url())
    client = pulsarish.Client(url)
    consumer = client.subscribe(TOPIC, "s", initial_position=pulsarish.InitialPosition.Earliest)
    sender = Sender(client, TOPIC, batching_max_messages=1)
    for _ in range(4):
        sender.send(25)
        sender.flush()
        admin.topics.unload(TOPIC)  # and the next entry begins another ledger
    assert sender.failed == []
    client.close()
    ledgers = admin.topics.internal_stats(TOPIC)["ledgers"]
    lost, count = ledgers[1]["ledgerId"], ledgers[1]["entries"]
    first = ledgers[0]["entries"]
    assert count > 0
    with pytest.raises(NotAllowedError, match="is not lost"):
        admin.topics.skip_lost(TOPIC, lost)
    with pytest.raises(InvalidArgument, match="no closed ledger"):
        admin.topics.skip_lost(TOPIC, ledgers[-1]["ledgerId"] + 1)
    cluster.stop("broker-1")
    for name in ("bookie-1", "bookie-2", "bookie-3"):
        cluster.stop(name)
        wipe_ledger(cluster, name, lost)
        if name != "bookie-3":
            cluster.start(cluster.node(name))
    cluster.wait_ready([cluster.node("bookie-1"), cluster.node("bookie-2")])
    cluster.start(cluster.node("broker-1"))
    cluster.wait_ready([cluster.node("broker-1")])
    with pytest.raises(EntryUnknown, match="bookie-3"):
        admin.topics.skip_lost(TOPIC, lost)
    cluster.start(cluster.node("bookie-3"))
    cluster.wait_ready([cluster.node("bookie-3")])
    client = pulsarish.Client(url)
    consumer = client.subscribe(TOPIC, "s", initial_position=pulsarish.InitialPosition.Earliest)
    for number in range(first):
        message = consumer.receive(timeout_millis=60_000)
        assert int(message.data()) == number
        consumer.acknowledge(message)
    with pytest.raises(pulsarish.Timeout):
        consumer.receive(timeout_millis=1_000)  # never without an operator
    words = [
        "topics",
        "skip-lost",
        TOPIC,
        "--ledger",
        str(lost),
        "--yes",
        "--admin-url",
        cluster.admin_url(),
        "-o",
        "json",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pulsarish", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["lastEntry"] == count - 1
    rest = []
    for _ in range(100 - first - count):
        message = consumer.receive(timeout_millis=60_000)
        rest.append(int(message.data()))
        consumer.acknowledge(message)
    assert rest == list(range(first + count, 100)), "exactly that range is passed over"
    stats = admin.topics.internal_stats(TOPIC)
    assert [(row["ledgerId"], row["firstEntry"], row["lastEntry"]) for row in stats["lost"]] == [
        (lost, 0, count - 1)
    ]
    assert read_all(client, TOPIC) == [*range(first), *rest]
    with pytest.raises(InvalidArgument, match="skipped already"):
        admin.topics.skip_lost(TOPIC, lost)
    client.close()
    cluster.stop("broker-1")
    cluster.start(cluster.node("broker-1"))
    cluster.wait_ready([cluster.node("broker-1")])
    client = pulsarish.Client(url)
    consumer = client.subscribe(TOPIC, "s")
    assert admin.topics.stats(TOPIC)["subscriptions"]["s"]["msgBacklog"] == 0, (
        "the mark has run over what is lost"
    )
    client.close()


def test_a_topic_whose_open_ledger_lost_its_bookies_goes_on_by_command_only(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(bookies=4, brokers=1)
    url, admin = cluster.service_urls()["pulsarish"], Admin(cluster.admin_url())
    with pulsarish.Client(url) as client:
        sender = Sender(client, TOPIC, batching_max_messages=1)
        sender.send(50)
        sender.flush()
        ledger_id = admin.topics.internal_stats(TOPIC)["ledgers"][-1]["ledgerId"]
        members = admin.ledgers.get(ledger_id)["segments"][-1]["members"]
        cluster.kill("broker-1")
    destroyed = members[:2]
    for member in destroyed:
        name = member.partition("~")[0]
        cluster.kill(name)
        shutil.rmtree(cluster.directory / name / "data")
    cluster.start(cluster.node("broker-1"))
    cluster.wait_ready([cluster.node("broker-1")])
    until("the sessions of the dead have ended", lambda: len(admin.bookies.list()) == 2)

    def says_which_ledger() -> bool:
        with (
            pulsarish.Client(url, operation_timeout_seconds=3) as client,
            pytest.raises(pulsarish.PulsarishError) as raised,
        ):
            client.create_producer(TOPIC)
        return str(ledger_id) in str(raised.value)

    until("it is said which ledger cannot be opened", says_which_ledger)
    words = [
        "ledgers",
        "recover",
        str(ledger_id),
        "--yes",
        "--admin-url",
        cluster.admin_url(),
        "-o",
        "json",
    ]
    command = [sys.executable, "-m", "pulsarish", *words]
    refused = subprocess.run(
        [*command, "--force", members[2]], capture_output=True, text=True, check=False
    )
    assert (refused.returncode, "is registered" in refused.stderr) == (1, True), refused.stderr
    forced = [word for member in destroyed for word in ("--force", member)]
    done = subprocess.run([*command, *forced], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(done.stdout)["given_up"]) == sorted(destroyed)
    with pulsarish.Client(url) as client:
        assert read_all(client, TOPIC) == list(range(50))
        again = Sender(client, TOPIC)
        again.send(1)
        again.flush()
        assert again.failed == []
