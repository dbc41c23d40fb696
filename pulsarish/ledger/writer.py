"""The writer of one ledger.

``append`` only queues. In the next turn of the loop all waiting entries are encoded and handed to
the bookies as one batch, as far as the window (rule 3) and the bookies' queues have room. The rest
waits here for confirmations. The only work for a single entry is its head and its checksum. The
listener gets confirmations as "everything up to here".
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from pulsarish.ledger.bookie_pool import BookiePool
from pulsarish.ledger.ledger_store import LedgerStore
from pulsarish.ledger.options import LedgerOptions
from pulsarish.ledger.replicator import Replicator
from pulsarish.ledger.writer_condition import WriterCondition
from pulsarish.ledger.writer_core import Change, WriterCore
from pulsarish.metadata import paths
from pulsarish.model.errors import LedgerClosed, LedgerFenced, MetadataUnavailable, PulsarishError
from pulsarish.model.ledger_metadata import LedgerMetadata, LedgerState
from pulsarish.model.position import NO_ENTRY
from pulsarish.runtime.containment import Scope, ScopeKind
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Buffer, Conflict, Op, World
from pulsarish.wire.record import RECORD_HEAD_SIZE, encode_record_head

__all__ = ["LedgerWriter", "WriterListener"]

_log = get_logger("ledger")

_RETRY_SECONDS: Final = 1.0


class WriterListener(Protocol):
    """The owner of a writer. Called in the loop, in order, never from within ``append``."""

    def confirmed(self, last_entry: int) -> None:
        """Note that every entry up to this one, inclusive, is on the disks of Qa bookies."""
        ...

    def stopped(self, error: PulsarishError) -> None:
        """Handle the stop of the writer, once.

        The outcome of the adds that were not confirmed is unknown (rule 4).
        """
        ...


class WriterTicker(Protocol):
    """The creator of a writer, which calls the writer's ``tick``."""

    def on_writer_busy(self, writer: LedgerWriter) -> None:
        """Call the writer's ``tick`` from now on, until ``rests``."""

    def on_writer_ended(self, writer: LedgerWriter) -> None:
        """Handle the end of the writer. Called once."""


