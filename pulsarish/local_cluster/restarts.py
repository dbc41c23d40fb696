"""Restarting the nodes of a cluster on this machine: together, or one after another so that clients
notice pauses and no failures.

A node is stopped only while every other one serves and no open ledger lacks a bookie: a broker then
has somewhere to hand its bundles to, and a ledger has Qa bookies left. What must be waited for is
asked of the nodes themselves; nothing is guessed by a fixed time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from pulsarish.local_cluster import node_http
from pulsarish.local_cluster.locked import administrator
from pulsarish.local_cluster.plan import NodePlan
from pulsarish.local_cluster.processes import Cluster
from pulsarish.model.errors import NotAllowedError, NotFound, PulsarishError, Timeout

__all__ = [
    "WAIT_SECONDS",
    "nodes_to_restart",
    "restart_together",
    "rolling_restart",
    "why_not_whole",
]

WAIT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.1
_ANSWER_TIMEOUT_SECONDS: Final = 5.0
_TELL_SECONDS: Final = 1.0
"""A wait that is no longer is not worth a line."""
_ORDER: Final = {"bookie": 0, "broker": 1}
_SHORT: Final = re.compile(rb"^pulsarish_ledgers_short(?:\{[^}]*\})? (\d+)", re.MULTILINE)


def nodes_to_restart(cluster: Cluster, names: Sequence[str]) -> list[NodePlan]:
    """Those named, or all bookies, then all brokers. Raises ``NotFound``."""
    if names:
        return [cluster.node(name) for name in names]
    return sorted(
        (node for node in cluster.nodes() if node.role in _ORDER),
        key=lambda node: _ORDER[node.role],
    )


def restart_together(
    cluster: Cluster, nodes: Sequence[NodePlan], say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Stop all, start all, wait for all. Raises ``Timeout``, ``ServiceNotReady``."""
    begun = time.monotonic()
    for node in reversed(nodes):
        cluster.stop(node.name)
    for node in nodes:
        cluster.start(node)
    cluster.wait_ready(nodes)
    seconds = round(time.monotonic() - begun, 2)
    say(f"{', '.join(node.name for node in nodes)}: restarted in {seconds} s")
    return [{"node": node.name, "seconds": seconds} for node in nodes]


def rolling_restart(
    cluster: Cluster, nodes: Sequence[NodePlan], wait_seconds: float, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One after another.

    Returns for each how long it took to stop, to start, and until the cluster was whole again.

    Raises ``NotAllowedError`` where a restart cannot go unnoticed, ``Timeout`` with nothing more
    stopped when the cluster does not become whole.
    """
    given_up = {node.name for node in cluster.nodes() if _is_given_up(cluster, node)}
    for name in sorted(given_up):
        say(f"{name} is decommissioned: it is left out")
    nodes = [node for node in nodes if node.name not in given_up]
    _check_there_are_others(cluster, nodes, given_up)
    done: list[dict[str, Any]] = []
    _wait_whole(cluster, wait_seconds, say)
    for number, node in enumerate(nodes, start=1):
        begun = time.monotonic()
        cluster.stop_gracefully(node.name)
        stopped = time.monotonic()
        cluster.start(node)
        cluster.wait_ready([node])
        ready = time.monotonic()
        _wait_whole(cluster, wait_seconds, say)
        row = {
            "node": node.name,
            "stop_seconds": round(stopped - begun, 2),
            "start_seconds": round(ready - stopped, 2),
            "whole_seconds": round(time.monotonic() - ready, 2),
        }
        done.append(row)
        say(
            f"{number} of {len(nodes)}: {node.name} stopped in {row['stop_seconds']} s, was ready "
            f"{row['start_seconds']} s later, the cluster whole {row['whole_seconds']} s after "
            "that"
        )
    return done


def _check_there_are_others(
    cluster: Cluster, nodes: Sequence[NodePlan], given_up: Collection[str]
) -> None:
    for role, why in (
        ("broker", "no broker would serve its topics meanwhile"),
        ("bookie", "nothing could be written meanwhile"),
    ):
        if (
            any(node.role == role for node in nodes)
            and sum(node.role == role for node in cluster.nodes() if node.name not in given_up) < 2
        ):
            raise NotAllowedError(
                f"the cluster has one {role}: a restart cannot be rolling, {why}; leave --rolling "
                "out"
            )


def _wait_whole(cluster: Cluster, wait_seconds: float, say: Callable[[str], None]) -> None:
    begun, told = time.monotonic(), ""
    while why := why_not_whole(cluster):
        waited = time.monotonic() - begun
        if waited > wait_seconds:
            raise Timeout(
                f"the cluster has not become whole within {wait_seconds:g} s, so nothing more is "
                f"stopped: {why}"
            )
        if waited > _TELL_SECONDS and why != told:
            say(f"nothing is stopped before the cluster is whole: {why}")
            told = why
        time.sleep(_POLL_SECONDS)


def why_not_whole(cluster: Cluster) -> str:
    """Return what speaks against stopping a node now; empty for nothing."""
    for node in cluster.nodes():
        state = cluster.state(node)
        if state.health != "ok" and not _is_given_up(cluster, node):
            return f"{node.name} is {state.health}" + (f": {state.reason}" if state.reason else "")
    for node in cluster.nodes():
        if node.role == "broker" and (short := _short_ledgers(node)):
            return f"{short} ledgers of {node.name} go on without one of their bookies"
    return ""


def _is_given_up(cluster: Cluster, node: NodePlan) -> bool:
    """Whether a node that does not run is being removed, or is a bookie that was decommissioned: it
    is in the cluster's plan, and nothing waits for it.
    """
    if cluster.pid(node.name) is not None:
        return False
    if node.is_leaving:
        return True
    if node.role != "bookie":
        return False
    return all(_is_bookie_given_up(cluster, name) for name in node.process_ports)


def _is_bookie_given_up(cluster: Cluster, bookie_id: str) -> bool:
    try:
        admin = administrator(cluster)
        return bool(admin.bookies.decommission_progress(bookie_id)["givenUp"])
    except NotFound:
        return True  # it is the metadata that says so: no cookie of such a bookie is left
    except PulsarishError:
        return False  # no broker answers, so nothing is known


def _short_ledgers(node: NodePlan) -> int:
    return sum(_short_ledgers_at(node, ports["http"]) for ports in node.process_ports.values())


def _short_ledgers_at(node: NodePlan, port: int) -> int:
    try:
        with node_http.get(
            port,
            "/metrics",
            trust_file=node.trust_file,
            timeout_seconds=_ANSWER_TIMEOUT_SECONDS,
        ) as answer:
            found = _SHORT.search(answer.read())
    except OSError:
        return 1  # it answered a moment ago: ask again
    assert found is not None, "a broker exports how many ledgers are short"
    return int(found[1])
