"""Faults beyond the published test: stale owners that wake, no metadata service, links that are
cut, slow, or broken again and again.
"""

from __future__ import annotations

import os
import random
import socket
import stat
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from pulsarish.chaos.scenario import Scenario, owner_moved, read_to_the_end, writes_without
from pulsarish.chaos.side_topics import SideTopics
from pulsarish.chaos.stage import CLIENT, METADATA, Stage, VoidRun
from pulsarish.local_cluster.restarts import WAIT_SECONDS, nodes_to_restart, rolling_restart

__all__ = ["HARSHER_SCENARIOS"]

_AWAY_SECONDS: Final = 60.0
_LONG_AWAY_SECONDS: Final = 600.0
_HOLD_SECONDS: Final = 15.0
_DELAY_SECONDS: Final = 0.2
_LOSS: Final = 0.05
_CUTS: Final = 20
_CUT_EVERY_SECONDS: Final = 0.25
_KILL_EVERY_SECONDS: Final = 300.0
_REPAIR_SECONDS: Final = 180.0
_DEAD_SECONDS: Final = 5.0
_ALL_LINKS: Final = frozenset({"metadata", "broker", "bookie"})


def _pause_broker(stage: Stage) -> None:
    owner = stage.owner()
    stage.mark("fault", f"{owner.broker_id}, the owner, is stopped (SIGSTOP)")
    stage.pause(owner.broker_id)
    stage.wait("another broker owns the topic", lambda: owner_moved(stage, owner.instance_id))
    stage.mark("bite", f"{stage.owner().broker_id} owns the topic")
    stage.sleep(2.0)  # the new owner accepts messages before the stale one wakes
    stage.resume(owner.broker_id)
    stage.wait(
        "the stale owner registers again",
        lambda: (
            stage.observer.brokers().get(owner.broker_id, owner.instance_id) != owner.instance_id
        ),
    )
    stage.mark("heal", f"{owner.broker_id} goes on and is registered again")


def _pause_bookie(stage: Stage) -> None:
    victim = stage.members()[0]
    stage.mark("fault", f"{victim} of the ensemble is stopped (SIGSTOP)")
    stage.pause(victim)
    stage.wait(
        "the ledger is written without the stopped bookie", lambda: writes_without(stage, victim)
    )
    stage.mark("bite", f"the ensemble is {', '.join(stage.members())}")
    stage.resume(victim)
    stage.wait("the bookie is registered", lambda: victim in stage.observer.bookies())
    stage.mark("heal", f"{victim} goes on")


def _metadata_away(seconds: float) -> Callable[[Stage], None]:
    """Killed for so long.

    Afterwards every topic must accept messages within 10 s, and no process may have been started
    again.
    """

    def fault(stage: Stage) -> None:
        others = [node.name for node in stage.cluster.nodes() if node.name != METADATA]
        pids = [stage.cluster.pid(name) for name in others]
        side = SideTopics(stage)
        stage.mark("fault", "the metadata service is killed")
        stage.kill(METADATA)
        stage.sleep(seconds)
        stage.mark("bite", f"it was away for {seconds:.0f} s")
        stage.start(METADATA)
        began = time.monotonic()
        stage.mark("heal", "it answers again")
        side.must_be_back("the return", began)
        if [stage.cluster.pid(name) for name in others] != pids:
            stage.wrong.append("a process ended while the metadata service was away")
        side.close()

    return fault


def _isolate(stage: Stage, *, one_way: bool) -> None:
    """The groups of ``--isolate``; without them the owner, and a bookie of its ensemble."""
    names = {"owner": stage.owner().broker_id, "zk": METADATA, "member": stage.members()[0]}
    groups = [
        [names.get(name, name) for name in group]
        for group in stage.options.isolate or (("owner",), ("member",))
    ]
    known = {CLIENT, *(node.name for node in stage.cluster.nodes())}
    if unknown := {name for group in groups for name in group} - known:
        raise VoidRun(
            f"--isolate names {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}, "
            "zk, owner and member"
        )
    text = " | ".join(", ".join(group) for group in groups)
    stage.mark("fault", f"cut {'one way' if one_way else 'off'}: {text}")
    stage.act(stage.relays.isolate(groups, one_way=one_way))
    # What was held back shows that the link was in use; later attempts to connect are held without
    # a byte.
    stage.wait(
        "bytes are held back",
        lambda: sum(link.bytes_held for link in stage.relays.links.values()) > 0,
    )
    stage.mark("bite", "bytes are held back")
    stage.sleep(_HOLD_SECONDS)
    stage.act(stage.relays.heal())
    _wait_for_all(stage)
    stage.mark("heal", "every node is registered")


