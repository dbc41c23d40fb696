"""What each fault of a soak does to a node, and how it is healed."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pulsarish.chaos.rot import (
    Rot,
    damage_entry_log,
    damage_index,
    damage_journal,
    is_entry_whole,
    ledgers_in_limbo,
)
from pulsarish.chaos.soak_schedule import CopyGuard, Fault, FaultKind
from pulsarish.chaos.stage import CLIENT, Stage, VoidRun
from pulsarish.local_cluster.growth import add_nodes, remove_nodes
from pulsarish.local_cluster.plan import NodePlan
from pulsarish.local_cluster.processes import Cluster
from pulsarish.model.errors import PulsarishError, ServiceNotReady, Timeout

__all__ = ["Repair", "SoakFaults", "run_storage_command"]

_REMOVAL_SECONDS: Final = 1_800.0
_DRAIN_SECONDS: Final = 120.0
_COMMAND_SECONDS: Final = 3_600.0
_UNLOAD_EVERY_SECONDS: Final = 30.0
_INDEX_SERVES_SECONDS: Final = 2.0
"""How long a bookie serves with a damaged index that it has not noticed, before the operator, who
is the harness, rebuilds it.
"""


@dataclass(slots=True)
class Repair:
    """Damage that is to be repaired. ``is_limbo``: the bookie doubts ledgers as a whole."""

    bookie: str
    rot: Rot
    is_limbo: bool
    began: float
    unloaded_at: float = 0.0


class SoakFaults:
    """Makes faults. Each method returns what it has done, in words, once it is healed."""

    def __init__(self, stage: Stage, guard: CopyGuard, topics: Sequence[str]) -> None:
        self._stage = stage
        self._guard = guard
        self._topics = topics
        self.repair: Repair | None = None
        self.damaged_files: set[str] = set()

    def make(self, fault: Fault) -> str:
        """Raises ``VoidRun`` when what must happen did not, and ``PulsarishError``."""
        match fault.kind:
            case FaultKind.KILL:
                return self._kill(fault)
            case FaultKind.PAUSE:
                return self._pause(fault)
            case FaultKind.CUT:
                return self._cut(fault)
            case FaultKind.ADD_BOOKIE | FaultKind.ADD_BROKER:
                return self._add(fault)
            case FaultKind.REMOVE_BOOKIE | FaultKind.REMOVE_BROKER:
                return self._remove(fault)
            case FaultKind.DRAIN:
                return self._drain(fault)
            case FaultKind.ROT_ENTRY_LOG | FaultKind.ROT_INDEX | FaultKind.ROT_JOURNAL:
                return self._rot(fault)

    def _kill(self, fault: Fault) -> str:
        self._stage.kill(fault.node)
        self._stage.sleep(fault.seconds)
        self._stage.start(fault.node)
        return f"killed, and started {fault.seconds:g} s later"

    def _pause(self, fault: Fault) -> str:
        self._stage.pause(fault.node)
        try:
            self._stage.sleep(fault.seconds)
        finally:
            self._stage.resume(fault.node)
        return f"stopped for {fault.seconds:g} s (SIGSTOP)"

    def _cut(self, fault: Fault) -> str:
        stage = self._stage
        others = [node.name for node in stage.cluster.nodes() if node.name != fault.node]
        stage.act(stage.relays.isolate([[fault.node], [*others, CLIENT]]))
        try:
            stage.sleep(fault.seconds)
        finally:
            stage.act(stage.relays.heal())
        return f"cut off from all others for {fault.seconds:g} s"

    def _add(self, fault: Fault) -> str:
        stage = self._stage
        role = fault.kind.rpartition("-")[2]
        (node,) = add_nodes(stage.cluster, role, 1, adapt=stage.put_relay)
        assert node.name == fault.node, f"{node.name} has the name of {fault.node}"
        return "added"

    def _remove(self, fault: Fault) -> str:
        remove_nodes(
            self._stage.cluster,
            [fault.node],
            force=False,
            wait_seconds=_REMOVAL_SECONDS,
            say=lambda _text: None,
        )
        return "removed"

    def _drain(self, fault: Fault) -> str:
        stage = self._stage
        brokers = stage.admin().brokers
        bundles = int(brokers.drain(fault.node)["bundlesLeft"])
        try:
            stage.wait(
                f"{fault.node} is drained",
                lambda: int(brokers.drain_state(fault.node)["bundlesLeft"]) == 0,
                _DRAIN_SECONDS,
            )
            stage.sleep(fault.seconds)
        finally:
            _ = brokers.undrain(fault.node)
        return f"drained of {bundles} bundles, and undrained"

    # -- rot

    def _rot(self, fault: Fault) -> str:
        stage, chance = self._stage, random.Random(fault.seed)
        damage = {
            FaultKind.ROT_ENTRY_LOG: damage_entry_log,
            FaultKind.ROT_INDEX: damage_index,
            FaultKind.ROT_JOURNAL: damage_journal,
        }[fault.kind]
        if not self._guard.may_damage():
            raise VoidRun(f"{self._guard.damaged} has damaged copies still")
        stage.kill(fault.node)
        self._guard.damage(fault.node)
        rot = asyncio.run(damage(self._data(fault.node), chance))
        if rot is None:
            self._guard.repaired()
            stage.start(fault.node)
            return "killed; there was nothing to damage yet"
        self.damaged_files.add(rot.path)
        is_limbo = fault.kind is not FaultKind.ROT_ENTRY_LOG
        self.repair = Repair(fault.node, rot, is_limbo, time.monotonic())
        after = {
            FaultKind.ROT_ENTRY_LOG: self._start_as_usual,
            FaultKind.ROT_INDEX: self._rebuild_index,
            FaultKind.ROT_JOURNAL: self._give_up_journal,
        }[fault.kind]
        return f"{rot}; {after(fault.node)}"

    def _start_as_usual(self, name: str) -> str:
        self._stage.start(name)
        return "started; the scrubber is to find it"

    def _rebuild_index(self, name: str) -> str:
        stage = self._stage
        try:
            stage.start(name)
        except (ServiceNotReady, Timeout):
            said = "it refused to start"
        else:
            said = "it started"
            stage.sleep(_INDEX_SERVES_SECONDS)
        stage.kill(name)
        report = run_storage_command(stage.cluster, stage.cluster.node(name), "rebuild-index")
        stage.start(name)
        return f"{said}; its index was rebuilt, with {report['entries']} entries"

    def _give_up_journal(self, name: str) -> str:
        stage = self._stage
        try:
            stage.start(name)
        except ServiceNotReady:
            node = stage.cluster.node(name)
            settings = [*node.settings, "journal_corruption=limbo"]
            stage.cluster.start(replace(node, settings=settings))
            stage.cluster.wait_ready([node])
            return "it refused to start, and was started with journal_corruption=limbo"
        stage.wrong.append(f"{name} started although a synced record of its journal is damaged")
        return "it started"

    def is_repaired(self) -> bool:
        """Return whether nothing that was damaged is left, and note it."""
        repair = self.repair
        if repair is None:
            return True
        try:
            if not self._is_whole(repair):
                return False
        except (PulsarishError, OSError):
            return False  # it cannot be seen now
        self.repair = None
        self._guard.repaired()
        return True

    def _is_whole(self, repair: Repair) -> bool:
        stage, data = self._stage, self._data(repair.bookie)
        if any(
            member.startswith(f"{repair.bookie}~")
            for record in stage.observer.under_replicated().values()
            for member in record.missing_members
        ):
            return False
        if not repair.is_limbo:
            # No repair is due in a deleted ledger, such as that of a former cursor.
            return not stage.observer.has_ledger(repair.rot.ledger_id) or asyncio.run(
                is_entry_whole(data, repair.rot)
            )
        rows = stage.admin().bookies.all_ledgers(repair.bookie)
        named = {int(row["ledgerId"]) for row in rows}
        doubted = asyncio.run(ledgers_in_limbo(data, named))
        if not doubted:
            return True
        if time.monotonic() > repair.unloaded_at + _UNLOAD_EVERY_SECONDS:
            # A ledger leaves limbo once it is closed.
            repair.unloaded_at = time.monotonic()
            self.unload_topics()
        return False

    def unload_topics(self) -> None:
        """Have the topics' ledgers closed. Tries all topics, then raises the last error, if any."""
        failure: PulsarishError | None = None
        for topic in self._topics:
            try:
                self._stage.admin().topics.unload(topic)
            except PulsarishError as error:
                failure = error
        if failure is not None:
            raise failure

    def _data(self, name: str) -> Path:
        return self._stage.directory / name / "data"


def run_storage_command(cluster: Cluster, node: NodePlan, *words: str) -> dict[str, Any]:
    """Run ``pulsarish storage`` with the options of a bookie; return its report.

    Raises ``ServiceNotReady`` with what the command said when it has no report.
    """
    settings = [*node.settings, f"data_directory={cluster.directory / node.name / 'data'}"]
    command = [
        *(sys.executable, "-m", "pulsarish", "storage", *words, "-o", "json"),
        *(f"--set={each}" for each in settings),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
    )
    try:
        found = json.loads(done.stdout)
    except ValueError:
        raise ServiceNotReady(f"storage {words[0]} of {node.name}: {done.stderr.strip()}") from None
    assert isinstance(found, dict)
    return found