class LedgerWriter:
    """The writer of one ledger. Made by ``LedgerClient.create``.

    ``metadata`` was stored at ``version`` and names the first ensemble. The writer is the owner of
    its replicator, which makes the calls of ``replicator.Owner``.
    """

    __slots__ = (
        "_closing",
        "_core",
        "_drained",
        "_flush_due",
        "_idle_since",
        "_listener",
        "_loop",
        "_options",
        "_published_lac",
        "_replicator",
        "_restless",
        "_room",
        "_sent_length",
        "_store",
        "_ticker",
        "_unconfirmed_bytes",
        "_unpublished",
        "_version",
        "_waiting",
        "_world",
        "created_ms",
        "last_add_pushed",
        "ledger_id",
        "length_bytes",
    )

    def __init__(
        self,
        world: World,
        options: LedgerOptions,
        pool: BookiePool,
        store: LedgerStore,
        metadata: LedgerMetadata,
        version: int,
        listener: WriterListener,
        ticker: WriterTicker,
    ) -> None:
        self.ledger_id = metadata.ledger_id
        self.created_ms = metadata.created_ms
        self.last_add_pushed = NO_ENTRY
        self.length_bytes = 0
        """The sum of the payloads appended so far."""
        self._world = world
        self._options = options
        self._store = store
        self._version = version
        self._listener = listener
        self._ticker = ticker
        self._restless = False
        self._core = WriterCore(metadata)
        self._replicator = Replicator(world, options, pool, self._core, self, recovery=False)
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._flush_due = False
        self._sent_length = 0  # sum of the payloads handed to the bookies
        self._unconfirmed_bytes = 0  # payloads appended and not confirmed
        self._room: list[asyncio.Future[None]] = []
        self._closing = False
        self._drained: asyncio.Future[None] | None = None
        self._published_lac = NO_ENTRY
        self._idle_since = 0.0
        # members whose missing copies could not be published yet
        self._unpublished: tuple[str, ...] = ()

    # -- the interface

    @property
    def scope(self) -> Scope:
        """What a failure of this writer ends."""
        return Scope(ScopeKind.LEDGER, str(self.ledger_id), self.fail)

    @property
    def is_short(self) -> bool:
        """Whether the writer continues without a member that has left or failed, until this or
        another bookie is available.
        """
        return bool(self._core.missing)

    @property
    def metadata(self) -> LedgerMetadata:
        """The record as this writer last stored it."""
        return self._core.metadata

    def unchanged(self) -> Sequence[Op]:
        """Return checks for a commit that names the ledger, open or closed: it is refused when
        another process has changed or deleted the record.
        """
        return [Op("check", paths.ledger(self.ledger_id), version=self._version)]

    @property
    def last_add_confirmed(self) -> int:
        return self._core.confirmed

    @property
    def stopped(self) -> bool:
        return self._replicator.stopped_by is not None

    def append(self, payload: bytes) -> int:
        """Queue one entry. Return its id. Never blocks; ``has_room`` says when to wait.

        Raises ``LedgerClosed``, or the error that stopped the writer.
        """
        if self._closing or self._replicator.stopped_by is not None:
            raise self._replicator.stopped_by or LedgerClosed(f"ledger {self.ledger_id} is closed")
        self._waiting.append(payload)
        self.length_bytes += len(payload)
        self._unconfirmed_bytes += len(payload)
        self.last_add_pushed += 1
        if not self._flush_due:
            self._flush_soon()
        return self.last_add_pushed

    @property
    def has_room(self) -> bool:
        """Whether another append would be sent at once: the window has room (rule 3), and the
        bookies' queues are not crowded.
        """
        return (
            self.last_add_pushed - self._core.confirmed < self._options.window_entries
            and self._unconfirmed_bytes < self._options.window_bytes
            and not self._replicator.crowded
        )

    async def wait_for_room(self) -> None:
        """Wait until ``has_room``. Raises the error that stopped the writer, ``LedgerClosed``."""
        while not self.has_room:
            if self._closing or self._replicator.stopped_by is not None:
                raise self._replicator.stopped_by or LedgerClosed(
                    f"ledger {self.ledger_id} is closed"
                )
            future = self._loop.create_future()
            self._room.append(future)
            self._stir()
            await future

    async def close(self) -> LedgerMetadata:
        """Wait until the appended entries are confirmed, then close the ledger by compare-and-set.

        Raises ``LedgerFenced`` when the ledger is in recovery (recovery decides its end), the error
        that stopped the writer when that came first, and ``MetadataUnavailable`` when the outcome
        is unknown. In every case the writer has ended.
        """
        if self._closing or self._replicator.stopped_by is not None:
            raise self._replicator.stopped_by or LedgerClosed(
                f"ledger {self.ledger_id} is closed already"
            )
        self._closing = True
        if self._core.confirmed < self.last_add_pushed:
            self._drained = self._loop.create_future()
            await self._drained
        await self._replicator.unchanging()
        self._replicator.release()
        try:
            closed = await self._close_record()
        except PulsarishError as error:
            self._replicator.stop(error)
            raise
        self._end()
        return closed

    def abandon(self) -> None:
        """Stop without closing, because the owner lost the topic.

        Recovery by the next owner decides the ledger's end.

        The listener is not called any more.
        """
        if self._replicator.stopped_by is None:
            error = LedgerClosed(f"the writer of ledger {self.ledger_id} was abandoned")
            self._replicator.abandon(error)
            self._fail_waiters(error)
            self._end()

    def condition(self) -> WriterCondition:
        """The condition of this writer."""
        core = self._core
        return WriterCondition(
            core.metadata,
            core.confirmed,
            self.last_add_pushed,
            core.members,
            missing=tuple(core.members[index] for index in core.missing),
            silent=core.silent(),
            changing=core.changing,
            crowded=self._replicator.crowded,
        )

    # -- calls of the client

    def tick(self) -> None:
        """Called every ``check_interval_ms``."""
        self._replicator.mend()
        if self._room:
            self._replicator.look_for_crowd()
        self.progressed()

    def fail(self, error: BaseException) -> None:
        """Stop as if too few bookies were left, because something of this ledger failed in an
        unforeseen way.
        """
        self._replicator.fail(error)

    def found_fenced(self, member: str) -> None:
        """Stop, because a bookie answered that the ledger is fenced."""
        self._replicator.found_fenced(member)

    def rests(self) -> bool:
        """Whether a tick would do nothing until the writer calls ``on_writer_busy``.

        Most ledgers of a broker are idle.
        """
        core = self._core
        is_published = core.confirmed == self.last_add_pushed == self._published_lac
        busy = self._waiting or self._room or core.missing or core.failed or core.changing
        self._restless = not self.stopped and bool(busy or not is_published)
        return not self._restless

    def _stir(self) -> None:
        if not self._restless:
            self._restless = True
            self._ticker.on_writer_busy(self)

    def lac_due(self, now: float) -> bool:
        """Whether this ledger is idle and its records do not carry the last confirmed entry yet."""
        if (
            self.stopped
            or self._core.confirmed == self._published_lac
            or self._core.confirmed != self.last_add_pushed
        ):
            return False
        return (now - self._idle_since) * 1000 >= self._options.explicit_lac_interval_ms

    def lac_published(self, lac: int) -> None:
        self._published_lac = max(self._published_lac, lac)

    # -- sending

    def _flush_soon(self) -> None:
        self._flush_due = True
        self._stir()
        self._loop.call_soon(self._flush_contained)

    def _fitting(self) -> int:
        """Return how many of the waiting entries may be sent now.

        At most a quarter of a bookie's queue goes at once. The queues are shared with other ledgers
        and count as crowded when half full. A bookie whose queue overflows counts as failed. An
        entry that is larger than this goes alone.
        """
        options, core = self._options, self._core
        self._replicator.look_for_crowd()
        if self._replicator.crowded:
            return 0
        waiting, waiting_bytes = self._waiting, self.length_bytes - self._sent_length
        window_entries, window_bytes = (
            core.pushed - core.confirmed,
            self._unconfirmed_bytes - waiting_bytes,
        )
        room_entries = min(len(waiting), options.window_entries - window_entries)
        room_bytes = min(options.window_bytes - window_bytes, options.bookie_queue_bytes // 4)
        if room_entries == len(waiting) and waiting_bytes <= room_bytes:
            return room_entries
        count = 0
        while count < room_entries:
            room_bytes -= len(waiting[count])
            if room_bytes < 0 and (count or window_entries):
                break
            count += 1
        return count

    def _flush_contained(self) -> None:
        try:
            self._flush()
        except Exception as error:  # noqa: BLE001
            # Whatever it is, nothing is sent any more: callers must not wait for it.
            self._world.tasks.contain(f"flush of ledger {self.ledger_id}", error, self.scope)

    def _flush(self) -> None:
        self._flush_due = False
        if self._replicator.stopped_by is not None or not self._waiting:
            return
        count = self._fitting()
        if count == len(self._waiting):
            payloads, self._waiting = self._waiting, []
        elif count:
            payloads = self._waiting[:count]
            del self._waiting[:count]
            self._flush_soon()
        else:
            # A confirmation, room in a crowded queue, or the timer calls this again.
            return
        ledger_id, lac, length = self.ledger_id, self._core.confirmed, self._sent_length
        entry_id = self._core.pushed + 1
        parts: list[Buffer] = []
        sizes: list[int] = []
        for payload in payloads:
            size = len(payload)
            length += size
            parts.append(encode_record_head(ledger_id, entry_id, lac, length, payload))
            parts.append(payload)
            sizes.append(size + RECORD_HEAD_SIZE)
            entry_id += 1
        self._sent_length = length
        self._published_lac = lac
        self._replicator.push(parts, sizes)

    def confirmed(self, count: int, size_bytes: int) -> None:
        self._unconfirmed_bytes -= size_bytes - count * RECORD_HEAD_SIZE
        last = self._core.confirmed
        if last == self.last_add_pushed:
            self._idle_since = self._world.clock.monotonic()
            if self._drained is not None and not self._drained.done():
                self._drained.set_result(None)
        self._listener.confirmed(last)

    def progressed(self) -> None:
        if self._waiting and not self._flush_due:
            self._flush_soon()
        self._wake_room()

    def ended(self, error: PulsarishError) -> None:
        self._fail_waiters(error)
        self._end()
        self._listener.stopped(error)

    def _end(self) -> None:
        self._waiting.clear()
        self._ticker.on_writer_ended(self)

    def _wake_room(self) -> None:
        if self._room and self.has_room:
            waiting, self._room = self._room, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    def _fail_waiters(self, error: PulsarishError) -> None:
        waiting, self._room = self._room, []
        for future in waiting:
            if not future.done():
                # the waiter checks again and raises the error that stopped the writer
                future.set_result(None)
        if self._drained is not None and not self._drained.done():
            self._drained.set_exception(error)

    # -- metadata

    async def store_change(self, change: Change) -> LedgerMetadata:
        """Store an ensemble change by one compare-and-set, only while the ledger is open (rule 3).

        Repairs of earlier segments that auto-recovery stored meanwhile are merged.
        """
        # A member that failed after the last entry was confirmed leaves an idle ledger
        # under-replicated.
        self._stir()
        planned = change.planned
        while True:
            try:
                self._version = await self._store.store(
                    planned, self._version, change.missing_members
                )
            except Conflict:
                base = await self._reread()
                if base.last_segment == planned.last_segment:
                    return base
                if base.last_segment != self._core.metadata.last_segment:
                    raise LedgerFenced(
                        f"the members of ledger {self.ledger_id} were changed by another client"
                    ) from None
                planned = base.with_members(
                    planned.last_segment.first_entry, planned.last_segment.members
                )
            else:
                return planned

    async def _close_record(self) -> LedgerMetadata:
        base = self._core.metadata
        while True:
            closed = base.closed(self._core.confirmed, self._sent_length)
            try:
                self._version = await self._store.store(
                    closed, self._version, self._core.missing_members_after_close()
                )
            except Conflict:
                base = await self._reread()
                if base.last_segment != self._core.metadata.last_segment:
                    raise LedgerFenced(
                        f"the members of ledger {self.ledger_id} were changed by another client"
                    ) from None
            else:
                return closed

    async def _reread(self) -> LedgerMetadata:
        """Read the open record as it is now.

        Raises ``LedgerFenced`` when the ledger is not open any more.
        """
        found = await self._store.read_newest(self.ledger_id)
        if found is None:
            raise LedgerFenced(f"ledger {self.ledger_id} was deleted")
        metadata, self._version = found
        if metadata.state is not LedgerState.OPEN:
            raise LedgerFenced(
                f"ledger {self.ledger_id} is {metadata.state.value}: another client recovers or "
                "has recovered it"
            )
        return metadata

    def publish_missing(self, members: Sequence[str]) -> None:
        self._stir()
        is_tried_again = bool(self._unpublished)
        self._unpublished = tuple(dict.fromkeys([*self._unpublished, *members]))
        if not is_tried_again:
            _ = self._world.tasks.spawn(self._publish(), name=f"under-replicated-{self.ledger_id}")

    async def _publish(self) -> None:
        """Publish the shortage at once (rule 3).

        If the store is unreachable now, try until it is not: the members may be back by then, and
        the ledger closed, and nothing else knows what they lack.
        """
        reason = ""
        while self._unpublished:
            members, self._unpublished = self._unpublished, ()
            try:
                await self._store.publish_missing(self.ledger_id, members)
            except MetadataUnavailable as error:
                self._unpublished = tuple(dict.fromkeys([*self._unpublished, *members]))
                if reason != str(error):
                    # Once for each reason: the metadata service may be away for hours.
                    _log.warning(
                        "missing copies not published yet",
                        ledger=self.ledger_id,
                        members=members,
                        reason=error,
                    )
                reason = str(error)
                await self._world.clock.sleep(_RETRY_SECONDS)
