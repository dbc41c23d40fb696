"""What the statistics of a topic say of its backlogs altogether, under Apache Pulsar's names, from those of its subscriptions. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulsarish.model.policies import BacklogQuota, QuotaType

__all__ = ["backlog_stats", "oldest_backlog"]

Subscriptions = Mapping[str, Mapping[str, Any]]


def backlog_stats(subscriptions: Subscriptions, quotas: Mapping[QuotaType, BacklogQuota]) -> dict[str, Any]:
    """``subscriptions`` as the statistics have them, ``quotas`` as they are in force."""
    instants = [each["earliestMsgPublishTimeInBacklog"] for each in subscriptions.values()]
    return {
        **oldest_backlog(subscriptions),
        "earliestMsgPublishTimeInBacklogs": min((each for each in instants if each > 0), default=0),
        "backlogQuotaLimitSize": quotas["destination_storage"].size_bytes,
        "backlogQuotaLimitTime": quotas["message_age"].limit_time_seconds,
        "nonContiguousDeletedMessagesRanges": sum(each["nonContiguousDeletedMessagesRanges"] for each in subscriptions.values()),
    }


def oldest_backlog(subscriptions: Subscriptions) -> dict[str, Any]:
    """Whose backlog has the oldest message, as far as ages are known, and its age: -1 seconds without any."""
    ages = {name: age for name, each in subscriptions.items() if (age := each.get("oldestUnackedAgeMs")) is not None}
    name = max(ages, key=ages.__getitem__, default=None)
    return {
        "oldestBacklogMessageAgeSeconds": -1 if name is None else ages[name] // 1000,
        "oldestBacklogMessageSubscriptionName": name,
    }
