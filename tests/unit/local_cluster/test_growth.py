"""A node that leaves a cluster: what is asked of whom before it stops, and again when the command
was interrupted.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pulsarish.local_cluster import growth
from pulsarish.local_cluster.growth import remove_nodes
from pulsarish.local_cluster.locked import lock_cluster, profiles_of
from pulsarish.local_cluster.plan import NodePlan, plan_cluster, service_urls
from pulsarish.local_cluster.processes import Cluster
from pulsarish.local_cluster.security_files import ADMINISTRATOR
from pulsarish.model.errors import NotAllowedError, NotFound, Timeout
from pulsarish.runtime.profiles import Profiles
from tests.support.admin_server import AdminServer, admin_server
from tests.support.commands import run_command
from tests.support.modules import changed

BOOKIES = "/admin/v2/bookies"
DRAIN = "/admin/v2/brokers/broker-2/drain"


class FakeCluster(Cluster):
    """Processes that are only names."""

    def __init__(self, directory: Path, url: str) -> None:
        super().__init__(directory)
        self.url = url
        nodes = plan_cluster(bookies=4, brokers=2, metadata="embedded", base_port=None)
        self.create(nodes)
        self.running = {node.name for node in nodes}
        for node in nodes:
            (directory / node.name / "data").mkdir(parents=True)

    def pid(self, name: str) -> int | None:
        return 1 if name in self.running else None

    def stop(self, name: str) -> bool:
        was = name in self.running
        self.running.discard(name)
        return was

    def start(self, node: NodePlan) -> None:
        self.running.add(node.name)

    def admin_url(self) -> str:
        return self.url

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.nodes()]


@pytest.fixture
def server() -> Iterator[AdminServer]:
    with admin_server() as found:
        found.answer(f"GET {BOOKIES}/autorecovery", body={"enabled": True})
        found.answer(f"PUT {BOOKIES}/read-only/bookie-4", body={})
        found.answer(f"GET {BOOKIES}/read-only/bookie-4", body={"readOnly": True})
        found.answer(f"PUT {BOOKIES}/recover/bookie-4", body={"ledgers": []})
        found.answer(f"GET {BOOKIES}/ledgers/bookie-4", body=page())
        found.answer(f"PUT {BOOKIES}/decommission/bookie-4", body={"instanceId": "bookie-4~1"})
        found.answer(f"GET {BOOKIES}/decommission/bookie-4~1", body={"givenUp": False})
        found.answer(f"GET {DRAIN}", body={"draining": True, "bundlesLeft": 0})
        found.answer(f"PUT {DRAIN}", body={"draining": True, "bundlesLeft": 4})
        yield found


@pytest.fixture
def cluster(tmp_path: Path, server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setattr(growth, "_LOOK_SECONDS", 0.0)
    return FakeCluster(tmp_path, server.url)


def page(**states: str) -> dict[str, Any]:
    """The ledgers that name a bookie, as ``l4="open"``."""
    rows = [
        {"ledgerId": int(name[1:]), "state": state, "isLeaving": False}
        for name, state in states.items()
    ]
    return {"ledgers": rows, "next": None}


def remove(cluster: Cluster, *names: str, force: bool = False, wait_seconds: float = 60) -> None:
    remove_nodes(cluster, names, force=force, wait_seconds=wait_seconds, say=lambda _text: None)


def asked(server: AdminServer) -> list[str]:
    return [f"{method} {path}" for method, path, _ in server.requests if method != "GET"]


def test_a_bookie_hands_its_copies_over_before_it_stops(
    cluster: FakeCluster, server: AdminServer
) -> None:
    pages = [page(l3="closed", l4="open"), page(l4="closed"), page()]
    running = []

    def ledgers() -> tuple[int, Any]:
        running.append(cluster.pid("bookie-4"))
        return 200, pages.pop(0)

    server.answer_each(f"GET {BOOKIES}/ledgers/bookie-4", ledgers)
    owner = "persistent://public/default/orders#invoices"
    server.answer("GET /admin/v2/ledgers/4", body={"purpose": {"owner": owner}})
    remove(cluster, "bookie-4")
    assert running == [1, 1, 1]
    reason = "?reason=pulsarish+cluster+remove"
    assert asked(server) == [
        f"PUT {BOOKIES}/read-only/bookie-4{reason}",
        f"PUT {BOOKIES}/recover/bookie-4",
        "PUT /admin/v2/persistent/public/default/orders/unload",
        f"PUT {BOOKIES}/recover/bookie-4",
        f"PUT {BOOKIES}/decommission/bookie-4",
    ]
    assert "bookie-4" not in cluster.names
    assert not (cluster.directory / "bookie-4").exists()


def test_ledgers_that_stay_open_do_not_hold_a_bookie_up(
    cluster: FakeCluster, server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "_OPEN_SECONDS", 0.0)
    server.answer(f"GET {BOOKIES}/ledgers/bookie-4", body=page(l4="open"))
    server.answer("GET /admin/v2/ledgers/4", 404, {"reason": "deleted"})
    remove(cluster, "bookie-4")
    assert asked(server)[-1] == f"PUT {BOOKIES}/decommission/bookie-4"
    assert "bookie-4" not in cluster.names


def test_a_closed_ledger_keeps_a_bookie_running(cluster: FakeCluster, server: AdminServer) -> None:
    server.answer(f"GET {BOOKIES}/ledgers/bookie-4", body=page(l3="closed"))
    with pytest.raises(Timeout, match=r"^bookie-4: copying .* 1 ledgers are left"):
        remove(cluster, "bookie-4", wait_seconds=0)
    assert cluster.pid("bookie-4") == 1
    assert (cluster.directory / "bookie-4" / "data").exists()


def test_a_removal_that_was_interrupted_is_finished(
    cluster: FakeCluster, server: AdminServer
) -> None:
    server.answer(f"GET {BOOKIES}/decommission/bookie-4~1", body={"givenUp": True})
    with pytest.raises(Timeout, match="bookie-4: decommissioning it"):
        remove(cluster, "bookie-4", wait_seconds=0)
    assert cluster.pid("bookie-4") is None
    assert (cluster.directory / "bookie-4" / "data").exists()
    # No command starts it meanwhile.
    assert "bookie-4" not in [node.name for node in cluster.staying()]
    with pytest.raises(NotAllowedError, match="to finish that: pulsarish cluster remove bookie-4"):
        Cluster.start(cluster, cluster.node("bookie-4"))
    server.answer(f"PUT {BOOKIES}/decommission/bookie-4", 404, {"reason": "forgotten"})
    server.requests.clear()
    remove(cluster, "bookie-4")
    assert asked(server) == [f"PUT {BOOKIES}/decommission/bookie-4"]
    assert "bookie-4" not in cluster.names
    assert not (cluster.directory / "bookie-4").exists()
    with pytest.raises(NotFound):
        remove(cluster, "bookie-4")


def test_removals_side_by_side_leave_enough_bookies(
    cluster: FakeCluster, server: AdminServer
) -> None:
    """Both were allowed when they began."""

    def ledgers() -> tuple[int, Any]:
        remove(cluster, "bookie-3", force=True)
        return 200, page()

    server.answer_each(f"GET {BOOKIES}/ledgers/bookie-4", ledgers)
    with pytest.raises(NotAllowedError, match="2 bookies would be left"):
        remove(cluster, "bookie-4")
    assert cluster.pid("bookie-4") == 1
    assert "bookie-4" in [node.name for node in cluster.staying()]


@pytest.mark.parametrize("is_running", [True, False])
def test_a_bookie_is_not_given_up_while_auto_recovery_is_off(
    cluster: FakeCluster, server: AdminServer, is_running: bool
) -> None:
    if not is_running:
        cluster.stop("bookie-4")
    server.answer(f"GET {BOOKIES}/autorecovery", body={"enabled": False})
    with pytest.raises(NotAllowedError, match="auto-recovery is off"):
        remove(cluster, "bookie-4", wait_seconds=0)
    assert asked(server) == []
    assert "bookie-4" in [node.name for node in cluster.staying()]


def test_data_that_cannot_be_deleted_keep_the_bookie_in_the_plan(
    cluster: FakeCluster, server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patched:
        patched.setattr(growth, "shutil", changed(shutil, rmtree=refuse))
        with pytest.raises(
            NotAllowedError, match=r"bookie-4/data cannot be deleted \(Operation not"
        ):
            remove_nodes(cluster, ["bookie-4"], force=True, wait_seconds=1.0, say=print)
    assert cluster.node("bookie-4").is_leaving
    remove_nodes(cluster, ["bookie-4"], force=True, wait_seconds=1.0, say=print)
    assert "bookie-4" not in [node.name for node in cluster.nodes()]


def test_by_force_nothing_is_asked_and_the_name_stays_taken(
    cluster: FakeCluster, server: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(cluster, "bookie-4", "broker-2", force=True)
    assert (server.requests, cluster.running & {"bookie-4", "broker-2"}) == ([], set())
    assert not (cluster.directory / "bookie-4" / "data").exists()
    monkeypatch.setattr(cluster, "check_ports", lambda nodes: None)
    monkeypatch.setattr(cluster, "wait_ready", lambda nodes: None)
    growth.add_nodes(cluster, "bookie", 1)
    assert cluster.names[-1] == "bookie-5"
    assert cluster.pid("bookie-5") == 1


def test_a_broker_hands_its_bundles_over_before_it_stops(
    cluster: FakeCluster, server: AdminServer
) -> None:
    left = [3, 1, 0]
    running = []

    def state() -> tuple[int, Any]:
        running.append(cluster.pid("broker-2"))
        return 200, {"draining": True, "bundlesLeft": left.pop(0)}

    server.answer_each(f"GET {DRAIN}", state)
    remove(cluster, "broker-2")
    assert running == [1, 1, 1]
    assert asked(server) == [f"PUT {DRAIN}"]
    assert "broker-2" not in cluster.names
    assert cluster.pid("broker-2") is None


def test_a_broker_that_another_command_keeps_is_not_stopped(
    cluster: FakeCluster, server: AdminServer
) -> None:
    server.answer(f"GET {DRAIN}", body={"draining": False, "bundlesLeft": 4})
    with pytest.raises(NotAllowedError, match="the drain of broker-2 was ended"):
        remove(cluster, "broker-2")
    assert cluster.pid("broker-2") == 1


@pytest.mark.parametrize("brokers", [1, 2])
def test_a_node_that_joins_a_locked_cluster_uses_its_keys(
    cluster: FakeCluster, brokers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(**counts: int) -> list[NodePlan]:
        nodes = plan_cluster(metadata="embedded", base_port=None, **counts)
        lock_cluster(cluster, nodes)
        return nodes

    cluster.create(locked(bookies=3, brokers=brokers))
    monkeypatch.setattr(cluster, "check_ports", lambda nodes: None)
    monkeypatch.setattr(cluster, "wait_ready", lambda nodes: None)
    shutil.rmtree(cluster.directory / "broker-2")
    shutil.rmtree(cluster.directory / "bookie-4")
    added = [*growth.add_nodes(cluster, "bookie", 1), *growth.add_nodes(cluster, "broker", 1)]
    profile = Profiles.read(profiles_of(cluster)).get(ADMINISTRATOR)
    assert profile.admin_url == service_urls(cluster.nodes())["http"]
    whole = {node.name: node for node in locked(bookies=4, brokers=brokers + 1)}
    for node in added:
        wanted = whole[node.name]
        assert sorted(node.settings) == sorted(wanted.settings)
        assert (node.ports, node.trust_file) == (wanted.ports, wanted.trust_file)
    # Of two values the last one counts.
    settings = added[1].settings
    assert settings.index("listen_address=") > settings.index(
        f"listen_address=127.0.0.1:{added[1].ports['grpc']}"
    )


def test_the_command_says_what_would_be_left(cluster: FakeCluster) -> None:
    done = run_command(
        {}, "cluster", "remove", "bookie-1", "bookie-2", "--dir", str(cluster.directory)
    )
    assert done.exit_code == 1
    assert done.stderr.startswith(
        "error: NotAllowedError: 2 bookies would be left, and 3 hold each"
    )


@pytest.mark.parametrize("command", [("add", "bookie"), ("remove", "bookie-1")])
def test_there_must_be_a_cluster(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = run_command({}, "cluster", *command, "--dir", str(tmp_path / "none"))
    assert done.exit_code == 1
    assert done.stderr.startswith(f"error: NotFound: there is no cluster under {tmp_path}/none")
