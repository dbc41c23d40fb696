"""The sums over a topic's backlogs, with Apache Pulsar's names, from the statistics of its
subscriptions.

No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulsarish.model.policies import BacklogQuota
from pulsarish.model.policy_words import QuotaType

__all__ = ["backlog_stats", "oldest_backlog", "show_earliest"]

Subscriptions = Mapping[str, Mapping[str, Any]]


def backlog_stats(
    subscriptions: Subscriptions, quotas: Mapping[QuotaType, BacklogQuota]
) -> dict[str, Any]:
    """Return the sums.

    ``subscriptions``: their statistics; ``quotas``: the backlog quotas in force.
    """
    return {
        **oldest_backlog(subscriptions),
        "earliestMsgPublishTimeInBacklogs": _earliest(subscriptions),
        "backlogQuotaLimitSize": quotas["destination_storage"].size_bytes,
        "backlogQuotaLimitTime": quotas["message_age"].limit_time_seconds,
        "nonContiguousDeletedMessagesRanges": sum(
            each["nonContiguousDeletedMessagesRanges"] for each in subscriptions.values()
        ),
    }


def oldest_backlog(subscriptions: Subscriptions) -> dict[str, Any]:
    """Return the age of the oldest known backlog message, -1 seconds without any, and its
    subscription.
    """
    ages = {
        name: age
        for name, each in subscriptions.items()
        if (age := each.get("oldestUnackedAgeMs")) is not None
    }
    name = max(ages, key=ages.__getitem__, default=None)
    return {
        "oldestBacklogMessageAgeSeconds": -1 if name is None else ages[name] // 1000,
        "oldestBacklogMessageSubscriptionName": name,
    }


def show_earliest(stats: dict[str, Any], *, is_wanted: bool) -> None:
    """Show the publish time of each subscription's oldest unacknowledged message as Apache Pulsar
    does: 0 unless a request wants it, -1 if there is no such message.
    """
    subscriptions = stats["subscriptions"]
    for each in subscriptions.values():
        if not is_wanted:
            each["earliestMsgPublishTimeInBacklog"] = 0
        elif not each["msgBacklog"]:
            each["earliestMsgPublishTimeInBacklog"] = -1
    if "earliestMsgPublishTimeInBacklogs" in stats:
        stats["earliestMsgPublishTimeInBacklogs"] = _earliest(subscriptions)


def _earliest(subscriptions: Subscriptions) -> int:
    instants = [each["earliestMsgPublishTimeInBacklog"] for each in subscriptions.values()]
    return min((each for each in instants if each > 0), default=0)
