"""This broker's part in sharing resource groups: it follows the groups that its topics
are in, asks the leader for shares of their limits, and divides while it leads itself.

``group_division`` decides. A broker whose topics are in no group does nothing here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from pulsarish.broker.ownership.group_division import (
    ASK_SECONDS,
    SHARE_SECONDS,
    GroupDivision,
    equal_share,
    least_share,
)
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.policies.group_rates import KINDS, GroupRates, Groups, Wish
from pulsarish.broker.policies.group_store import GroupStore
from pulsarish.metadata import paths
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import CorruptData, MetadataUnavailable, PulsarishError, ServiceNotReady
from pulsarish.model.policies import ResourceGroup
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["AskLeader", "GroupSharing", "Shares"]

_log = get_logger("broker.resource_groups")

Shares = Mapping[str, Sequence[float]]
"""By group, a share for each of ``KINDS``."""
AskLeader = Callable[[BrokerRegistration, str, Mapping[str, Sequence[Wish]]], Awaitable[Shares]]


class GroupSharing:
    """Shares resource groups with the other brokers. Runs on every broker.

    Args:
        groups: those that topics of this broker are in.
    """

    def __init__(
        self, world: World, store: GroupStore, ownership: Ownership, groups: Groups
    ) -> None:
        self._world = world
        self._store = store
        self._ownership = ownership
        self._groups = groups
        self._division = GroupDivision(0.0)
        self._watched: set[str] = set()
        """The paths of groups whose limits in force are the newest."""
        self._touched = asyncio.Event()
        self._stopped = False
        groups.came = lambda name: self._changed(paths.resource_group(name))
        groups.first_share = lambda: least_share(self._brokers_count)

    @property
    def _brokers_count(self) -> int:
        return len(self._ownership.registry.alive)

    def start(self, ask: AskLeader) -> None:
        """Start. ``ask``: asks the leader for this broker's shares; raises its error."""
        _ = run_in_background(
            self._world.tasks, self._world.clock, "resource groups", lambda: self._run(ask)
        )

    def stop(self) -> None:
        self._stopped = True
        self._touched.set()

    # -- of this broker

    async def _run(self, ask: AskLeader) -> None:
        is_known = False
        while True:
            with suppress(TimeoutError):
                async with self._world.clock.timeout(ASK_SECONDS if is_known else None):
                    await self._touched.wait()
            if self._stopped:
                return
            self._touched.clear()
            is_known = await self._round(ask)

    async def _round(self, ask: AskLeader) -> bool:
        """Return whether the leader may know of groups in use here. It is asked again then: also
        without groups, until it answers.
        """
        groups = self._groups.in_use()
        await self._follow(groups)
        has_answered = await self._share(ask, groups)
        return bool(groups) or not has_answered

    async def _follow(self, groups: Mapping[str, GroupRates]) -> None:
        """Read the limits of groups that came or were changed."""
        in_use = {paths.resource_group(name): rates for name, rates in groups.items()}
        self._watched &= in_use.keys()
        for path, rates in in_use.items():
            if path in self._watched:
                continue
            self._watched.add(path)
            try:
                async with self._world.clock.timeout(ASK_SECONDS):
                    limits = await self._store.find(rates.name, self._changed)
            except (MetadataUnavailable, TimeoutError) as error:
                self._watched.discard(path)
                _log.debug("resource group waits for metadata", group=rates.name, reason=error)
                continue
            except CorruptData as error:
                _log.error("resource group unreadable; its limits stay", exception=error)
                continue
            # A group that was deleted has no users any more, except for a moment.
            rates.use(limits or ResourceGroup(), self._world.clock.monotonic())

    def _changed(self, path: str) -> None:
        """Have the limits of a group read: they may have changed, or topics use it again."""
        self._watched.discard(path)
        self._touched.set()

    async def _share(self, ask: AskLeader, groups: Mapping[str, GroupRates]) -> bool:
        """Get shares from the leader, and end those whose time is over. Return whether the leader
        has answered.
        """
        clock = self._world.clock
        me, leader = self._ownership.registry.me, self._ownership.leader.leader
        asked_at = clock.monotonic()
        wishes = {name: rates.wishes(asked_at) for name, rates in groups.items()}
        has_answered = False
        if me is not None and leader is not None:
            try:
                async with clock.timeout(ASK_SECONDS):
                    shares = await ask(leader, me.instance_id, wishes)
                has_answered = True
                for name, each in shares.items():
                    if name in groups and len(each) == len(KINDS) and min(each) > 0:
                        groups[name].divide(each, asked_at + SHARE_SECONDS, clock.monotonic())
            except (PulsarishError, TimeoutError) as error:
                _log.debug("no shares of resource groups", leader=leader.broker_id, reason=error)
        share_max = equal_share(self._brokers_count)
        for rates in groups.values():
            rates.expire(share_max, clock.monotonic())
        return has_answered

    # -- of the leader

    def divide(self, broker: str, wishes: Mapping[str, Sequence[Wish]]) -> Shares:
        """Return the shares of a broker. Raises ``ServiceNotReady`` on a broker that does not lead,
        or does not know the broker.
        """
        election, alive = self._ownership.leader, self._ownership.registry.alive
        if not election.is_leader or broker not in alive:
            raise ServiceNotReady("this broker is not the leader, or does not know who asks")
        if self._division.began != election.led_since:
            self._division = GroupDivision(election.led_since)
        return self._division.ask(broker, wishes, alive, self._world.clock.monotonic())

    def rates(self) -> Sequence[GroupRates]:
        """Return the rates of all groups that topics of this broker are in, by name."""
        return list(self._groups.in_use().values())
