"""Statistics of a key-shared subscription and its consumers, with Apache Pulsar's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulsarish.broker.clients.commands import KeySharedMode

if TYPE_CHECKING:
    from pulsarish.broker.dispatchers.key_shared import KeySharedDispatcher

__all__ = ["key_sharing", "key_sharing_by_consumer"]

_MODES = {KeySharedMode.AUTO_SPLIT: "AUTO_SPLIT", KeySharedMode.STICKY: "STICKY"}


def key_sharing(dispatcher: KeySharedDispatcher) -> dict[str, Any]:
    """Return the statistics of the subscription."""
    draining = [each for held in dispatcher.draining().values() for each in held]
    waiting_draining, waiting_nobodys = dispatcher.barred_counts
    return {
        "keySharedMode": _MODES[dispatcher.policy.mode],
        "allowOutOfOrderDelivery": dispatcher.policy.allow_out_of_order_delivery,
        "msgInReplay": dispatcher.waiting_count,
        "drainingHashesCount": len(draining),
        "drainingHashesClearedTotal": sum(dispatcher.cleared.values()),
        "drainingHashesUnackedMessages": sum(each.entries for each in draining),
        "entriesOfDrainingHashes": waiting_draining,
        "entriesOfUnassignedHashes": waiting_nobodys,
    }


def key_sharing_by_consumer(dispatcher: KeySharedDispatcher) -> dict[int, dict[str, Any]]:
    """Return the statistics of each consumer, by its join order."""
    draining = dispatcher.draining()
    found: dict[int, dict[str, Any]] = {}
    for consumer in dispatcher.consumers:
        ranges = dispatcher.ranges(consumer)
        mine = draining[consumer.order]
        found[consumer.order] = {
            "keyHashRanges": [f"[{first}, {last}]" for first, last in ranges],
            "keyHashRangeArrays": [[first, last] for first, last in ranges],
            "drainingHashesCount": len(mine),
            "drainingHashesClearedTotal": dispatcher.cleared[consumer.order],
            "drainingHashesUnackedMessages": sum(each.entries for each in mine),
            "drainingHashes": [
                {"hash": each.key_hash, "unackMsgs": each.entries, "blockedAttempts": each.attempts}
                for each in mine
            ],
        }
    return found
