"""Audit trails of simulated nodes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from pulsarish.broker.audit_topic import AuditTopic
from pulsarish.broker.audit_trail import AuditTrail
from pulsarish.runtime.seams import World
from pulsarish.security.audit import AuditClass, AuditEvent, Disposition
from pulsarish.security.audit_chain import ChainCheck
from pulsarish.security.identity import Identity, Origin
from pulsarish.sim.world.nodes import Node
from pulsarish.sim.world.world import Simulation

DIRECTORY = "audit"
SETTINGS = {"audit_log_directory": DIRECTORY}
Records = list[dict[str, Any]]


def note(trail: AuditTrail, number: int, text: str = "") -> None:
    trail.note(
        AuditEvent(
            kind=AuditClass.AUTHORIZATION,
            activity="Deny",
            identity=Identity("ann", "token", origin=Origin("10.0.0.1:4000", "grpc")),
            disposition=Disposition.DENIED,
            action="OpenProducer",
            resource=f"topic {number}{text}",
        )
    )


def trail_of(world: World, topic: AuditTopic | None = None, **settings: int) -> AuditTrail:
    options = {"file_size_bytes": 4_096, "files_max": 3, **settings}
    topic = topic or AuditTopic(world, "")
    return AuditTrail(world, DIRECTORY, topic, broker="b", **options)  # type: ignore[arg-type]


def files_of(node: Node) -> dict[str, bytes]:
    names = node.disk.names
    return {
        path.rpartition("/")[2]: bytes(names[path].current.data)
        for path in sorted(names)
        if path.startswith(f"{DIRECTORY}/audit-")
    }


def checked(node: Node) -> ChainCheck:
    check = ChainCheck()
    for name, content in files_of(node).items():
        check.read_file(name, content)
    check.finish()
    return check


def records_of(node: Node) -> Records:
    return [
        json.loads(line) for content in files_of(node).values() for line in content.splitlines()
    ]


def run(scenario: Callable[[Simulation, Node], Awaitable[None]]) -> None:
    sim = Simulation(1)
    node = sim.node("b")

    async def main() -> None:
        await scenario(sim, node)

    sim.run(main, 600.0)
