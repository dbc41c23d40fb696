"""What may end a process is one closed list, and each of it is used where it says."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from pulsarish.runtime.containment import Critical

PACKAGE = Path(__file__).resolve().parents[3] / "pulsarish"

USERS = {
    Critical.MAIN: {"sim/nodes.py", "sim/containment_mutants.py"},
    Critical.JOURNAL: {"bookie/journal.py"},
    Critical.CHECKPOINT: {"bookie/bookie.py"},
    Critical.GARBAGE: {"bookie/bookie.py"},
    Critical.SPACE: {"bookie/bookie.py"},
    Critical.REGISTRATION: {"bookie/bookie.py", "broker/ownership/registry.py"},
    Critical.METADATA_SESSION: {"metadata/zookeeper.py"},
    Critical.METADATA_COMMIT: {"metadata/engine.py"},
    Critical.METADATA_EXPIRY: {"metadata/daemon.py"},
    Critical.BOOKIES: {"ledger/bookies.py"},
    Critical.LEDGER_TIMEOUTS: {"ledger/bookie_pool.py"},
    Critical.OWNERSHIP: {"broker/ownership/ownership.py"},
    Critical.LEADER: {"broker/ownership/leader.py"},
    Critical.MAINTENANCE: {"broker/topics.py"},
    Critical.AUTO_RECOVERY: {
        "autorecovery/auditor.py",
        "autorecovery/autorecovery.py",
        "autorecovery/worker.py",
        "metadata/election.py",
    },
    Critical.BROKERS: {"proxy/brokers.py"},
}
"""Whoever adds to this makes one more thing end a process: the reason stands beside the member."""


def _spawns() -> Iterator[tuple[str, ast.Call]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr="spawn")):
                    yield str(path.relative_to(PACKAGE)), node


def test_only_the_named_places_end_a_process() -> None:
    found: dict[Critical, set[str]] = {member: set() for member in Critical}
    for name, call in _spawns():
        for keyword in call.keywords:
            match keyword:
                case ast.keyword(arg="critical", value=ast.Attribute(value=ast.Name(id="Critical"), attr=member)):
                    found[Critical[member]].add(name)
    assert found == USERS


def test_nobody_computes_what_is_critical() -> None:
    """A member stands where the task is spawned; a scope passes on what it was given, which is nothing."""
    for name, call in _spawns():
        for keyword in call.keywords:
            if keyword.arg == "critical":
                assert isinstance(keyword.value, ast.Attribute), f"{name}, line {call.lineno}"


def test_each_has_its_reason() -> None:
    assert len({member.value for member in Critical}) == len(Critical)
    assert all(len(member.value.split()) > 2 for member in Critical)
