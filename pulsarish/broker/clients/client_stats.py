"""Statistics of connected producers and consumers, with Apache Pulsar's names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from pulsarish.broker.clients.commands import AccessMode
from pulsarish.broker.clients.consumer import Consumer
from pulsarish.broker.clients.producer import Producer

__all__ = ["consumer_stats", "iso_time", "producer_stats"]

_ACCESS_MODES: Final = {
    AccessMode.SHARED: "Shared",
    AccessMode.EXCLUSIVE: "Exclusive",
    AccessMode.WAIT_FOR_EXCLUSIVE: "WaitForExclusive",
    AccessMode.EXCLUSIVE_WITH_FENCING: "ExclusiveWithFencing",
}


def producer_stats(producer: Producer, now: float) -> dict[str, Any]:
    """Return the statistics of a producer. ``now``: monotonic seconds."""
    message_rate, byte_rate = producer.came.rates(now)
    messages = producer.came.messages
    return {
        "accessMode": _ACCESS_MODES[producer.access_mode],
        "msgRateIn": round(message_rate, 3),
        "msgThroughputIn": round(byte_rate, 3),
        "averageMsgSize": round(producer.came.size_bytes / messages, 1) if messages else 0.0,
        "producerName": producer.name,
        "producerId": producer.producer_id,
        "msgInCounter": messages,
        "bytesInCounter": producer.came.size_bytes,
        "address": producer.address,
        "clientVersion": producer.client_version,
        "connectedSince": iso_time(producer.connected_ms),
        "lastPublishedTimestamp": producer.last_published_ms,
        "pendingEntries": producer.pushed - producer.landed,
        "replicationIgnored": producer.replication_ignored,
        "metadata": dict(producer.properties),
    }


def consumer_stats(consumer: Consumer, now: float) -> dict[str, Any]:
    """Return the statistics of a consumer. ``now``: monotonic seconds."""
    message_rate, byte_rate = consumer.out.rates(now)
    return {
        "consumerName": consumer.name,
        "availablePermits": consumer.permits,
        "unackedMessages": consumer.unacked,
        "blockedConsumerOnUnackedMsgs": consumer.blocked,
        "priorityLevel": consumer.priority_level,
        "msgRateOut": round(message_rate, 3),
        "msgThroughputOut": round(byte_rate, 3),
        "msgOutCounter": consumer.out.messages,
        "bytesOutCounter": consumer.out.size_bytes,
        "avgMessagesPerEntry": round(consumer.out.messages / consumer.entries_out)
        if consumer.entries_out
        else 0,
        "messagesRedelivered": consumer.redelivered.messages,
        "msgRateRedeliver": round(consumer.redelivered.rates(now)[0], 3),
        "messageAckRate": round(consumer.acked.rates(now)[0], 3),
        "lastConsumedFlowTimestamp": consumer.last_flow_ms,
        "lastConsumedTimestamp": consumer.last_delivered_ms,
        "lastAckedTimestamp": consumer.last_acked_ms,
        "connectionHasRoom": consumer.outlet.has_room,
        "replicationIgnored": consumer.replication_ignored,
        "address": consumer.address,
        "clientVersion": consumer.client_version,
        "connectedSince": iso_time(consumer.connected_ms),
        "metadata": dict(consumer.properties),
    }


def iso_time(milliseconds: int) -> str:
    """Return a time in milliseconds as an ISO date and time in UTC."""
    return (
        datetime.fromtimestamp(milliseconds / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
