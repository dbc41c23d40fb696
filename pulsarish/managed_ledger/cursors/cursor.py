"""A subscription's position in a topic.

An acknowledgement changes memory at once. ``flush`` makes it durable, in one write for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.cursors.cursor_core import CursorCore
from pulsarish.managed_ledger.cursors.cursor_store import CursorStore
from pulsarish.managed_ledger.cursors.delay_ledgers import DelayLedgers
from pulsarish.managed_ledger.cursors.holes import Hole, count_holes, holes_between
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.model.ack_ranges import AckedRange
from pulsarish.model.errors import InvalidPosition, PulsarishError, TopicFenced
from pulsarish.model.position import EARLIEST, Position
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["Cursor", "mark_before"]

_log = get_logger("managed_ledger.cursor")


def mark_before(chain: Chain, position: Position) -> Position:
    """Return the mark-delete position for delivery to begin at ``position``, or at the nearest
    entry that is or will be there.
    """
    if position > chain.last_position():
        return chain.last_position()
    first = max(position, chain.first_position())
    return Position(first.ledger_id, max(first.entry_id, 0) - 1)


class Cursor:
    """A cursor.

    Made by ``ManagedLedger.open_cursor``. Without a store it is not durable and lives in memory.
    """

    def __init__(
        self,
        name: str,
        core: CursorCore,
        chain: Chain,
        world: World,
        options: ManagedLedgerOptions,
        store: CursorStore | None,
        fence: Callable[[PulsarishError], None],
        subscription_properties: Mapping[str, str],
    ) -> None:
        """``subscription_properties``: those of a cursor without a store, which keeps them only
        here.
        """
        self.name = name
        self._core = core
        self._chain = chain
        self._clock = world.clock
        self._tasks = world.tasks
        self._options = options
        self._store = store
        self._fence = fence
        self._subscription_properties = dict(subscription_properties)
        self.trimmed_positions = 0
        """How often the cursor's position had been trimmed, so that delivery continued at the first
        kept entry. Counted in memory.
        """
        self._ended: PulsarishError | None = None
        self.delay_ledgers = (
            None if store is None else DelayLedgers(store, lambda: self._ended, fence)
        )
        """Where buckets of delayed entries are; ``None``: the cursor is not durable."""
        # the present write; all callers that wait for it share its result
        self._round: asyncio.Future[None] | None = None
        self._flush_due = False
        self._not_durable_yet = ""  # why the last flush failed
        self._watching = False

    def use_options(self, options: ManagedLedgerOptions) -> None:
        self._options = options

    # -- state

    @property
    def durable(self) -> bool:
        return self._store is not None

    @property
    def mark_delete(self) -> Position:
        """The mark-delete position: everything up to here, inclusive, is acknowledged."""
        return self._core.acks.mark

    @property
    def persisted_mark_delete(self) -> Position:
        return self._core.persisted

    @property
    def safe_mark(self) -> Position:
        """The position above which nothing may be trimmed."""
        return self._core.safe_mark

    @property
    def properties(self) -> dict[str, int]:
        return dict(self._core.properties)

    @property
    def read_from(self) -> Position:
        """The first position to deliver after a (re)start."""
        return self._chain.next_position(self._core.acks.mark)

    @property
    def hole_count(self) -> int:
        """The number of acknowledged ranges and partly acknowledged batches above the mark-delete
        position.
        """
        return self._core.acks.hole_count

    @property
    def blocked(self) -> bool:
        """Whether there are too many holes to keep.

        Dispatch stops until some are filled (rule 16). Acknowledging continues.
        """
        acks, options = self._core.acks, self._options
        holes = acks.hole_count
        return holes > 0 and (
            holes >= options.max_unacked_ranges_to_persist
            or acks.memory_bytes >= options.max_unacked_ranges_bytes
        )

    @property
    def has_ledger(self) -> bool:
        return self._store is not None and self._store.has_ledger

    @property
    def ledger_id(self) -> int:
        """The id of the ledger that stores the cursor; -1: it is in metadata, or in memory only."""
        return self._store.ledger_id if self._store is not None else -1

    def acked_ranges(self, count: int) -> list[AckedRange]:
        """Return the first ``count`` ranges that are acknowledged above the mark-delete
        position.
        """
        return list(islice(self._core.acks.ranges(), count))

    def partly_acknowledged(self) -> Iterable[tuple[Position, int]]:
        """Iterate over the batches of which some messages are acknowledged, with the indexes that
        remain, as bits from the lowest.
        """
        return self._core.acks.batches()

    @property
    def parts(self) -> tuple[int, int]:
        """The number of batches of which some messages are acknowledged, and of messages that
        remain of them.
        """
        acks = self._core.acks
        return acks.batch_count, acks.batch_messages

    def backlog(self) -> int:
        """The number of entries of the log that are not acknowledged."""
        between = self._chain.entries_between(self._core.acks.mark, self._chain.last_position())
        return max(0, between - self._core.acks.entry_count)

    def entries_in_holes(self) -> int:
        """The number of entries below the highest acknowledged one that are not acknowledged."""
        acks = self._core.acks
        return max(0, self._chain.entries_between(acks.mark, acks.highest) - acks.entry_count)

    def holes(self, first: Position, last: Position) -> Iterator[Hole]:
        """Yield the runs of unacknowledged entries from ``first`` to ``last``, inclusive, in the
        order of the log.
        """
        return holes_between(self._core.acks, self._chain, first, last)

    def count_holes(self) -> int:
        """Return the number of runs of unacknowledged entries below the highest acknowledged entry.

        Costs a step for each ledger there.
        """
        return count_holes(self._core.acks, self._chain)

    @property
    def highest_acknowledged(self) -> Position:
        """The highest acknowledged entry."""
        return self._core.acks.highest

    @property
    def holes_bytes(self) -> int:
        """About what the acknowledgements above the mark-delete position take in memory."""
        return self._core.acks.memory_bytes

    def is_acknowledged(self, position: Position) -> bool:
        return self._core.acks.contains(position)

    def ack_set(self, position: Position) -> int | None:
        """Return the remaining indexes of a partly acknowledged batch, as bits from the lowest;
        ``None`` for any other entry.
        """
        return self._core.acks.remaining(position)

    @property
    def last_active_ms(self) -> int:
        """The wall clock time of the last noted use of the subscription, in milliseconds; 0:
        never.
        """
        return 0 if self._store is None else self._store.cell.record.last_active_ms

    @property
    def subscription_properties(self) -> dict[str, str]:
        """The properties that clients and operators have set on the subscription."""
        return (
            self._subscription_properties
            if self._store is None
            else self._store.cell.record.subscription_properties
        )

    async def set_subscription_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the subscription's properties, durably if the cursor is durable.

        Raises why the cursor has ended, ``TopicFenced``, ``MetadataUnavailable``.
        """
        store = self._store
        if store is None:
            self._subscription_properties = dict(properties)
            return
        async with store.lock:
            if self._ended is not None:
                raise self._ended
            try:
                await store.set_subscription_properties(properties)
            except TopicFenced as error:
                self._fence(error)
                raise

    async def note_active(self, now_ms: int) -> None:
        """Record durably that the subscription is in use.

        Raises ``TopicFenced``, ``MetadataUnavailable``.
        """
        store = self._store
        if store is None:
            return
        async with store.lock:
            if self._ended is not None:
                return
            try:
                await store.note_active(now_ms)
            except TopicFenced as error:
                self._fence(error)
                raise

    # -- acknowledging

    def acknowledge(self, positions: Sequence[Position]) -> None:
        """Acknowledge entries, in memory.

        Raises ``InvalidPosition`` for one that is not in the topic; then nothing changes (rule 18).
        """
        core = self._core
        for position in positions:
            self._check_position(position)
        for position in positions:
            core.acknowledge(position)
        self._changed()

    def acknowledge_cumulative(self, position: Position) -> None:
        """Acknowledge everything up to ``position``. Raises ``InvalidPosition``."""
        self._check_position(position)
        if self._core.acknowledge_cumulative(position):
            self._changed()

    def acknowledge_batch(
        self, position: Position, batch_size: int, indexes: Iterable[int]
    ) -> None:
        """Acknowledge some messages of a batch. Raises ``InvalidPosition``, ``InvalidArgument``."""
        self._check_position(position)
        if self._core.acknowledge_indexes(position, batch_size, indexes):
            self._changed()

    def _check_position(self, position: Position) -> None:
        # An entry at or below the mark-delete position may have been trimmed, and is acknowledged
        # anyway.
        if position > self._core.acks.mark and not self._chain.contains(position):
            raise InvalidPosition(
                f"position {position} is not in the log of this topic, or is not confirmed"
            )

    async def set_properties(self, properties: Mapping[str, int], position: Position) -> None:
        """Replace the properties and move the mark-delete position to ``position``, in one durable
        step.
        """
        self._check_position(position)
        self._core.set_properties(properties)
        self._core.acknowledge_cumulative(position)
        self._changed()
        await self.flush()

    def move(self, position: Position) -> None:
        """Seek: deliver from ``position`` on, inclusive; ``EARLIEST`` and ``LATEST`` are positions
        too. Durable after a ``flush``.
        """
        self.asked_for(position)
        self._core.reset(mark_before(self._chain, position))
        self._changed()

    def asked_for(self, position: Position) -> None:
        """Note where delivery was requested to begin.

        If that was trimmed, count and log that it begins at the first kept entry.
        """
        if EARLIEST < position < self._chain.first_position():
            self._passed_trimmed(position)

    def trimmed(self, last: Position) -> None:
        """Note that the log was trimmed up to ``last``.

        A cursor in memory that was behind moves to the first entry that is left.
        """
        if self.durable:
            return
        if self.mark_delete < last:
            self._passed_trimmed(self.mark_delete)
        self._core.acknowledge_cumulative(Position(self._chain.first_position().ledger_id, -1))

    def _passed_trimmed(self, position: Position) -> None:
        self.trimmed_positions += 1
        _log.warning(
            "position was trimmed, going on at the first entry kept",
            cursor=self.name,
            position=position,
            first=self._chain.first_position(),
        )

    # -- making it durable

    def _changed(self) -> None:
        if (
            self._store is None
            or self._flush_due
            or self._ended is not None
            or not self._core.dirty
        ):
            return
        self._flush_due = True
        _ = self._tasks.spawn(self._flush_later(), name=f"flush-cursor {self.name}")

    async def _flush_later(self) -> None:
        await self._clock.sleep(self._options.cursor_flush_interval_ms / 1000)
        self._flush_due = False
        if self._ended is not None:
            return
        try:
            await self.flush()
        except TopicFenced:
            return  # ``fence`` informs the topic and its clients
        except PulsarishError as error:
            if self._not_durable_yet != str(error):
                # Once for each reason: the metadata service may be away for hours.
                _log.warning("acknowledgements not durable yet", cursor=self.name, error=error)
            self._not_durable_yet = str(error)
        else:
            self._not_durable_yet = ""
        self._changed()

    async def flush(self) -> None:
        """Make everything durable that was acknowledged before the call.

        Raises ``TopicFenced`` when this owner has ended, or the retryable reason why it cannot be
        done now. Then the acknowledgements stay in memory, and a later flush includes them.
        """
        if self._store is None:
            return
        wanted = self._core.changes
        while self._core.stored < wanted:
            if self._ended is not None:
                raise self._ended
            if self._round is None:
                self._round = asyncio.get_running_loop().create_future()
                _ = self._tasks.spawn(
                    self._write_round(self._store, self._round), name=f"write-cursor {self.name}"
                )
            await asyncio.shield(self._round)

    async def _write_round(self, store: CursorStore, done: asyncio.Future[None]) -> None:
        error: BaseException | None = None
        try:
            async with store.lock:
                if self._ended is None:
                    await store.write(self._core)
        except PulsarishError as found:
            error = found
            if isinstance(found, TopicFenced):
                self._fence(found)
        except BaseException as found:
            error = TopicFenced(f"cursor {self.name} failed on this broker: {found!r}")
            raise
        finally:
            self._round = None
            if error is not None:
                done.set_exception(error)
                done.exception()  # retrieved here: only the timed flush may be waiting
            else:
                done.set_result(None)
        if store.has_ledger and not self._watching:
            self._watching = True
            _ = self._tasks.spawn(self._watch_idle(store), name=f"idle-cursor {self.name}")

    async def _watch_idle(self, store: CursorStore) -> None:
        """Give up the cursor ledger when nothing was written for long, so that an idle topic costs
        nothing. Runs while there is one.
        """
        idle = self._options.cursor_idle_seconds
        while True:
            await self._clock.sleep(max(idle - (self._clock.monotonic() - store.last_write), 0.001))
            async with store.lock:
                if not store.has_ledger:
                    break
                if self._clock.monotonic() - store.last_write < idle:
                    continue
                try:
                    await store.settle_down(self._core)
                except TopicFenced as error:
                    self._fence(error)
                    break
                except PulsarishError as error:
                    _log.warning(
                        "an idle cursor keeps its ledger for now", cursor=self.name, error=error
                    )
                break  # given up, or too large for the node; the next write starts this watch again
        self._watching = False

    # -- the end

    def end(self, error: PulsarishError) -> None:
        """Stop all writes, because the owner has ended or the cursor is deleted."""
        if self._ended is None:
            self._ended = error
            if self._store is not None:
                self._store.abandon()

    async def close(self) -> None:
        """Make everything durable, in the node if it fits.

        Raises as ``flush``. The cursor has ended in any case.
        """
        store = self._store
        if store is None or self._ended is not None:
            return
        try:
            async with store.lock:
                self._ended = TopicFenced(f"cursor {self.name} was closed on this broker")
                await store.close(self._core)
        finally:
            store.abandon()
