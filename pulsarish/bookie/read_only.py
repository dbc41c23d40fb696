"""Whether an operator has set this bookie read-only, or cordoned volumes of it, as the metadata say
and the bookie follows.

A read-only bookie refuses what writers add, so that they replace it in their ensembles, and no new
ledger gets it. It answers reads and fences, and takes what recovery and repair write. Nothing else
changes: above all the grace time of its trash goes on, which a nearly full disk ends (rule 13).

A cordoned volume takes no new ledgers; those that lie there go on. The ledgers of a volume that is
drained are to leave the bookie (``VolumeDrains``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import CordonedVolumes, ReadOnlyBookie
from pulsarish.model.errors import CorruptData, MetadataUnavailable
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock, SessionState
from pulsarish.wire.json_record import decode_record

__all__ = ["OperatorReadOnly"]

_log = get_logger("bookie.read_only")
_RETRY_SECONDS: Final = 1.0


class OperatorReadOnly:
    """The requests of operators for one bookie. Call ``read``, then run ``follow`` as a task.

    Args:
        on_change: called when ``reason``, ``cordoned`` or ``draining`` has changed.
    """

    def __init__(
        self, records: Records, clock: Clock, instance_id: str, on_change: Callable[[], None]
    ) -> None:
        self.reason = ""
        """Why the bookie is read-only, and what helps; empty: no operator asked for it."""
        self.cordoned: Mapping[str, str] = {}
        """Why volumes are cordoned, by their names."""
        self.draining: Sequence[str] = ()
        """The names of the volumes that are drained."""
        self._records = records
        self._clock = clock
        self._path = paths.read_only_bookie(instance_id)
        self._cordoned_path = paths.cordoned_volumes(instance_id)
        self._on_change = on_change
        self._changed = asyncio.Event()
        self._stopped = False
        records.listen(self._session_changed)

    def stop(self) -> None:
        self._stopped = True
        self._changed.set()

    async def read(self) -> None:
        """Read the requests, and watch for their next change.

        A request that cannot be read changes nothing. Raises ``MetadataUnavailable``.
        """
        node, cordoned_node = await self._records.nodes(
            [self._path, self._cordoned_path], watch=lambda _path: self._changed.set()
        )
        before = self.reason, self.cordoned, self.draining
        try:
            self.reason = (
                "" if node is None else _words(decode_record(node.data, ReadOnlyBookie, self._path))
            )
        except CorruptData as error:
            _log.error("the request to be read-only cannot be read", exception=error)
        try:
            found = (
                CordonedVolumes("", "")
                if cordoned_node is None
                else decode_record(cordoned_node.data, CordonedVolumes, self._cordoned_path)
            )
            self.cordoned, self.draining = found.volumes, found.draining
        except CorruptData as error:
            _log.error("the request to cordon volumes cannot be read", exception=error)
        if (self.reason, self.cordoned, self.draining) != before:
            _log.warning(
                "an operator changed what the bookie takes",
                reason=self.reason or "the bookie is not set read-only",
                cordoned_volumes=len(self.cordoned),
                draining_volumes=len(self.draining),
            )
            self._on_change()

    async def follow(self) -> None:
        while not self._stopped:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.read()
            except MetadataUnavailable as error:
                _log.debug("the requests of operators are read again", reason=error)
                self._changed.set()
                await self._clock.sleep(_RETRY_SECONDS)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._changed.set()


def _words(found: ReadOnlyBookie) -> str:
    why = f" ({found.reason})" if found.reason else ""
    return (
        f"an operator set it read-only{why}; to end that: pulsarish bookies set-writable "
        f"{found.bookie_id}"
    )