def _slow_links(stage: Stage) -> None:
    names = [CLIENT, *(node.name for node in stage.cluster.nodes())]
    stage.mark(
        "fault", f"{_DELAY_SECONDS * 1000:.0f} ms and {_LOSS:.0%} loss on every link, each way"
    )
    stage.act(stage.relays.slow(names, delay_seconds=_DELAY_SECONDS, loss=_LOSS))
    acked = len(stage.ack_seconds) + stage.options.window
    # Then at least one message has made its whole way over slow links.
    stage.wait("messages come through", lambda: len(stage.ack_seconds) > acked)
    stage.mark("bite", "a window of messages came through")
    stage.sleep(_HOLD_SECONDS)
    stage.act(stage.relays.heal())
    stage.mark("heal", "links are fast again")


def _break_links(stage: Stage) -> None:
    stage.mark("fault", "all connections between nodes are broken, again and again")
    names = [node.name for node in stage.cluster.nodes()]
    broken = 0
    for _ in range(_CUTS):
        broken += sum(stage.act(stage.relays.sever(name)) for name in names)
        stage.sleep(_CUT_EVERY_SECONDS)
    if not broken:
        raise VoidRun("there was no connection to break")
    stage.mark("bite", f"{broken} connections were broken")
    _wait_for_all(stage)
    stage.mark("heal", "every node is registered")


def _wait_for_all(stage: Stage) -> None:
    brokers = {node.name for node in stage.cluster.nodes() if node.role == "broker"}
    bookies = {node.name for node in stage.cluster.nodes() if node.role == "bookie"}
    stage.wait(
        "every node is registered",
        lambda: (
            set(stage.observer.brokers()) == brokers and set(stage.observer.bookies()) == bookies
        ),
    )


def _cut_clients(stage: Stage) -> None:
    """While receipts are on their way: what was stored and not yet acknowledged is sent again."""
    ports = {int(url.rpartition(":")[2]) for url in stage.broker_addresses()}
    ports |= {node.ports["framed"] for node in stage.cluster.nodes() if node.role == "broker"}
    stage.mark("fault", "the client's connections are cut, again and again")
    cut = 0
    for _ in range(_CUTS):
        acked = len(stage.ack_seconds)
        stage.wait("messages are acknowledged", lambda acked=acked: len(stage.ack_seconds) > acked)  # type: ignore[misc]
        cut += _shut_own_connections(ports)
    if not cut:
        raise VoidRun("the client had no connection to cut")
    stage.mark("bite", f"{cut} connections were cut")


def _shut_own_connections(ports: set[int]) -> int:
    """Shut down this process's own TCP connections to these ports, as a broken network would end
    them; how many.
    """
    count = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.stat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as twin:
                if twin.type == socket.SOCK_STREAM and twin.getpeername()[1] in ports:
                    twin.shutdown(socket.SHUT_RDWR)
                    count += 1
        except (OSError, IndexError):
            continue  # it was closed meanwhile, or is no connection of this kind
    return count


def _kill_now_and_then(stage: Stage) -> None:
    """For ``--duration``: any node, the metadata service among them, is killed and started again,
    about five minutes apart.
    """
    duration = stage.options.duration_seconds
    every = min(_KILL_EVERY_SECONDS, duration / 6)
    nodes = [node.name for node in stage.cluster.nodes()]
    deadline = time.monotonic() + duration
    chance = random.Random(len(nodes))
    while time.monotonic() + every < deadline:
        stage.sleep(every)
        victim = chance.choice(nodes)
        stage.mark("fault", f"{victim} is killed")
        stage.kill(victim)
        stage.sleep(_DEAD_SECONDS)
        stage.start(victim)
        _wait_for_all(stage)
        acked = len(stage.ack_seconds)
        stage.wait("messages are acknowledged", lambda acked=acked: len(stage.ack_seconds) > acked)  # type: ignore[misc]
        stage.mark(
            "heal", f"{victim} is back, every node is registered and messages are acknowledged"
        )
    stage.sleep(max(0.0, deadline - time.monotonic()))
    stage.mark("bite", f"{duration:.0f} s are over")


def _lose_bookie(stage: Stage) -> None:
    """For good: its copies are created again on others, so that the next one may go too."""
    victim = stage.members()[0]
    stage.mark("fault", f"{victim} of the ensemble is killed and does not return")
    stage.kill(victim)
    stage.wait(
        "no ledger names the lost bookie",
        lambda: not stage.observer.ledgers(stage.topic).names(victim),
        _REPAIR_SECONDS,
    )
    stage.wait("no copy is missing", lambda: not stage.observer.under_replicated(), _REPAIR_SECONDS)
    stage.mark("bite", f"every copy that {victim} had is on another bookie")
    stage.victims = stage.members()[:1]


def _read_without_the_next(stage: Stage) -> None:
    stage.kill(*stage.victims)
    stage.notes.append(f"before the reading {', '.join(stage.victims)} is killed too")
    read_to_the_end(stage)


