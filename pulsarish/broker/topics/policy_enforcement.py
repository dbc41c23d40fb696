"""Enforcement of policies on a loaded topic: periodically message TTL, expiry of subscriptions and
deletion of inactive topics, and backlog quotas, which ``QuotaWatch`` checks more often.

Everything here acknowledges, blocks or deletes by rules that an operator set. What fails now is
tried again in the next round.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from pulsarish.broker.subscriptions.subscription import Subscription
from pulsarish.broker.topics.dedup_switch import settle_deduplication
from pulsarish.broker.topics.topic import Topic
from pulsarish.model.errors import (
    ProducerBlockedQuotaExceededError,
    ProducerBlockedQuotaExceededException,
    PulsarishError,
)
from pulsarish.model.policies import (
    COMPACTION_THRESHOLD,
    INACTIVE_TOPIC,
    SUBSCRIPTION_EXPIRATION_TIME,
    BacklogQuota,
)
from pulsarish.model.position import EARLIEST
from pulsarish.runtime.log import get_logger

__all__ = [
    "abandoned_still",
    "check_quota",
    "enforce_policies",
    "is_quota_kept",
    "subscription_note_ms",
]

_log = get_logger("broker.upkeep")

# part of the quota that an evicted backlog may keep, so that it is not evicted again at once
_EVICTED_TO: Final = 0.9


async def enforce_policies(topic: Topic, now_ms: int, interval_seconds: float) -> bool:
    """Enforce all policies but the backlog quotas.

    Return whether the topic is to be deleted, because it was unused for as long as its policy says.

    Args:
        now_ms: the wall clock, like publish times.
        interval_seconds: how often this is called.

    Raises the errors of the log and its cursors.
    """
    await settle_deduplication(topic)
    if topic.subscriptions:
        await topic.message_expiry.expire(topic.subscriptions, topic.topic_limits.policies, now_ms)
    await expire_subscriptions(topic, now_ms, interval_seconds)
    if threshold_bytes := topic.topic_limits.policies[COMPACTION_THRESHOLD]:
        topic.compaction.start_if_due(threshold_bytes)
    await topic.log.maintain()
    await _read_oldest_of_holes(topic, now_ms - int(interval_seconds * 1000))
    return await is_abandoned(topic, now_ms)


async def _read_oldest_of_holes(topic: Topic, before_ms: int) -> None:
    """Read when the oldest entries were published that have held up a mark-delete position since
    before a time: metrics show their age, and read nothing.
    """
    for subscription in list(topic.subscriptions.values()):
        cursor, marks = subscription.cursor, subscription.marks
        if cursor.hole_count and marks.mark_delete_advanced_ms <= before_ms:
            with suppress(PulsarishError):  # the next round tries again
                await subscription.oldest_publish_ms()


async def _evict_old(topic: Topic, before_ms: int) -> None:
    """Acknowledge what was published before a time, delayed messages too."""
    for subscription in list(topic.subscriptions.values()):
        oldest_ms = await subscription.oldest_publish_ms()
        if oldest_ms is not None and oldest_ms < before_ms and subscription.closed is None:
            await subscription.expire(before_ms)


def is_quota_kept(topic: Topic, now_ms: int) -> bool:
    """Return whether ``check_quota`` has nothing to do and nothing to read.

    An entry counts as at least as young as the entries before it, so that the oldest one is not
    read again whenever it is acknowledged.
    """
    if topic.topic_limits.quota_error is not None:
        return False
    quotas = topic.topic_limits.policies.quotas()
    size_bytes = quotas["destination_storage"].size_bytes
    if size_bytes >= 0 and _backlog_bytes(topic) > size_bytes:
        return False
    age_seconds = quotas["message_age"].limit_time_seconds
    before_ms = now_ms - age_seconds * 1000
    return age_seconds < 0 or all(
        not subscription.cursor.backlog()
        or (
            (oldest := subscription.oldest) is not None
            and oldest[0] <= subscription.cursor.read_from
            and oldest[1] >= before_ms
        )
        for subscription in _durable(topic)
    )


async def check_quota(topic: Topic, now_ms: int) -> None:
    """Enforce the backlog quotas: block producers or evict backlog, as the policy says.

    Unblock producers once the quota is kept.
    """
    quotas = topic.topic_limits.policies.quotas()
    error = None
    size, age = quotas["destination_storage"], quotas["message_age"]
    if size.size_bytes >= 0 and (backlog_bytes := _backlog_bytes(topic)) > size.size_bytes:
        if size.policy == "consumer_backlog_eviction":
            await _evict_size(topic, size.size_bytes)
        else:
            error = _blocked(
                topic,
                size,
                f"its backlog of {backlog_bytes} bytes is above limitSize {size.size_bytes}",
            )
    if age.limit_time_seconds >= 0 and (oldest_ms := await _oldest_ms(topic)) is not None:
        age_seconds = (now_ms - oldest_ms) / 1000
        if age_seconds > age.limit_time_seconds:
            if age.policy == "consumer_backlog_eviction":
                await _evict_old(topic, now_ms - int(age.limit_time_seconds * _EVICTED_TO * 1000))
            else:
                error = error or _blocked(
                    topic,
                    age,
                    f"its oldest message is {age_seconds:.0f} s old, above limitTime "
                    f"{age.limit_time_seconds}",
                )
    before = topic.topic_limits.quota_error
    if (error is None) != (before is None) or type(error) is not type(before):
        _log.warning(
            "backlog quota", topic=topic.name, state="kept again" if error is None else str(error)
        )
        topic.topic_limits.hold(error)
        if error is not None:
            topic.publishing.close_producers(error)


def _durable(topic: Topic) -> list[Subscription]:
    """Return the durable subscriptions. Cursors of readers do not keep messages."""
    return [
        subscription for subscription in topic.subscriptions.values() if subscription.cursor.durable
    ]


def _backlog_bytes(topic: Topic) -> int:
    return max(
        (
            topic.log.bytes_above(subscription.cursor.mark_delete)
            for subscription in _durable(topic)
        ),
        default=0,
    )


async def _oldest_ms(topic: Topic) -> int | None:
    found = [await subscription.oldest_publish_ms() for subscription in _durable(topic)]
    return min((each for each in found if each is not None), default=None)


def _blocked(topic: Topic, quota: BacklogQuota, why: str) -> PulsarishError:
    text = (
        f"nothing can be published to {topic.name}: {why}; consume the backlog, skip it, or "
        "raise the quota"
    )
    if quota.policy == "producer_exception":
        return ProducerBlockedQuotaExceededException(text)
    return ProducerBlockedQuotaExceededError(text)


async def _evict_size(topic: Topic, limit_bytes: int) -> None:
    """Skip the oldest entries on every subscription that still needs them, until the backlog is
    well below the limit.
    """
    position = topic.log.last_before_bytes(int(limit_bytes * _EVICTED_TO))
    if position is None:
        return
    for subscription in _durable(topic):
        if subscription.cursor.mark_delete < position and subscription.closed is None:
            _log.warning(
                "backlog evicted",
                topic=topic.name,
                subscription=subscription.name,
                through=position,
            )
            await subscription.skip_through(position)


async def expire_subscriptions(topic: Topic, now_ms: int, interval_seconds: float) -> None:
    """Delete subscriptions without consumers for as long as the policy says.

    Record which ones are in use.

    The record may be older than the last use, by up to the time between two records. So the broker
    waits that much longer: a subscription whose broker died must not count as unused.
    """
    minutes = topic.topic_limits.policies[SUBSCRIPTION_EXPIRATION_TIME]
    if not minutes:
        return
    note_ms = subscription_note_ms(minutes, interval_seconds)
    for subscription in _durable(topic):
        cursor = subscription.cursor
        if not cursor.last_active_ms or (
            subscription.consumers and now_ms - cursor.last_active_ms >= note_ms
        ):
            await cursor.note_active(now_ms)
        elif (
            not subscription.consumers
            and now_ms - cursor.last_active_ms >= minutes * 60_000 + note_ms
        ):
            _log.warning(
                "subscription expired",
                topic=topic.name,
                subscription=subscription.name,
                last_active_ms=cursor.last_active_ms,
            )
            await topic.unsubscribe(subscription.name, force=False)


def subscription_note_ms(minutes: int, interval_seconds: float) -> int:
    """Return how often to record that a subscription is in use, if it expires after ``minutes``."""
    return max(minutes * 60_000 // 10, int(2 * interval_seconds * 1000))


async def is_abandoned(topic: Topic, now_ms: int) -> bool:
    """Return whether the topic was unused for as long as its policy says.

    The time since when it is unused is stored. It is cleared once the topic is used.
    """
    policy = topic.topic_limits.policies[INACTIVE_TOPIC]
    if not policy.delete_while_inactive:
        return False
    if _in_use(topic, policy.mode):
        await topic.note_used()
        return False
    if not topic.log.attributes.inactive_since_ms:
        await topic.log.attributes.note_inactive(now_ms)
    return abandoned_still(topic, now_ms)


def abandoned_still(topic: Topic, now_ms: int) -> bool:
    """Return whether a topic with a recorded "unused since" is still abandoned. Changes nothing."""
    policy, since_ms = (
        topic.topic_limits.policies[INACTIVE_TOPIC],
        topic.log.attributes.inactive_since_ms,
    )
    if (
        topic.closed is not None
        or not policy.delete_while_inactive
        or not since_ms
        or _in_use(topic, policy.mode)
    ):
        return False
    retention = topic.topic_limits.retention()
    if topic.log.entries and retention.minutes < 0:
        return False
    return now_ms - since_ms >= max(
        policy.seconds * 1000, retention.minutes * 60_000 if topic.log.entries else 0
    )


def _in_use(topic: Topic, mode: str) -> bool:
    """Return whether producers, consumers, schedules, or the subscriptions that the policy's mode
    counts use the topic.
    """
    if topic.connected or topic.log.attributes.schedule_marks is not None:
        return True
    # The compacted view counts like a subscription, as in Apache Pulsar: it may hold messages that
    # the log no longer has. So do messages that wait for the first compaction.
    log = topic.log
    is_kept = log.views.horizon is not None or (
        log.entries > 0 and topic.topic_limits.retention().until_compacted
    )
    if mode == "delete_when_no_subscriptions":
        return bool(topic.subscriptions) or is_kept
    is_behind = is_kept and (log.views.horizon or EARLIEST) < log.last_confirmed
    return is_behind or any(
        subscription.cursor.backlog() for subscription in topic.subscriptions.values()
    )
