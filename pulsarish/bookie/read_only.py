"""Whether an operator has set this bookie read-only, as the metadata say and the bookie follows.

A read-only bookie refuses what writers add, so that they replace it in their ensembles, and no new
ledger gets it. It answers reads and fences, and takes what recovery and repair write. Nothing else
changes: above all the grace time of its trash goes on, which a nearly full disk ends (rule 13).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import ReadOnlyBookie
from pulsarish.model.errors import CorruptData, MetadataUnavailable
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock, SessionState
from pulsarish.wire.json_record import decode_record

__all__ = ["OperatorReadOnly"]

_log = get_logger("bookie.read_only")
_RETRY_SECONDS: Final = 1.0


class OperatorReadOnly:
    """The operator's request for one bookie instance. Call ``read``, then run ``follow`` as a task.

    Args:
        on_change: called when ``reason`` has changed.
    """

    def __init__(
        self, records: Records, clock: Clock, instance_id: str, on_change: Callable[[], None]
    ) -> None:
        self.reason = ""
        """Why the bookie is read-only, and what helps; empty: no operator asked for it."""
        self._records = records
        self._clock = clock
        self._path = paths.read_only_bookie(instance_id)
        self._on_change = on_change
        self._changed = asyncio.Event()
        self._stopped = False
        records.listen(self._session_changed)

    def stop(self) -> None:
        self._stopped = True
        self._changed.set()

    async def read(self) -> None:
        """Read the request, and watch for its next change.

        A record that cannot be read changes nothing. Raises ``MetadataUnavailable``.
        """
        (node,) = await self._records.nodes([self._path], watch=lambda _path: self._changed.set())
        try:
            found = None if node is None else decode_record(node.data, ReadOnlyBookie, self._path)
        except CorruptData as error:
            _log.error("the request to be read-only cannot be read", exception=error)
            return
        before, self.reason = self.reason, "" if found is None else _words(found)
        if self.reason != before:
            _log.warning(
                "an operator changed what the bookie takes",
                reason=self.reason or "the bookie is to be writable",
            )
            self._on_change()

    async def follow(self) -> None:
        while not self._stopped:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.read()
            except MetadataUnavailable as error:
                _log.debug("the request to be read-only is read again", reason=error)
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
