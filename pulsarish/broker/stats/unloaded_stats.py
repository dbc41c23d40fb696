"""Statistics of a topic that is not loaded, from its metadata records alone.

No client uses it, so metadata has everything.

Loading a topic costs a ledger and several commits, and scripts of operators ask for the statistics
of all topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pulsarish.broker.clients.commands import NO_EPOCH
from pulsarish.broker.clients.wait_reasons import IDLE, waiting_row
from pulsarish.broker.compaction.compaction import compaction_stats
from pulsarish.broker.publishing.dedup_log import DEDUP_CURSOR
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.cursors.cursor_state import CursorImage, restore
from pulsarish.metadata import paths
from pulsarish.metadata.record_store import Records
from pulsarish.metadata.records import CursorRecord, TopicRecord
from pulsarish.model.position import Position
from pulsarish.model.subscription_type import SubscriptionType
from pulsarish.model.topic_name import TopicName, decode_segment

__all__ = ["UnloadedTopic", "read_unloaded"]


class UnloadedTopic:
    """A topic whose ledgers are all closed and whose subscriptions have no backlog."""

    def __init__(
        self,
        record: TopicRecord,
        chain: Chain,
        cursors: Mapping[str, tuple[Position, CursorRecord]],
    ) -> None:
        self._record = record
        self._chain = chain
        self._cursors = cursors

    @property
    def ledger_ids(self) -> list[int]:
        return [link.ledger_id for link in self._chain.links]

    def stats(self, *, deduplication: bool) -> dict[str, Any]:
        """Return the statistics of the topic itself.

        ``Statistics`` adds the state that all topics share.
        """
        return {
            "msgRateIn": 0.0,
            "msgThroughputIn": 0.0,
            "msgRateOut": 0.0,
            "msgThroughputOut": 0.0,
            "msgInCounter": 0,
            "bytesInCounter": 0,
            "msgOutCounter": 0,
            "bytesOutCounter": 0,
            "averageMsgSize": 0.0,
            "storageSize": self._chain.size_bytes,
            "backlogSize": 0,
            "lastPublishTimeStamp": 0,
            "topicCreationTimeStamp": self._record.created_ms,
            "offloadedStorageSize": 0,
            "replication": {},
            "duplicatesDropped": 0,
            "deduplicationStatus": "Enabled" if deduplication else "Disabled",
            "pendingEntries": 0,
            "pendingBytes": 0,
            "oldestPendingAgeMs": None,
            "lastAddFailure": None,
            "compaction": compaction_stats(self._record.compacted, None),
            "ledger": {
                "state": "terminated" if self._record.terminated else "not loaded",
                "step": "",
            },
            "topicEpoch": None
            if self._record.producer_epoch == NO_EPOCH
            else self._record.producer_epoch,
            "waitingPublishers": 0,
            "publishers": [],
            "publishersInTurn": [],
            "subscriptions": {
                name: self._subscription(*cursor) for name, cursor in sorted(self._cursors.items())
            },
        }

    def _subscription(self, mark: Position, cursor: CursorRecord) -> dict[str, Any]:
        return {
            "type": SubscriptionType.EXCLUSIVE.title,
            "msgBacklog": 0,
            "msgBacklogNoDelayed": 0,
            "backlogMessages": 0,
            "backlogMessagesEstimated": False,
            "backlogSize": 0,
            "earliestMsgPublishTimeInBacklog": 0,
            "unackedMessages": 0,
            "msgRateOut": 0.0,
            "msgThroughputOut": 0.0,
            "msgOutCounter": 0,
            "bytesOutCounter": 0,
            "msgRateRedeliver": 0.0,
            "messageAckRate": 0.0,
            "msgRateExpired": 0.0,
            "totalMsgExpired": 0,
            "filterProcessedMsgCount": 0,
            "filterAcceptedMsgCount": 0,
            "filterRejectedMsgCount": 0,
            "lastExpireTimestamp": 0,
            "lastConsumedFlowTimestamp": 0,
            "lastConsumedTimestamp": 0,
            "lastAckedTimestamp": 0,
            "lastMarkDeleteAdvancedTimestamp": 0,
            "isDurable": True,
            "isReplicated": False,
            "activeConsumerName": "",
            "blockedSubscriptionOnUnackedMsgs": False,
            "nonContiguousDeletedMessagesRanges": 0,
            "holes": 0,
            "entriesInHoles": 0,
            "oldestHoleAgeMs": None,
            "messagesToRedeliver": 0,
            "unackedRedelivered": 0,
            "msgInReplay": 0,
            "msgDelayed": 0,
            "delayedMessageIndexSizeInBytes": 0,
            "delayedMessageBuckets": len(cursor.delayed),
            "markDeletePosition": str(mark),
            "readPosition": str(self._chain.next_position(mark)),
            "trimmedPositions": 0,
            "subscriptionProperties": cursor.subscription_properties,
            "oldestUnackedPosition": None,
            "oldestUnackedAgeMs": None,
            "waiting": waiting_row(IDLE, ""),
            "consumers": [],
        }


async def read_unloaded(name: TopicName, records: Records) -> UnloadedTopic | None:
    """Read an unloaded topic from its records. Raises ``MetadataUnavailable``, ``CorruptData``.

    ``None`` when there is no such topic, or its records do not say everything: a ledger without a
    known end, or a cursor with a ledger of its own or a backlog.
    """
    parent = paths.cursors(name)
    # Read together: each request alone costs more than all of them.
    found, names = await asyncio.gather(
        records.get(paths.topic(name), TopicRecord), records.children(parent)
    )
    if found is None or found[0].deleted or not all(link.closed_ms for link in found[0].ledgers):
        return None
    nodes = (
        await records.get_many([f"{parent}/{each}" for each in names], CursorRecord)
        if names
        else []
    )
    chain = Chain(found[0].ledgers, found[0].lost)
    cursors: dict[str, tuple[Position, CursorRecord]] = {}
    for each, node in zip(names, nodes, strict=True):
        if node is None or node[0].deleted or decode_segment(each) == DEDUP_CURSOR:
            continue
        cursor = node[0]
        if cursor.cursor_ledger >= 0:
            return None
        acks, _ = restore(
            [CursorImage.from_record(cursor, f"{parent}/{each}")], chain.next_position
        )
        if chain.entries_between(acks.mark, chain.last_position()) > acks.entry_count:
            return None
        cursors[decode_segment(each)] = (acks.mark, cursor)
    return UnloadedTopic(found[0], chain, cursors)