def _unload(stage: Stage) -> None:
    admin = stage.admin()

    def ledgers() -> list[int]:
        return [
            int(each["ledgerId"]) for each in admin.topics.internal_info(stage.topic)["ledgers"]
        ]

    stage.mark("fault", "the topic is unloaded, again and again")
    for _ in range(_CUTS // 4):
        before = ledgers()
        admin.topics.unload(stage.topic)
        stage.wait(
            "the topic is loaded again, with a new ledger",
            lambda before=before: ledgers()[-1] > before[-1],  # type: ignore[misc]
        )
    stage.mark("bite", f"it was loaded again {_CUTS // 4} times")


def _rolling_restart(stage: Stage) -> None:
    nodes = nodes_to_restart(stage.cluster, ())
    pids = {node.name: stage.cluster.pid(node.name) for node in nodes}
    stage.mark("fault", "every bookie, then every broker is restarted, one after another")
    rows = rolling_restart(stage.cluster, nodes, WAIT_SECONDS, stage.notes.append)
    restarted = [row["node"] for row in rows]
    if any(stage.cluster.pid(name) in (None, pids[name]) for name in pids):
        raise VoidRun(f"not every process was restarted; those that were: {', '.join(restarted)}")
    stage.mark("bite", f"{len(restarted)} processes were restarted")


HARSHER_SCENARIOS: Final = (
    Scenario(
        "pause-broker",
        "the owner is stopped until another broker has the topic, and wakes",
        _pause_broker,
        moves_owner=True,
        no_negative=True,
    ),
    Scenario(
        "pause-bookie",
        "a bookie of the ensemble is stopped until it is replaced, and wakes",
        _pause_bookie,
        no_negative=True,
    ),
    Scenario(
        "restart-metadata",
        "the metadata service is killed and started again",
        _metadata_away(0.0),
        no_negative=True,
    ),
    Scenario(
        "metadata-away",
        "the metadata service is away for 60 s, and no send fails",
        _metadata_away(_AWAY_SECONDS),
        no_negative=True,
    ),
    Scenario(
        "metadata-away-long",
        "the same for 10 minutes",
        _metadata_away(_LONG_AWAY_SECONDS),
        no_negative=True,
        rate=1_000.0,
        by_name_only=True,
    ),
    Scenario(
        "isolate",
        "groups of --isolate, else the owner and a bookie of its ensemble, are cut off from each "
        "other",
        partial(_isolate, one_way=False),
        moves_owner=True,
        relayed=_ALL_LINKS,
    ),
    Scenario(
        "isolate-one-way",
        "the same, only what the first group sends is held back",
        partial(_isolate, one_way=True),
        moves_owner=True,
        relayed=_ALL_LINKS,
    ),
    Scenario(
        "slow-links", "200 ms and 5 % loss on every link, each way", _slow_links, relayed=_ALL_LINKS
    ),
    Scenario(
        "break-links",
        "all connections between nodes are broken, again and again",
        _break_links,
        moves_owner=True,
        relayed=_ALL_LINKS,
    ),
    Scenario(
        "cut-clients",
        "the client's connections are cut: a control, duplicates must show",
        _cut_clients,
        dedup=False,
        must_duplicate=True,
        at_full_speed=True,
        no_negative=True,
        needs_hosts=False,
    ),
    Scenario(
        "cut-clients-dedup",
        "the same with deduplication: no duplicate may show",
        _cut_clients,
        dedup=True,
        at_full_speed=True,
        no_negative=True,
        needs_hosts=False,
    ),
    Scenario(
        "unload",
        "the topic is unloaded, again and again",
        _unload,
        moves_owner=True,
        no_negative=True,
        needs_hosts=False,
    ),
    Scenario(
        "rolling-restart",
        "every bookie and broker is restarted, one after another, and no send fails",
        _rolling_restart,
        moves_owner=True,
        no_negative=True,
        at_full_speed=True,
    ),
    Scenario(
        "rolling-restart-dedup",
        "the same with deduplication: no duplicate may show",
        _rolling_restart,
        dedup=True,
        no_negative=True,
        at_full_speed=True,
    ),
    Scenario(
        "lose-bookie",
        "a bookie is killed for good; once its copies are repaired another one is killed",
        _lose_bookie,
        bookies=4,
        no_negative=True,
        settings=(
            # What is in the broker's memory needs no bookie.
            ("broker", "managed_ledger_cache_size_bytes=0"),
            ("bookie", "auto_recovery.lost_bookie_recovery_delay_seconds=5"),
            ("bookie", "auto_recovery.open_ledger_rereplication_grace_period_seconds=5"),
        ),
        reading=_read_without_the_next,
    ),
    Scenario(
        "slow-producer",
        "for --duration, with a random node killed about every five minutes",
        _kill_now_and_then,
        moves_owner=True,
        no_negative=True,
        rate=200.0,
        by_name_only=True,
    ),
)
