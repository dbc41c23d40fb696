"""The journal position that the metadata know, with which a bookie detects a disk that came back
older (rule 7).

A disk that was put back as a whole, a snapshot of a virtual machine for example, agrees with
itself: journal, mark, index and cookie. Only a record stored elsewhere shows that something is
missing. So a bookie notes in its cookie in the metadata below which record its journal is durable:
before it registers, when it stops, and at intervals while records are added. It does not start on a
journal that ends before that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from pulsarish.bookie.store import EntryStore
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import Cookie
from pulsarish.model.errors import CorruptData, MetadataUnavailable
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock

__all__ = ["JournalPosition"]

_log = get_logger("bookie.journal_position")
_LAST_SECONDS: Final = 1.0
"""The longest time that a stopping bookie waits for the metadata."""


class JournalPosition:
    """Keep the journal's position in the metadata. Run ``watch`` as a task.

    Args:
        records: does not write to metadata that came back older.
        cookie: as the metadata had it when the bookie started.
        volume: the store's, of a bookie with several.
        lost: returns the names of the volumes that all others know durably as lost.
    """

    def __init__(
        self,
        records: Records,
        clock: Clock,
        store: EntryStore,
        cookie: Cookie,
        *,
        volume: str | None = None,
        lost: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._records = records
        self._clock = clock
        self._store = store
        self._cookie = cookie
        # without the probes since the start, which hold no entries
        self._volume = volume
        self._lost = lost
        self._stored = (
            cookie.journal_position if volume is None else cookie.volumes[volume].journal_position
        )
        self._is_noted = volume is None or cookie.volumes[volume].is_opened
        self._limbo_times = cookie.limbo_times

    async def store(self) -> None:
        """Note what is durable now; an idle bookie writes nothing.

        Raises ``MetadataUnavailable``.
        """
        position, times = self._store.journal.queue.synced_sequence, self._store.limbo.times
        added = position - self._store.counters.probes
        if added <= self._stored and times <= self._limbo_times and self._is_noted:
            return
        lost = self._lost()

        def raised(cookie: Cookie | None) -> Cookie | None:
            if cookie is None or cookie.instance_id != self._cookie.instance_id:
                return None  # the bookie was decommissioned
            if self._volume is None:
                return msgspec.structs.replace(
                    cookie,
                    journal_position=max(position, cookie.journal_position),
                    limbo_times=max(times, cookie.limbo_times),
                )
            volumes = {
                name: msgspec.structs.replace(record, is_lost=record.is_lost or name in lost)
                for name, record in cookie.volumes.items()
            }
            # An older cookie, which was put back, may not have it.
            mine = volumes.get(self._volume, self._cookie.volumes[self._volume])
            volumes[self._volume] = msgspec.structs.replace(
                mine, journal_position=max(position, mine.journal_position), is_opened=True
            )
            return msgspec.structs.replace(
                cookie, volumes=volumes, limbo_times=max(times, cookie.limbo_times)
            )

        path = paths.cookie(self._cookie.bookie_id)
        try:
            _ = await self._records.update(path, Cookie, raised)
        except CorruptData as error:
            _log.error(
                "the position of the journal is not stored, because the cookie in the metadata "
                "cannot be read",
                reason=error,
            )
            return
        self._stored, self._limbo_times, self._is_noted = added, times, True

    async def watch(self, interval_seconds: float) -> None:
        """Store the position every ``interval_seconds``."""
        while True:
            await self._clock.sleep(interval_seconds)
            try:
                await self.store()
            except MetadataUnavailable as error:
                _log.debug("journal position not stored yet", reason=error)

    async def store_last(self) -> None:
        """Store the position after the last add, if the metadata answer soon."""
        try:
            async with self._clock.timeout(_LAST_SECONDS):
                await self.store()
        except (MetadataUnavailable, TimeoutError) as error:
            _log.warning(
                "the last position of the journal is not stored in the metadata", reason=error
            )
