"""Why something of a topic stands still, and since when: judged when somebody asks, from what the parts remember anyway.

A reason is one word for scripts (``REASONS`` says what each means) and a sentence with the numbers of the case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pulsarish.broker.dispatchers.key_shared import KeySharedDispatcher
from pulsarish.broker.dispatchers.several import SeveralConsumers
from pulsarish.broker.dispatchers.single_active import SingleActiveDispatcher
from pulsarish.managed_ledger.chain_core import Phase
from pulsarish.model.errors import MetadataUnavailable, NotEnoughBookies, PulsarishError
from pulsarish.runtime.seams import SessionState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pulsarish.broker.consumer import Consumer
    from pulsarish.broker.policing import Policing
    from pulsarish.broker.producer import Producer
    from pulsarish.broker.subscription import Subscription
    from pulsarish.managed_ledger.condition import LogCondition
    from pulsarish.model.position import Position

__all__ = ["IDLE", "REASONS", "Waiting", "load_waiting", "log_waiting", "policy_waiting", "producer_waiting", "subscription_waiting"]

REASONS: Final = {
    "no_consumers": "there are messages and nobody is connected to take them",
    "no_permits": "there are messages and no consumer has asked for more",
    "connection_full": "a consumer's client does not take what was sent to it",
    "blocked_on_unacked_messages": "too many messages are delivered and not acknowledged",
    "too_many_holes": "too many ranges are acknowledged behind messages that are not",
    "rate_limited": "a rate that policies set is reached",
    "backlog_quota": "nobody may publish, because the backlog is beyond its quota",
    "read_failed": "messages cannot be read; it is tried again",
    "reading": "messages are being read from the bookies",
    "handing_over": "another consumer has become the active one, and the former may still acknowledge",
    "keys_draining": "keys have moved to other consumers than those that hold unacknowledged messages of them",
    "keys_unassigned": "messages have keys that are in no connected consumer's hash ranges",
    "delayed": "everything that is left is to be delivered at a later time",
    "too_many_delayed": "so many messages are to be delivered at a later time that nothing new is read",
    "unacknowledged": "everything is delivered and acknowledgements are awaited",
    "too_few_bookies": "there are fewer bookies than copies that must be on disk",
    "metadata_away": "the metadata service does not answer",
    "ledger_change": "the next ledger is being made, or the current one ended or recovered",
    "ensemble_change": "a bookie of the ledger is being replaced",
    "slow_bookies": "bookies have not confirmed the oldest entry",
    "predecessor": "entries of an earlier connection of the same producer have no outcome yet",
    "loading": "the topic is being opened",
    "load_failed": "the topic cannot be opened; it is tried again for each client that asks",
}
"""What each reason means."""

_SLOW_MS: Final = 100  # confirmations that take no longer are nothing to report


@dataclass(frozen=True, slots=True)
class Waiting:
    """``state`` is active, idle or waiting; ``reason`` and ``text`` say why, ``since_ms`` (wall clock, 0: not known) since when.
    ``retry_at_ms``: when it is tried again; 0: when something happens."""

    state: Literal["active", "idle", "waiting"]
    reason: str = ""
    text: str = ""
    since_ms: int = 0
    retry_at_ms: int = 0

    def __post_init__(self) -> None:
        assert not self.reason or self.reason in REASONS


IDLE: Final = Waiting("idle")
_ACTIVE: Final = Waiting("active")


def subscription_waiting(subscription: Subscription, end: Position, unacked_max: int) -> Waiting:
    """``end``: the last confirmed position; ``unacked_max``: the limit for the whole subscription."""
    marks, cursor, dispatcher = subscription.marks, subscription.cursor, subscription.dispatcher
    backlog, reads, consumers = cursor.backlog(), dispatcher.reads, subscription.consumers
    if not backlog:
        return IDLE
    if not consumers:
        return Waiting("waiting", "no_consumers", f"nobody is connected to take the backlog of {backlog}", marks.unused_since_ms)
    if reads.failure:
        return Waiting("waiting", "read_failed", reads.failure, reads.failed_since_ms, marks.retry_at_ms)
    if cursor.blocked:
        text = f"{cursor.hole_count} acknowledged ranges lie behind {cursor.read_from}, which is not acknowledged"
        return Waiting("waiting", "too_many_holes", text, marks.holes_since_ms)
    if isinstance(dispatcher, SeveralConsumers) and dispatcher.blocked:
        text = f"{dispatcher.unacked()} messages are delivered and not acknowledged; the limit is {unacked_max}"
        return Waiting("waiting", "blocked_on_unacked_messages", text, marks.last_consumed_ms)
    takers = consumers
    if isinstance(dispatcher, SingleActiveDispatcher):
        takers = [] if dispatcher.active is None else [dispatcher.active]
    full = [consumer for consumer in takers if not consumer.outlet.has_room]
    if full and len(full) == len(takers):
        since_ms = max(consumer.last_delivered_ms for consumer in full)
        return Waiting("waiting", "connection_full", f"what was sent to {_some(full)} is not taken by its client", since_ms)
    read_out = _read_out(subscription, end)
    if read_out is not None:
        return read_out
    if takers and not any(consumer.available for consumer in takers):
        return _consumers_waiting(takers)
    if isinstance(dispatcher, KeySharedDispatcher) and (barred := _barred(dispatcher, marks.last_acked_ms)) is not None:
        return barred
    if isinstance(dispatcher, SingleActiveDispatcher) and dispatcher.handing_over:
        return Waiting("waiting", "handing_over", f"{_some(takers)} begins in a moment", marks.last_consumed_ms)
    if marks.rate_since_ms:
        return Waiting("waiting", "rate_limited", "deliveries have reached the dispatch rate of their policies", marks.rate_since_ms)
    if marks.reading_since_ms:
        return Waiting("waiting", "reading", f"entries from {reads.position} on are being read", marks.reading_since_ms)
    return _ACTIVE


def _read_out(subscription: Subscription, end: Position) -> Waiting | None:
    """Nothing more can be given out of what the log has."""
    marks, cursor, dispatcher = subscription.marks, subscription.cursor, subscription.dispatcher
    delayed = dispatcher.reads.delayed
    if delayed.is_full:
        text = f"{len(delayed)} entries are to be delivered later, the limit delayed_delivery_max_entries_per_subscription"
        return Waiting("waiting", "too_many_delayed", text, marks.last_consumed_ms, delayed.next_due_ms or 0)
    if dispatcher.waiting_count or dispatcher.reads.position <= end:
        return None
    if delayed:
        text = f"{len(delayed)} entries are to be delivered later"
        return Waiting("waiting", "delayed", text, marks.last_consumed_ms, delayed.next_due_ms or 0)
    text = f"the backlog of {cursor.backlog()} is delivered and not acknowledged, the oldest entry is {cursor.read_from}"
    return Waiting("waiting", "unacknowledged", text, max(marks.last_consumed_ms, marks.last_acked_ms))


def _barred(dispatcher: KeySharedDispatcher, since_ms: int) -> Waiting | None:
    """Everything that was read is of keys that nobody may get now."""
    draining, nobodys = dispatcher.barred_counts
    if draining + nobodys < dispatcher.waiting_count or not dispatcher.waiting_count:
        return None
    if draining:
        holders = sum(bool(each) for each in dispatcher.draining().values())
        text = f"{draining} entries wait until {holders} consumers acknowledge what they hold of keys that have moved to others"
        return Waiting("waiting", "keys_draining", text, since_ms)
    return Waiting("waiting", "keys_unassigned", f"{nobodys} entries have keys that are in no connected consumer's hash ranges")


def _consumers_waiting(consumers: Sequence[Consumer]) -> Waiting:
    """Nobody of these can take anything; the commonest cause that an operator can do something about comes first."""
    since_ms = max(max(consumer.last_delivered_ms, consumer.connected_ms) for consumer in consumers)
    blocked = [consumer for consumer in consumers if consumer.blocked]
    if blocked:
        unacked = sum(consumer.unacked for consumer in consumers)
        text = f"{_some(blocked)} may hold no more: {unacked} messages are delivered and not acknowledged"
        return Waiting("waiting", "blocked_on_unacked_messages", text, since_ms)
    return Waiting("waiting", "no_permits", f"{_some(consumers)} asked for nothing more", since_ms)


def _some(consumers: Sequence[Consumer]) -> str:
    return f"consumer {consumers[0].name}" if len(consumers) == 1 else f"{len(consumers)} consumers"


def log_waiting(condition: LogCondition, oldest_ms: int, session: SessionState, now_ms: int) -> Waiting:
    """What appends to a topic's log wait for. ``oldest_ms``: since when the oldest of them waits, 0: there is none."""
    trouble = condition.trouble
    if condition.phase in (Phase.DRAINING, Phase.REPLACING):
        if trouble is not None:
            text = f"{condition.step}: {trouble.error} (tried {trouble.attempts} times)"
            return Waiting("waiting", _kind(trouble.error, "ledger_change"), text, condition.since_ms, trouble.retry_at_ms)
        return Waiting("waiting", "ledger_change", condition.step, condition.since_ms)
    if not condition.pending_entries:
        return IDLE
    writer = condition.writer
    if writer is None or now_ms - oldest_ms < _SLOW_MS:
        return _ACTIVE
    if writer.changing:
        reason = "ensemble_change" if session is SessionState.CONNECTED else "metadata_away"
        text = f"members of ledger {writer.metadata.ledger_id} are being replaced; the metadata session is {session.value}"
        return Waiting("waiting", reason, text, oldest_ms)
    owing = f"{', '.join(writer.silent) or 'nobody'} owes an answer for the oldest of them in ledger {writer.metadata.ledger_id}"
    text = f"{condition.pending_entries} entries are not confirmed; {owing}"
    return Waiting("waiting", "slow_bookies", text, oldest_ms)


