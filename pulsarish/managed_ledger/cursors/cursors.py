"""All cursors of one topic: load, open, create and delete them; and the limit that they set to
trimming.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.cursors.cursor import Cursor, mark_before
from pulsarish.managed_ledger.cursors.cursor_core import CursorCore
from pulsarish.managed_ledger.cursors.cursor_store import CursorStore, write_cursor_record
from pulsarish.managed_ledger.options import ManagedLedgerOptions
from pulsarish.managed_ledger.owned_record import OwnedRecord
from pulsarish.managed_ledger.owned_topic_record import OwnedTopicRecord
from pulsarish.metadata import paths
from pulsarish.metadata.records import CursorRecord
from pulsarish.model.ack_ranges import AckRanges
from pulsarish.model.errors import (
    MetadataUnavailable,
    PulsarishError,
    ServiceNotReady,
    SubscriptionNotFound,
    TopicFenced,
)
from pulsarish.model.position import Position
from pulsarish.model.topic_name import decode_segment
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["Cursors"]

_log = get_logger("managed_ledger.cursor")


class Cursors:
    """The cursors of one topic on its owner.

    While ``trim_lock`` is held, cursors are not created and the log is not trimmed (rule 17).
    """

    __slots__ = (
        "_chain",
        "_cursors",
        "_error",
        "_fence",
        "_ledgers",
        "_locks",
        "_options",
        "_stores",
        "_topic",
        "_unsure",
        "_world",
        "trim_lock",
    )

    def __init__(
        self,
        topic: OwnedTopicRecord,
        chain: Chain,
        ledgers: LedgerClient,
        world: World,
        options: ManagedLedgerOptions,
        fence: Callable[[PulsarishError], None],
    ) -> None:
        self.trim_lock = asyncio.Lock()
        self._topic = topic
        self._chain = chain
        self._ledgers = ledgers
        self._world = world
        self._options = options
        self._fence = fence
        self._error: PulsarishError | None = None
        self._stores: dict[str, CursorStore] = {}  # every durable cursor that metadata holds
        self._cursors: dict[str, Cursor] = {}  # the open cursors
        # cursors that are being created, or whose creation had an unknown outcome
        self._unsure: dict[str, OwnedRecord[CursorRecord]] = {}
        # with one element for each user
        self._locks: dict[str, tuple[asyncio.Lock, list[None]]] = {}

    async def load(self) -> None:
        """Load the list of durable cursors.

        Only their nodes are read. Raises ``MetadataUnavailable``.
        """
        records = self._topic.records
        parent = paths.cursors(self._topic.name)
        names = [decode_segment(segment) for segment in await records.children(parent)]
        nodes = [paths.cursor(self._topic.name, name) for name in names]
        found = await records.get_many(nodes, CursorRecord) if nodes else []
        for name, path, node in zip(names, nodes, found, strict=True):
            if node is not None:
                self._stores[name] = self._store(name, OwnedRecord(records, path, *node))

    def _store(self, name: str, cell: OwnedRecord[CursorRecord]) -> CursorStore:
        return CursorStore(name, self._topic, cell, self._ledgers, self._world, self._options)

    def use_options(self, options: ManagedLedgerOptions) -> None:
        """Apply options to the present and the future cursors.

        Quorums hold from a cursor's next ledger on.
        """
        self._options = options
        for store in self._stores.values():
            store.use_options(options)
        for cursor in self._cursors.values():
            cursor.use_options(options)

    def names(self) -> list[str]:
        """The names of the durable cursors, sorted."""
        return sorted(name for name, store in self._stores.items() if not store.cell.record.deleted)

    @property
    def half_deleted(self) -> bool:
        """Whether a crash has left a cursor whose deletion was begun."""
        return any(store.cell.record.deleted for store in self._stores.values())

    def opened(self) -> list[Cursor]:
        """The cursors that are open here, by name, durable or not."""
        return [self._cursors[name] for name in sorted(self._cursors)]

    def safe_mark(self) -> Position | None:
        """Return the position above which nothing may be trimmed; ``None`` when there is no durable
        cursor.
        """
        marks = [
            Position(cell.record.mark_ledger, cell.record.mark_entry)
            for cell in self._unsure.values()
        ]
        for name, store in self._stores.items():
            record = store.cell.record
            if record.deleted:
                continue
            cursor = self._cursors.get(name)
            # For a cursor that is not open here, the mark-delete position in the node is at or
            # below its true one.
            marks.append(
                cursor.safe_mark
                if cursor is not None
                else Position(record.mark_ledger, record.mark_entry)
            )
        return min(marks, default=None)

    @asynccontextmanager
    async def _alone(self, name: str) -> AsyncGenerator[None]:
        """Serialise the creation and deletion of one cursor."""
        lock, users = self._locks.setdefault(name, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users:
                del self._locks[name]

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error

    async def open(
        self,
        name: str,
        *,
        initial: Position,
        durable: bool,
        properties: Mapping[str, int],
        subscription_properties: Mapping[str, str],
    ) -> Cursor:
        async with self._alone(name):
            self._check_open()
            cursor = self._cursors.get(name)
            if cursor is not None:
                await self._settle(name)
                return cursor
            if not durable:
                core = CursorCore(
                    AckRanges(mark_before(self._chain, initial), self._chain.next_position),
                    properties,
                )
                return self._begun(self._add(name, core, None, subscription_properties), initial)
            store = self._stores.get(name)
            if store is not None and store.cell.record.deleted:
                await self._finish_deletion(name, store)
                if name in self._stores:
                    raise ServiceNotReady(
                        f"subscription {name!r} of topic {self._topic.name} is still being "
                        "deleted: a ledger of its cursor cannot be"
                        " deleted now; try again"
                    )
                store = None
            is_new = store is None
            if store is None:
                store = await self._make(name, initial, properties, subscription_properties)
            core = await store.load(self._chain.next_position)
            self._check_open()
            cursor = self._add(name, core, store, {})
            return self._begun(cursor, initial) if is_new else cursor

    async def _settle(self, name: str) -> None:
        """Undo a deletion whose outcome stayed unknown.

        A client that opens the cursor again wants it to exist.
        """
        store = self._stores.get(name)
        if store is None:
            return
        async with store.lock:
            try:
                await store.settle()
            except TopicFenced as error:
                self._fence(error)
                raise

    def _begun(self, cursor: Cursor, initial: Position) -> Cursor:
        cursor.asked_for(initial)
        return cursor

    def _add(
        self,
        name: str,
        core: CursorCore,
        store: CursorStore | None,
        subscription_properties: Mapping[str, str],
    ) -> Cursor:
        cursor = Cursor(
            name,
            core,
            self._chain,
            self._world,
            self._options,
            store,
            self._fence,
            subscription_properties,
        )
        self._cursors[name] = cursor
        if store is not None and store.cell.record.deleting:
            _ = self._world.tasks.spawn(self._tidy(store), name=f"tidy-cursor {name}")
        return cursor

    async def _tidy(self, store: CursorStore) -> None:
        async with store.lock:
            await store.finish_deletions()

    async def _make(
        self,
        name: str,
        initial: Position,
        properties: Mapping[str, int],
        subscription_properties: Mapping[str, str],
    ) -> CursorStore:
        async with self.trim_lock:
            cell = self._unsure.get(name)
            if cell is None:
                mark = mark_before(self._chain, initial)
                record = CursorRecord(
                    mark_ledger=mark.ledger_id,
                    mark_entry=mark.entry_id,
                    properties=dict(properties),
                    subscription_properties=dict(subscription_properties),
                    created_ms=self._world.clock.wall_ms(),
                )
                cell = self._unsure[name] = OwnedRecord(
                    self._topic.records, paths.cursor(self._topic.name, name), record, None
                )
            try:
                # After an unknown outcome the cell stays. Trimming must not pass a cursor that may
                # exist, and the next attempt settles the outcome.
                await write_cursor_record(self._topic, cell, cell.record)
            except TopicFenced as error:
                self._fence(error)
                raise
            del self._unsure[name]
            store = self._stores[name] = self._store(name, cell)
            return store

    async def delete(self, name: str) -> None:
        """Delete a cursor in two phases: mark its node, then delete its ledgers and its node.

        Raises ``SubscriptionNotFound``, and the errors of a cursor's ``flush``.
        """
        async with self._alone(name):
            self._check_open()
            cursor = self._cursors.get(name)
            if cursor is not None and not cursor.durable:
                cursor.end(SubscriptionNotFound(f"cursor {name} was deleted"))
                del self._cursors[name]
                return
            store = self._stores.get(name)
            if store is None or store.cell.record.deleted:
                raise SubscriptionNotFound(f"topic {self._topic.name} has no subscription {name!r}")
            try:
                async with store.lock:
                    await store.mark_deleted()
            except TopicFenced as error:
                self._fence(error)
                raise
            if cursor is not None:
                cursor.end(
                    SubscriptionNotFound(
                        f"subscription {name!r} of topic {self._topic.name} was deleted"
                    )
                )
                del self._cursors[name]
            try:
                await self._finish_deletion(name, store)
            except MetadataUnavailable as error:
                _log.warning(
                    "a deleted subscription's node is left for later",
                    topic=self._topic.name,
                    cursor=name,
                    error=error,
                )

    async def _finish_deletion(self, name: str, store: CursorStore) -> None:
        try:
            async with store.lock:
                if await store.finish_deletion():
                    del self._stores[name]
        except TopicFenced as error:
            self._fence(error)
            raise

    async def finish_deletions(self) -> None:
        """Continue the deletions that a crash has interrupted."""
        for name in sorted(self._stores):
            store = self._stores.get(name)
            if store is not None and store.cell.record.deleted:
                async with self._alone(name):
                    if self._stores.get(name) is store and self._error is None:
                        await self._finish_deletion(name, store)

    def trimmed(self, last: Position) -> None:
        """Note that everything up to ``last`` was trimmed from the log."""
        for cursor in self._cursors.values():
            cursor.trimmed(last)

    def end(self, error: PulsarishError) -> None:
        """End all cursors: the topic is not served here any more."""
        if self._error is None:
            self._error = error
            for cursor in self.opened():
                cursor.end(error)

    async def close(self) -> None:
        """Make every cursor durable.

        What cannot be stored now will be delivered again, with a warning.
        """
        for cursor in self.opened():
            try:
                await cursor.close()
            except PulsarishError as error:
                _log.warning(
                    "acknowledgements of a closing topic were not made durable",
                    topic=self._topic.name,
                    cursor=cursor.name,
                    error=error,
                )
