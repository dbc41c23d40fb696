"""Bookies and brokers that join a cluster of this machine, and that leave it.

A node that leaves hands over first what only it has: a broker its bundles, a bookie its copies.
From then on the plan says that it is leaving, so that no command starts it again. Each step finds
out by itself what is done already, so a removal that was interrupted is simply asked for again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from pulsarish.admin import Admin
from pulsarish.admin.cluster import Bookies
from pulsarish.local_cluster.locked import (
    administrator,
    is_locked,
    lock_node,
    locked_settings,
    put_profile,
)
from pulsarish.local_cluster.plan import NodePlan, check_removal, plan_more
from pulsarish.local_cluster.processes import Cluster, port_taken
from pulsarish.model.errors import NotAllowedError, NotFound, PulsarishError, Timeout

__all__ = ["add_nodes", "remove_nodes"]

_LOOK_SECONDS: Final = 0.2
_TELL_SECONDS: Final = 2.0
_OPEN_SECONDS: Final = 10.0
"""How long a ledger may take to be closed once its topic was unloaded. A later one is recovered
when the bookie is gone.
"""
_ASKED_MAX: Final = 200
"""Ledgers that one request asks to recover."""
_PORT_MAX: Final = 65_535

Say = Callable[[str], None]


def add_nodes(
    cluster: Cluster,
    role: str,
    count: int,
    *,
    adapt: Callable[[NodePlan], object] = lambda _node: None,
) -> list[NodePlan]:
    """Add bookies or brokers to the plan, start them, and return them when all serve.

    A name is used once: also one of a node that was removed stays taken while its directory is
    there. ``adapt`` is called with each node before it is in the plan.

    Raises ``InvalidArgument`` and ``InvalidConfiguration`` for ports that clash or are in use,
    ``ServiceNotReady`` and ``Timeout`` when one does not serve. It is in the plan then.
    """
    added: list[NodePlan] = []

    def grow(nodes: list[NodePlan]) -> list[NodePlan]:
        taken = [path.name for path in cluster.directory.glob(f"{role}-*")]
        added[:] = plan_more(nodes, role, count, taken=taken, ports=_ports_above(nodes))
        if is_locked(nodes):
            of_others = {
                setting
                for node in nodes
                if node.role == role
                for setting in locked_settings(cluster, node)
            }
            for node in added:
                node.settings = [each for each in node.settings if each not in of_others]
                lock_node(cluster, node)
        cluster.check_ports(added)
        for node in added:
            adapt(node)
        return [*nodes, *added]

    cluster.change(grow)
    _tell_addresses(cluster)
    for node in added:
        cluster.start(node)
    cluster.wait_ready(added)
    return added


def remove_nodes(
    cluster: Cluster, names: Sequence[str], *, force: bool, wait_seconds: float, say: Say
) -> None:
    """Have bookies and brokers hand over what they have, stop them, and take them out of the plan.

    The data of a bookie are deleted; the log of a broker stays.

    Args:
        force: do not hand anything over. Auto-recovery makes the copies of a bookie from those
            that others have, once the bookie counts as lost.
        wait_seconds: how long each may take.

    Raises ``NotFound``, ``NotAllowedError`` when the cluster could not serve without them, or a
    bookie cannot leave now, and ``Timeout``. What a node has begun stays begun.
    """
    nodes = [cluster.node(name) for name in dict.fromkeys(names)]
    check_removal(cluster.nodes(), [node.name for node in nodes if not node.is_leaving])
    for node in sorted(nodes, key=lambda node: node.role != "broker"):
        deadline = time.monotonic() + wait_seconds
        is_running = cluster.pid(node.name) is not None
        if node.role == "bookie" and not force:
            _check_auto_recovery(cluster, node)
        if not force and is_running:
            (_drain if node.role == "broker" else _empty)(cluster, node, deadline, say)
        _mark_leaving(cluster, node.name)
        _ = cluster.stop(node.name)
        say(f"{node.name} is stopped")
        if node.role == "bookie":
            if not force:
                _decommission(cluster, node, deadline, say)
            # Without a decommission its name is not free: the metadata know it still.
            home = cluster.directory / node.name
            _delete(home / "data" if force else home)
        _take_out(cluster, node.name)
        _tell_addresses(cluster)
        say(f"{node.name} is removed")


def _delete(directory: Path) -> None:
    """Delete a directory, if it is there. Raises ``NotAllowedError``."""
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return  # deleted by a removal that was interrupted
    except OSError as error:
        raise NotAllowedError(
            f"{directory} cannot be deleted ({error.strerror or error}): make that possible and "
            "run the command again"
        ) from None


def _ports_above(nodes: Sequence[NodePlan]) -> Iterator[int]:
    """Return the free ports behind the last one of a plan."""
    last = max(port for node in nodes for port in node.all_ports.values())
    return (port for port in range(last + 1, _PORT_MAX + 1) if not port_taken(port))


def _tell_addresses(cluster: Cluster) -> None:
    nodes = cluster.nodes()
    if is_locked(nodes):
        put_profile(cluster, nodes)


def _mark_leaving(cluster: Cluster, name: str) -> None:
    """Raises ``NotAllowedError`` when other removals have left too few nodes since it was asked
    for.
    """

    def mark(nodes: list[NodePlan]) -> list[NodePlan]:
        if not any(node.is_leaving for node in nodes if node.name == name):
            check_removal(nodes, [name])
        return [replace(node, is_leaving=True) if node.name == name else node for node in nodes]

    cluster.change(mark)


def _take_out(cluster: Cluster, name: str) -> None:
    cluster.change(lambda nodes: [node for node in nodes if node.name != name])


def _drain(cluster: Cluster, node: NodePlan, deadline: float, say: Say) -> None:
    """Have other brokers take all bundles of a broker."""
    brokers = administrator(cluster).brokers
    states = {name: brokers.drain(name) for name in node.process_ports}
    progress = _Progress(f"{node.name}: moving its bundles", deadline, say)
    while left := sum(state["bundlesLeft"] for state in states.values()):
        progress.wait(f"{left} bundles are left")
        states = {name: brokers.drain_state(name) for name in states}
        if not all(state["draining"] for state in states.values()):
            raise NotAllowedError(f"the drain of {node.name} was ended by another command")


def _check_auto_recovery(cluster: Cluster, node: NodePlan) -> None:
    if not administrator(cluster).autorecovery.status()["enabled"]:
        raise NotAllowedError(
            f"auto-recovery is off, so the copies of {node.name} are not made elsewhere: switch it "
            "on with pulsarish autorecovery enable, or use --force"
        )


def _empty(cluster: Cluster, node: NodePlan, deadline: float, say: Say) -> None:
    """Have other bookies take all copies of a bookie that runs, which stays readable meanwhile."""
    admin = administrator(cluster)
    for name in node.process_ports:
        _ = admin.bookies.set_read_only(name, reason="pulsarish cluster remove")
    for name in node.process_ports:
        progress = _Progress(f"{name}: copying what it holds to others", deadline, say)
        while not admin.bookies.read_only_state(name)["readOnly"]:
            progress.wait("it takes new entries still")
        _recover(admin, name, progress)


def _recover(admin: Admin, bookie: str, progress: _Progress) -> None:
    """Return when no closed ledger names a bookie any more.

    The topics of open ledgers are unloaded, which closes these.
    """
    unloaded: set[int] = set()
    unloaded_at = time.monotonic()
    while rows := admin.bookies.all_ledgers(bookie):
        wanted = [row["ledgerId"] for row in rows if not row["isLeaving"]]
        for start in range(0, len(wanted), _ASKED_MAX):
            _ = admin.bookies.recover(bookie, wanted[start : start + _ASKED_MAX])
        still_open = {row["ledgerId"] for row in rows if row["state"] != "closed"}
        if still_open - unloaded:
            _unload(admin, still_open - unloaded)
            unloaded |= still_open
            unloaded_at = time.monotonic()
        if len(still_open) == len(rows) and time.monotonic() > unloaded_at + _OPEN_SECONDS:
            return
        progress.wait(f"{len(rows)} ledgers are left")


def _unload(admin: Admin, ledgers: set[int]) -> None:
    """Unload the topics that these ledgers belong to."""
    owners = set()
    for ledger_id in sorted(ledgers):
        try:
            owners.add(str(admin.ledgers.get(ledger_id)["purpose"]["owner"]).partition("#")[0])
        except NotFound:
            continue  # deleted since
    for owner in sorted(owners):
        if owner.startswith("persistent://"):
            try:
                admin.topics.unload(owner)
            except PulsarishError:
                continue  # it is deleted, or moves: the ledger is looked at again


def _decommission(cluster: Cluster, node: NodePlan, deadline: float, say: Say) -> None:
    """Return when the metadata have forgotten a bookie that is stopped."""
    bookies = administrator(cluster).bookies
    for name in node.process_ports:
        progress = _Progress(f"{name}: decommissioning it", deadline, say)
        while (instance := _give_up(bookies, name)) is None:
            progress.wait("its registration has not ended yet")
        while instance and bookies.decommission_progress(instance)["givenUp"]:
            progress.wait("auto-recovery looks for ledgers that name it")


def _give_up(bookies: Bookies, name: str) -> str | None:
    """Return the instance of a bookie that is given up now; empty: it is forgotten already, and
    ``None``: it is registered still.
    """
    try:
        return str(bookies.decommission(name)["instanceId"])
    except NotFound:
        return ""
    except NotAllowedError:
        return None


class _Progress:
    """A wait that says now and then what it waits for."""

    def __init__(self, what: str, deadline: float, say: Say) -> None:
        self._what = what
        self._deadline = deadline
        self._say = say
        self._said_at = time.monotonic()

    def wait(self, why: str) -> None:
        """Wait a moment. Raises ``Timeout`` when the time is over."""
        now = time.monotonic()
        if now > self._deadline:
            raise Timeout(
                f"{self._what}: not done in time, {why}. Run the command again to wait longer"
            )
        if now > self._said_at + _TELL_SECONDS:
            self._said_at = now
            self._say(f"{self._what}: {why}")
        time.sleep(_LOOK_SECONDS)
