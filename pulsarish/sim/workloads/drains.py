"""Brokers that drain to a named broker, and brokers that are told to close topics while the
metadata service has just gone silent.

What must hold: in the end the named broker has every bundle that it may have, and none that a rule
of placement forbids; and a topic closes only when another broker could open it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Final, cast

import msgspec

from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.policies.placement_store import PlacementStore
from pulsarish.broker.topics.topic import Topic
from pulsarish.metadata.records import PlacementRecord
from pulsarish.model.errors import NotAllowedError, PulsarishError
from pulsarish.model.placement import AutoFailoverPolicy, IsolationPolicy
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.seams import Clock, World
from pulsarish.sim.workloads.ownership_site import SPACE, OwnershipSite
from pulsarish.sim.world.metadata_service import METADATA
from pulsarish.sim.world.world import Simulation

__all__ = ["check_drained", "check_silent_service"]

_NAMES: Final = ("broker0", "broker1", "broker2")
_SOURCE, _PRIMARY, _OTHER = _NAMES
_OWN: Final = ("public", "own")
"""The namespace for which the first two brokers are reserved."""


class _Site(OwnershipSite):
    """A broker, and the seconds at which its topics were closed."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.closed: dict[str, float] = {}
        self._clock = world.clock

    def load(self, name: TopicName) -> None:
        """Count a topic as loaded here."""
        self.topics.loaded[name.full] = cast("Topic", _Loaded(name, self.closed, self._clock))


class _Loaded:
    """A loaded topic that only closes."""

    closed = None

    def __init__(self, name: TopicName, closed: dict[str, float], clock: Clock) -> None:
        self.name = name
        self._closed = closed
        self._clock = clock

    def stop_taking(self, _error: PulsarishError) -> None:
        self._closed.setdefault(self.name.full, self._clock.monotonic())

    async def close(self, error: PulsarishError) -> None:
        self.stop_taking(error)


async def _started(sim: Simulation, names: tuple[str, ...]) -> dict[str, _Site]:
    sites: dict[str, _Site] = {}
    for name in names:

        async def start(world: World, name: str = name) -> None:
            sites[name] = _Site(world, name)
            await sites[name].start(name)

        await sim.node(name).run(start)
    await asyncio.sleep(2.0)
    return sites


def _bundles(rng: random.Random, space: tuple[str, str]) -> list[Bundle]:
    return [
        Bundle(*space, f"0x{low:x}0000000_0x{low + 1:x}0000000")
        for low in range(1, rng.randint(3, 8))
    ]


async def _reserve(site: OwnershipSite) -> None:
    """Reserve the first two brokers for one namespace, which no other broker may have."""
    failover = AutoFailoverPolicy("min_available", {"min_limit": 1, "usage_threshold": 100})
    policy = IsolationPolicy(("/".join(_OWN),), (f"{_SOURCE}|{_PRIMARY}",), failover)
    await PlacementStore(site.records).change(
        lambda rules: msgspec.structs.replace(rules, isolation={"own": policy})
    )


def check_drained(seed: int) -> None:
    """Drain a broker to another one that it cannot reach for a while. A rule that forbids some of
    the bundles comes before the drain, which is refused then, or during it.
    """
    sim, rng = Simulation(seed), random.Random(f"{seed}:drained")

    async def scenario() -> None:
        sites = await _started(sim, _NAMES)
        source, node = sites[_SOURCE], sim.nodes[_SOURCE]
        free, own = _bundles(rng, SPACE), _bundles(rng, _OWN)

        async def on_source(work: Awaitable[Any]) -> None:
            await node.run(lambda _: cast("Any", work))

        async def begin(to: str) -> None:
            source.drain.start(sites[to].ownership.registry.me)

        for bundle in [*free, *own]:
            await on_source(source.ownership.acquire(bundle, None))
        await on_source(_reserve(source))
        await asyncio.sleep(1.0)
        with suppress(NotAllowedError):
            await on_source(begin(_OTHER))
        assert not source.drain.is_on, f"the drain to {_OTHER} began, which may not have {_OWN}"
        await on_source(PlacementStore(source.records).change(lambda _: PlacementRecord()))
        await asyncio.sleep(1.0)
        to = (_OTHER, _PRIMARY)[seed % 2]
        sim.network.partition([_SOURCE], [to])
        await on_source(begin(to))
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        await on_source(_reserve(source))
        await asyncio.sleep(rng.uniform(1.3, 1.8))
        sim.network.heal(_SOURCE, to)
        sim.network.heal(to, _SOURCE)
        await asyncio.sleep(20.0)
        taken = set(sites[to].bundles.owned())
        left = set(source.bundles.owned())
        forbidden = set(own if to == _OTHER else free)
        assert not taken & forbidden, f"{to} has {sorted(taken & forbidden)}, which it may not have"
        assert left == forbidden, (
            f"{_SOURCE} has {sorted(left)}, and should have {sorted(forbidden)}"
        )
        assert taken == {*free, *own} - forbidden, f"{to} has {sorted(taken)}"

    sim.run(scenario, 120.0)


def check_silent_service(seed: int) -> None:
    """Tell a broker to unload a topic or its bundle when the service has just gone silent, which
    it does not know yet. The service comes back before the session ends, or later.
    """
    sim, rng = Simulation(seed), random.Random(f"{seed}:silent")
    name = TopicName(*SPACE, "t")
    bundle = Bundle(*SPACE, "0x00000000_0xffffffff")
    unloads_bundle = bool(seed % 2)

    async def scenario() -> None:
        (site,) = (await _started(sim, ("broker0",))).values()
        node = sim.nodes["broker0"]

        async def own(_world: World) -> None:
            _ = await site.ownership.acquire(bundle, None)
            site.load(name)

        async def unload(_world: World) -> None:
            with suppress(PulsarishError):
                topics = site.topics
                await (topics.unload_bundle(bundle) if unloads_bundle else topics.unload(name))

        await node.run(own)
        await asyncio.sleep(rng.uniform(0.0, 3.0))
        sim.network.partition(["broker0"], [METADATA])
        unloading = asyncio.ensure_future(node.run(unload))
        await asyncio.sleep(rng.choice((rng.uniform(0.1, 5.0), 15.0)))
        assert not site.closed, "a topic was closed that no broker could have opened"
        sim.network.heal("broker0", METADATA)
        sim.network.heal(METADATA, "broker0")
        await unloading

    sim.run(scenario, 120.0)
