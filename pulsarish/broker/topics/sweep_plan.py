"""The core of the sweeper: what is due in a topic that is not open, judged by its metadata; and
which topic keeps ledgers for too long.

The metadata of a topic that is not open is complete, unless its owner died. Then the last ledger is
not closed, and the node of a cursor may be behind the cursor's ledger. In doubt the answer is to
open the topic: the owner then finds the truth and corrects the metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pulsarish.broker.policies.store import Effective
from pulsarish.broker.publishing.dedup_log import DEDUP_CURSOR
from pulsarish.broker.topics.policy_enforcement import subscription_note_ms
from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.options import Retention
from pulsarish.managed_ledger.trim import trimmable
from pulsarish.metadata.records import CursorRecord, TopicRecord
from pulsarish.model import policies as model
from pulsarish.model.position import EARLIEST, LATEST, Position

__all__ = ["due", "overdue_ms"]


def due(
    record: TopicRecord,
    cursors: Mapping[str, CursorRecord],
    policies: Effective,
    now_ms: int,
    *,
    owned: bool,
    interval_seconds: float,
) -> str:
    """Return why the topic must be opened for maintenance now; empty when nothing is due.

    Args:
        cursors: its durable cursors by name, with the one of deduplication as ``pulsar.dedup``.
        owned: whether a live broker owns its bundle, and so may have the topic open.
        interval_seconds: how often loaded topics are maintained.
    """
    if record.deleted:
        return "its deletion was begun and not finished"
    if record.deleting or any(cursor.deleting or cursor.deleted for cursor in cursors.values()):
        return "ledgers or cursors are to be deleted"
    if not owned and any(link.closed_ms == 0 for link in record.ledgers):
        return "its owner is gone and its last ledger is not closed"
    chain = Chain(record.ledgers)
    horizon = _horizon(record)
    threshold_bytes = policies[model.COMPACTION_THRESHOLD]
    # If a cursor has a ledger, its true mark-delete position is not known here.
    trim_mark = _trim_mark(
        record,
        policies,
        (
            LATEST if cursor.cursor_ledger >= 0 else Position(cursor.mark_ledger, cursor.mark_entry)
            for cursor in cursors.values()
        ),
    )
    if threshold_bytes and chain.bytes_above(horizon or EARLIEST) > threshold_bytes:
        return "what is not compacted is above its threshold"
    if trimmable(chain, trim_mark, _retention(policies), now_ms):
        return "the retention of its oldest ledger is over"
    subscriptions = {name: cursor for name, cursor in cursors.items() if name != DEDUP_CURSOR}
    return (
        _backlog_due(chain, subscriptions, policies, now_ms)
        or _subscriptions_due(
            subscriptions, policies[model.SUBSCRIPTION_EXPIRATION_TIME], now_ms, interval_seconds
        )
        or _inactivity_due(record, chain, subscriptions, policies, now_ms)
    )


def overdue_ms(
    record: TopicRecord, cursors: Mapping[str, CursorRecord], policies: Effective, now_ms: int
) -> int:
    """Return how long ago the retention time of the oldest ledger that no subscription needs was
    over; 0 where none is kept for too long.

    A retention by size or by count has no such time.
    """
    retention = _retention(policies)
    marks = (Position(cursor.mark_ledger, cursor.mark_entry) for cursor in cursors.values())
    chain = Chain(record.ledgers)
    if (
        record.deleted
        or retention.minutes < 0
        or not trimmable(chain, _trim_mark(record, policies, marks), retention, now_ms)
    ):
        return 0
    return max(0, now_ms - chain.links[0].closed_ms - retention.minutes * 60_000)


def _retention(policies: Effective) -> Retention:
    retention = policies[model.RETENTION]
    return Retention(retention.minutes, retention.mb, retention.count)


def _trim_mark(record: TopicRecord, policies: Effective, marks: Iterable[Position]) -> Position:
    """Return the position above which nothing may be trimmed, by the marks of the cursors."""
    lowest = min(marks, default=LATEST)
    horizon = _horizon(record)
    if horizon is not None or policies[model.COMPACTION_THRESHOLD]:
        return min(lowest, horizon or EARLIEST)
    return lowest


def _horizon(record: TopicRecord) -> Position | None:
    view = record.compacted
    return None if view is None else Position(view.horizon_ledger, view.horizon_entry)


def _backlog_due(
    chain: Chain, subscriptions: Mapping[str, CursorRecord], policies: Effective, now_ms: int
) -> str:
    if not subscriptions:
        return ""
    slowest = min(
        Position(cursor.mark_ledger, cursor.mark_entry) for cursor in subscriptions.values()
    )
    oldest = next(
        (link for link in chain.links if link.entries and link.last_position > slowest), None
    )
    # By this time everything in the oldest ledger with backlog had been published.
    oldest_ms = 0 if oldest is None else oldest.closed_ms
    # The TTL of a delayed message counts from when it is due.
    due_ms = 0 if oldest is None else max(oldest_ms, oldest.own_times_ms)
    ttl_seconds = policies[model.MESSAGE_TTL]
    if ttl_seconds and oldest_ms and now_ms - due_ms >= ttl_seconds * 1000:
        return "messages have outlived their TTL"
    quotas = policies.quotas()
    size, age = quotas["destination_storage"], quotas["message_age"]
    # Quotas that block producers do not matter for a topic without producers.
    if size.policy == "consumer_backlog_eviction" and 0 <= size.size_bytes < chain.bytes_above(
        slowest
    ):
        return "its backlog is above its quota"
    evicted_by_age = age.policy == "consumer_backlog_eviction" and age.limit_time_seconds >= 0
    if evicted_by_age and oldest_ms and now_ms - oldest_ms > age.limit_time_seconds * 1000:
        return "its backlog is older than its quota"
    return ""


def _subscriptions_due(
    subscriptions: Mapping[str, CursorRecord], minutes: int, now_ms: int, interval_seconds: float
) -> str:
    if not minutes:
        return ""
    limit_ms = minutes * 60_000 + subscription_note_ms(minutes, interval_seconds)
    for name, cursor in subscriptions.items():
        if not cursor.last_active_ms:
            return f"it is not known since when subscription {name!r} is not used"
        if now_ms - cursor.last_active_ms >= limit_ms:
            return f"subscription {name!r} has expired"
    return ""


def _inactivity_due(
    record: TopicRecord,
    chain: Chain,
    subscriptions: Mapping[str, CursorRecord],
    policies: Effective,
    now_ms: int,
) -> str:
    policy = policies[model.INACTIVE_TOPIC]
    if not policy.delete_while_inactive or record.schedules is not None:
        return ""
    last = chain.last_position()
    horizon = _horizon(record)
    is_kept = horizon is not None or (
        chain.entries > 0 and policies[model.COMPACTION_THRESHOLD] > 0
    )
    if is_kept and (policy.mode == "delete_when_no_subscriptions" or (horizon or EARLIEST) < last):
        return ""
    for cursor in subscriptions.values():
        if (
            policy.mode == "delete_when_no_subscriptions"
            or Position(cursor.mark_ledger, cursor.mark_entry) < last
        ):
            return ""
    if not record.inactive_since_ms:
        return "it is not known since when it is unused"
    retention_minutes = policies[model.RETENTION].minutes
    if chain.entries and retention_minutes < 0:
        return ""
    wait_ms = max(policy.seconds * 1000, retention_minutes * 60_000 if chain.entries else 0)
    return (
        "no client has used it for as long as its policy says"
        if now_ms - record.inactive_since_ms >= wait_ms
        else ""
    )
