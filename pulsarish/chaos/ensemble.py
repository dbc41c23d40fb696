"""An ensemble of real ZooKeepers that loses a follower, its leader, a leader that is cut off, and a
leader with a full disk: nothing else may notice it for long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pulsarish.chaos.scenario import Scenario
from pulsarish.chaos.side_topics import SideTopics
from pulsarish.chaos.stage import Quorums, Stage, VoidRun
from pulsarish.chaos.standing import Standing
from pulsarish.chaos.storage import FULL_SECONDS, fill, mount_small_disk
from pulsarish.local_cluster.plan import NodePlan
from pulsarish.local_cluster.zookeeper_words import monitored, server_mode
from pulsarish.metadata.records import RestoredTree
from pulsarish.metadata.tree_age import OLDER

__all__ = ["ENSEMBLE_SCENARIOS", "Ensemble", "taken_for_older"]

_SERVERS: Final = 3
_SMALL_DISK_MIB: Final = 48
_WRITE_BYTES: Final = 8192
"""Of a node that is written to a full disk: more than what may be left of the last page of
ZooKeeper's log.
"""
_AWAY_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Ensemble:
    """What the servers say of themselves at one moment."""

    modes: Mapping[str, str]
    """``leader``, ``follower`` or, of a server that does not serve, nothing; by name."""
    synced_followers: int
    """As the leader counts them."""

    @property
    def leader(self) -> str:
        """The name of the one that leads; empty while none does, or two say so."""
        found = [name for name, mode in self.modes.items() if mode == "leader"]
        return found[0] if len(found) == 1 else ""

    @property
    def is_whole(self) -> bool:
        """Whether every server serves and follows the leader."""
        return (
            bool(self.leader)
            and all(self.modes.values())
            and self.synced_followers == len(self.modes) - 1
        )

    def serves_without(self, name: str) -> bool:
        """Whether this server alone has left the quorum, and the others serve."""
        others = [mode for other, mode in self.modes.items() if other != name]
        return (
            not self.modes[name]
            and all(others)
            and self.leader not in ("", name)
            and self.synced_followers == len(others) - 1
        )


def _servers(stage: Stage) -> list[NodePlan]:
    return [node for node in stage.cluster.nodes() if node.role == "zookeeper"]


def _look(stage: Stage) -> Ensemble:
    servers = _servers(stage)
    modes = {node.name: server_mode(node.ports["client"]) for node in servers}
    leading = [node for node in servers if modes[node.name] == "leader"]
    counted = (
        monitored(leading[0].ports["client"]).get("zk_synced_followers", "0")
        if len(leading) == 1
        else "0"
    )
    return Ensemble(modes, int(counted))


def _wait_for_whole(stage: Stage) -> Ensemble:
    stage.wait("every server of the ensemble follows its leader", lambda: _look(stage).is_whole)
    return _look(stage)


def _leave(
    stage: Stage,
    side: SideTopics,
    name: str,
    *,
    was: str,
    leave: Callable[[], None],
    poke: bool = False,
    makes_topic: bool = True,
) -> str:
    """Let a server leave the quorum; the name of the leader without it.

    Every topic must take messages soon after that.

    Args:
        was: the server's role.
        poke: write to the tree until the server has left.
        makes_topic: make a new one meanwhile, too.
    """
    leave()
    began = time.monotonic()

    def has_left() -> bool:
        if poke and _look(stage).modes[name]:
            stage.observer.write(bytes(_WRITE_BYTES))
        return _look(stage).serves_without(name)

    stage.wait(f"the ensemble serves without {name}", has_left)
    served = time.monotonic()
    leader = _look(stage).leader
    stage.mark("bite", f"{name} has left the quorum, {leader} leads and counts one follower")
    stage.notes.append(
        f"the ensemble served {served - began:.1f} s after {name}, the {was}, was lost; {leader} "
        "leads"
    )
    side.must_be_back(
        f"the ensemble served without {name}",
        served,
        new_topic=f"without-{was}-{name}".replace(" ", "-") if makes_topic else "",
    )
    return leader


def _return(stage: Stage, side: SideTopics, name: str, *, new_topic: str = "") -> None:
    if stage.cluster.pid(name) is None:
        stage.start(name)
    _wait_for_whole(stage)
    stage.mark("heal", f"{name} follows the leader")
    side.must_be_back(f"{name} was back", time.monotonic(), new_topic=new_topic)


def _ensemble(stage: Stage) -> None:
    before, side = Standing.of(stage), SideTopics(stage)
    owners = side.owners()
    found = _wait_for_whole(stage)

    follower = next(name for name, mode in found.modes.items() if mode == "follower")
    stage.mark("fault", f"{follower}, a follower, is killed")
    if (
        _leave(stage, side, follower, was="follower", leave=lambda: stage.kill(follower))
        != found.leader
    ):
        stage.notes.append("another server leads since the follower was lost")
    stage.sleep(_AWAY_SECONDS)
    _return(stage, side, follower)

    leader = _wait_for_whole(stage).leader
    stage.mark("fault", f"{leader}, the leader, is killed")
    _leave(stage, side, leader, was="leader", leave=lambda: stage.kill(leader))
    stage.sleep(_AWAY_SECONDS)
    _return(stage, side, leader)

    _cut_off(stage, side, _wait_for_whole(stage).leader)

    full = _wait_for_whole(stage).leader
    if full in stage.small_disks:
        _fill_disk(stage, side, full)

    stage.wrong += before.changes(Standing.of(stage), besides=list(found.modes))
    moved = {name for name, owner in side.owners().items() if owners.get(name, owner) != owner}
    if moved:
        stage.wrong.append(f"topics have changed their owners: {', '.join(sorted(moved))}")
    stage.wrong += _older(stage)
    side.close()


def _cut_off(stage: Stage, side: SideTopics, name: str) -> None:
    """Silence all that goes between the leader and every other process, for a while.

    Messages need no metadata. A new topic does, and a node that is connected to the silent server
    notices only after two thirds of its session.
    """
    others = [node.name for node in stage.cluster.nodes() if node.name != name]
    stage.mark("fault", f"{name}, the leader, is cut off from all other processes")
    _ = _leave(
        stage,
        side,
        name,
        was="leader that is cut off",
        leave=lambda: stage.act(stage.relays.isolate([[name], others])),
        makes_topic=False,
    )
    stage.sleep(_AWAY_SECONDS)
    if not _look(stage).serves_without(name):
        raise VoidRun(f"{name} has come back though it is cut off")
    stage.act(stage.relays.heal())
    _return(stage, side, name, new_topic=f"after-the-cut-of-{name}")


def _fill_disk(stage: Stage, side: SideTopics, full: str) -> None:
    filler = stage.directory / full / "data" / "filler"
    stage.mark("fault", f"the disk of {full}, the leader, is filled to the last byte")
    _leave(stage, side, full, was="leader with a full disk", leave=lambda: _fill(filler), poke=True)
    stage.sleep(FULL_SECONDS)
    if not _look(stage).serves_without(full):
        raise VoidRun(f"{full} has come back though its disk is full")
    filler.unlink()
    if stage.cluster.pid(full) is None:
        stage.notes.append(f"{full} ended by itself when its disk was full, and is started again")
    _return(stage, side, full)


def _fill(path: Path) -> None:
    _ = fill(path)


def taken_for_older(mark: RestoredTree | None, logs: Mapping[str, str]) -> list[str]:
    """Return what shows that nodes took the metadata for older than they had seen them; after an
    election they are not.
    """
    found = (
        []
        if mark is None
        else [f"{mark.found_by or 'a node'} has marked the metadata as older than they were"]
    )
    return found + [f"{name} has logged that {OLDER}" for name, log in logs.items() if OLDER in log]


def _older(stage: Stage) -> list[str]:
    logs = {
        node.name: stage.cluster.log_path(node.name).read_text(errors="replace")
        for node in stage.cluster.nodes()
    }
    return taken_for_older(stage.observer.restored(), logs)


def _mount_small_disks(stage: Stage) -> None:
    """One for each server, as it is not known which of them will lead."""
    names = [f"metadata-{number}" for number in range(1, stage.options.metadata_servers + 1)]
    try:
        for name in names:
            mount_small_disk(stage, name, _SMALL_DISK_MIB)
            stage.small_disks.append(name)
    except VoidRun as reason:
        stage.notes.append(f"no disk is filled in this run: the small ones need root ({reason})")


ENSEMBLE_SCENARIOS: Final = (
    Scenario(
        "zookeeper-ensemble",
        "of three real ZooKeepers a follower, the leader, the leader's links and the leader's disk "
        "are lost for a while",
        _ensemble,
        quorums=Quorums(3, 3, 2),
        no_negative=True,
        by_name_only=True,
        metadata="zookeeper",
        metadata_servers=_SERVERS,
        relayed=frozenset({"metadata"}),
        settings=(
            # Owners are compared: only what the ensemble does may move a topic.
            ("broker", "load_balancer_enabled=false"),
            # So that nodes look at the metadata's age during each election.
            ("broker", "ledger.metadata_check_interval_ms=500"),
            ("bookie", "metadata_check_interval_seconds=0.5"),
            # A node takes a silent server for gone after two thirds of it: longer than an election.
            ("broker", "metadata_session_timeout_ms=16000"),
            ("bookie", "metadata_session_timeout_ms=16000"),
        ),
        prepare=_mount_small_disks,
    ),
)
