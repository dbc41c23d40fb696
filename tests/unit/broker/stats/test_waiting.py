"""Why publishing waits: the reasons of a topic, its policies and its producers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsarish.broker.clients.producer import Producer
from pulsarish.broker.clients.wait_reasons import ACTIVE, IDLE, Waiting, shown_rate
from pulsarish.broker.policies.topic_limits import TopicLimits
from pulsarish.broker.stats.wait_reasons import (
    load_waiting,
    log_waiting,
    policy_waiting,
    producer_waiting,
    terminated,
    turn_waiting,
)
from pulsarish.managed_ledger.chain_core import Phase
from pulsarish.managed_ledger.log_condition import LogCondition, Trouble
from pulsarish.model.errors import (
    MetadataUnavailable,
    NotEnoughBookies,
    PulsarishError,
    ServiceNotReady,
)
from pulsarish.model.policies import PUBLISH_RATE
from pulsarish.runtime.seams import SessionState

CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED


def condition(
    phase: Phase = Phase.WRITING, *, pending: int = 0, trouble: Trouble | None = None, **writer: Any
) -> LogCondition:
    ledger = SimpleNamespace(ledger_id=7)
    shown = SimpleNamespace(
        **{"metadata": ledger, "changing": False, "silent": ["bookie-2~0a1b"], **writer}
    )
    return LogCondition(
        phase, "closing the ledger", 5, trouble, cast("Any", shown), pending, 10 * pending, None
    )


def trouble(error: PulsarishError) -> Trouble:
    return Trouble(error, 1, 3, 9_000)


@pytest.mark.parametrize(
    ("found", "session", "reason", "sentence"),
    [
        (
            condition(pending=1),
            CONNECTED,
            "slow_bookies",
            "1 entry is not confirmed; bookie-2 owes an answer for the oldest of them in ledger 7.",
        ),
        (
            condition(pending=2, changing=True),
            CONNECTED,
            "ensemble_change",
            "A bookie of ledger 7 is being replaced",
        ),
        (
            condition(pending=2, changing=True),
            SUSPENDED,
            "metadata_away",
            "the metadata session is suspended.",
        ),
        (
            condition(Phase.DRAINING),
            CONNECTED,
            "ledger_change",
            "The topic's next ledger is being prepared: closing the ledger.",
        ),
        (
            condition(Phase.REPLACING, trouble=trouble(NotEnoughBookies("one"))),
            CONNECTED,
            "too_few_bookies",
            "one (tried 3 times).",
        ),
        (
            condition(Phase.REPLACING, trouble=trouble(MetadataUnavailable("no"))),
            CONNECTED,
            "metadata_away",
            "no (tried 3 times).",
        ),
    ],
)
def test_a_log_that_takes_nothing_says_what_it_waits_for(
    found: LogCondition, session: SessionState, reason: str, sentence: str
) -> None:
    waiting = log_waiting(found, 1_000, session, 5_000)
    assert (waiting.state, waiting.reason) == ("waiting", reason)
    assert sentence in waiting.explanation


def test_a_log_in_time_waits_for_nothing() -> None:
    assert log_waiting(condition(), 0, CONNECTED, 5_000) is IDLE
    assert log_waiting(condition(pending=3), 4_990, CONNECTED, 5_000) is ACTIVE


def topic_limits(
    *, switching: bool = False, quota: bool = False, wait_seconds: float = 0.0
) -> TopicLimits:
    rate = SimpleNamespace(messages=5, size_bytes=0)
    return cast(
        "TopicLimits",
        SimpleNamespace(
            switching=ServiceNotReady("deduplication is being switched on; connect again")
            if switching
            else None,
            quota_error=ServiceNotReady("nothing can be published to t") if quota else None,
            quota_since_ms=7,
            publish_rate=SimpleNamespace(wait_seconds=lambda _now: wait_seconds),
            policies={PUBLISH_RATE: rate},
            shared_rates=(),
        ),
    )


def test_policies_hold_publishing_by_quota_rate_and_while_deduplication_starts() -> None:
    assert policy_waiting(topic_limits(), 1.0, 1_000) is None
    switching = policy_waiting(topic_limits(switching=True, quota=True), 1.0, 1_000)
    assert switching is not None
    assert (switching.reason, switching.explanation) == (
        "deduplication_starts",
        "Deduplication is being switched on; connect again.",
    )
    held = policy_waiting(topic_limits(quota=True), 1.0, 1_000)
    assert held is not None
    assert (held.reason, held.explanation, held.since_ms) == (
        "backlog_quota",
        "Nothing can be published to t.",
        7,
    )
    limited = policy_waiting(topic_limits(wait_seconds=0.5), 1.0, 1_000)
    assert limited is not None
    assert (limited.reason, limited.retry_at_ms) == ("rate_limited", 1_500)
    assert (
        limited.explanation
        == "Publishing has reached the policy publish-rate (5 messages a second)."
    )


def producer(*, pushed: int = 0, landed: int = 0, before: int = 0) -> Producer:
    flight = SimpleNamespace(landed=object() if before else None, count=before)
    return cast(
        "Producer",
        SimpleNamespace(name="p", pushed=pushed, landed=landed, flight=flight, connected_ms=3),
    )


def test_a_producer_has_the_reason_of_the_log_unless_it_has_one_of_its_own() -> None:
    slow = Waiting("waiting", "slow_bookies", "They are slow.", 2)
    assert producer_waiting(producer(), slow, 0) is IDLE
    assert producer_waiting(producer(pushed=2, landed=1), slow, 9) == Waiting(
        "waiting", "slow_bookies", "They are slow.", 9
    )
    assert producer_waiting(producer(pushed=2, landed=1), IDLE, 9) is ACTIVE
    before = producer_waiting(producer(before=2), slow, 0)
    assert (before.reason, before.since_ms) == ("predecessor", 3)
    assert (
        before.explanation
        == "What an earlier connection of producer 'p' sent has no outcome yet: 2 entries."
    )
    assert "producer 'first' comes before it" in turn_waiting("first").explanation


def test_a_topic_that_is_sealed_or_not_open() -> None:
    assert (terminated("3:4").state, terminated("3:4").reason) == ("idle", "terminated"), (
        "nobody has to do anything"
    )
    assert load_waiting(0, None) is IDLE
    assert load_waiting(5, None).reason == "loading"
    assert load_waiting(0, (ServiceNotReady("no"), 5)).reason == "load_failed"
    assert load_waiting(0, (NotEnoughBookies("no"), 5)).reason == "too_few_bookies"


def test_rates_are_shown_in_words() -> None:
    assert shown_rate(1, 0) == "1 message"
    assert shown_rate(5, 100) == "5 messages and 100 bytes"
    assert shown_rate(-1, 0) == "no limit"
