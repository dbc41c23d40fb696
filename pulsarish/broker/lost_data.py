"""The commands of an operator that move a topic or a subscription past what is gone for good (rule 20).

Each makes sure that it is gone, unloads the topic, writes down what was given up, and unloads the topic again if it was loaded meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pulsarish.ledger.client import LedgerClient
from pulsarish.managed_ledger.lost_entries import check_cursor_ledger, check_range, record_lost, take_cursor_back
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
    """Of the topics of one broker."""

    def __init__(self, topics: LoadedTopics, ledgers: LedgerClient, records: Records, clock: Clock) -> None:
        self._topics = topics
        self._ledgers = ledgers
        self._records = records
        self._clock = clock

    async def skip(self, name: TopicName, ledger_id: int, first_entry: int, last_entry: int | None, given_up: Sequence[str]) -> LostRange:
        """Move a topic past entries that are gone for good, once that is sure.

        Raises ``NotOwner``, and as ``lost.check_range`` and ``lost.record_lost``.
        """
        lease = await self._topics.lease(name)
        checked = await check_range(name, self._ledgers, self._records, ledger_id, first_entry, last_entry, given_up)
        lost = msgspec.structs.replace(checked, skipped_ms=self._clock.wall_ms())
        await self._topics.unload(name)
        await record_lost(name, self._records, lost, lease)
        # Whoever loaded it in between knows nothing of it, and is fenced by the record's new version.
        await self._topics.unload(name)
        _log.warning(
            "an operator moved a topic past lost entries", topic=name, ledger=ledger_id, first=lost.first_entry, last=lost.last_entry
        )
        return lost

    async def recover_subscription(self, name: TopicName, subscription: str, given_up: Sequence[str]) -> Position:
        """Take a subscription whose ledger is gone for good back to the mark in metadata, once that is sure. Return the mark.

        Raises ``NotOwner``, and as ``lost.check_cursor_ledger`` and ``lost.take_cursor_back``.
        """
        lease = await self._topics.lease(name)
        ledger_id = await check_cursor_ledger(name, subscription, self._ledgers, self._records, given_up)
        await self._topics.unload(name)
        mark = await take_cursor_back(name, subscription, self._records, ledger_id, lease)
        # Whoever loaded it in between stood before that ledger, too.
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
