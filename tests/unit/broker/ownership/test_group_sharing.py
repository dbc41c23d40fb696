"""A broker's part in sharing resource groups: which limits it reads, when it asks the leader."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

from pulsarish.broker.ownership.group_sharing import GroupSharing, Shares
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.policies.group_rates import KINDS, Groups, Wish
from pulsarish.broker.policies.group_store import GroupStore
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import ServiceNotReady
from pulsarish.model.policies import ResourceGroup
from pulsarish.runtime.seams import World
from tests.unit.broker.ownership.test_placement_rules import run as run_world

LIMITS = ResourceGroup(publish_messages=100)
ME = BrokerRegistration("me", "me-1", {})


class Site:
    """A broker that shares groups, and what it asked its leader."""

    def __init__(self, world: World, records: Records) -> None:
        self.world = world
        self.groups = Groups()
        self.store = GroupStore(records)
        self.asked: list[list[str]] = []
        self.is_leader_there = True
        ownership: Any = SimpleNamespace(
            registry=SimpleNamespace(alive={ME.instance_id: ME}, me=ME),
            leader=SimpleNamespace(leader=ME),
        )
        self.sharing = GroupSharing(world, self.store, cast(Ownership, ownership), self.groups)
        self.sharing.start(self._ask)

    async def _ask(
        self, _leader: BrokerRegistration, _broker: str, wishes: Mapping[str, Sequence[Wish]]
    ) -> Shares:
        self.asked.append(list(wishes))
        if not self.is_leader_there:
            raise ServiceNotReady("no answer")
        return {name: [1.0] * len(KINDS) for name in wishes}


def run(work: Callable[[Site], Awaitable[None]]) -> None:
    async def inside(world: World, records: Records) -> None:
        site = Site(world, records)
        await site.store.set("g", lambda _: LIMITS)
        await work(site)
        site.sharing.stop()

    run_world(inside)


def test_a_group_that_is_used_again_at_once_has_its_limits_again() -> None:
    async def work(site: Site) -> None:
        rates = site.groups.find("g")
        await site.world.clock.sleep(0.3)
        assert rates.limits == LIMITS
        del rates
        assert not site.groups.in_use()
        rates = site.groups.find("g")
        await site.world.clock.sleep(0.3)
        assert rates.limits == LIMITS

    run(work)


def test_a_group_that_is_deleted_and_made_again_has_the_new_limits() -> None:
    async def work(site: Site) -> None:
        rates = site.groups.find("g")
        await site.world.clock.sleep(0.3)
        await site.store.delete("g")
        await site.world.clock.sleep(0.3)
        assert rates.limits == ResourceGroup()
        await site.store.set("g", lambda _: ResourceGroup(publish_messages=7))
        await site.world.clock.sleep(0.3)
        assert rates.publish.messages.rate == 7.0

    run(work)


def test_the_leader_is_asked_without_groups_until_it_answers() -> None:
    async def work(site: Site) -> None:
        rates = site.groups.find("g")
        await site.world.clock.sleep(0.3)
        del rates
        site.is_leader_there = False
        await site.world.clock.sleep(5.0)
        site.is_leader_there = True
        await site.world.clock.sleep(5.0)
        assert site.asked[0] == ["g"]
        assert site.asked[1:] == [[]] * 6, "asked five times in vain, and once more"

    run(work)
