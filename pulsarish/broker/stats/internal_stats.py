"""The log of a topic as Apache Pulsar's tools show it: its ledgers and the positions of its
cursors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pulsarish.broker.topics.topic import Topic

if TYPE_CHECKING:
    from pulsarish.managed_ledger.cursors.cursor import Cursor

__all__ = ["topic_internal_stats"]

_RANGES_MAX: Final = 1_000  # acknowledged ranges of a cursor that are written out


def topic_internal_stats(topic: Topic) -> dict[str, Any]:
    """Return the ledgers and cursors of a topic's log."""
    log = topic.log
    ledgers = log.ledgers
    current = ledgers[-1] if ledgers else None
    view = log.views.current
    added = topic.traffic.written.messages
    return {
        "waitingCursorsCount": sum(
            bool(each.consumers) and not each.backlog for each in topic.subscriptions.values()
        ),
        "pendingAddEntriesCount": log.pending_entries,
        "entriesAddedCounter": added,
        "numberOfEntries": log.entries,
        "totalSize": log.size_bytes,
        "currentLedgerEntries": current.entries if current is not None else 0,
        "currentLedgerSize": current.size_bytes if current is not None else 0,
        "lastConfirmedEntry": str(log.last_confirmed),
        "firstPosition": str(log.first_position),
        "state": "Terminated" if log.terminated else "Fenced" if log.fenced else "LedgerOpened",
        "properties": log.attributes.properties,
        "ledgers": [
            {
                "ledgerId": each.ledger_id,
                "entries": each.entries,
                "size": each.size_bytes,
                "closedMs": each.closed_ms,
            }
            for each in ledgers
        ],
        "compactedLedger": {"ledgerId": -1, "entries": -1, "size": -1}
        if view is None
        else {"ledgerId": view.ledger_id, "entries": view.entries, "size": view.size_bytes},
        "compactionHorizon": None if view is None else str(log.views.horizon),
        "lost": [
            {
                "ledgerId": each.ledger_id,
                "firstEntry": each.first_entry,
                "lastEntry": each.last_entry,
                "givenUpBookies": list(each.given_up),
                "skippedMs": each.skipped_ms,
            }
            for each in log.attributes.lost
        ],
        "schemaLedgers": [],
        "cursors": {cursor.name: _cursor(topic, cursor, added) for cursor in log.open_cursors()},
    }


def _cursor(topic: Topic, cursor: Cursor, added: int) -> dict[str, Any]:
    """Return a cursor's row. ``added``: entries added since the topic was opened."""
    subscription = topic.subscriptions.get(cursor.name)
    reads = None if subscription is None else subscription.dispatcher.reads
    read_from = cursor.read_from if reads is None else max(reads.position, cursor.read_from)
    ranges, backlog = cursor.acked_ranges(_RANGES_MAX), cursor.backlog()
    deleted = [f"({ledger}:{first - 1}..{ledger}:{last}]" for ledger, first, last in ranges]
    return {
        "markDeletePosition": str(cursor.mark_delete),
        "persistedMarkDeletePosition": str(cursor.persisted_mark_delete),
        "readPosition": str(read_from),
        "waitingReadOp": subscription is not None and bool(subscription.consumers) and not backlog,
        "pendingReadOps": int(
            subscription is not None and bool(subscription.marks.reading_since_ms)
        ),
        # As in Apache Pulsar it starts below zero if there was a backlog when the topic was opened.
        "messagesConsumedCounter": added - backlog,
        "cursorLedger": cursor.ledger_id,
        "cursorLedgerLastEntry": -1,
        "individuallyDeletedMessages": f"[{','.join(deleted)}]",
        "lastLedgerSwitchTimestamp": "",
        "state": "Open" if cursor.has_ledger else "NoLedger",
        "active": subscription is not None and bool(subscription.consumers),
        "numberOfEntriesInBacklog": backlog,
        "numberOfEntriesSinceFirstNotAckedMessage": topic.log.entries_between(
            cursor.mark_delete, read_from
        ),
        "totalNonContiguousDeletedMessagesRange": cursor.hole_count,
        "individuallyDeletedRanges": cursor.hole_count,
        "subscriptionHavePendingRead": reads is not None and bool(reads.ready),
        "subscriptionHavePendingReplayRead": reads is not None and bool(reads.again_count),
        "durable": cursor.durable,
        "hasCursorLedger": cursor.has_ledger,
        "properties": cursor.properties,
    }
