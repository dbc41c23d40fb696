"""What operators have asked of auto-recovery, as every node of the cluster follows it.

The record is in the metadata, so it holds for nodes that start later, too. While auto-recovery is
off no ledger is looked for and no copy is made. What is missing is recorded as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import AutoRecoverySwitch
from pulsarish.model.errors import CorruptData, MetadataUnavailable
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import SessionState, World
from pulsarish.wire.json_record import decode_record

__all__ = ["Switch"]

_log = get_logger("autorecovery")

_RETRY_SECONDS: Final = 1.0
_REMIND_SECONDS: Final = 600.0


class Switch:
    """The record as last read. Run ``run`` as a task.

    Nothing is on before the record was read for the first time.

    Args:
        on_change: called after each reading that found something new.
    """

    def __init__(self, world: World, records: Records, on_change: Callable[[], None]) -> None:
        self.now = AutoRecoverySwitch()
        self._world = world
        self._records = records
        self._on_change = on_change
        self._on = asyncio.Event()
        self._changed = asyncio.Event()
        self._stopped = False
        records.listen(self._session_changed)

    @property
    def is_on(self) -> bool:
        return self._on.is_set()

    @property
    def off_reason(self) -> str:
        """Say that an operator has switched auto-recovery off, and how it is switched on; empty
        while it is on.
        """
        if not self.now.off_since_ms:
            return ""
        seconds = max(0, self._world.clock.wall_ms() - self.now.off_since_ms) // 1000
        why = f" ({self.now.reason})" if self.now.reason else ""
        return (
            f"auto-recovery has been off for {seconds} s{why}: lost copies are not made again; to "
            "switch it on: pulsarish autorecovery enable"
        )

    async def wait_until_on(self) -> None:
        await self._on.wait()

    def stop(self) -> None:
        self._stopped = True
        self._changed.set()

    async def run(self) -> None:
        while not self._stopped:
            self._changed.clear()
            try:
                found = await self._read()
            except MetadataUnavailable as error:
                _log.debug("the switch of auto-recovery is read again", reason=error)
                await self._world.clock.sleep(_RETRY_SECONDS)
                continue
            self._take(found)
            try:
                async with self._world.clock.timeout(None if self.is_on else _REMIND_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                _log.warning("auto-recovery is off", reason=self.off_reason)

    async def _read(self) -> AutoRecoverySwitch:
        path = paths.autorecovery_switch()
        try:
            (node,) = await self._records.nodes([path], watch=lambda _path: self._changed.set())
            return (
                AutoRecoverySwitch()
                if node is None
                else decode_record(node.data, AutoRecoverySwitch, path)
            )
        except CorruptData as error:
            _log.error(
                "the switch of auto-recovery cannot be read, and stays as it was", exception=error
            )
            return self.now

    def _take(self, found: AutoRecoverySwitch) -> None:
        before, self.now = self.now, found
        if found.off_since_ms:
            self._on.clear()
            if not before.off_since_ms:
                _log.warning("auto-recovery is off", reason=self.off_reason)
        else:
            self._on.set()
            if before.off_since_ms:
                _log.info("auto-recovery is on again")
        if found != before:
            self._on_change()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._changed.set()
