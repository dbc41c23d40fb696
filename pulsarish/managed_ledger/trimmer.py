"""Trim a topic's log: delete the ledgers from its front that nothing needs (rule 17)."""

from __future__ import annotations

import msgspec

from pulsarish.managed_ledger.chain_core import ChainCore, Phase
from pulsarish.managed_ledger.cursors.cursors import Cursors
from pulsarish.managed_ledger.ledger_deletion import LedgerDeletion
from pulsarish.managed_ledger.log_reader import LogReader
from pulsarish.managed_ledger.options import Retention
from pulsarish.managed_ledger.owned_topic_record import Change
from pulsarish.managed_ledger.topic_attributes import TopicAttributes
from pulsarish.managed_ledger.trim import trimmable
from pulsarish.managed_ledger.views import Views
from pulsarish.metadata.records import TopicRecord
from pulsarish.model.errors import PulsarishError
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import World

__all__ = ["Trimmer"]

_log = get_logger("managed_ledger")


class Trimmer:
    """Trims one topic's log on its owner.

    Args:
        change: changes the record, and ends this owner when another one has changed it.
        retention: how long acknowledged data stays.
    """

    __slots__ = (
        "_attributes",
        "_chain",
        "_change",
        "_core",
        "_cursors",
        "_deletion",
        "_is_due",
        "_name",
        "_reader",
        "_views",
        "_world",
        "retention",
    )

    def __init__(
        self,
        name: TopicName,
        core: ChainCore,
        cursors: Cursors,
        views: Views,
        reader: LogReader,
        deletion: LedgerDeletion,
        change: Change,
        world: World,
        retention: Retention,
        attributes: TopicAttributes,
    ) -> None:
        self.retention = retention
        self._name = name
        self._core = core
        self._chain = core.chain
        self._cursors = cursors
        self._views = views
        self._reader = reader
        self._deletion = deletion
        self._change = change
        self._world = world
        self._attributes = attributes
        self._is_due = False

    @property
    def _stopped(self) -> bool:
        return self._core.phase is Phase.STOPPED

    @property
    def _is_oldest_open(self) -> bool:
        """Whether the oldest ledger is not closed, as in most topics: nothing can be trimmed."""
        links = self._chain.links
        return not links or not links[0].closed_ms

    async def trim(self, retention: Retention | None = None) -> int:
        """Delete the ledgers that no cursor needs, by the topic's retention or the given one.

        Return how many were removed.

        Raises ``TopicFenced``, ``MetadataUnavailable``.
        """
        if self._is_oldest_open:
            return 0
        async with self._cursors.trim_lock:
            retention = retention or self.retention
            safe_mark = self._cursors.safe_mark()
            mark = self._views.safe_mark(
                self._chain.last_position() if safe_mark is None else safe_mark,
                until_compacted=retention.until_compacted,
            )
            mark = min(mark, self._attributes.unsettled_after or mark)
            count = trimmable(self._chain, mark, retention, self._world.clock.wall_ms())
            if count == 0 or self._stopped:
                return 0
            gone = [link.ledger_id for link in self._chain.links[:count]]
            trimmed = self._chain.links[count - 1].last_position

            def decide(record: TopicRecord) -> TopicRecord:
                kept = tuple(link for link in record.ledgers if link.ledger_id not in gone)
                lost = tuple(each for each in record.lost if each.ledger_id not in gone)
                return msgspec.structs.replace(
                    record,
                    ledgers=kept,
                    deleting=tuple(dict.fromkeys((*record.deleting, *gone))),
                    lost=lost,
                    trimmed_ledger=trimmed.ledger_id,
                    trimmed_entry=trimmed.entry_id,
                )

            def apply() -> None:
                self._chain.drop_first(count)
                self._cursors.trimmed(trimmed)

            await self._change(decide, apply)
        for ledger_id in gone:
            self._reader.forget(ledger_id)
        _log.info("trimmed", topic=self._name, ledgers=gone)
        await self._deletion.delete_listed()
        return count

    async def trim_and_delete(self) -> None:
        """Trim, and delete what former trims could not delete. Raises as ``trim``."""
        if await self.trim() == 0 and self._deletion.has_work:
            await self._deletion.delete_listed()

    def trim_soon(self) -> None:
        """Trim in a task of its own, unless one is about to."""
        if not self._is_due and not self._stopped:
            self._is_due = True
            _ = self._world.tasks.spawn(self._trim_now(), name=f"trim {self._name}")

    async def _trim_now(self) -> None:
        self._is_due = False
        try:
            await self.trim_and_delete()
        except PulsarishError as error:
            _log.warning("trimming goes on later", topic=self._name, error=error)
