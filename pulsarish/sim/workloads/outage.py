"""Brokers that reach the metadata service now and then, and take bundles over from each other.

What must hold: two brokers serve one bundle no longer than a session lasts. Fencing decides which
of them stores messages; what is tried here is that the other one stops.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from functools import partial
from typing import Final

from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.metadata import paths
from pulsarish.model.errors import PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import World
from pulsarish.sim.workloads.ownership_site import SPACE, OwnershipSite
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.sim.world.world import Simulation

__all__ = ["check_cut_off", "check_minority", "check_outages"]

_NAMES: Final = ("broker0", "broker1", "broker2")
_TOPICS: Final = [TopicName(*SPACE, f"t{number}") for number in range(6)]
_OUTAGES: Final = 6
_STEP_SECONDS: Final = 0.5
_SESSION_SECONDS: Final = 10.0
_BOTH_SECONDS_MAX: Final = _SESSION_SECONDS + 2.0
"""How long two brokers may serve a bundle: a session, and the pings and reads at its end."""


class _Brokers:
    """The brokers, and since when more than one serves a bundle."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.sites: dict[str, OwnershipSite] = {}
        self._both_since: dict[Bundle, float] = {}

    async def start(self, name: str) -> None:
        async def start(world: World) -> None:
            self.sites[name] = OwnershipSite(world, name)
            await self.sites[name].start(name)

        await self.sim.node(name).run(start)

    def cut(self, name: str) -> None:
        """Keep the metadata service away from a broker."""
        self.sim.network.partition([name], [METADATA])

    def heal(self, name: str) -> None:
        self.sim.network.heal(name, METADATA)
        self.sim.network.heal(METADATA, name)

    def crash(self, name: str) -> None:
        """End a process for good: connections to it are refused."""
        self.sim.nodes[name].crash()
        del self.sites[name]

    async def use(self, name: str, topic: TopicName) -> None:
        """Have a broker serve a topic, if it can find out quickly whether it may."""

        async def use(world: World) -> None:
            with suppress(PulsarishError, TimeoutError):
                async with world.clock.timeout(_STEP_SECONDS):
                    await self.sites[name].use(topic)

        await self.sim.nodes[name].run(use)

    async def wait(self, seconds: float) -> None:
        """Let time pass, and look which brokers serve what."""
        ends = self.sim.loop.time() + seconds
        while self.sim.loop.time() < ends:
            await asyncio.sleep(_STEP_SECONDS)
            self._look()

    def instances(self) -> dict[str, str]:
        return {name: each.ownership.registry.instance_id for name, each in self.sites.items()}

    def serving(self, bundle: Bundle) -> list[str]:
        return [
            name
            for name, site in self.sites.items()
            if site.ownership.serving and site.bundles.serves(bundle)
        ]

    def _look(self) -> None:
        now = self.sim.loop.time()
        bundles = {each for site in self.sites.values() for each in site.bundles.owned()}
        both = {each for each in bundles if len(self.serving(each)) > 1}
        self._both_since = {each: self._both_since.get(each, now) for each in both}
        for bundle, since in self._both_since.items():
            assert now - since <= _BOTH_SECONDS_MAX, (
                f"{' and '.join(self.serving(bundle))} serve {bundle} for {now - since:.1f} s"
            )


def check_outages(seed: int) -> None:
    """Let one broker reach the service again, for moments or for good, once another one's session
    has ended, and take over what that had.

    Each outage begins when all brokers know each other. What a broker that is not known takes over
    is told by fences only.
    """
    sim, rng = Simulation(seed), random.Random(f"{seed}:outages")

    async def scenario() -> None:
        brokers = _Brokers(sim)
        for name in _NAMES:
            await brokers.start(name)
        for _ in range(_OUTAGES):
            for name in _NAMES:
                brokers.heal(name)
            await brokers.wait(2 * _SESSION_SECONDS)
            for topic in _TOPICS:
                await brokers.use(rng.choice(_NAMES), topic)
            *away, returns = rng.sample(_NAMES, len(_NAMES))
            instances = [brokers.instances()[name] for name in away]
            for name in away:
                brokers.cut(name)
            await brokers.wait(rng.uniform(2.0, 4.0))
            brokers.cut(returns)
            while any(sim.metadata.tree.get(paths.broker(each)) for each in instances):
                await brokers.wait(_STEP_SECONDS)
            brokers.heal(returns)
            await brokers.wait(rng.uniform(0.5, 1.0))
            for topic in _TOPICS:
                await brokers.use(returns, topic)
            if rng.random() < 0.5:
                brokers.cut(returns)
            await brokers.wait(2 * _SESSION_SECONDS)

    sim.run(scenario, 900.0)


def check_minority(seed: int) -> None:
    """Leave a broker without the service and without the other brokers, whose processes end.

    A broker that it never knew takes over what it has.
    """
    sim, rng = Simulation(seed), random.Random(f"{seed}:minority")

    async def scenario() -> None:
        brokers = _Brokers(sim)
        for name in _NAMES:
            await brokers.start(name)
        left, *others = rng.sample(_NAMES, len(_NAMES))
        for topic in _TOPICS:
            await brokers.use(left, topic)
        await brokers.wait(rng.uniform(2.0, 3.0))
        for name in _NAMES:
            brokers.cut(name)
        # The others say that the service is away, and end.
        await brokers.wait(rng.uniform(7.0, 9.0))
        for name in others:
            brokers.crash(name)
        await brokers.wait(_SESSION_SECONDS / 2)
        await brokers.start("newcomer")
        for _ in range(2):
            await asyncio.gather(*map(partial(brokers.use, "newcomer"), _TOPICS))
            await brokers.wait(_BOTH_SECONDS_MAX)
        assert brokers.sites["newcomer"].bundles.owned(), "the newcomer has taken nothing"

    sim.run(scenario, 300.0)


def check_cut_off(seed: int) -> None:
    """Cut a broker off from the others, while all reach the service. They evict it, and it evicts
    none of them.
    """
    sim, rng = Simulation(seed), random.Random(f"{seed}:cut off")

    async def scenario() -> None:
        brokers = _Brokers(sim)
        for name in _NAMES:
            await brokers.start(name)
        alone, *others = rng.sample(_NAMES, len(_NAMES))
        for topic in _TOPICS:
            await brokers.use(rng.choice(_NAMES), topic)
        await brokers.wait(rng.uniform(2.0, 4.0))
        before = brokers.instances()
        sim.network.partition([alone], others)
        await brokers.wait(rng.uniform(8.0, 15.0))
        now = brokers.instances()
        for name in others:
            assert now[name] == before[name], f"{name} was evicted by a broker that is cut off"
        assert now[alone] != before[alone], f"{alone} is cut off and was not evicted"

    sim.run(scenario, 120.0)
