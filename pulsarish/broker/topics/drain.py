"""Drain this broker: hand all of its bundles over to other brokers, and take no more.

It lasts until it is ended or the process is. Clients are served meanwhile: each bundle moves as a
bundle does that the balancer moves. An operator may name the broker that gets them all.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pulsarish.broker.ownership.bundles import Bundle
from pulsarish.broker.ownership.ownership import Ownership
from pulsarish.broker.topics.loaded_topics import LoadedTopics
from pulsarish.metadata.records import BrokerRegistration
from pulsarish.model.errors import InvalidArgument, NotAllowedError, PulsarishError
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["Drain"]

_log = get_logger("broker.drain")

_AT_ONCE: Final = 4
_PAUSE_SECONDS: Final = 1.0


class Drain:
    """Drains one broker on request."""

    def __init__(self, world: World, ownership: Ownership, topics: LoadedTopics) -> None:
        self._world = world
        self._ownership = ownership
        self._topics = topics
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._to = ""  # the id of the broker that gets all bundles

    @property
    def to(self) -> str:
        """The id of the broker that gets all bundles; empty: each goes where the rules of placement
        and the numbers of bundles send it.
        """
        return self._to if self.is_on else ""

    @property
    def is_on(self) -> bool:
        return self._ownership.draining

    @property
    def bundles_left(self) -> int:
        return len(self._ownership.owned)

    def start(self, to: BrokerRegistration | None = None) -> None:
        """Begin, or go on with another destination.

        ``to``: the broker that gets all bundles. What it cannot take stays here, and is tried
        again.

        Raises ``NotAllowedError`` when no other broker takes bundles, or ``to`` takes none or may
        not have one of them by the rules of placement; and ``InvalidArgument`` when it is this one.
        """
        if to is not None:
            self._check(to)
        if self._ownership.least_loaded() is None:
            raise NotAllowedError(
                "no other broker takes bundles: start another one, or end its drain, before this "
                "one is drained"
            )
        if not self._ownership.draining:
            _log.info("draining", bundles=self.bundles_left)
        self._ownership.draining = True
        self._to = to.broker_id if to is not None else ""
        if self._task is None or self._task.done():
            self._task = run_in_background(self._world.tasks, self._world.clock, "drain", self._run)

    def _check(self, to: BrokerRegistration) -> None:
        ownership = self._ownership
        if to.instance_id == ownership.registry.instance_id:
            raise InvalidArgument(
                f"broker {to.broker_id} cannot be drained to itself: name another broker, or none"
            )
        if not ownership.takes_bundles(to):
            raise NotAllowedError(
                f"broker {to.broker_id} takes no bundles: it drains, stops or does not answer; "
                "name another broker, or none"
            )
        for bundle in ownership.owned.bundles():
            ownership.check_destination(bundle, to)

    def end(self) -> None:
        """Take bundles again. Those that have moved stay where they are."""
        if self._ownership.draining:
            _log.info("not draining any more", bundles=self.bundles_left)
        self._ownership.draining = False

    def stop(self) -> None:
        self._stopped = True

    def _goes_on(self) -> bool:
        return self._ownership.draining and not self._stopped

    async def _run(self) -> None:
        while self._goes_on():
            given: dict[str, int] = {}
            bundles = self._ownership.owned.bundles()
            for start in range(0, len(bundles), _AT_ONCE):
                if not self._goes_on():
                    return
                moves = []
                for bundle in bundles[start : start + _AT_ONCE]:
                    to = self._next_owner(bundle, given)
                    if to is None:
                        # No other broker may take it now.
                        continue
                    given[to.instance_id] = given.get(to.instance_id, 0) + 1
                    moves.append(self._move(bundle, to))
                _ = await asyncio.gather(*moves)
            await self._world.clock.sleep(_PAUSE_SECONDS)

    def _next_owner(self, bundle: Bundle, given: dict[str, int]) -> BrokerRegistration | None:
        if not self._to:
            return self._ownership.least_loaded(given, bundle=bundle)
        # It may have been restarted, and be another instance.
        others = self._ownership.registry.others()
        return next((other for other in others if other.broker_id == self._to), None)

    async def _move(self, bundle: Bundle, to: BrokerRegistration) -> None:
        try:
            await self._topics.unload_bundle(bundle, to)
        except PulsarishError as error:
            _log.warning(
                "bundle not moved; tried again", bundle=bundle, to=to.broker_id, reason=error
            )
