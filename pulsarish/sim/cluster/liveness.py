"""Checks that each process has ended its work and released its memory at the end of a run.

Each process is checked by itself: it does not count that another process or a restart would help.

* A task belongs to the process for life (``STANDING``) or to an open connection, or it ends within
  ``PATIENCE_SECONDS``.
* Every byte that was counted against a limit was given back: no add, publish or recovery is running
  any more.
* No recovery, load or closing of a topic is running, and a node that is up serves.

This finds a handler, a recovery or a load that hangs even when no client asks for its ledger or
topic again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from pulsarish.ledger.client import LedgerClient
from pulsarish.sim.world.loop import SimTask
from pulsarish.sim.world.nodes import Process

if TYPE_CHECKING:
    from pulsarish.bookie.bookie import Bookie
    from pulsarish.broker.broker import Broker
    from pulsarish.sim.cluster.cluster import SimCluster

__all__ = ["PATIENCE_SECONDS", "STANDING", "check_let_go", "left_over"]

PATIENCE_SECONDS: Final = 15.0
"""Virtual seconds within which a task of a whole cluster ends.

The longest wait of a client for a connection is 10.
"""

STANDING: Final = (
    "auditor",
    "backlog quotas",
    "balancer",
    "bookie-registrations",
    "bookie-streams",
    "broker pings",
    "broker registry",
    "checkpoint",
    "drain",
    "drains of volumes",
    "dynamic options",
    "election ",
    "ends of credentials",
    "ends of streams",
    "garbage",
    "given-up bookies",
    "grants of sessions",
    "journal",
    "leader election",
    "ledger records",
    "lost bookies",
    "metadata-age",
    "placement rules",
    "switch of auto-recovery",
    "resource groups",
    "probe",
    "progress watchdog",
    "read-only",
    "rebalance",
    "registration",
    "replication worker",
    "schedule clock",
    "scrub",
    "space",
    "splitter",
    "sweeper",
    "orphans",
    "topic maintenance",
    "volume removal",
)
"""Tasks that last as long as their process, by the prefixes of their names.

A new one is added here.
"""

_TO_BOOKIES: Final = re.compile(r"bookie\.(add|read)-(?:send-)?(?P<member>.+)")
_OF_CONNECTIONS: Final = re.compile(
    r"(?:stream-|(?:add answers|reads|writer|keeper) .+:)(?P<number>\d+)"
)


async def check_let_go(
    cluster: SimCluster, since: float, report: Callable[[str, str], None]
) -> None:
    """Wait until nothing is left over.

    After ``PATIENCE_SECONDS`` report as ``left-over`` what still is.
    """
    loop = cluster.sim.loop
    deadline = loop.time() + PATIENCE_SECONDS
    while left := list(left_over(cluster, since)):
        if loop.time() > deadline:
            for what in left:
                report("left-over", f"{what}, although all is well")
            return
        await asyncio.sleep(1.0)


def left_over(cluster: SimCluster, since: float) -> Iterator[str]:
    """Yield what living processes should have released.

    ``since``: virtual seconds at which everything had healed.
    """
    for name in (*cluster.bookies, *cluster.brokers):
        if not cluster.sim.nodes[name].alive:
            yield f"{name} is down"
    yield from _tasks(cluster, since)
    for name, bookie in cluster.bookies_running():
        yield from (f"{name} {what}" for what in _of_bookie(bookie))
    for name, broker in cluster.brokers_up():
        yield from (f"{name} {what}" for what in _of_broker(broker))


def _tasks(cluster: SimCluster, since: float) -> Iterator[str]:
    loop = cluster.sim.loop
    there = {bookie.instance_id for _, bookie in cluster.bookies_up()}
    members = {name: there.union(_in_use(broker._ledgers)) for name, broker in cluster.brokers_up()}
    for name, bookie in cluster.bookies_running():
        members[name] = (
            there
            if bookie.auto_recovery is None
            else there.union(_in_use(bookie.auto_recovery._ledgers))
        )
    for task in loop.waiting():
        owner = task.owner
        if not isinstance(owner, Process) or owner.node.name not in members:
            continue
        seconds = loop.time() - max(since, task.born)
        if seconds > PATIENCE_SECONDS and not _may_last(cluster, task, members[owner.node.name]):
            yield (
                f"{owner} has waited {seconds:.0f} s in task {task.get_name()}, which is not "
                f"STANDING, in {task.place()}"
            )


def _may_last(cluster: SimCluster, task: SimTask, members: set[str]) -> bool:
    name = task.get_name()
    if name.startswith(STANDING):
        return True
    if found := _TO_BOOKIES.fullmatch(name):
        return found["member"] in members
    found = _OF_CONNECTIONS.fullmatch(name)
    return found is not None and cluster.sim.network.is_open(int(found["number"]))


def _in_use(ledgers: LedgerClient) -> Iterator[str]:
    """Yield the bookies, by instance, that may still get more on their streams: the writer of an
    open ledger waits for a member.
    """
    pool = ledgers._pool
    return (
        stream.member
        for streams in (pool._adds, pool._recoveries, pool._reads)
        for stream in streams.values()
        if stream.in_use
    )


def _of_bookie(bookie: Bookie) -> Iterator[str]:
    if not bookie.serves:
        yield "does not serve"
        return
    if not bookie.is_ready:
        yield f"has synced no add for {bookie.add_age_seconds:.1f} s"
    if bookie.service.unanswered_bytes:
        yield f"owes answers to {bookie.service.unanswered_bytes} bytes of adds"
    if bookie.store.journal.queue.waiting_bytes:
        yield f"has {bookie.store.journal.queue.waiting_bytes} bytes that wait for the journal"
    if bookie.auto_recovery is not None:
        yield from _of_ledgers(bookie.auto_recovery._ledgers)


def _of_broker(broker: Broker) -> Iterator[str]:
    topics = broker._topics
    for doing, names in (("loads", topics.loader.under_way), ("closes", topics._closing)):
        if names:
            yield f"still {doing} {', '.join(names)}"
    if topics.bundles.leaving:
        yield f"still unloads {', '.join(map(str, topics.bundles.leaving))}"
    if used_bytes := broker._face._traffic.budget.used_bytes:
        yield f"owes receipts to {used_bytes} bytes of messages"
    for topic in topics.loaded.values():
        if topic.log.pending_entries:
            yield (
                f"has {topic.log.pending_entries} entries of {topic.name} that wait to be confirmed"
            )
    yield from _of_ledgers(broker._ledgers)


def _of_ledgers(ledgers: LedgerClient) -> Iterator[str]:
    if ledgers._recoveries:
        yield f"still recovers ledgers {', '.join(map(str, ledgers._recoveries))}"
    if waiting_bytes := ledgers._pool.backlog_bytes():
        yield f"has {waiting_bytes} bytes that wait for bookies"
