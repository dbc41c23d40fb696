"""Commands of an operator that move a topic or a subscription past lost data (rule 20).

Each command checks that the data are lost, unloads the topic and records what was given up. It
unloads the topic again, in case it was loaded in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.lost_entries import (
    check_cursor_ledger,
    check_range,
    record_lost,
    take_cursor_back,
)
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import LostRange
from pulsarish.model.position import Position
from pulsarish.model.topic_name import TopicName
from pulsarish.runtime.log import get_logger
from pulsarish.runtime.seams import Clock

if TYPE_CHECKING:
    from pulsarish.broker.topics.loaded_topics import LoadedTopics

__all__ = ["LostData"]

_log = get_logger("broker.topics")


class LostData:
    """Skips lost data of the topics of one broker."""

    def __init__(
        self, topics: LoadedTopics, ledgers: LedgerClient, records: Records, clock: Clock
    ) -> None:
        self._topics = topics
        self._ledgers = ledgers
        self._records = records
        self._clock = clock

    async def skip(
        self,
        name: TopicName,
        ledger_id: int,
        first_entry: int,
        last_entry: int | None,
        given_up: Sequence[str],
    ) -> LostRange:
        """Move a topic past lost entries, after checking that they are lost.

        Raises ``NotOwner``, and the errors of ``check_range`` and ``record_lost``.
        """
        lease = await self._topics.lease(name)
        checked = await check_range(
            name, self._ledgers, self._records, ledger_id, first_entry, last_entry, given_up
        )
        lost = msgspec.structs.replace(checked, skipped_ms=self._clock.wall_ms())
        await self._topics.unload(name)
        await record_lost(name, self._records, lost, lease)
        # A broker that loaded it in between does not know of this, and is fenced by the record's
        # new version.
        await self._topics.unload(name)
        _log.warning(
            "an operator moved a topic past lost entries",
            topic=name,
            ledger=ledger_id,
            first=lost.first_entry,
            last=lost.last_entry,
        )
        return lost

    async def recover_subscription(
        self, name: TopicName, subscription: str, given_up: Sequence[str]
    ) -> Position:
        """Move a subscription whose ledger is lost back to the mark-delete position in metadata.

        Return that position.

        Checks first that the ledger is lost. Raises ``NotOwner``, and the errors of
        ``check_cursor_ledger`` and ``take_cursor_back``.
        """
        lease = await self._topics.lease(name)
        ledger_id = await check_cursor_ledger(
            name, subscription, self._ledgers, self._records, given_up
        )
        await self._topics.unload(name)
        mark = await take_cursor_back(name, subscription, self._records, ledger_id, lease)
        # A broker that loaded it in between is still at the old position, too.
        await self._topics.unload(name)
        _log.warning(
            "an operator gave up what a subscription had acknowledged after the mark in metadata",
            topic=name,
            subscription=subscription,
            ledger=ledger_id,
            mark=mark,
            bookies=given_up,
        )
        return mark
