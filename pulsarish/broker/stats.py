"""A topic's statistics under Apache Pulsar's names, put together when somebody asks."""

from __future__ import annotations

from typing import Any

from pulsarish.broker.topic import Topic

__all__ = ["topic_internal_stats", "topic_stats"]


def topic_stats(topic: Topic, now: float) -> dict[str, Any]:
    """``now``: monotonic seconds."""
    message_rate, byte_rate = topic.came.rates(now)
    subscriptions = {name: subscription.stats() for name, subscription in sorted(topic.subscriptions.items())}
    return {
        "msgRateIn": round(message_rate, 3),
        "msgThroughputIn": round(byte_rate, 3),
        "msgRateOut": round(sum(each["msgRateOut"] for each in subscriptions.values()), 3),
        "msgThroughputOut": round(sum(each["msgThroughputOut"] for each in subscriptions.values()), 3),
        "msgInCounter": topic.came.messages,
        "bytesInCounter": topic.came.size_bytes,
        "msgOutCounter": sum(each["msgOutCounter"] for each in subscriptions.values()),
        "bytesOutCounter": sum(each["bytesOutCounter"] for each in subscriptions.values()),
        "averageMsgSize": round(topic.came.size_bytes / topic.came.messages, 1) if topic.came.messages else 0.0,
        "storageSize": topic.log.size_bytes,
        "duplicatesDropped": topic.duplicates,
        "deduplicationStatus": "Enabled" if topic.deduplication else "Disabled",
        "pendingEntries": topic.log.pending_entries,
        "publishers": [
            {
                "producerName": producer.name,
                "producerId": producer.producer_id,
                "msgInCounter": producer.messages_in,
                "bytesInCounter": producer.bytes_in,
                "address": producer.address,
                "connectedSince": producer.connected_ms,
                "metadata": dict(producer.properties),
            }
            for producer in topic.producers.values()
        ],
        "subscriptions": subscriptions,
    }


def topic_internal_stats(topic: Topic) -> dict[str, Any]:
    """The log: its ledgers and cursors."""
    log = topic.log
    ledgers = log.ledgers
    current = ledgers[-1] if ledgers else None
    return {
        "numberOfEntries": log.entries,
        "totalSize": log.size_bytes,
        "currentLedgerEntries": current.entries if current is not None else 0,
        "currentLedgerSize": current.size_bytes if current is not None else 0,
        "lastConfirmedEntry": str(log.last_confirmed),
        "firstPosition": str(log.first_position),
        "state": "Terminated" if log.terminated else "Fenced" if log.fenced else "LedgerOpened",
        "properties": log.properties,
        "ledgers": [
            {"ledgerId": each.ledger_id, "entries": each.entries, "size": each.size_bytes, "closedMs": each.closed_ms} for each in ledgers
        ],
        "cursors": {
            cursor.name: {
                "markDeletePosition": str(cursor.mark_delete),
                "persistedMarkDeletePosition": str(cursor.persisted_mark_delete),
                "readPosition": str(cursor.read_from),
                "numberOfEntriesInBacklog": cursor.backlog(),
                "individuallyDeletedRanges": cursor.hole_count,
                "durable": cursor.durable,
                "hasCursorLedger": cursor.has_ledger,
            }
            for cursor in log.open_cursors()
        },
    }
