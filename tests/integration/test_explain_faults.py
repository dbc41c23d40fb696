"""Why nothing moves while bookies or the metadata service are away, on a real cluster: the ledger
and its bookies are named.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import pulsarish
from pulsarish.chaos.stalls import counted, found_in_logs
from pulsarish.model.errors import PulsarishError
from tests.support.explained import Asked, running
from tests.support.until import until

BOOKIES = ("bookie-1", "bookie-2", "bookie-3")


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    with running(tmp_path / "cluster") as cluster:
        found = Asked(cluster)
        yield found
        found.client.shutdown()


@contextmanager
def stopped(asked: Asked, *names: str) -> Iterator[None]:
    """Stop processes by SIGSTOP, like a machine that hangs: no process answers, and no connection
    ends.
    """
    for name in names:
        asked.cluster.send_signal(name, signal.SIGSTOP)
    try:
        yield
    finally:
        for name in names:
            asked.cluster.send_signal(name, signal.SIGCONT)


def start(asked: Asked, *names: str) -> None:
    plans = [asked.cluster.node(name) for name in names]
    for plan in plans:
        asked.cluster.start(plan)
    asked.cluster.wait_ready(plans)


def test_reads_that_wait_for_bookies_and_reads_that_fail(asked: Asked) -> None:
    asked.run("topics", "create", "cold")
    asked.run("subscriptions", "create", "cold", "s", "--from", "earliest")
    asked.publish("cold", 20)
    with stopped(asked, *BOOKIES):
        consumer = asked.subscribe("cold")
        found = asked.subscription(
            "cold", "reading", "They are in ledger ", "bookie-1", "bookie-2", "bookie-3"
        )
        assert {each["bookie"] for each in found["data"]["bookies"]} == set(BOOKIES)
        assert found["help"] == f"pulsarish ledgers get {found['data']['ledgerId']}"
        found = asked.subscription("cold", "read_failed", "failed: ", "The broker tries again")
        assert found["retryAtMs"] > found["sinceMs"] > 0
    for _ in range(20):
        consumer.acknowledge(consumer.receive(timeout_millis=60_000))
    asked.until(lambda: asked.admin.subscriptions.explain("cold", "s"), "")
    consumer.close()


def test_publishing_that_waits_for_bookies_and_a_topic_that_cannot_be_opened(asked: Asked) -> None:
    asked.run("topics", "create", "t")
    asked.run("subscriptions", "create", "t", "s")
    asked.publish("t", 3)
    producer = asked.client.create_producer("t", batching_enabled=False, send_timeout_millis=0)
    with stopped(asked, "bookie-2", "bookie-3"):
        producer.send_async(b"x", lambda *_: None)
        found = asked.publishing("t", "slow_bookies")
        assert "owes an answer for the oldest of them in ledger" in found["explanation"]
        assert found["data"]["silentBookies"]
        assert found["publishers"][0]["reason"] == "slow_bookies"
        assert "producer " in asked.run("topics", "explain", "t")
    asked.until(lambda: asked.admin.topics.explain("t"), "")
    for name in ("bookie-2", "bookie-3"):
        asked.cluster.kill(name)
    producer.send_async(b"y", lambda *_: None)
    found = asked.publishing("t", "too_few_bookies")
    assert found["help"] == "pulsarish bookies list"
    with suppress(PulsarishError):
        asked.admin.topics.unload("t")
    url = asked.cluster.service_urls()["pulsarish"]
    with suppress(PulsarishError), pulsarish.Client(url, operation_timeout_seconds=3) as client:
        client.subscribe("t", "s")
    found = asked.publishing("t", "loading", "load_failed", "too_few_bookies")
    seen = {found["reason"]}
    found = asked.until(
        lambda: asked.admin.subscriptions.explain("t", "s"), "load_failed", "too_few_bookies"
    )
    assert "could not be opened" in found["explanation"], seen
    start(asked, "bookie-2", "bookie-3")
    asked.until(lambda: asked.admin.topics.explain("t"), "")


def test_a_topic_that_is_being_opened(asked: Asked) -> None:
    asked.publish("opened", 3)
    asked.admin.topics.unload("opened")
    asked.publish("opened", 3)
    asked.cluster.kill("broker-1")
    with stopped(asked, *BOOKIES):
        start(asked, "broker-1")
        is_seen = threading.Event()
        reading = threading.Thread(
            target=_try_to_open, args=(asked, "opened", is_seen), daemon=True
        )
        reading.start()
        found = asked.publishing("opened", "loading")
        is_seen.set()
        assert found["explanation"] == "Its ledgers are being recovered and its cursors opened."
    reading.join(60)
    asked.until(lambda: asked.admin.topics.explain("opened"), "")


def _try_to_open(asked: Asked, topic: str, is_enough: threading.Event) -> None:
    while not is_enough.is_set():
        with suppress(PulsarishError):
            asked.admin.topics.internal_stats(topic)


def test_producers_wait_while_deduplication_is_switched_on(tmp_path: Path) -> None:
    """The switch waits for entries in flight, and reports what those wait for.

    Then it reads the log.

    With one entry per read, reading takes long enough to stop the bookies in the middle of it.
    """
    with running(
        tmp_path / "cluster",
        settings=["dispatcher_max_read_batch_size=1", "managed_ledger.append_hold_ms=60000"],
    ) as cluster:
        asked = Asked(cluster)
        asked.run("topics", "create", "late")
        producer = asked.client.create_producer(
            "late", batching_enabled=False, send_timeout_millis=0, max_pending_messages=2_000
        )
        with stopped(asked, "bookie-2", "bookie-3"):
            for _ in range(2_000):
                producer.send_async(b"x", lambda *_: None)
            asked.publishing("late", "slow_bookies")
            asked.run("topics", "set-deduplication", "late", "on")
            until(
                "the switch has closed the producer",
                lambda: not asked.admin.topics.explain("late")["publishers"],
            )
        asked.until(lambda: asked.admin.topics.explain("late"), "deduplication_starts")
        with stopped(asked, *BOOKIES):
            found = asked.publishing("late", "deduplication_starts")
            assert found["explanation"] == (
                "Deduplication of topic persistent://public/default/late is being "
                "switched on; connect again."
            )
            shown = asked.run("topics", "explain", "late").splitlines()
            assert shown[0] == "persistent://public/default/late: waiting (deduplication_starts)"
            assert asked.run(*found["help"].split()[1:])
        asked.until(lambda: asked.admin.topics.explain("late"), "")
        producer.flush()
        asked.client.shutdown()


def test_without_metadata_for_longer_than_the_session(tmp_path: Path) -> None:
    with running(tmp_path / "cluster", settings=["metadata_session_timeout_ms=4000"]) as cluster:
        asked = Asked(cluster)
        asked.run("topics", "create", "t")
        asked.run("subscriptions", "create", "t", "s")
        asked.publish("t", 1)
        cluster.kill("metadata")
        asked.until(lambda: asked.admin.topics.explain("never-used"), "metadata_away")
        found = asked.admin.topics.explain("never-used")
        assert found["explanation"].startswith(
            "This broker does not serve it, and cannot find out from the metadata service which "
            "one does: "
        )
        shown = asked.run("topics", "explain", "never-used").splitlines()
        assert shown[0].endswith(": waiting (metadata_away)")
        assert shown[-1] == f"  see: {found['help']}"
        away = "the metadata service has been away for "
        until("the session is over", lambda: away in asked.run("brokers", "health"))
        assert away in cluster.state(cluster.node("broker-1")).reason
        # An open topic waits for nothing.
        assert asked.run("topics", "explain", "t").splitlines()[0].endswith(": idle")
        start(asked, "metadata")
        until("the broker is registered", lambda: away not in asked.run("brokers", "health"))
        asked.until(lambda: asked.admin.topics.explain("t"), "")
        asked.client.shutdown()


def test_without_metadata(tmp_path: Path) -> None:
    with running(tmp_path / "cluster", bookies=5) as cluster:
        asked = Asked(cluster)
        asked.run("topics", "create", "t")
        consumer = asked.subscribe("t")
        asked.publish("t", 10)
        producer = asked.client.create_producer("t", batching_enabled=False, send_timeout_millis=0)
        members = [each["bookie"] for each in asked.admin.topics.stats("t")["ledger"]["ensemble"]]
        moving = threading.Thread(target=_try_to_seek, args=(consumer,), daemon=True)
        with stopped(asked, "metadata"):
            moving.start()
            found = asked.until(lambda: asked.admin.subscriptions.explain("t", "s"), "seeking")
            assert "A seek has been under way for" in found["explanation"]
            for name in members[:2]:
                asked.cluster.kill(name)
            producer.send_async(b"x", lambda *_: None)
            found = asked.publishing("t", "ensemble_change", "metadata_away")
            assert "is being replaced; the metadata session is" in found["explanation"]
            assert found["data"]["ledgerId"] >= 0
            asked.cluster.kill("metadata")
            found = asked.publishing("t", "metadata_away")
            assert found["help"] == "pulsarish brokers health"
        start(asked, "metadata")
        moving.join(60)
        asked.until(lambda: asked.admin.topics.explain("t"), "")
        asked.client.shutdown()


def _try_to_seek(consumer: pulsarish.Consumer) -> None:
    with suppress(PulsarishError):
        consumer.seek(pulsarish.MessageId.earliest)


_PREDECESSOR = """
import sys, pulsarish
client = pulsarish.Client(sys.argv[1])
producer = client.create_producer("again", producer_name="p", batching_enabled=False)
producer.send_async(b"pending", lambda *_: None)
print("sent", flush=True)
sys.stdin.read()
"""


def test_a_producer_waits_for_the_outcome_of_its_predecessor(asked: Asked) -> None:
    asked.run("topics", "create", "again")
    asked.run("topics", "set-deduplication", "again", "on")
    url = asked.cluster.service_urls()["pulsarish"]
    asked.publish("again", 1)
    with stopped(asked, "bookie-2", "bookie-3"):
        words = [sys.executable, "-c", _PREDECESSOR, url]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            program.stdout.readline()
            asked.publishing("again", "slow_bookies")
            program.kill()
        opening = threading.Thread(target=_try_to_produce, args=(asked,), daemon=True)
        opening.start()
        nobody = {"state": "", "reason": None, "explanation": ""}
        found = asked.until(
            lambda: next(iter(asked.admin.topics.explain("again")["publishers"]), nobody),
            "predecessor",
        )
        assert (
            found["explanation"]
            == "What an earlier connection of producer 'p' sent has no outcome yet: 1 entry."
        )
        found = asked.publishing("again", "ledger_change", "too_few_bookies")
        assert found["explanation"].startswith("The topic's next ledger is ")
    opening.join(60)


def _try_to_produce(asked: Asked) -> None:
    with suppress(PulsarishError):
        asked.client.create_producer("again", producer_name="p").close()


_DEFECT = """
from pulsarish.broker.subscriptions.subscription import Subscription

def flow(subscription, consumer, permits):
    consumer.permits += permits

Subscription.flow = flow
"""


def test_a_broker_whose_permits_arm_no_read_says_so_and_repairs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_DEFECT)
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]),
    )
    with running(tmp_path / "cluster", settings=["dispatcher_progress_timeout_ms=6000"]) as cluster:
        asked = Asked(cluster)
        consumer = asked.subscribe("stalled", queue=4)
        asked.publish("stalled", 10)
        taken = [consumer.receive(timeout_millis=30_000) for _ in range(4)]
        found = asked.until(lambda: asked.admin.subscriptions.explain("stalled", "s"), "stalled")
        assert (
            "There are 10 entries to deliver, a consumer with permits and no reason to wait"
            in found["explanation"]
        )
        assert found["help"].startswith("pulsarish topics unload ")
        taken += [consumer.receive(timeout_millis=30_000) for _ in range(6)]
        assert [each.data() for each in taken] == [b"%010d" % number for number in range(10)], (
            "in order, and none again"
        )
        address = f"127.0.0.1:{cluster.node('broker-1').ports['http']}"
        assert counted([address])[address] >= 1.0
        assert found_in_logs([("broker-1", cluster.log_path("broker-1"))])
        asked.client.shutdown()
