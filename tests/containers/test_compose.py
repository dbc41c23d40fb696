"""The compose file that users run, run: a host program's messages outlive killed containers, a
restart of everything and scaling.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import pytest

import pulsarish
from pulsarish.admin import Admin
from pulsarish.local_cluster.ports import free_ports
from pulsarish.model.errors import PulsarishError
from tests.containers.podman import HOME, Podman
from tests.containers.traffic import Traffic, receive

pytestmark = pytest.mark.timeout(1_500)  # images from nothing on a slow machine

TOPICS = [f"t{number}" for number in range(6)]  # over the four bundles of public/default
WAIT_SECONDS_MAX = 120.0
PORTS = tuple(
    f"PULSARISH_BROKER_{number}_{face}"
    for number in (1, 2)
    for face in ("PORT", "HTTP_PORT", "PULSAR_PORT")
)


def until(what: str, holds: Callable[[], object]) -> None:
    """Wait for a state; it fails only when the state never comes."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    reason: object = "it does not hold"
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except PulsarishError as error:
            reason = error
        time.sleep(0.2)
    pytest.fail(f"{what}: not within {WAIT_SECONDS_MAX:.0f} s; {reason}")


def _has_no_backlog(admin: Admin, topic: str) -> bool:
    backlog: int = admin.topics.stats(topic)["subscriptions"]["s"]["msgBacklog"]
    return backlog == 0


class ComposeCluster:
    """Args: ``ports`` of this machine, in the order of ``PORTS``."""

    def __init__(self, podman: Podman, ports: list[int]) -> None:
        self.podman = podman
        self.url = f"pulsarish://127.0.0.1:{ports[0]},127.0.0.1:{ports[3]}"
        self.admin = Admin(
            f"http://127.0.0.1:{ports[1]},127.0.0.1:{ports[4]}", timeout_seconds=10.0
        )
        self.published = {f"pulsarish://127.0.0.1:{ports[0]}", f"pulsarish://127.0.0.1:{ports[3]}"}

    def up(self, *arguments: str, bookies: int, brokers: int) -> None:
        self.podman.compose("up", "--detach", *arguments)
        until(
            f"{bookies} bookies and {brokers} brokers", lambda: self.counts() == (bookies, brokers)
        )

    def counts(self) -> tuple[int, int]:
        return len(self.admin.bookies.list()), len(self.admin.brokers.list())

    def kill(self, container: str) -> None:
        """Its server dies as by a defect or the kernel; the restart policy brings it back."""
        before = self.podman.inspect(container)["State"]["Pid"]
        os.kill(before, signal.SIGKILL)
        until(
            f"{container} runs again",
            lambda: self.podman.inspect(container)["State"]["Pid"] not in (0, before),
        )


@pytest.fixture
def cluster(images: None, request: pytest.FixtureRequest) -> Iterator[ComposeCluster]:
    ports = list(islice(free_ports("127.0.0.1"), len(PORTS)))
    podman = Podman(HOME, dict(zip(PORTS, map(str, ports), strict=True)))
    yield ComposeCluster(podman, ports)
    if request.session.testsfailed:
        podman.show()
    podman.remove_all()


