"""Why publishing to a topic waits, and since when.

Judged on request, from state that the parts keep anyway.

``progress/explain.py`` judges why a subscription waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pulsarish.broker.clients.wait_reasons import ACTIVE, IDLE, Waiting, counted, shown_rate
from pulsarish.managed_ledger.chain_core import Phase
from pulsarish.model.errors import MetadataUnavailable, NotEnoughBookies, PulsarishError
from pulsarish.model.policies import PUBLISH_RATE
from pulsarish.runtime.seams import SessionState

if TYPE_CHECKING:
    from pulsarish.broker.clients.producer import Producer
    from pulsarish.broker.policies.topic_limits import TopicLimits
    from pulsarish.managed_ledger.log_condition import LogCondition

__all__ = [
    "load_waiting",
    "log_waiting",
    "policy_waiting",
    "producer_waiting",
    "terminated",
    "turn_waiting",
]

_SLOW_MS: Final = 100  # shorter confirmation times are not reported


def log_waiting(
    condition: LogCondition, oldest_ms: int, session: SessionState, now_ms: int
) -> Waiting:
    """Return why appends to a topic's log wait.

    ``oldest_ms``: since when the oldest one waits, 0: none does.
    """
    trouble = condition.trouble
    if condition.phase in (Phase.DRAINING, Phase.REPLACING):
        if trouble is not None:
            tried = counted(trouble.attempts, "time", "times")
            text = (
                f"The topic's next ledger is not ready ({condition.step}): {trouble.error} "
                f"(tried {tried})."
            )
            return Waiting(
                "waiting",
                _kind(trouble.error, "ledger_change"),
                text,
                condition.since_ms,
                trouble.retry_at_ms,
            )
        return Waiting(
            "waiting",
            "ledger_change",
            f"The topic's next ledger is being prepared: {condition.step}.",
            condition.since_ms,
        )
    if not condition.pending_entries:
        return IDLE
    writer = condition.writer
    if writer is None or now_ms - oldest_ms < _SLOW_MS:
        return ACTIVE
    ledger_id = writer.metadata.ledger_id
    data = {"ledgerId": ledger_id, "pendingEntries": condition.pending_entries}
    if writer.changing:
        reason = "ensemble_change" if session is SessionState.CONNECTED else "metadata_away"
        text = (
            f"A bookie of ledger {ledger_id} is being replaced; the metadata session is "
            f"{session.value}."
        )
        return Waiting("waiting", reason, text, oldest_ms, data=data)
    silent = [member.partition("~")[0] for member in writer.silent]
    owing = (
        f"{', '.join(silent) or 'no bookie'} owes an answer for the oldest of them in ledger "
        f"{ledger_id}"
    )
    text = (
        f"{counted(condition.pending_entries, 'entry is', 'entries are')} not confirmed; {owing}."
    )
    return Waiting(
        "waiting", "slow_bookies", text, oldest_ms, data={**data, "silentBookies": silent}
    )


def policy_waiting(topic_limits: TopicLimits, now: float, now_ms: int) -> Waiting | None:
    """Return why policies block publishing to a topic; ``None`` if they do not."""
    if topic_limits.switching is not None:
        return Waiting("waiting", "deduplication_starts", _sentence(str(topic_limits.switching)))
    if topic_limits.quota_error is not None:
        return Waiting(
            "waiting",
            "backlog_quota",
            _sentence(str(topic_limits.quota_error)),
            topic_limits.quota_since_ms,
        )
    seconds = topic_limits.publish_rate.wait_seconds(now)
    if seconds:
        rate = topic_limits.policies[PUBLISH_RATE]
        text = (
            "Publishing has reached the policy publish-rate "
            f"({shown_rate(rate.messages, rate.size_bytes)} a second)."
        )
        data = {"policy": "publish-rate", "rateCommand": "get-publish-rate"}
        return Waiting("waiting", "rate_limited", text, 0, now_ms + int(seconds * 1000), data)
    for each in topic_limits.shared_rates:
        if seconds := each.publish.wait_seconds(now):
            text = f"Publishing has reached {each.publish_text}."
            reason = "rate_limited" if each.policy else "broker_rate_limited"
            data = (
                {"policy": each.policy, "rateCommand": f"get-{each.policy}"} if each.policy else {}
            )
            return Waiting("waiting", reason, text, 0, now_ms + int(seconds * 1000), data)
    return None


def turn_waiting(ahead: str) -> Waiting:
    """Return why a producer waits for exclusive access.

    ``ahead``: a producer that must leave first.
    """
    text = (
        "It waits to be the only producer of the topic (access mode WaitForExclusive); "
        f"producer {ahead!r} comes before it."
    )
    return Waiting("waiting", "exclusive_producer", text, data={"before": ahead})


def load_waiting(since_ms: int, failure: tuple[PulsarishError, int] | None) -> Waiting:
    """Return why a topic is not loaded.

    ``since_ms``: when the current load began, 0: none is in progress.
    """
    if failure is not None:
        error, failed_since_ms = failure
        return Waiting(
            "waiting",
            _kind(error, "load_failed"),
            f"The topic could not be opened: {error}.",
            failed_since_ms,
        )
    if since_ms:
        return Waiting(
            "waiting",
            "loading",
            "Its ledgers are being recovered and its cursors opened.",
            since_ms,
        )
    return IDLE


def terminated(last: object) -> Waiting:
    """Return the state of a terminated topic. ``last``: its last position."""
    return Waiting(
        "idle",
        "terminated",
        f"The topic was terminated at {last}: nothing can be published to it any more.",
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _kind(error: PulsarishError, otherwise: str) -> str:
    if isinstance(error, NotEnoughBookies):
        return "too_few_bookies"
    return "metadata_away" if isinstance(error, MetadataUnavailable) else otherwise


def producer_waiting(producer: Producer, log: Waiting, oldest_ms: int) -> Waiting:
    """Return why a producer waits.

    Args:
        log: why appends wait.
        oldest_ms: since when this producer's oldest entry waits, 0: none does.
    """
    if producer.pushed == producer.landed:
        if producer.flight.landed is not None:
            entries = counted(producer.flight.count, "entry", "entries")
            text = (
                f"What an earlier connection of producer {producer.name!r} sent has no "
                f"outcome yet: {entries}."
            )
            return Waiting("waiting", "predecessor", text, producer.connected_ms)
        return IDLE
    if log.state != "waiting":
        return ACTIVE
    return Waiting(
        "waiting", log.reason, log.explanation, oldest_ms or log.since_ms, log.retry_at_ms, log.data
    )
