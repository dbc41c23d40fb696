"""The place where a cursor is stored: its node while it is small and quiet, a cursor ledger
otherwise, and the moves between the two.

Promises: the next owner that loads the cursor finds what was written. After that load the former
owner cannot write any more: recovery fences the cursor ledger, and every commit to the node is
refused once the topic's record has another version. The mark-delete position in the node is never
above the cursor's own, so that trimming may use it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from pulsarish.ledger.client import LedgerClient
from pulsarish.ledger.reader import LedgerReader
from pulsarish.ledger.writer import LedgerWriter, WriterListener
from pulsarish.managed_ledger.cursors.cursor_core import CursorCore
from pulsarish.managed_ledger.cursors.cursor_log import CursorLog, read_cursor_log
from pulsarish.managed_ledger.cursors.cursor_state import CursorImage, restore
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.managed_ledger.owned_record import OwnedRecord
from pulsarish.managed_ledger.owned_topic_record import OwnedTopicRecord
from pulsarish.metadata.records import CursorRecord
from pulsarish.model.errors import PulsarishError, ServiceNotReady, TopicFenced
from pulsarish.model.ledger_metadata import LedgerPurpose, PurposeKind
from pulsarish.model.position import Position
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Conflict, Op, World
from pulsarish.wire.json_record import encode_record

__all__ = ["CursorStore", "write_cursor_record"]

_log = get_logger("managed_ledger.cursor")


async def _guarded(
    topic: OwnedTopicRecord,
    commit: Callable[[Callable[[], Sequence[Op]]], Awaitable[object]],
    *,
    with_ops: Sequence[Op] = (),
) -> None:
    """Make a commit with the guards of the topic's record and ``with_ops``.

    Repeat it when only our own change of the record conflicted, or the lease was renewed meanwhile.

    Raises ``TopicFenced`` when another owner made the conflict, ``Conflict`` when ``with_ops`` are
    refused, and ``MetadataUnavailable`` when the outcome is unknown.
    """
    while True:
        used: list[int] = []
        lease = topic.lease

        def guards(used: list[int] = used) -> list[Op]:
            used.append(topic.version)
            return [*topic.guards(), *with_ops]

        try:
            await commit(guards)
        except Conflict as conflict:
            if conflict.index > len(topic.guards()):
                raise
            async with topic.lock:  # our own change to the topic's record may be in progress
                pass
            if conflict.index == 1 and topic.version != used[-1]:
                continue
            if conflict.index > 2 and topic.lease is not lease:
                continue
            raise TopicFenced(
                f"topic {topic.name} was opened or deleted by another broker: {conflict}"
            ) from conflict
        return


async def write_cursor_record(
    topic: OwnedTopicRecord,
    cell: OwnedRecord[CursorRecord],
    record: CursorRecord,
    *,
    with_ops: Sequence[Op] = (),
) -> None:
    """Store a cursor's record while this owner's version of the topic's record holds.

    Raises as ``_guarded``.
    """
    await _guarded(topic, lambda guards: cell.write(record, guards=guards), with_ops=with_ops)


class CursorStore:
    """The persistence of one durable cursor.

    The owner makes one call at a time, and uses ``lock`` for that.
    """

    def __init__(
        self,
        name: str,
        topic: OwnedTopicRecord,
        cell: OwnedRecord[CursorRecord],
        ledgers: LedgerClient,
        world: World,
        options: ManagedLedgerOptions,
    ) -> None:
        self.name = name
        self.cell = cell
        self.lock = asyncio.Lock()
        self.last_write = 0.0
        self._topic = topic
        self._ledgers = ledgers
        self._clock = world.clock
        self._options = options
        self._abandoned = False
        self._cursor_log: CursorLog | None = None
        self._node_writes: deque[float] = deque(maxlen=max(1, options.cursor_node_writes_max))
        # used only to test membership: their deletion is finished, the record still names them
        self._deleted: set[int] = set()
        # ledgers that a write with an unknown outcome has named as buckets
        self._doubtful: tuple[int, ...] = ()

    def use_options(self, options: ManagedLedgerOptions) -> None:
        self._options = options

    @property
    def _purpose(self) -> LedgerPurpose:
        return LedgerPurpose(PurposeKind.CURSOR, f"{self._topic.name.full}#{self.name}")

    @property
    def has_ledger(self) -> bool:
        return self._cursor_log is not None

    @property
    def ledger_id(self) -> int:
        """The id of the cursor ledger; -1 without one."""
        return self.cell.record.cursor_ledger if self.has_ledger else -1

    async def load(self, successor: Callable[[Position], Position]) -> CursorCore:
        """Load the stored state. This fences a cursor ledger.

        When the cursor ledger is unreadable for good, the cursor returns to the node's snapshot:
        messages are delivered again, and none is skipped. Raises the retryable errors of the ledger
        layer when that cannot be decided now.
        """
        record = self.cell.record
        base = CursorImage.from_record(record, self.cell.path)
        images = [base]
        if record.cursor_ledger >= 0:
            try:
                images = await read_cursor_log(await self._ledgers.open(record.cursor_ledger))
            except PulsarishError as error:
                if error.retryable:
                    raise
                _log.error(
                    "cursor ledger unreadable: the subscription goes back to the snapshot in "
                    "metadata and will redeliver",
                    topic=self._topic.name,
                    cursor=self.name,
                    ledger=record.cursor_ledger,
                    mark=base.mark,
                    error=error,
                )
        acks, properties = restore(images, successor)
        return CursorCore(acks, properties)

    async def write(self, core: CursorCore) -> None:
        """Make the present state of ``core`` durable.

        Raises ``TopicFenced`` (for good) or why it cannot be done now.
        """
        try:
            if core.rewound or (
                self._cursor_log is None and self._fits_node(core) and not self._busy()
            ):
                await self._write_node(core)
            else:
                await self._write_log(core)
        except BaseException:
            core.failed()
            raise
        self.last_write = self._clock.monotonic()

    def _busy(self) -> bool:
        """Whether the node was written too often lately.

        All topics of the cluster share the metadata.
        """
        writes, options = self._node_writes, self._options
        if len(writes) < options.cursor_node_writes_max:
            return False
        return (
            not writes
            or (self._clock.monotonic() - writes[0]) * 1000 < options.cursor_node_writes_window_ms
        )

    def _fits_node(self, core: CursorCore) -> bool:
        acks, options = core.acks, self._options
        if acks.hole_count > options.max_unacked_ranges_to_persist_in_metadata_store:
            return False
        return acks.batch_bits // 4 < options.cursor_node_bytes_max and self._size(
            CursorImage.of(acks, core.properties, acks.range_count)
        ) <= (options.cursor_node_bytes_max)

    @property
    def _ranges_max(self) -> int:
        return self._options.max_unacked_ranges_to_persist_in_metadata_store

    def _size(self, image: CursorImage) -> int:
        return len(encode_record(image.record(self.cell.record, -1)))

    # -- in the node

    async def _write_node(self, core: CursorCore) -> None:
        image, number = core.take_image(core.acks.range_count)
        await self._store_record(image, -1)
        core.wrote(image, number)
        self._node_writes.append(self._clock.monotonic())
        await self._leave_log()

    async def _store_record(
        self, image: CursorImage, cursor_ledger: int, with_ops: Sequence[Op] = ()
    ) -> None:
        """Store the node and list the ledger that it named before (if another) for deletion.

        Then delete the listed ledgers.
        """
        base = self.cell.record
        deleting = tuple(found for found in base.deleting if found not in self._deleted)
        if base.cursor_ledger not in (-1, cursor_ledger):
            deleting = (*deleting, base.cursor_ledger)
        record = msgspec.structs.replace(image.record(base, cursor_ledger), deleting=deleting)
        await write_cursor_record(self._topic, self.cell, record, with_ops=with_ops)
        self._deleted.intersection_update(deleting)

    async def _leave_log(self) -> None:
        log, self._cursor_log = self._cursor_log, None
        if log is not None:
            log.abandon()
        await self.finish_deletions()

    async def finish_deletions(self) -> None:
        """Run the second phase: delete the cursor ledgers that the record lists for deletion.

        A later call repeats what fails now.
        """
        for ledger_id in self.cell.record.deleting:
            if ledger_id in self._deleted:
                continue
            try:
                await self._ledgers.delete(ledger_id)
            except PulsarishError as error:
                _log.warning(
                    "cursor ledger not deleted yet",
                    topic=self._topic.name,
                    cursor=self.name,
                    ledger=ledger_id,
                    error=error,
                )
            else:
                self._deleted.add(ledger_id)

    # -- in a cursor ledger

    async def _write_log(self, core: CursorCore) -> None:
        log = self._cursor_log
        # After a write with an unknown outcome the node may name another ledger or none. Then
        # entries appended here would not be found.
        if log is not None and self.cell.settled and not self._full(log):
            try:
                await self._append(log, core)
            except PulsarishError as error:
                if self._abandoned:
                    raise TopicFenced(
                        f"cursor {self.name} of topic {self._topic.name} is not served here any "
                        "more"
                    ) from error
                # Everything that the ledger may hold is in memory too, so nothing has to be read
                # back from it.
                _log.warning(
                    "cursor ledger broke off",
                    topic=self._topic.name,
                    cursor=self.name,
                    ledger=log.ledger_id,
                    error=error,
                )
                core.failed()
            else:
                return
        try:
            await self._switch_log(core)
        except TopicFenced:
            raise
        except PulsarishError:
            if not self._fits_node(core):
                raise
            core.failed()
            # no ledger can be created: write to metadata, however busy
            await self._write_node(core)

    def _full(self, log: CursorLog) -> bool:
        if self._topic.records.is_away:
            return False  # the next ledger needs metadata
        if log.entries >= self._options.cursor_max_entries_per_ledger:
            return True
        return self._clock.monotonic() - log.opened_at >= self._options.cursor_rollover_time_seconds

    async def _append(self, log: CursorLog, core: CursorCore) -> None:
        if core.whole or log.is_snapshot_due:
            image, number = core.take_image(self._ranges_max)
            await log.write_snapshot(image)
        else:
            image, number = core.take_delta()
            await log.write_delta(image)
        core.wrote(image, number)

    async def _switch_log(self, core: CursorCore) -> None:
        """Create a new ledger with a snapshot, then name it in the node: the pointer is never
        stored before its target.
        """
        log = await CursorLog.create(
            self._ledgers, self._options, self._purpose, self._clock.monotonic()
        )
        image, number = core.take_image(self._ranges_max)
        try:
            await log.write_snapshot(image)
            await self._store_record(self._summary(image), log.ledger_id, log.writer.unchanged())
        except Conflict as conflict:
            # The ledger was in no record while metadata and bookies were asked. It was removed as
            # an orphan, or will be.
            log.abandon()
            await self.discard(log.ledger_id)
            raise ServiceNotReady(
                f"the next ledger of cursor {self.name} was changed by another process: {conflict}"
            ) from conflict
        except PulsarishError:
            log.abandon()
            await self.discard(log.ledger_id)
            raise
        core.wrote(image, number)
        await self._leave_log()
        self._cursor_log = log
        _log.info(
            "a cursor took a new ledger",
            topic=self._topic.name,
            cursor=self.name,
            ledger=log.ledger_id,
        )

    def _summary(self, image: CursorImage) -> CursorImage:
        """Return the state that the node keeps beside a ledger: enough to redeliver from, if the
        ledger ever becomes unreadable.
        """
        if not image.sets and self._size(image) <= self._options.cursor_node_bytes_max:
            return image
        return CursorImage(image.mark_ledger, image.mark_entry, properties={})

    async def discard(self, ledger_id: int) -> None:
        """Delete a ledger that was created and not used, unless the node names it after all: then
        another owner continues from it.
        """
        if not self.cell.settled:
            return  # a late write may still name it in the node
        try:
            if not await self._refers_to(ledger_id):
                await self._ledgers.delete(ledger_id)
        except PulsarishError as error:
            _log.warning(
                "an unused cursor ledger stays behind",
                topic=self._topic.name,
                ledger=ledger_id,
                error=error,
            )

    async def _refers_to(self, ledger_id: int) -> bool:
        await self._topic.records.sync(self.cell.path)
        found = await self._topic.records.get(self.cell.path, CursorRecord)
        return found is not None and ledger_id in found[0].ledgers_named

    async def note_active(self, now_ms: int) -> None:
        """Record in the node that the subscription is in use. Raises as ``write``."""
        await write_cursor_record(
            self._topic, self.cell, msgspec.structs.replace(self.cell.record, last_active_ms=now_ms)
        )

    async def set_subscription_properties(self, properties: Mapping[str, str]) -> None:
        """Replace the subscription's properties in the node. Raises as ``write``."""
        record = msgspec.structs.replace(self.cell.record, subscription_properties=dict(properties))
        await write_cursor_record(self._topic, self.cell, record)

    async def settle(self) -> None:
        """Undo what a write with an unknown outcome may have left in the node.

        Raises as ``write``.
        """
        if not self.cell.settled:
            await write_cursor_record(self._topic, self.cell, self.cell.record)

    # -- buckets of delayed entries

    async def create_ledger(self, listener: WriterListener) -> LedgerWriter:
        """Create a ledger of the cursor. Raises ``NotEnoughBookies``, ``MetadataUnavailable``."""
        options = self._options
        return await self._ledgers.create(
            ensemble_size=options.ensemble_size,
            write_quorum=options.write_quorum,
            ack_quorum=options.ack_quorum,
            groups=options.bookie_groups,
            purpose=msgspec.structs.replace(self._purpose, delayed=True),
            listener=listener,
        )

    async def open_ledger(self, ledger_id: int) -> LedgerReader:
        """Open a ledger of the cursor. Raises as ``LedgerClient.open``."""
        return await self._ledgers.open(ledger_id)

    async def name_delayed(self, ids: tuple[int, ...], with_ops: Sequence[Op]) -> None:
        """Name these bucket ledgers in the node, and delete those that it named before.

        Raises as ``write``, and ``Conflict`` when ``with_ops`` are refused.
        """
        base = self.cell.record
        before = dict.fromkeys((*base.delayed, *self._doubtful))
        deleting = (
            *(found for found in base.deleting if found not in self._deleted),
            *(found for found in before if found not in ids),
        )
        self._doubtful = (*before, *(found for found in ids if found not in before))
        record = msgspec.structs.replace(base, delayed=ids, deleting=deleting)
        await write_cursor_record(self._topic, self.cell, record, with_ops=with_ops)
        self._doubtful = ()
        self._deleted.intersection_update(deleting)
        await self.finish_deletions()

    # -- idle and closing

    async def settle_down(self, core: CursorCore) -> bool:
        """Give up the ledger for the node if the state is small enough. Raises as ``write``."""
        if self._cursor_log is None:
            return True
        if not self._fits_node(core):
            return False
        try:
            await self._write_node(core)
        except BaseException:
            core.failed()
            raise
        return True

    async def close(self, core: CursorCore) -> None:
        """Make everything durable, if possible in the node, so that the next load reads no ledger.

        Raises as ``write``.
        """
        if core.dirty:
            await self.write(core)
        if not await self.settle_down(core) and self._cursor_log is not None:
            log, self._cursor_log = self._cursor_log, None
            await log.writer.close()

    def abandon(self) -> None:
        """Stop without a write, because the owner was lost."""
        self._abandoned = True
        if self._cursor_log is not None:
            self._cursor_log.abandon()
            self._cursor_log = None

    async def mark_deleted(self) -> None:
        """Run the first phase of the cursor's deletion: from now on the cursor does not exist.

        Raises as ``write``.
        """
        record = self.cell.record
        deleting = (*record.deleting, *record.ledgers_in_use)
        await write_cursor_record(
            self._topic,
            self.cell,
            msgspec.structs.replace(
                record, deleted=True, cursor_ledger=-1, delayed=(), deleting=deleting
            ),
        )
        self.abandon()

    async def finish_deletion(self) -> bool:
        """Run the second phase.

        ``False`` when a ledger could not be deleted yet. Raises as ``write``.
        """
        await self.finish_deletions()
        if any(ledger_id not in self._deleted for ledger_id in self.cell.record.deleting):
            return False
        await _guarded(
            self._topic,
            lambda guards: self._topic.records.delete(self.cell.path, with_ops=guards(), once=True),
        )
        return True