def test_a_host_program_loses_nothing(cluster: ComposeCluster) -> None:
    podman, admin = cluster.podman, cluster.admin
    cluster.up(bookies=3, brokers=2)
    # Topics are read from the start long after they were written, and no subscription keeps them
    # until then.
    admin.namespaces.set_policy(
        "public/default", "retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    )
    _check_containers(podman)

    # A bookie and a broker die under load: nothing fails, nothing acknowledged is missing, the
    # order holds.
    with Traffic(cluster.url, TOPICS) as traffic:
        until("messages flow", partial(traffic.has_acknowledged, 1_000))
        for container in map(podman.container, ("bookie_2", "broker-1_1")):
            cluster.kill(container)
            enough = traffic.acknowledged_count + 1_000
            until("messages flow again", partial(traffic.has_acknowledged, enough))
            until(f"{container} serves again", lambda: cluster.counts() == (3, 2))
    acknowledged = {topic: set(account.acknowledged) for topic, account in traffic.accounts.items()}
    assert [account.failed for account in traffic.accounts.values()] == [[]] * len(TOPICS)
    with pulsarish.Client(cluster.url) as client:
        for topic in TOPICS:
            received = receive(client, topic, "s", acknowledged[topic])
            assert received == sorted(received)

    # Down and up: volumes bring back messages, subscriptions and the bookies' identities.
    identities = {bookie["instance_id"] for bookie in admin.bookies.list()}
    podman.compose("down")
    assert podman.containers() == []
    cluster.up(bookies=3, brokers=2)
    assert {bookie["instance_id"] for bookie in admin.bookies.list()} == identities
    with pulsarish.Client(cluster.url) as client:
        for topic in TOPICS:
            # Old registrations count until their sessions end, so the owner may not serve yet.
            until(f"statistics of {topic}", partial(_has_no_backlog, admin, topic))
            assert (
                set(receive(client, topic, "from the start", acknowledged[topic]))
                >= acknowledged[topic]
            )

    _check_inner_clients(podman)
    acknowledged |= _scale(cluster)

    # The greater cluster comes back whole too, when it is asked for by the settings.
    identities = {bookie["instance_id"] for bookie in admin.bookies.list()}
    podman.compose("down", "--remove-orphans")
    assert podman.containers() == []
    podman.environ |= {"PULSARISH_BOOKIES": "5", "PULSARISH_BROKERS": "1"}
    cluster.up(bookies=5, brokers=3)
    assert {bookie["instance_id"] for bookie in admin.bookies.list()} == identities
    with pulsarish.Client(cluster.url) as client:
        for topic, numbers in acknowledged.items():
            assert set(receive(client, topic, "again from the start", numbers)) >= numbers
    podman.compose("down", "--volumes")
    assert (podman.containers(), podman("volume", "ls", "--quiet")) == ([], "")


def _check_containers(podman: Podman) -> None:
    """Healthy, nobody's root, process 1 is the server itself and stops at SIGTERM."""
    for container in podman.containers():
        until(f"{container} is healthy", partial(_is_healthy, podman, container))
        if "zookeeper" not in container:
            assert podman("exec", container, "id", "--user") == "10000"
            assert podman("exec", container, "cat", "/proc/1/comm") == "pulsarish"
            assert podman.inspect(container)["HostConfig"]["Memory"] == 1 << 30
    stopped = podman.container("bookie_3")
    podman("stop", "--time", "30", stopped)
    assert podman.inspect(stopped)["State"]["ExitCode"] == 0
    podman("start", stopped)
    # Three directories for three bookies, however often they were started.
    assert podman("exec", podman.container("bookie_1"), "sh", "-c", "ls -d bookie-*/").split() == [
        "bookie-1/",
        "bookie-2/",
        "bookie-3/",
    ]


def _is_healthy(podman: Podman, container: str) -> bool:
    try:
        podman("healthcheck", "run", container)  # which gives it seconds
    except AssertionError:
        return False
    return True


def _check_inner_clients(podman: Podman) -> None:
    """A program in a container of the network is told the inner addresses of the very same
    topics.
    """
    inside = ["exec", podman.container("bookie_1"), "pulsarish"]
    for number, broker in enumerate(("broker-1", "broker-2")):
        topic, url = f"inside-{number}", f"pulsarish://{broker}:6660"
        podman(*inside, "produce", "--url", url, topic, "-m", f"from {broker}")
        assert podman(*inside, "read", "--url", url, topic) == f"from {broker}"
        told = podman(*inside, "topics", "lookup", "--admin-url", f"http://{broker}:8080", topic)
        assert "pulsarish://" in told
        assert "127.0.0.1" not in told


def _scale(cluster: ComposeCluster) -> dict[str, set[int]]:
    """More bookies and brokers beside the running ones; the host program reaches topics on each of
    them. What it published there.
    """
    admin = cluster.admin
    cluster.podman.compose("up", "--detach", "--scale", "bookie=5")
    until("5 bookies", lambda: cluster.counts()[0] == 5)
    assert sorted(bookie["bookie_id"] for bookie in admin.bookies.list()) == [
        f"bookie-{number}" for number in range(1, 6)
    ]
    cluster.podman.compose("up", "--detach", "--scale", "broker=3")
    until("5 brokers", lambda: cluster.counts() == (5, 5))
    scaled: list[str] = []

    def owned_by_scaled() -> bool:
        """Brokers with nothing to do take what is new."""
        topic = f"public/scaled-{len(scaled)}/t"
        scaled.append(topic)
        admin.namespaces.create(topic.rpartition("/")[0])
        return admin.topics.lookup(topic)["nativeUrl"] not in cluster.published

    until("a broker that was added serves a topic", owned_by_scaled)
    with pulsarish.Client(cluster.url) as client:
        for topic in scaled:
            client.create_producer(topic).send(b"7")
            assert receive(client, topic, "s", {7}) == [7]
    return {topic: {7} for topic in scaled}
