"""Why a subscription does not move: each reason from a snapshot that causes it, and snapshots
without a reason.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from msgspec.structs import replace

from pulsarish.broker.clients.wait_reasons import (
    REASONS,
    Waiting,
    duration,
    help_command,
    waiting_row,
)
from pulsarish.broker.dispatchers.dispatcher import DispatcherKind, DrainingKey, KeysState
from pulsarish.broker.progress.explain import READ_MS_MAX, can_move, explain, must_move
from pulsarish.broker.progress.report import metadata_away_report, subscription_report, topic_report
from pulsarish.broker.progress.snapshot import (
    BookieState,
    ConsumerState,
    SubscriptionSnapshot,
)
from pulsarish.cli.main import pulsarish
from pulsarish.model.errors import SubscriptionNotFound

TOPIC = "persistent://public/default/orders"
NOW_MS = 1_000_000_000
SINGLE, SHARED, KEY_SHARED = (
    DispatcherKind.SINGLE_ACTIVE,
    DispatcherKind.SHARED,
    DispatcherKind.KEY_SHARED,
)

READY = ConsumerState("c1", permits=10, flow_ms=NOW_MS - 5_000, connected_ms=NOW_MS - 9_000)
SPENT = ConsumerState(
    "c1",
    permits=0,
    unacked=4,
    flow_ms=NOW_MS - 90_000,
    delivered_ms=NOW_MS - 80_000,
    connected_ms=NOW_MS - 99_000,
)
MOVING = SubscriptionSnapshot(
    now_ms=NOW_MS, backlog=7, consumers=(READY,), has_unread=True, read_position="3:5", ledger_id=3
)
"""A subscription with a backlog, permits, something to read, and no reason to wait."""

KEYS = replace(MOVING, kind=KEY_SHARED, has_unread=False)


def shown(snapshot: SubscriptionSnapshot) -> tuple[str, str]:
    found = explain(snapshot)
    return found.reason, found.explanation


@pytest.mark.parametrize(
    ("snapshot", "reason", "sentence"),
    [
        (
            replace(MOVING, consumers=()),
            "no_consumers",
            "No consumer is connected to take the backlog of 7 entries.",
        ),
        (
            replace(MOVING, seeking_since_ms=NOW_MS - 2_000),
            "seeking",
            "A seek has been under way for 2 s",
        ),
        (
            replace(MOVING, consumers=(SPENT,)),
            "no_permits",
            (
                "consumer c1 has asked for nothing more for 1 min 20 s. Consumer c1 holds 4 "
                "unacknowledged, the last delivered 1 min 20 s ago."
            ),
        ),
        (
            replace(MOVING, consumers=(replace(READY, has_room=False),)),
            "connection_full",
            "What was sent to consumer c1 is not read from the connection by its client",
        ),
        (
            replace(
                MOVING,
                kind=SHARED,
                consumers=(replace(READY, unacked=5),),
                is_blocked=True,
                unacked=5,
                unacked_max=5,
            ),
            "blocked_on_unacked_messages",
            (
                "5 messages are delivered and not acknowledged; the limit is 5 for all consumers "
                "together"
            ),
        ),
        (
            replace(
                MOVING,
                kind=SHARED,
                consumers=(replace(READY, unacked=3, is_blocked=True),),
                unacked_max_consumer=3,
            ),
            "blocked_on_unacked_messages",
            "Consumer c1 holds 3 unacknowledged; the limit of each consumer is 3",
        ),
        (
            replace(MOVING, is_beyond_holes=True, holes=3, first_unacked="3:0"),
            "too_many_holes",
            "3 acknowledged ranges lie behind 3:0, which is not acknowledged",
        ),
        (
            replace(
                MOVING,
                failure="EntryUnknown: no answer",
                retry_at_ms=NOW_MS + 500,
                bookies=(BookieState("bookie-1", is_registered=False),),
            ),
            "read_failed",
            (
                "Reading from 3:5 on failed: EntryUnknown: no answer. They are in ledger 3 on "
                "bookie-1 (not registered). The broker tries"
            ),
        ),
        (
            replace(
                MOVING,
                reading_since_ms=NOW_MS - 3_000,
                bookies=(BookieState("bookie-1", is_registered=True),),
            ),
            "reading",
            "Entries from 3:5 on have been read for 3 s. They are in ledger 3 on bookie-1.",
        ),
        (
            replace(
                MOVING,
                rate_since_ms=NOW_MS - 10,
                rate_until_ms=NOW_MS + 500,
                rate="5 messages in 1 s",
            ),
            "rate_limited",
            "Deliveries have reached the policy dispatch-rate (5 messages in 1 s).",
        ),
        (
            replace(
                MOVING,
                rate_since_ms=NOW_MS - 10,
                rate_until_ms=NOW_MS + 500,
                rate="the dispatch rate of the broker (5 messages a second)",
                rate_policy="",
            ),
            "broker_rate_limited",
            "Deliveries have reached the dispatch rate of the broker (5 messages a second).",
        ),
        (
            replace(MOVING, handing_over_since_ms=NOW_MS - 400, handing_over_max_ms=1_000),
            "handing_over",
            "Consumer c1 has become the active one and begins in 600 ms",
        ),
        (
            replace(MOVING, kind=SHARED, has_unread=False, delayed=2, next_due_ms=NOW_MS + 60_000),
            "delayed",
            "2 entries are to be delivered later; the first of them is due in 1 min.",
        ),
        (
            replace(MOVING, kind=SHARED, delayed=4, delayed_full=True, next_due_ms=NOW_MS + 60_000),
            "too_many_delayed",
            (
                "4 entries are to be delivered later, of which memory holds as many as "
                "delayed_delivery_max_entries_per_subscription allows"
            ),
        ),
        (
            replace(
                MOVING,
                has_unread=False,
                consumers=(replace(READY, unacked=7),),
                first_unacked="3:0",
            ),
            "unacknowledged",
            (
                "The whole backlog of 7 entries is delivered and not acknowledged; the oldest "
                "entry is 3:0. Consumer c1 holds 7"
            ),
        ),
        (
            replace(
                KEYS,
                keys=KeysState(
                    (DrainingKey(77, "c2", held=3, waiting=2),), kept=2, look_ahead_max=10
                ),
            ),
            "keys_draining",
            (
                "2 entries wait until other consumers acknowledge what they hold of key hash 77 "
                "(3 held by consumer c2)."
            ),
        ),
        (
            replace(
                KEYS,
                consumers=(READY, replace(SPENT, name="c2", lined_up=9)),
                keys=KeysState(kept=9, look_ahead_max=9),
            ),
            "keys_held",
            (
                "The entries that were read have keys of consumers that cannot take them: 9 for "
                "consumer c2 (no permits). No more"
            ),
        ),
        (
            replace(KEYS, keys=KeysState(unassigned=1, kept=1, look_ahead_max=9)),
            "keys_unassigned",
            "1 entry has a key in the hash ranges of no connected consumer.",
        ),
        (
            replace(MOVING, kind=SHARED, has_unread=False, chunks_held=2, chunk_holders=("c2",)),
            "chunks_held",
            "2 chunks wait for consumer c2, which has the first chunks of their messages",
        ),
        (
            replace(MOVING, stalled_since_ms=NOW_MS - 20_000),
            "stalled",
            "There are 7 entries to deliver, a consumer with permits and no reason to wait",
        ),
    ],
)
def test_each_reason_is_a_word_and_a_sentence_with_the_numbers(
    snapshot: SubscriptionSnapshot, reason: str, sentence: str
) -> None:
    found, text = shown(snapshot)
    assert found == reason
    assert sentence in text, text
    assert text.endswith("."), "a sentence"


def test_a_calendar_that_is_moved_forward_makes_no_read_too_long() -> None:
    moved = replace(MOVING, reading_since_ms=NOW_MS - 2 * READ_MS_MAX, reading_ms=3_000)
    assert not must_move(moved)


def test_nothing_to_deliver_is_idle() -> None:
    assert explain(replace(MOVING, backlog=0)).state == "idle"


@pytest.mark.parametrize(
    "snapshot",
    [
        MOVING,
        replace(MOVING, has_unread=False, ready=1),
        replace(MOVING, failure="EntryUnknown: no answer", retry_at_ms=NOW_MS - 5_000),
        replace(MOVING, rate_since_ms=NOW_MS - 9_000, rate_until_ms=NOW_MS - 5_000),
        replace(MOVING, reading_since_ms=NOW_MS - READ_MS_MAX, reading_ms=READ_MS_MAX),
        replace(MOVING, handing_over_since_ms=NOW_MS - 9_000, handing_over_max_ms=1_000),
        replace(MOVING, kind=SHARED, has_unread=False, delayed=1, next_due_ms=NOW_MS - 5_000),
        replace(MOVING, kind=SHARED, is_blocked=True, unacked=1, unacked_max=5),
        replace(MOVING, kind=SHARED, has_unread=False, lost_sight=True),
        replace(
            MOVING,
            kind=SHARED,
            has_unread=False,
            chunks_held=1,
            chunks_ready=1,
            chunk_holders=("c1",),
        ),
        replace(
            KEYS, consumers=(replace(READY, lined_up=1),), keys=KeysState(kept=1, look_ahead_max=1)
        ),
        replace(MOVING, kind=KEY_SHARED, keys=KeysState(look_ahead_max=1)),
        replace(MOVING, is_beyond_holes=True, ready=1),
    ],
    ids=[
        "new entries",
        "ready entries",
        "a retry that is overdue",
        "a rate that is overdue",
        "a read that nothing bounds",
        "a hand-over that is overdue",
        "a delay that is over",
        "a flag that the numbers contradict",
        "a backlog that nobody knows of",
        "chunks whose consumer can take them",
        "an entry of a key whose consumer can take it",
        "room to read ahead",
        "an entry to be delivered again",
    ],
)
def test_what_has_no_reason_to_wait_must_move(snapshot: SubscriptionSnapshot) -> None:
    assert must_move(snapshot)
    assert can_move(snapshot)
    assert explain(snapshot).state == "active"


def test_a_consumer_that_is_not_active_does_not_count() -> None:
    standby = replace(READY, name="standby", is_active=False)
    assert shown(replace(MOVING, consumers=(SPENT, standby)))[0] == "no_permits"


def test_one_consumer_with_permits_is_enough() -> None:
    assert must_move(replace(MOVING, kind=SHARED, consumers=(SPENT, replace(READY, name="c2"))))


def test_a_key_shared_consumer_does_not_wait_for_the_keys_of_another() -> None:
    busy = (READY, replace(SPENT, name="c2", lined_up=5))
    assert must_move(
        replace(MOVING, kind=KEY_SHARED, consumers=busy, keys=KeysState(kept=5, look_ahead_max=9))
    )


def _commands(text: str) -> click.Command:
    group: Any = pulsarish
    words = shlex.split(text)
    assert words[0] == "pulsarish"
    for word in words[1:3]:
        found = group.get_command(click.Context(group), word)
        assert found is not None, text
        group = found
    return group  # type: ignore[no-any-return]


@pytest.mark.parametrize("reason", REASONS)
def test_each_reason_has_a_command_that_there_is(reason: str) -> None:
    data = {
        "ledgerId": 3,
        "limitCommand": "get-max-unacked-messages-per-consumer",
        "rateCommand": "get-dispatch-rate",
    }
    text = help_command(
        Waiting("waiting", reason, data=data), f"{TOPIC}-partition-1", "a subscription"
    )
    command = _commands(text)
    assert command.params, text
    with command.make_context(text, shlex.split(text)[3:], resilient_parsing=False):
        pass


def test_policies_are_those_of_the_whole_topic_and_names_are_quoted() -> None:
    limited = Waiting("waiting", "rate_limited", data={"rateCommand": "get-publish-rate"})
    assert (
        help_command(limited, f"{TOPIC}-partition-1")
        == f"pulsarish topics get-publish-rate {TOPIC} --applied"
    )
    assert help_command(Waiting("waiting", "no_permits"), TOPIC, "a b").endswith(f" {TOPIC} 'a b'")


def test_a_read_of_an_unknown_ledger_names_no_ledger() -> None:
    assert help_command(Waiting("waiting", "read_failed"), TOPIC) == "pulsarish bookies list"


def test_reports_say_something_where_nothing_waits() -> None:
    row = waiting_row(Waiting("idle"), TOPIC)
    moving = waiting_row(Waiting("active"), TOPIC)
    stats = {
        "waiting": row,
        "publishers": [{"producerName": "p", "waiting": row}],
        "subscriptions": {
            "s": {"type": "Shared", "msgBacklog": 0, "waiting": row},
            "m": {"type": "Shared", "msgBacklog": 2, "waiting": moving},
        },
    }
    report = topic_report(TOPIC, stats)
    assert report["explanation"] == "Publishing does not wait for anything."
    assert report["publishers"][0]["explanation"] == "Everything that it sent is confirmed."
    assert subscription_report(TOPIC, "s", stats)["explanation"].startswith("There is no backlog")
    assert subscription_report(TOPIC, "m", stats)["explanation"].startswith(
        "It moves: 2 entries are left"
    )
    with pytest.raises(SubscriptionNotFound, match="it has: s, m"):
        subscription_report(TOPIC, "x", stats)


def test_a_subscription_of_a_topic_that_cannot_be_opened_has_the_reason_of_the_topic() -> None:
    failed = waiting_row(
        Waiting("waiting", "load_failed", "The topic could not be opened: no."), TOPIC
    )
    report = subscription_report(
        TOPIC, "s", {"waiting": failed, "publishers": [], "subscriptions": {}}
    )
    assert (report["reason"], report["subscription"]) == ("load_failed", "s")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0 ms"),
        (850, "850 ms"),
        (12_000, "12 s"),
        (200_000, "3 min 20 s"),
        (349_200_000, "4 d 1 h"),
    ],
)
def test_durations_have_two_units_at_most(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text


@pytest.mark.parametrize("subscription", ["", "s"])
def test_without_metadata_a_broker_that_does_not_serve_the_topic_says_so(subscription: str) -> None:
    report = metadata_away_report(
        TOPIC, "there is no session with the metadata store", subscription
    )
    assert (report["topic"], report["state"], report["reason"]) == (
        TOPIC,
        "waiting",
        "metadata_away",
    )
    assert report["explanation"].endswith(
        "which one does: there is no session with the metadata store."
    )
    assert report["help"] == "pulsarish brokers health"
    assert report.get("subscription", "") == subscription


def test_each_reason_is_shown_on_a_real_cluster() -> None:
    directory = Path(__file__).resolve().parents[3] / "integration"
    text = "".join(
        (directory / name).read_text() for name in ("test_explain.py", "test_explain_faults.py")
    )
    assert [reason for reason in REASONS if f'"{reason}"' not in text] == []
