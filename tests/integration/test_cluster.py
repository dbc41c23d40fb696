"""A cluster of real processes is used and broken: what was acknowledged is there afterwards."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

import pulsarish
from pulsarish.admin import Admin
from pulsarish.local_cluster.processes import Cluster, _rss_bytes, _started_by
from tests.integration.conftest import StartCluster

TOPIC = "persistent://public/default/survivors"


class Sender:
    """Sends numbered messages and remembers which were acknowledged."""

    def __init__(self, client: pulsarish.Client, topic: str = TOPIC, **options: object) -> None:
        self.acknowledged: list[int] = []
        self.failed: list[object] = []
        self.sent = 0
        self._producer = client.create_producer(
            topic,
            producer_name="sender",
            block_if_queue_full=True,
            batching_enabled=True,
            send_timeout_millis=60_000,
            **options,
        )

    def send(self, count: int) -> None:
        for _ in range(count):
            number = self.sent
            self.sent += 1

            def done(result: object, _message_id: object, number: int = number) -> None:
                if result == pulsarish.Result.Ok:
                    self.acknowledged.append(number)
                else:
                    self.failed.append(result)

            self._producer.send_async(b"%d" % number, done)

    def flush(self) -> None:
        self._producer.flush()


def read_all(client: pulsarish.Client, topic: str = TOPIC) -> list[int]:
    reader = client.create_reader(topic, pulsarish.MessageId.earliest)
    return [int(message.data()) for message in _available(reader)]


def _available(reader: pulsarish.Reader) -> Iterator[pulsarish.Message]:
    while reader.has_message_available():
        yield reader.read_next(timeout_millis=30_000)


def owner_of(cluster: Cluster, topic: str = TOPIC) -> str:
    return str(Admin(_live_admin(cluster)).topics.lookup(topic)["brokerId"])


def _live_admin(cluster: Cluster) -> str:
    for node in cluster.nodes():
        if node.role == "broker" and cluster.pid(node.name) is not None:
            return f"http://127.0.0.1:{node.ports['http']}"
    raise AssertionError("no broker is alive")


def test_killed_owner_and_bookie_lose_nothing_and_deduplication_leaves_no_duplicate(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(settings={"broker": ["broker_deduplication_enabled=true"]})
    client = pulsarish.Client(cluster.service_urls()["pulsarish"])
    sender = Sender(client)
    sender.send(3000)
    cluster.kill(owner_of(cluster))
    sender.send(3000)
    cluster.kill("bookie-1")
    sender.send(3000)
    sender.flush()
    assert sender.failed == []
    assert sender.acknowledged == list(range(9000))
    assert read_all(client) == list(range(9000))
    client.close()


def test_after_a_failover_a_full_queue_drains_and_nothing_fails_before_its_time(
    start_cluster: StartCluster,
) -> None:
    """Who waits for room waits for the failover; who does not is told so at once, and what was
    taken is stored.
    """
    cluster = start_cluster(settings={"broker": ["broker_deduplication_enabled=true"]})
    with pulsarish.Client(cluster.service_urls()["pulsarish"]) as client:
        waiting = Sender(client, max_pending_messages=200)
        hasty = client.create_producer(TOPIC, max_pending_messages=50, send_timeout_millis=60_000)
        waiting.send(1)
        waiting.flush()
        outcomes: list[pulsarish.Result] = []
        cluster.kill(owner_of(cluster))
        while pulsarish.Result.ProducerQueueIsFull not in outcomes:
            hasty.send_async(b"-1", lambda result, _message_id: outcomes.append(result))
        waiting.send(5_000)
        waiting.flush()
        hasty.flush()
        assert waiting.failed == []
        assert waiting.acknowledged == list(range(5_001))
        assert set(outcomes) == {pulsarish.Result.Ok, pulsarish.Result.ProducerQueueIsFull}
        stored = read_all(client)
        assert [number for number in stored if number >= 0] == list(range(5_001))
        assert stored.count(-1) == outcomes.count(pulsarish.Result.Ok), (
            "what was taken is stored, what was refused is not"
        )


def test_all_processes_killed_at_once_lose_nothing_acknowledged(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(brokers=1)
    client = pulsarish.Client(cluster.service_urls()["pulsarish"])
    consumer = client.subscribe(
        TOPIC, "keeper", initial_position=pulsarish.InitialPosition.Earliest
    )
    sender = Sender(client)
    sender.send(2000)
    sender.flush()
    for _ in range(500):
        consumer.acknowledge(consumer.receive(timeout_millis=30_000))
    sender.send(1000)  # under way when everything dies
    for node in cluster.nodes():
        cluster.send_signal(node.name, signal.SIGKILL)
    for node in cluster.nodes():
        cluster.kill(node.name)
    known = set(sender.acknowledged)
    cluster.up()
    sender.flush()
    assert set(range(2000)) <= known
    assert sender.failed == []
    found = read_all(client)
    assert set(found) == set(range(3000))
    assert [number for index, number in enumerate(found) if number not in found[:index]] == list(
        range(3000)
    )
    client.close()


def test_one_of_three_bookies_dead_for_good(start_cluster: StartCluster) -> None:
    """Publishing, roll-over, the owner's death, a new subscription and a new reader all work with
    two of three.
    """
    cluster = start_cluster(
        settings={
            "broker": [
                "managed_ledger.max_entries_per_ledger=50",
                "managed_ledger.min_ledger_rollover_time_minutes=0",
            ]
        }
    )
    client = pulsarish.Client(cluster.service_urls()["pulsarish"])
    # Without a subscription and without retention, ledgers that are full are nobody's and go.
    client.subscribe(TOPIC, "keeper", initial_position=pulsarish.InitialPosition.Earliest).close()
    sender = Sender(client, batching_max_messages=10)
    sender.send(500)
    sender.flush()
    cluster.kill("bookie-3")
    sender.send(2000)
    sender.flush()
    cluster.kill(owner_of(cluster))
    sender.send(500)
    sender.flush()
    assert sender.failed == []
    consumer = client.subscribe(TOPIC, "late", initial_position=pulsarish.InitialPosition.Earliest)
    received = []
    while len(received) < 3000:
        message = consumer.receive(timeout_millis=30_000)
        received.append(int(message.data()))
        consumer.acknowledge(message)
    assert sorted(set(received)) == list(range(3000))
    assert sorted(set(read_all(client))) == list(range(3000))
    client.close()


def test_paused_owner_that_was_replaced_confirms_nothing(start_cluster: StartCluster) -> None:
    """SIGSTOP the owner, let another take over, go on: the old owner neither confirms an add nor
    persists an acknowledgement.
    """
    cluster = start_cluster()
    old_owner_client = pulsarish.Client(cluster.service_urls()["pulsarish"])
    sender = Sender(old_owner_client)
    consumer = old_owner_client.subscribe(
        TOPIC, "held", initial_position=pulsarish.InitialPosition.Earliest
    )
    sender.send(1000)
    sender.flush()
    first = consumer.receive(timeout_millis=30_000)
    owner = owner_of(cluster)
    cluster.send_signal(owner, signal.SIGSTOP)
    sender.send(200)  # lies in the paused owner's socket
    other = next(node for node in cluster.nodes() if node.role == "broker" and node.name != owner)
    new_client = pulsarish.Client(f"pulsarish://127.0.0.1:{other.ports['grpc']}")
    new_sender = new_client.create_producer(TOPIC, producer_name="successor")
    # the topic is served by the other broker now: the old one's ledger is fenced
    new_sender.send(b"-1")
    cluster.send_signal(owner, signal.SIGCONT)
    sender.flush()
    consumer.acknowledge(first)
    # The old owner itself may say otherwise for the moment that it needs to notice.
    assert (
        Admin(f"http://127.0.0.1:{other.ports['http']}").topics.lookup(TOPIC)["brokerId"]
        == other.name
    )
    found = read_all(new_client)
    acknowledged = set(sender.acknowledged)
    assert acknowledged <= set(found)
    marker = found.index(-1)
    # What the old owner had in its socket was either refused or went through the new owner: nothing
    # landed behind its back.
    assert [number for number in found[:marker] if number >= 0][:1000] == list(range(1000))
    old_owner_client.close()
    new_client.close()


def test_restart_of_a_stopped_cluster_needs_no_manual_step(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    with_client = pulsarish.Client(cluster.service_urls()["pulsarish"])
    sender = Sender(with_client)
    sender.send(1000)
    sender.flush()
    with_client.close()
    started = time.monotonic()
    cluster.down(print)
    assert [cluster.state(node).health for node in cluster.nodes()] == ["down"] * 6, (
        time.monotonic() - started
    )
    cluster.up()
    client = pulsarish.Client(cluster.service_urls()["pulsarish"])
    assert read_all(client) == list(range(1000))
    client.close()


def test_nodes_of_several_processes_are_paused_killed_and_restarted_whole(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(bookies=1, brokers=1, bookie_processes=2, broker_processes=2)
    broker, bookie = cluster.node("broker-1"), cluster.node("bookie-1")
    admin = Admin(cluster.admin_url())
    assert [each["broker_id"] for each in admin.brokers.list()] == ["broker-1-0", "broker-1-1"]
    assert [each["bookie_id"] for each in admin.bookies.list()] == ["bookie-1-0", "bookie-1-1"]
    pid = cluster.pid("broker-1")
    assert pid is not None
    processes = [pid, *_started_by(pid)]
    assert len(processes) == 3
    assert cluster.state(broker).rss_bytes > max(map(_rss_bytes, processes))

    client = pulsarish.Client(cluster.service_urls()["pulsarish"])
    client.subscribe(TOPIC, "keeper", initial_position=pulsarish.InitialPosition.Earliest).close()
    # Room for all: a send that waited for it would wait for a broker that is started after it.
    sender = Sender(client, max_pending_messages=10_000)
    sender.send(500)
    cluster.send_signal("broker-1", signal.SIGSTOP)
    state = cluster.state(broker)
    assert (state.health, state.reason[:12]) == ("unhealthy", "broker-1-0: ")
    cluster.send_signal("broker-1", signal.SIGCONT)
    sender.send(500)
    for node in (broker, bookie):
        # Had it left a process behind, its successor could not start.
        assert cluster.kill(node.name)
        cluster.check_ports([node])
        sender.send(500)
        cluster.start(node)
        cluster.wait_ready([node])
        sender.flush()
    assert sender.failed == []
    assert set(read_all(client)) == set(range(2000))
    client.close()
    # One process alone is gone: the node is not whole until its supervisor has replaced it.
    pid = cluster.pid("bookie-1")
    assert pid is not None
    lost = min(_started_by(pid))
    os.kill(lost, signal.SIGSTOP)
    assert cluster.state(bookie).health == "unhealthy"
    os.kill(lost, signal.SIGKILL)
    cluster.wait_ready([bookie])
    assert lost not in _started_by(pid)
    cluster.down(print)
    assert {cluster.state(node).health for node in cluster.nodes()} == {"down"}
    assert _started_by(pid) == []


@pytest.mark.parametrize("role", ["bookie", "metadata"])
def test_second_process_on_one_directory_is_refused(start_cluster: StartCluster, role: str) -> None:
    cluster = start_cluster(brokers=1)
    node = next(node for node in cluster.nodes() if node.role == role)
    twin = Cluster(cluster.directory)
    process_file = cluster.directory / node.name / "process.json"
    kept = process_file.read_text()
    process_file.unlink()  # so that a second one is started at all
    try:
        twin.start(node)
        deadline = time.monotonic() + 60
        while twin.pid(node.name) is not None:
            assert time.monotonic() < deadline, "the second process goes on running"
            time.sleep(0.05)
        log = twin.log_path(node.name).read_text()
        assert "in use" in log or "holds" in log or "lock" in log.lower(), log[-500:]
    finally:
        process_file.write_text(kept)
    cluster.wait_ready([node])
