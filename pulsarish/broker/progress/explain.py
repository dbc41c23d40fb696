"""Why a subscription does not move: the only place that judges this, from a snapshot and nothing
else.

A subscription *can move* when it has a backlog, a consumer that can receive more, and entries to
deliver or to read. Then a read or a delivery must be in progress, be about to be retried, or wait
for a rate: there is no other reason to wait. A subscription that can move but does not is the
breach that the watchdog and the simulator look for (``must_move``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pulsarish.broker.clients.wait_reasons import ACTIVE, IDLE, Waiting, counted, duration
from pulsarish.broker.dispatchers.dispatcher import DispatcherKind
from pulsarish.broker.progress.snapshot import ConsumerState, SubscriptionSnapshot

__all__ = ["READ_MS_MAX", "can_move", "explain", "must_move"]

READ_MS_MAX: Final = 300_000
"""A read that takes longer is not a reason to wait: each replica has its own, much shorter
timeout.
"""

_LATE_MS: Final = 1_000  # something scheduled may be this much late
_NAMED_MAX: Final = 3  # number of consumers, keys or bookies that a sentence names


def must_move(snapshot: SubscriptionSnapshot) -> bool:
    """Return whether there is no reason to wait: a read must be in progress, or deliveries must
    flow.
    """
    return _explain(snapshot) is ACTIVE


def explain(snapshot: SubscriptionSnapshot) -> Waiting:
    """Return why the subscription waits, or that it does not."""
    found = _explain(snapshot)
    if found is ACTIVE and snapshot.stalled_since_ms:
        since_ms = snapshot.stalled_since_ms
        text = (
            f"There are {snapshot.backlog} entries to deliver, a consumer with permits and no "
            "reason to wait, and nothing has been read or"
            f" delivered for {_for(snapshot, since_ms)}: the broker restarts the dispatcher."
        )
        return Waiting("waiting", "stalled", text, since_ms)
    return found


def _explain(snapshot: SubscriptionSnapshot) -> Waiting:
    if not snapshot.backlog:
        return IDLE
    if snapshot.seeking_since_ms:
        text = (
            f"A seek has been under way for {_for(snapshot, snapshot.seeking_since_ms)}; "
            "deliveries go on from its position."
        )
        return Waiting("waiting", "seeking", text, snapshot.seeking_since_ms)
    if not snapshot.consumers:
        text = (
            "No consumer is connected to take the backlog of "
            f"{counted(snapshot.backlog, 'entry', 'entries')}."
        )
        return Waiting(
            "waiting",
            "no_consumers",
            text,
            snapshot.unused_since_ms,
            data={"backlog": snapshot.backlog},
        )
    return _under_way(snapshot) if can_move(snapshot) else _held_up(snapshot)


def can_move(snapshot: SubscriptionSnapshot) -> bool:
    """Return whether something can be read or delivered now, judged by the subscription's own
    state.
    """
    takers = [consumer for consumer in snapshot.consumers if consumer.can_take]
    if not takers or _is_blocked(snapshot):
        return False
    new = snapshot.has_unread and not snapshot.is_beyond_holes and not snapshot.delayed_full
    due = 0 < snapshot.next_due_ms <= snapshot.now_ms - _LATE_MS
    if snapshot.kind is DispatcherKind.KEY_SHARED:
        if snapshot.ready or snapshot.lost_sight or any(consumer.lined_up for consumer in takers):
            return True
        return snapshot.keys.has_room and (due or new)
    return bool(snapshot.ready or new or due or snapshot.chunks_ready or snapshot.lost_sight)


def _under_way(snapshot: SubscriptionSnapshot) -> Waiting:
    """Return what is in progress in a subscription that can move, or ``ACTIVE``."""
    now_ms = snapshot.now_ms
    is_reading = snapshot.reading_since_ms > 0 and snapshot.reading_ms < READ_MS_MAX
    where = _ledger(snapshot)
    data = _read_data(snapshot)
    if snapshot.failure and (is_reading or now_ms <= snapshot.retry_at_ms + _LATE_MS):
        text = (
            f"Reading from {snapshot.read_position} on failed: "
            f"{snapshot.failure.rstrip('.')}.{where} The broker tries again."
        )
        return Waiting(
            "waiting", "read_failed", text, snapshot.failed_since_ms, snapshot.retry_at_ms, data
        )
    if (
        snapshot.handing_over_since_ms
        and now_ms <= snapshot.handing_over_since_ms + snapshot.handing_over_max_ms + _LATE_MS
    ):
        name = next((consumer.name for consumer in snapshot.consumers if consumer.is_active), "")
        at_ms = snapshot.handing_over_since_ms + snapshot.handing_over_max_ms
        text = (
            f"Consumer {name} has become the active one and begins in "
            f"{duration(at_ms - now_ms)}, so that the former can acknowledge."
        )
        return Waiting(
            "waiting",
            "handing_over",
            text,
            snapshot.handing_over_since_ms,
            at_ms,
            {"consumer": name},
        )
    if snapshot.rate_since_ms and now_ms <= snapshot.rate_until_ms + _LATE_MS:
        if not snapshot.rate_policy:
            return Waiting(
                "waiting",
                "broker_rate_limited",
                f"Deliveries have reached {snapshot.rate}.",
                snapshot.rate_since_ms,
                snapshot.rate_until_ms,
            )
        text = f"Deliveries have reached the policy {snapshot.rate_policy} ({snapshot.rate})."
        rate = {"policy": snapshot.rate_policy, "rateCommand": f"get-{snapshot.rate_policy}"}
        return Waiting(
            "waiting", "rate_limited", text, snapshot.rate_since_ms, snapshot.rate_until_ms, rate
        )
    if is_reading:
        text = (
            f"Entries from {snapshot.read_position} on have been read for "
            f"{_for(snapshot, snapshot.reading_since_ms)}.{where}"
        )
        return Waiting("waiting", "reading", text, snapshot.reading_since_ms, data=data)
    return ACTIVE


def _held_up(snapshot: SubscriptionSnapshot) -> Waiting:
    """Return why a subscription cannot move: the first reason that an operator can act on."""
    for look in (
        _holes,
        _unacked_limit,
        _connections,
        _read_out,
        _permits,
        _keys,
        _chunks,
        _delays,
    ):
        found = look(snapshot)
        if found is not None:
            return found
    return _unacknowledged(snapshot)


def _holes(snapshot: SubscriptionSnapshot) -> Waiting | None:
    if not snapshot.is_beyond_holes:
        return None
    text = (
        f"{snapshot.holes} acknowledged ranges lie behind {snapshot.first_unacked}, which is "
        "not acknowledged: nothing new is delivered."
    )
    data = {"ranges": snapshot.holes, "firstUnacknowledged": snapshot.first_unacked}
    return Waiting("waiting", "too_many_holes", text, snapshot.holes_since_ms, data=data)


def _is_blocked(snapshot: SubscriptionSnapshot) -> bool:
    # It continues below half of the limit. Below that it is not a reason to wait, whatever the flag
    # says.
    return snapshot.is_blocked and 2 * snapshot.unacked >= snapshot.unacked_max


def _unacked_limit(snapshot: SubscriptionSnapshot) -> Waiting | None:
    if not _is_blocked(snapshot):
        return None
    text = (
        f"{snapshot.unacked} messages are delivered and not acknowledged; the limit is "
        f"{snapshot.unacked_max} for all consumers together"
        f" (max_unacked_messages_per_subscription). {_holders(snapshot, snapshot.consumers)}."
    )
    data = _limit_data("subscription", snapshot.unacked, snapshot.unacked_max, snapshot.consumers)
    return Waiting(
        "waiting", "blocked_on_unacked_messages", text, snapshot.last_consumed_ms, data=data
    )


def _connections(snapshot: SubscriptionSnapshot) -> Waiting | None:
    takers = _takers(snapshot)
    if not takers or any(consumer.has_room for consumer in takers):
        return None
    names = _named([f"consumer {consumer.name}" for consumer in takers])
    text = (
        f"What was sent to {names} is not read from the connection by its client: the program "
        "or the network is slow or stuck."
    )
    since_ms = max(consumer.delivered_ms for consumer in takers)
    return Waiting(
        "waiting",
        "connection_full",
        text,
        since_ms,
        data={"consumers": [consumer.name for consumer in takers]},
    )


def _read_out(snapshot: SubscriptionSnapshot) -> Waiting | None:
    """Return why, when nothing of the log is left to deliver; else ``None``."""
    if (
        snapshot.has_unread
        or snapshot.ready
        or snapshot.keys.kept
        or snapshot.chunks_held
        or snapshot.lost_sight
    ):
        return None
    return _delays(snapshot) or _unacknowledged(snapshot)


def _delays(snapshot: SubscriptionSnapshot) -> Waiting | None:
    if not snapshot.delayed:
        return None
    data = {"entries": snapshot.delayed, "nextDueMs": snapshot.next_due_ms}
    first = f"the first of them is due in {duration(snapshot.next_due_ms - snapshot.now_ms)}"
    if snapshot.delayed_full:
        text = (
            f"{snapshot.delayed} entries are to be delivered later, of which memory holds as many "
            f"as delayed_delivery_max_entries_per_subscription allows; {first}."
        )
        return Waiting(
            "waiting",
            "too_many_delayed",
            text,
            snapshot.last_consumed_ms,
            snapshot.next_due_ms,
            data,
        )
    text = f"{counted(snapshot.delayed, 'entry is', 'entries are')} to be delivered later; {first}."
    return Waiting(
        "waiting", "delayed", text, snapshot.last_consumed_ms, snapshot.next_due_ms, data
    )


def _unacknowledged(snapshot: SubscriptionSnapshot) -> Waiting:
    text = (
        f"The whole backlog of {counted(snapshot.backlog, 'entry', 'entries')} is delivered "
        "and not acknowledged;"
        f" the oldest entry is {snapshot.first_unacked}. {_holders(snapshot, snapshot.consumers)}."
    )
    data = {
        "backlog": snapshot.backlog,
        "firstUnacknowledged": snapshot.first_unacked,
        "consumers": _rows(snapshot.consumers),
    }
    return Waiting(
        "waiting",
        "unacknowledged",
        text,
        max(snapshot.last_consumed_ms, snapshot.last_acked_ms),
        data=data,
    )


def _permits(snapshot: SubscriptionSnapshot) -> Waiting | None:
    """Return why, when no consumer can receive anything; else ``None``."""
    takers = _takers(snapshot)
    if any(consumer.can_take for consumer in takers):
        return None
    since_ms = max((_asked_ms(consumer) for consumer in takers), default=0)
    blocked = [consumer for consumer in takers if consumer.is_blocked]
    if blocked:
        limit = snapshot.unacked_max_consumer
        text = (
            f"{_holders(snapshot, blocked)}; the limit of each consumer is {limit} "
            "(max_unacked_messages_per_consumer)."
        )
        data = _limit_data(
            "consumer", sum(consumer.unacked for consumer in blocked), limit, blocked
        )
        return Waiting("waiting", "blocked_on_unacked_messages", text, since_ms, data=data)
    asked = _named(
        [
            f"consumer {each.name} has asked for nothing more for {_for(snapshot, _asked_ms(each))}"
            for each in takers
        ]
    )
    text = (
        f"No consumer has permits: {asked}. {_holders(snapshot, takers)}. The program does "
        "not receive, or has paused its consumer."
    )
    return Waiting("waiting", "no_permits", text, since_ms, data={"consumers": _rows(takers)})


def _keys(snapshot: SubscriptionSnapshot) -> Waiting | None:
    keys = snapshot.keys
    if not keys.kept:
        return None
    if keys.draining:
        waiting = sum(key.waiting for key in keys.draining)
        shown = [
            f"key hash {key.key_hash} ({key.held} held by consumer {key.holder})"
            for key in keys.draining
        ]
        text = (
            f"{counted(waiting, 'entry waits', 'entries wait')} until other consumers "
            f"acknowledge what they hold of {_named(shown)}."
        )
        held = [
            {
                "keyHash": key.key_hash,
                "consumer": key.holder,
                "held": key.held,
                "waiting": key.waiting,
            }
            for key in keys.draining
        ]
        return Waiting(
            "waiting", "keys_draining", text, snapshot.last_acked_ms, data={"keys": held}
        )
    busy = [consumer for consumer in snapshot.consumers if consumer.lined_up]
    if busy:
        shown = [
            f"{consumer.lined_up} for consumer {consumer.name} ({_why_not(consumer)})"
            for consumer in busy
        ]
        text = (
            "The entries that were read have keys of consumers that cannot take them: "
            f"{_named(shown)}."
        )
        if not keys.has_room:
            text += f" No more is read ahead of them: the limit is {keys.look_ahead_max} entries."
        since_ms = max(_asked_ms(consumer) for consumer in busy)
        return Waiting("waiting", "keys_held", text, since_ms, data={"consumers": _rows(busy)})
    text = (
        f"{counted(keys.unassigned, 'entry has a key', 'entries have keys')} in the hash "
        "ranges of no connected consumer."
    )
    return Waiting("waiting", "keys_unassigned", text, data={"entries": keys.unassigned})


def _chunks(snapshot: SubscriptionSnapshot) -> Waiting | None:
    if not snapshot.chunks_held:
        return None
    holders = _named([f"consumer {name}" for name in snapshot.chunk_holders])
    count = counted(snapshot.chunks_held, "chunk waits", "chunks wait")
    text = (
        f"{count} for {holders}, which has the first chunks of their messages and can take "
        "nothing now."
    )
    return Waiting(
        "waiting",
        "chunks_held",
        text,
        snapshot.last_consumed_ms,
        data={"consumers": list(snapshot.chunk_holders)},
    )


# -- parts of sentences


def _takers(snapshot: SubscriptionSnapshot) -> list[ConsumerState]:
    return [consumer for consumer in snapshot.consumers if consumer.is_active]


def _why_not(consumer: ConsumerState) -> str:
    if consumer.is_blocked:
        return f"it holds {consumer.unacked} unacknowledged messages, its limit"
    return "its connection is full" if not consumer.has_room else "no permits"


def _asked_ms(consumer: ConsumerState) -> int:
    return max(consumer.delivered_ms, consumer.flow_ms, consumer.connected_ms)


def _holders(snapshot: SubscriptionSnapshot, consumers: Sequence[ConsumerState]) -> str:
    """Return which consumers hold how many messages, and the time since their last delivery."""
    holding = sorted((each for each in consumers if each.unacked), key=lambda each: -each.unacked)
    if not holding:
        return "No consumer holds unacknowledged messages"
    shown = []
    for each in holding:
        since = (
            f", the last delivered {_for(snapshot, each.delivered_ms)} ago"
            if each.delivered_ms
            else ""
        )
        shown.append(f"Consumer {each.name} holds {each.unacked} unacknowledged{since}")
    return _named(shown)


def _rows(consumers: Sequence[ConsumerState]) -> list[dict[str, object]]:
    return [
        {
            "consumerName": each.name,
            "availablePermits": each.permits,
            "unackedMessages": each.unacked,
            "lastConsumedFlowTimestamp": each.flow_ms,
            "lastConsumedTimestamp": each.delivered_ms,
        }
        for each in consumers
    ]


def _limit_data(
    level: str, unacked: int, limit: int, consumers: Sequence[ConsumerState]
) -> dict[str, object]:
    command = f"get-max-unacked-messages-per-{level}"
    return {
        "unackedMessages": unacked,
        "limit": limit,
        "limitCommand": command,
        "consumers": _rows(consumers),
    }


def _read_data(snapshot: SubscriptionSnapshot) -> dict[str, object]:
    data: dict[str, object] = {"position": snapshot.read_position}
    if snapshot.ledger_id >= 0:
        data["ledgerId"] = snapshot.ledger_id
    if snapshot.bookies:
        data["bookies"] = [
            {"bookie": each.name, "registered": each.is_registered} for each in snapshot.bookies
        ]
    return data


def _ledger(snapshot: SubscriptionSnapshot) -> str:
    """Return a sentence that names the ledger and its bookies, if they are known."""
    if snapshot.ledger_id < 0:
        return ""
    if not snapshot.bookies:
        return f" They are in ledger {snapshot.ledger_id}."
    names = ", ".join(
        each.name + ("" if each.is_registered else " (not registered)") for each in snapshot.bookies
    )
    return f" They are in ledger {snapshot.ledger_id} on {names}."


def _for(snapshot: SubscriptionSnapshot, since_ms: int) -> str:
    return duration(snapshot.now_ms - since_ms) if since_ms else "an unknown time"


def _named(parts: Sequence[str]) -> str:
    """Return the first few parts, and how many more there are."""
    more = f" and {len(parts) - _NAMED_MAX} more" if len(parts) > _NAMED_MAX else ""
    return "; ".join(parts[:_NAMED_MAX]) + more
