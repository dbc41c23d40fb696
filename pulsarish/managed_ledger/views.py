"""A topic's compacted view in its record: created, replaced and deleted.

Promises: the commit that creates a view's ledger also lists it in the record for deletion. A later
commit makes it the view and lists the old ledger instead. So after a crash in between, the next
owner, the sweeper or the deletion of the topic deletes the unused ledger. Nothing above the horizon
is trimmed once there is a view, and nothing at all while the first one is being made.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.ledger_deletion import LedgerDeletion
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.managed_ledger.owned_topic_record import Change, OwnedTopicRecord
from pulsarish.managed_ledger.view_log import ViewReader, ViewWriter
from pulsarish.metadata.record_store import ATTEMPTS_MAX
from pulsarish.metadata.records import CompactedView, TopicRecord
from pulsarish.model.errors import MetadataUnavailable, ServiceNotReady
from pulsarish.model.ledger_metadata import LedgerPurpose, PurposeKind
from pulsarish.model.position import EARLIEST, Position
from pulsarish.runtime.seams import Conflict, ConflictReason, Op

__all__ = ["Views"]


class Views:
    """The views of one topic on its owner. The caller makes one view at a time."""

    __slots__ = (
        "_busy",
        "_change",
        "_deletion",
        "_ledgers",
        "_reader",
        "_topic",
    )

    def __init__(
        self,
        topic: OwnedTopicRecord,
        ledgers: LedgerClient,
        change: Change,
        deletion: LedgerDeletion,
    ) -> None:
        self._topic = topic
        self._ledgers = ledgers
        self._change = change
        self._deletion = deletion
        self._busy = False
        self._reader: ViewReader | None = None

    @property
    def current(self) -> CompactedView | None:
        return self._topic.record.compacted

    @property
    def horizon(self) -> Position | None:
        """The end of what is compacted.

        Entries above it are not compacted yet; ``None``: none are.
        """
        view = self.current
        return None if view is None else Position(view.horizon_ledger, view.horizon_entry)

    def safe_mark(self, mark: Position, *, until_compacted: bool) -> Position:
        """Return the position above which nothing may be trimmed. It is ``mark`` or lower.

        ``until_compacted``: whether a topic that has no view keeps all its messages for one.
        """
        horizon = self.horizon
        if horizon is not None:
            return min(mark, horizon)
        return EARLIEST if self._busy or until_compacted else mark

    async def reader(self) -> ViewReader | None:
        """Return a reader of the present view; ``None`` without a view or when it has no entries.

        Raises as ``LedgerClient.open``.
        """
        view = self.current
        if view is None or view.ledger_id < 0:
            return None
        if self._reader is None or self._reader.ledger_id != view.ledger_id:
            self._reader = ViewReader(await self._ledgers.open(view.ledger_id))
        return self._reader

    def begin(self) -> None:
        """Prepare to make a view: from now on nothing that it will need is trimmed."""
        assert not self._busy
        self._busy = True

    async def make(self, options: ManagedLedgerOptions) -> ViewWriter:
        """Create a ledger for the view.

        Raises the errors of ``LedgerClient.create`` and ``OwnedTopicRecord.change``.
        """
        assert self._busy
        assert self._deletion.being_made < 0
        writer = ViewWriter()

        async def commit(ledger_id: int, ops: Sequence[Op]) -> None:
            self._deletion.being_made = ledger_id
            await self._record_making(ledger_id, ops)

        writer.writer = await self._ledgers.create(
            ensemble_size=options.ensemble_size,
            write_quorum=options.write_quorum,
            ack_quorum=options.ack_quorum,
            groups=options.bookie_groups,
            purpose=LedgerPurpose(PurposeKind.COMPACTED, self._topic.name.full),
            listener=writer,
            commit=commit,
        )
        return writer

    async def _record_making(self, ledger_id: int, ops: Sequence[Op]) -> None:
        def decide(record: TopicRecord) -> TopicRecord:
            return msgspec.structs.replace(record, deleting=(*record.deleting, ledger_id))

        for _ in range(ATTEMPTS_MAX):
            try:
                await self._change(decide, with_ops=ops)
                return
            except MetadataUnavailable:
                # The ledger may exist. The next write of the record, for any reason, lists it for
                # deletion.
                self._topic.doubtful.append(ledger_id)
                raise
            except Conflict as conflict:
                if conflict.reason is not ConflictReason.NO_NODE:
                    raise ServiceNotReady(
                        f"a ledger for the view of {self._topic.name} cannot be made: {conflict}"
                    ) from conflict
                await self._topic.records.make_parents(conflict.path)
        raise MetadataUnavailable(
            f"the nodes above a ledger for the view of {self._topic.name} went away "
            f"{ATTEMPTS_MAX} times"
        )

    async def use(self, writer: ViewWriter | None, horizon: Position, made_ms: int) -> None:
        """Make the complete view up to ``horizon`` the topic's view.

        Without a writer the view has no entries.

        Raises as ``LedgerWriter.close`` and ``OwnedTopicRecord.change``.
        """
        assert self._busy
        made = CompactedView(horizon.ledger_id, horizon.entry_id, made_ms=made_ms)
        if writer is not None:
            closed = await writer.close()
            entries = closed.last_entry + 1
            made = msgspec.structs.replace(
                made, ledger_id=closed.ledger_id, entries=entries, size_bytes=closed.length_bytes
            )
        await self._exchange(made)
        self._deletion.being_made = -1

    async def _exchange(self, made: CompactedView | None) -> None:
        def decide(record: TopicRecord) -> TopicRecord:
            kept = tuple(each for each in record.deleting if made is None or each != made.ledger_id)
            old = (
                ()
                if record.compacted is None or record.compacted.ledger_id < 0
                else (record.compacted.ledger_id,)
            )
            return msgspec.structs.replace(record, compacted=made, deleting=(*kept, *old))

        await self._change(decide)
        self._reader = None

    async def end(self, writer: ViewWriter | None) -> None:
        """End what ``begin`` began, and delete the ledgers that are not in use.

        Call it with and without success.

        Raises the errors of deleting; then the next owner deletes the ledgers.
        """
        if self._deletion.being_made >= 0 and writer is not None:
            writer.abandon()
        self._deletion.being_made = -1
        self._busy = False
        await self._deletion.delete_listed()

    async def drop(self) -> None:
        """Give up the view.

        Messages that only it still held are lost. It does not hold back trimming any more.

        Raises ``ServiceNotReady`` while a view is being made, and as ``OwnedTopicRecord.change``.
        """
        if self._busy:
            raise ServiceNotReady(
                f"topic {self._topic.name} is being compacted; try again when that has ended"
            )
        if self.current is not None:
            await self._exchange(None)
            await self._deletion.delete_listed()
