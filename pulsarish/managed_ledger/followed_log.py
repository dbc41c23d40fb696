"""A topic's log on a broker that does not own the topic, for readers.

It follows the owner and takes no part in ownership: it opens ledgers without recovery, so it fences
nothing, and writes nothing.

* It knows entries up to the last confirmed one that the bookies know (rule 3), by long polls.
  The owner's writer tells bookies with the next entry, or after ``explicit_lac_interval_ms``.
* The topic's record names the next ledger once the last one is closed. What a closed ledger holds
  is decided and never changes, so an owner's change looks like any other new ledger.
* While the metadata service is away, it follows the ledger that it has open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.reader import LedgerReader
from pulsarish.managed_ledger.chain import Chain, Link
from pulsarish.managed_ledger.cursors.cursor import Cursor, mark_before
from pulsarish.managed_ledger.cursors.cursor_core import CursorCore
from pulsarish.managed_ledger.entry_caches import EntryCaches
from pulsarish.managed_ledger.log_reader import LogReader
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.managed_ledger.readable_log import ReadableLog
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import TopicRecord
from pulsarish.model.ack_ranges import AckRanges
from pulsarish.model.errors import (
    MetadataUnavailable,
    NoSuchLedger,
    PulsarishError,
    ServiceNotReady,
    TopicNotFound,
)
from pulsarish.model.ledger_metadata import LedgerState
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.backoff import Backoff
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["FollowedLog"]

_log = get_logger("managed_ledger.followed")

_ROUND_SECONDS: Final = 1.0
"""How often the topic's record and the open ledger's metadata are read: so late is a new owner
noticed.
"""
_PAUSE_SECONDS: Final = 0.02
"""Between two polls of a ledger that grows."""
_RECORD_SECONDS_MIN: Final = 0.05


class FollowedLog(ReadableLog):
    """Made by ``open``. ``follow`` runs until ``stop``, or until ``ended`` says why it stopped.

    Args:
        grew: called when more entries may be read, and when the log has ended.
        trimmed: called with the last position that was trimmed.
    """

    def __init__(
        self,
        name: TopicName,
        record: TopicRecord,
        ledgers: LedgerClient,
        records: Records,
        world: World,
        caches: EntryCaches,
        *,
        grew: Callable[[], None],
        trimmed: Callable[[Position], None],
    ) -> None:
        chain = Chain((), record.lost)
        reader = LogReader(chain, ledgers.open_no_recovery, caches, self._current_reader)
        super().__init__(chain, ledgers, reader)
        self._name = name
        self._record = record
        self._records = records
        self._world = world
        self._grew = grew
        self._trimmed = trimmed
        self._open: LedgerReader | None = None
        self.ended: PulsarishError | None = None
        self.failure = ""
        """Why the log cannot be followed now; empty while it can."""
        self._complete_at = world.clock.monotonic()
        self._take(record)

    @classmethod
    async def open(
        cls,
        name: TopicName,
        ledgers: LedgerClient,
        records: Records,
        world: World,
        caches: EntryCaches,
        *,
        grew: Callable[[], None],
        trimmed: Callable[[Position], None],
    ) -> FollowedLog:
        """Open the log up to its present end.

        Raises ``TopicNotFound``, ``MetadataUnavailable``, ``NotEnoughBookies``.
        """
        record = await _read(records, name)
        log = cls(name, record, ledgers, records, world, caches, grew=grew, trimmed=trimmed)
        if log._chain.current is not None:
            await log._look(wait_seconds=0.0)
        return log

    @property
    def name(self) -> TopicName:
        return self._name

    @property
    def terminated(self) -> bool:
        return self._record.terminated and self._chain.current is None

    @property
    def highest_ledger(self) -> int:
        return self._record.highest_ledger

    @property
    def lag_seconds(self) -> float:
        """Seconds since a time at which nothing was confirmed that is not known here.

        Confirmed is what bookies know to be. About a second while the log is followed.
        """
        return self._world.clock.monotonic() - self._complete_at

    async def why_beyond(self, position: Position) -> PulsarishError:
        """Return the error for a position beyond the log: the owner may know more."""
        return ServiceNotReady(
            f"position {position} is beyond what this broker knows of {self.name}, up to "
            f"{self.last_confirmed}"
        )

    def cursor(self, name: str, initial: Position, options: ManagedLedgerOptions) -> Cursor:
        """Return a cursor in memory from which delivery begins at ``initial``."""
        chain = self._chain
        core = CursorCore(AckRanges(mark_before(chain, initial), chain.next_position), {})
        cursor = Cursor(name, core, chain, self._world, options, None, self.stop, {})
        cursor.asked_for(initial)
        return cursor

    # -- following

    async def follow(self) -> None:
        """Follow the log until it ends here."""
        backoff = Backoff(_RECORD_SECONDS_MIN, _ROUND_SECONDS)
        while self.ended is None:
            before = self.last_confirmed
            began = self._world.clock.monotonic()
            try:
                try:
                    await self._learn(began)
                    self.failure = ""
                except MetadataUnavailable as error:
                    # The next ledger cannot be found, but bookies tell how far this one reaches.
                    self._note(error)
                await self._poll_for_a_round()
            except PulsarishError as error:
                if not error.retryable:
                    self.stop(error)
                    return
                self._note(error)
                await self._world.clock.sleep(backoff.next_seconds())
            else:
                if self.last_confirmed == before and self._open is None:
                    await self._world.clock.sleep(backoff.next_seconds())
            if self.last_confirmed != before:
                backoff.reset()

    def _note(self, error: PulsarishError) -> None:
        if not self.failure:
            _log.warning("the log cannot be followed now", topic=self.name, reason=error)
        self.failure = f"{type(error).__name__}: {error}"

    async def _learn(self, began: float) -> None:
        """Read the topic's record and the open ledger's metadata, from ``began`` on."""
        self._take(await _read(self._records, self.name))
        if self._chain.current is not None:
            await self._look(wait_seconds=0.0)
            if self._open is None:
                return
        # A ledger that is still open is the newest one.
        self._complete_at = began

    async def _poll_for_a_round(self) -> None:
        """Poll the open ledger for entries, which takes no metadata."""
        clock = self._world.clock
        until = clock.monotonic() + _ROUND_SECONDS
        while self._open is not None and (left := until - clock.monotonic()) > 0:
            before = self.last_confirmed
            await self._look(wait_seconds=left)
            if self.last_confirmed != before:
                await clock.sleep(_PAUSE_SECONDS)

    def stop(self, error: PulsarishError) -> None:
        """Stop following, and forget what was cached."""
        if self.ended is None:
            self.ended = error
            self._reader.close()
            self._grew()

    def _current_reader(self) -> LedgerReader:
        if self._open is None:
            raise ServiceNotReady(f"the newest ledger of {self.name} is being opened; try again")
        return self._open

    async def _look(self, *, wait_seconds: float) -> None:
        """Learn how far the open ledger reaches, and whether it was closed.

        Without a wait the ledger's metadata are read, too. Raises as ``LedgerReader.refresh``.
        """
        link = self._chain.current
        assert link is not None
        try:
            if self._open is None:
                self._open = await self._ledgers.open_no_recovery(link.ledger_id)
            reader = self._open
            last = await (reader.poll(wait_seconds) if wait_seconds else reader.refresh())
        except NoSuchLedger:
            self._deleted(link, await _read(self._records, self.name))
            return
        has_grown = last >= link.entries
        if has_grown:
            self._chain.grow(last + 1 - link.entries, 0)
        if reader.metadata.state is LedgerState.CLOSED:
            self._close(link, reader.length_bytes)
        if has_grown:
            self._grew()

    def _close(self, link: Link, size_bytes: int) -> None:
        self._chain.grow(0, size_bytes - link.size_bytes)
        self._chain.close_current(self._world.clock.wall_ms())
        self._open = None

    def _deleted(self, link: Link, record: TopicRecord) -> None:
        """Handle an open ledger that is gone: its owner found it empty, or it was trimmed."""
        if any(each.ledger_id == link.ledger_id for each in record.ledgers):
            raise ServiceNotReady(
                f"ledger {link.ledger_id} of {self.name} does not exist and is in its record"
            )
        self._close(link, link.size_bytes)
        if not link.entries:
            self._chain.drop_last()
        self._take(record)

    def _take(self, record: TopicRecord) -> None:
        """Take over what the topic's record says: ledgers behind the last closed one, and which
        were trimmed.

        Raises ``TopicNotFound`` for another topic of the same name, and ``ServiceNotReady`` when
        an operator has skipped lost entries; then readers must begin again.
        """
        before, chain = self._record, self._chain
        if before.incarnation not in ("", record.incarnation):
            raise TopicNotFound(f"topic {self.name} was deleted and made again; subscribe again")
        if record.lost != before.lost:
            self.stop(ServiceNotReady(f"lost entries of {self.name} were skipped; subscribe again"))
            return
        self._record, end = record, chain.last_position()
        known = chain.links[-1].ledger_id if chain.links else -1
        if chain.current is None:
            for ledger in record.ledgers:
                if ledger.ledger_id > known:
                    times_ms = ledger.own_times_ms if ledger.closed_ms else -1
                    chain.open_ledger(ledger.ledger_id, times_ms)
                    if ledger.closed_ms:
                        chain.grow(ledger.entries, ledger.size_bytes)
                        chain.close_current(ledger.closed_ms)
        kept = record.ledgers[0].ledger_id if record.ledgers else known + 1
        gone = [link for link in chain.links if link.ledger_id < kept and link.closed_ms]
        if gone:
            last = gone[-1].last_position
            for ledger_id in chain.drop_first(len(gone)):
                self._reader.forget(ledger_id)
            self._trimmed(last)
        if chain.last_position() != end or record.terminated != before.terminated:
            self._grew()


async def _read(records: Records, name: TopicName) -> TopicRecord:
    found = await records.get(paths.topic(name), TopicRecord)
    if found is None or found[0].deleted:
        raise TopicNotFound(f"topic {name} does not exist")
    return found[0]
