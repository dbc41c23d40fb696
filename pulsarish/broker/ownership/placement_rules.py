"""The rules of placement as this broker knows them: read once, then again when their node changes.

There is one watch, also while there are no rules.
"""

from __future__ import annotations

import asyncio
from typing import Final

from pulsarish.broker.ownership.placement import ANYWHERE, Placement
from pulsarish.broker.policies.placement_store import PlacementStore
from pulsarish.metadata.record_store import Records
from pulsarish.model.errors import CorruptData, InvalidArgument, MetadataUnavailable
from pulsarish.runtime.containment import run_in_background
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["PlacementRules"]

_log = get_logger("broker.placement")

_RETRY_SECONDS: Final = 1.0


class PlacementRules:
    """Follows the rules. ``current`` is the newest version that could be read."""

    def __init__(self, world: World, records: Records) -> None:
        self.current: Placement = ANYWHERE
        self._world = world
        self._store = PlacementStore(records)
        self._changed = asyncio.Event()
        self._stopped = False

    async def start(self) -> None:
        """Read the rules before this broker may own a bundle.

        Raises ``CorruptData``, ``InvalidArgument``, ``MetadataUnavailable``.
        """
        await self._read()
        _ = run_in_background(self._world.tasks, self._world.clock, "placement rules", self._run)

    def stop(self) -> None:
        self._stopped = True
        self._changed.set()

    async def _read(self) -> None:
        record = await self._store.read(lambda _: self._changed.set())
        self.current = Placement(record)

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            if self._stopped:
                return
            self._changed.clear()
            try:
                await self._read()
            except MetadataUnavailable as error:
                _log.debug("placement rules wait for metadata", reason=error)
                await self._world.clock.sleep(_RETRY_SECONDS)
                self._changed.set()
            except (CorruptData, InvalidArgument) as error:
                # The node is watched, so its repair is seen.
                _log.error("placement rules unreadable; the former ones stay", exception=error)
