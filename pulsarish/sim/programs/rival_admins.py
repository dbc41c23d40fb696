"""Two administrators who ask for the same thing, or for its opposite, at the same moment, each from
another broker.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pulsarish.runtime.seams import StreamBroken, World
from pulsarish.sim.cluster.cluster import SimCluster
from pulsarish.sim.cluster.operator import NAMESPACE, TOPICS, administer
from pulsarish.sim.cluster.stage import Stage
from pulsarish.sim.world.nodes import Node, NodeDied

__all__ = ["SUBSCRIPTION", "Duel"]

SUBSCRIPTION: Final = "duel"

_PAUSE_SECONDS: Final = 1.0
_LATE_SECONDS: Final = 0.03
_TOPIC: Final = f"{TOPICS}/duel"
_CURSOR: Final = f"{_TOPIC}/subscription/{SUBSCRIPTION}"

_Command = tuple[str, str, Any]

# The requests of the two are drawn from one row.
_ROWS: Final[tuple[tuple[_Command, ...], ...]] = (
    (("PUT", f"{NAMESPACE}/unload", None),),
    (("PUT", "{bundle}/unload", None),),
    (("PUT", f"{TOPICS}/t{{partition}}/unload", None), ("PUT", "{bundle}/unload", None)),
    (("PUT", _TOPIC, None), ("DELETE", _TOPIC, None), ("PUT", f"{_TOPIC}/unload", None)),
    (("PUT", _CURSOR, None), ("DELETE", _CURSOR, None), ("DELETE", _TOPIC, None)),
    (
        ("POST", f"{_TOPIC}/properties", {"by": "one"}),
        ("POST", f"{_TOPIC}/properties", {"by": "the other"}),
        ("DELETE", _TOPIC, None),
    ),
)


@dataclass(slots=True)
class Duel:
    """Runs the two on two nodes until the load ends.

    Any answer but 500 is allowed, and so is none.
    """

    stage: Stage
    cluster: SimCluster
    nodes: Sequence[Node]
    rng: random.Random

    async def run(self) -> None:
        rng = self.rng
        while not self.stage.over:
            await asyncio.sleep(rng.expovariate(1 / _PAUSE_SECONDS))
            row, place = rng.choice(_ROWS), self._place()
            await asyncio.gather(
                *(
                    self._ask(node, rng.choice(row), place, rng.choice((0.0, 0.0, _LATE_SECONDS)))
                    for node in self.nodes
                )
            )

    def _place(self) -> dict[str, str]:
        settings, rng = self.cluster.settings, self.rng
        size = (1 << 32) // settings.bundles
        first = rng.randrange(settings.bundles) * size
        last = min(first + size, 0xFFFFFFFF)
        partition = (
            f"-partition-{rng.randrange(settings.partitions)}" if settings.partitions else ""
        )
        return {"bundle": f"{NAMESPACE}/0x{first:08x}_0x{last:08x}", "partition": partition}

    async def _ask(
        self, node: Node, command: _Command, place: dict[str, str], later_seconds: float
    ) -> None:
        method, target, body = command
        broker = self.rng.choice(self.cluster.brokers)

        async def inside(world: World) -> int:
            await world.clock.sleep(later_seconds)
            return (
                await administer(self.stage, world, broker, method, target.format(**place), body)
            ).status

        try:
            status = await node.run(inside)
        except (NodeDied, StreamBroken, TimeoutError) as error:
            self.stage.trace(f"{method} {target} in a duel failed: {error!r}")
        else:
            self.stage.counts.duels += status < 300