def policy_waiting(policing: Policing, now: float, now_ms: int) -> Waiting | None:
    """Why policies let nobody publish to a topic at the moment."""
    if policing.quota_error is not None:
        return Waiting("waiting", "backlog_quota", str(policing.quota_error), policing.quota_since_ms)
    seconds = policing.publish_rate.wait_seconds(now)
    if seconds:
        return Waiting("waiting", "rate_limited", "publishing has reached the rate of its policies", 0, now_ms + int(seconds * 1000))
    return None


def load_waiting(since_ms: int, failure: tuple[PulsarishError, int] | None) -> Waiting:
    """A topic that is not loaded. ``since_ms``: of the load under way, 0: none is."""
    if failure is not None:
        error, failed_since_ms = failure
        return Waiting("waiting", _kind(error, "load_failed"), f"the topic could not be opened: {error}", failed_since_ms)
    if since_ms:
        return Waiting("waiting", "loading", "its ledgers are being recovered and its cursors opened", since_ms)
    return IDLE


def _kind(error: PulsarishError, otherwise: str) -> str:
    if isinstance(error, NotEnoughBookies):
        return "too_few_bookies"
    return "metadata_away" if isinstance(error, MetadataUnavailable) else otherwise


def producer_waiting(producer: Producer, log: Waiting, oldest_ms: int) -> Waiting:
    """``log``: what appends wait for; ``oldest_ms``: since when this producer's oldest entry waits, 0: none does."""
    if producer.pushed == producer.landed:
        if producer.flight.landed is not None:
            text = f"{producer.flight.count} entries of an earlier connection of {producer.name!r} have no outcome yet"
            return Waiting("waiting", "predecessor", text, producer.connected_ms)
        return IDLE
    if log.state != "waiting":
        return _ACTIVE
    return Waiting("waiting", log.reason, log.text, oldest_ms or log.since_ms, log.retry_at_ms)
