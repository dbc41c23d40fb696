"""Have the ledgers of a volume leave the bookie, so that nothing that lives is left in the volume.

An operator cordons the volume and asks for its drain. The bookie then publishes the closed ledgers
that lie there and name it, a few at a time, as ledgers that it is to leave. Auto-recovery copies
them to other bookies and names those instead. What is left in the volume are stray copies, which
garbage collection deletes as ever (``StrayCopies``).

A ledger that is not closed stays until its writer closes it, or until it is recovered: before that
its record may not name every bookie to which the writer, or a client that recovers it, has written.
The state of the drain names it and says what ends it.

Nothing of this is stored here: a bookie that restarts looks again.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pulsarish.bookie.ledger_index import ROWS_MAX
from pulsarish.bookie.store import EntryStore
from pulsarish.bookie.volume import Volume
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import UnderReplicated
from pulsarish.model.errors import BookieIOError, CorruptData, MetadataUnavailable
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState, PurposeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock

__all__ = ["DrainState", "VolumeDrains", "how_to_close", "local_ledgers"]

_log = get_logger("bookie.volume_drains")
_LEAVING_MAX: Final = 200
"""Ledgers of a volume that are published at a time. They still leave after an ``uncordon``."""
_LOOK_SECONDS: Final = 2.0
_PAUSE_FACTOR: Final = 5
"""A look at very many ledgers takes long, so the pause grows with it."""
_SHOWN_MAX: Final = 20


@dataclass(slots=True)
class DrainState:
    """How far the drain of a volume is."""

    is_draining: bool = False
    has_looked: bool = False
    """Whether all ledgers were looked at since the drain was asked for."""
    closed_ledgers: int = 0
    """Closed ledgers that name the bookie."""
    open_ledgers: int = 0
    """Ledgers that are not closed, and those whose record cannot be read."""
    waiting: dict[int, str] = field(default_factory=dict)
    """Some of both, and what each waits for."""
    failure: str = ""
    """Why the last look failed."""

    @property
    def is_drained(self) -> bool:
        return self.has_looked and not self.closed_ledgers and not self.open_ledgers

    def waits(self, ledger_id: int, reason: str) -> None:
        if len(self.waiting) < _SHOWN_MAX:
            self.waiting[ledger_id] = reason

    def is_damaged(self, ledger_id: int, error: CorruptData) -> None:
        """Count a ledger with a record that cannot be read, and name it before all others."""
        self.open_ledgers += 1
        if len(self.waiting) >= _SHOWN_MAX:
            _ = self.waiting.popitem()
        words = f"{error}. Put the metadata back from a backup: pulsarish metadata restore"
        self.waiting = {ledger_id: words, **self.waiting}


class VolumeDrains:
    """The drains of a bookie's volumes. Run ``run`` as a task.

    Args:
        ledgers: does not write to metadata that came back older.
    """

    def __init__(
        self, volumes: Sequence[Volume], records: Records, ledgers: LedgerStore, clock: Clock
    ) -> None:
        self._volumes = volumes
        self._records = records
        self._ledgers = ledgers
        self._clock = clock
        self._states: dict[str, DrainState] = {}
        self._changed = asyncio.Event()

    def follow(self, draining: Sequence[str]) -> None:
        """Drain the volumes with these names, and no other."""
        self._states = {
            volume.name: self._states.get(volume.name, DrainState(is_draining=True))
            for volume in self._volumes
            if volume.name in draining
        }
        self._changed.set()

    def state(self, directory: str) -> DrainState | None:
        """Return how far the drain of the volume with this ledger directory is.

        ``None``: there is no such volume.
        """
        for volume in self._volumes:
            if volume.config.ledger_path == directory:
                return self._states.get(volume.name, DrainState())
        return None

    async def run(self) -> None:
        while True:
            began = self._clock.monotonic()
            for volume in self._volumes:
                if volume.name in self._states and volume.failure is None:
                    await self._look_at(volume)
            took = self._clock.monotonic() - began
            pause = max(_LOOK_SECONDS, _PAUSE_FACTOR * took) if self._states else None
            try:
                async with self._clock.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                continue
            self._changed.clear()

    async def _look_at(self, volume: Volume) -> None:
        before = self._states[volume.name]
        try:
            found = await self._look(volume)
        except (MetadataUnavailable, BookieIOError) as error:
            before.failure = str(error)
            _log.warning("a volume is drained later", volume=volume.where, reason=error)
            return
        if self._states.get(volume.name) is not before:
            return  # it ended, or began again
        if found.is_drained and not before.is_drained:
            _log.info("a volume is drained", volume=volume.where)
        self._states[volume.name] = found

    async def _look(self, volume: Volume) -> DrainState:
        """Look at all ledgers of a volume, and publish some that are to leave the bookie.

        Raises ``MetadataUnavailable``, ``BookieIOError``.
        """
        member = volume.store.instance_id
        found = DrainState(is_draining=True, has_looked=True)
        asked: list[int] = []
        local = await local_ledgers(volume.store)
        # Answers from a node that lags would show ledgers as they were.
        await self._records.sync(paths.LEDGERS)
        for first in range(0, len(local), ROWS_MAX):
            page = local[first : first + ROWS_MAX]
            rows = await self._records.get_each(list(map(paths.ledger, page)), LedgerMetadata)
            left: list[LedgerMetadata] = []
            for ledger_id, row in zip(page, rows, strict=True):
                if isinstance(row, CorruptData):
                    found.is_damaged(ledger_id, row)
                elif row is not None and _holds_up(row[0], member):
                    left.append(row[0])
            published = await self._records.get_each(
                [paths.underreplicated(each.ledger_id) for each in left], UnderReplicated
            )
            for metadata, repair in zip(left, published, strict=True):
                if isinstance(repair, CorruptData):
                    found.is_damaged(metadata.ledger_id, repair)
                    continue
                if metadata.state is not LedgerState.CLOSED:
                    found.open_ledgers += 1
                    found.waits(metadata.ledger_id, how_to_close(metadata))
                    continue
                found.closed_ledgers += 1
                if repair is not None and member in repair[0].leaving_members:
                    asked.append(metadata.ledger_id)
                    found.waits(
                        metadata.ledger_id, repair[0].reason or "auto-recovery is to copy it"
                    )
                elif len(asked) < _LEAVING_MAX and volume.name in self._states:
                    asked.append(metadata.ledger_id)
                    try:
                        await self._ledgers.publish_leaving(metadata.ledger_id, member)
                    except CorruptData as error:
                        found.is_damaged(metadata.ledger_id, error)
                        continue
                    found.waits(metadata.ledger_id, "auto-recovery is to copy it")
        return found


def _holds_up(metadata: LedgerMetadata, member: str) -> bool:
    return metadata.state is not LedgerState.CLOSED or any(
        member in segment.members for segment in metadata.segments
    )


def how_to_close(metadata: LedgerMetadata) -> str:
    """Return what has an open ledger closed."""
    words = "it is not closed yet: wait until its writer begins another ledger"
    kind, owner = metadata.purpose.kind, metadata.purpose.owner
    if kind not in (PurposeKind.TOPIC, PurposeKind.CURSOR):
        return f"{words} ({kind} {owner})"
    topic = owner if kind is PurposeKind.TOPIC else owner.partition("#")[0]
    return f"{words}, or have that now: pulsarish topics unload {shlex.quote(topic)}"


async def local_ledgers(store: EntryStore) -> list[int]:
    """Return all ledgers that a store has, in order. Raises ``BookieIOError``."""
    found: list[int] = []
    more = True
    while more:
        page, more = await store.list_ledgers(found[-1] if found else -1, ROWS_MAX)
        found += page
    return found
