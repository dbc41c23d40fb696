"""The answer of ``explain`` for a topic or a subscription: part of the topic's statistics, with a
sentence and a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pulsarish.broker.clients.wait_reasons import Waiting, waiting_row
from pulsarish.model.errors import SubscriptionNotFound

__all__ = ["metadata_away_report", "subscription_report", "topic_report"]


def topic_report(topic: str, stats: Mapping[str, Any]) -> dict[str, Any]:
    """Explain why publishing waits, for the topic and each of its producers, and why its
    subscriptions wait.
    """
    waiting = _said(
        stats["waiting"],
        "Publishing does not wait for anything.",
        "Entries are being written, and none is late.",
    )
    publishers = [
        {
            "producerName": each["producerName"],
            **_said(
                each["waiting"], "Everything that it sent is confirmed.", "Its entries are on time."
            ),
        }
        for each in (*stats["publishers"], *stats.get("publishersInTurn", ()))
        if "waiting" in each
    ]
    subscriptions = {name: _subscription(each) for name, each in stats["subscriptions"].items()}
    return {"topic": topic, **waiting, "publishers": publishers, "subscriptions": subscriptions}


def subscription_report(topic: str, name: str, stats: Mapping[str, Any]) -> dict[str, Any]:
    """Explain why the subscription waits. Raises ``SubscriptionNotFound``."""
    subscriptions = stats["subscriptions"]
    if name in subscriptions:
        return {"topic": topic, "subscription": name, **_subscription(subscriptions[name])}
    if stats["waiting"]["state"] == "waiting" and "ledger" not in stats:
        # The topic is not open, so its subscriptions are not known.
        return {"topic": topic, "subscription": name, "msgBacklog": None, **stats["waiting"]}
    known = ", ".join(subscriptions) or "none"
    raise SubscriptionNotFound(f"topic {topic} has no subscription {name!r}; it has: {known}")


def metadata_away_report(topic: str, error: str, subscription: str = "") -> dict[str, Any]:
    """Explain a topic or subscription on a broker that does not serve it and cannot find its
    owner.
    """
    text = (
        "This broker does not serve it, and cannot find out from the metadata service which "
        f"one does: {error.rstrip('.')}."
    )
    waiting = waiting_row(Waiting("waiting", "metadata_away", text), topic, subscription)
    if subscription:
        return {"topic": topic, "subscription": subscription, "msgBacklog": None, **waiting}
    return {"topic": topic, **waiting, "publishers": [], "subscriptions": {}}


def _subscription(stats: Mapping[str, Any]) -> dict[str, Any]:
    backlog = stats["msgBacklog"]
    waiting = _said(
        stats["waiting"],
        "There is no backlog: every message is delivered and acknowledged.",
        (
            f"It moves: {backlog} {'entry is' if backlog == 1 else 'entries are'} left, and its "
            "consumers take them."
        )
        if backlog
        else "It moves: each message goes to its consumers as it comes.",
    )
    return {"type": stats["type"], "msgBacklog": backlog, **waiting}


def _said(waiting: Mapping[str, Any], idle: str, active: str) -> dict[str, Any]:
    """Add a sentence where nothing waits: statistics leave it out."""
    text = waiting["explanation"] or (idle if waiting["state"] == "idle" else active)
    return {**waiting, "explanation": text}
