"""The table of policies: each row has a default, agrees with the admin client's table, and decodes
what metadata holds.
"""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from pulsarish.admin import policies as client
from pulsarish.broker.config import BrokerConfig
from pulsarish.broker.policies.live import topics_changed
from pulsarish.broker.policies.store import Effective, broker_defaults, decoded
from pulsarish.broker.topics.sweep_plan import due, overdue_ms
from pulsarish.managed_ledger.chain import Chain
from pulsarish.metadata.records import (
    CompactedView,
    CursorRecord,
    NamespacePolicies,
    TopicLedger,
    TopicRecord,
)
from pulsarish.model import policies as model
from pulsarish.model.errors import CorruptData, InvalidArgument
from pulsarish.model.policies import POLICIES
from pulsarish.model.policy_words import SchemaStrategy
from pulsarish.model.position import Position

DEFAULTS = broker_defaults(BrokerConfig())
HOUR_MS = 3_600_000
NOW = 1_000 * HOUR_MS


def test_every_policy_has_a_default_that_is_a_value_of_its_type() -> None:
    assert set(DEFAULTS) == set(POLICIES)
    for policy, value in DEFAULTS.items():
        assert policy.value(msgspec.to_builtins(value)) == value
    assert len({policy.name for policy in POLICIES}) == len(POLICIES)


def test_the_admin_client_knows_the_same_strategies() -> None:
    (field,) = next(
        each.fields for each in client.POLICIES if each.name == "schema-compatibility-strategy"
    )
    assert field.choices == get_args(SchemaStrategy)


def test_what_a_newer_version_stored_is_passed_over_and_what_is_wrong_is_not_guessed() -> None:
    assert decoded({"message_ttl_seconds": 5, "of_the_future": {}}, "/n") == {model.MESSAGE_TTL: 5}
    with pytest.raises(CorruptData, match="/n holds a policy"):
        decoded({"message_ttl_seconds": "soon"}, "/n")


def test_changes_of_topics_are_known_by_name_until_there_were_too_many() -> None:
    before = NamespacePolicies(topic_changes_count=3, topic_changes=("a", "b", "c"))
    assert topics_changed(before, before) == frozenset()
    assert topics_changed(
        before, NamespacePolicies(topic_changes_count=5, topic_changes=("c", "d", "a"))
    ) == {"d", "a"}
    assert (
        topics_changed(
            before, NamespacePolicies(topic_changes_count=9, topic_changes=("x", "y", "z"))
        )
        is None
    )
    assert topics_changed(before, NamespacePolicies()) is None, "the namespace was made anew"


@pytest.mark.parametrize("size", range(0, 1_300, 50))
def test_what_is_cut_off_leaves_at_most_so_many_bytes(size: int) -> None:
    chain = Chain(
        [TopicLedger(1, 4, 400, 1), TopicLedger(5, 2, 600, 1), TopicLedger(9, 10, 200, 1)]
    )
    position = chain.last_before_bytes(size)
    if position is None:
        assert chain.size_bytes <= size
    else:
        assert chain.bytes_above(position) <= size
        # With one entry fewer, too much would be left.
        assert chain.bytes_above(Position(position.ledger_id, position.entry_id - 1)) > size


def record(**fields: object) -> TopicRecord:
    ledgers = (
        TopicLedger(1, 10, 1_000, NOW - 5 * HOUR_MS),
        TopicLedger(2, 10, 1_000, NOW - HOUR_MS),
    )
    return msgspec.structs.replace(TopicRecord(ledgers=ledgers), **fields)


def delayed(own_times_ms: int) -> TopicRecord:
    return record(ledgers=(TopicLedger(1, 10, 1_000, NOW - 5 * HOUR_MS, own_times_ms),))


KEPT = {model.RETENTION: model.RetentionPolicies(-1, -1)}
NEW, OLD, BOTH = CursorRecord(2, 9), CursorRecord(1, 3), {"s": CursorRecord(1, 9)}


@pytest.mark.parametrize(
    ("topic", "cursors", "values", "owned", "words"),
    [
        (record(), {}, KEPT, True, ""),
        (record(deleted=True), {}, KEPT, True, "deletion was begun"),
        (record(deleting=(7,)), {}, KEPT, True, "are to be deleted"),
        (record(), {"s": CursorRecord(2, 9, deleted=True)}, KEPT, True, "are to be deleted"),
        (record(ledgers=(TopicLedger(3),)), {}, KEPT, True, ""),
        (record(ledgers=(TopicLedger(3),)), {}, KEPT, False, "its owner is gone"),
        (record(), {}, {}, True, "retention"),
        (record(), {"s": OLD}, {}, True, ""),
        (record(), BOTH, {model.RETENTION: model.RetentionPolicies(200, -1)}, True, "retention"),
        (record(), BOTH, {model.RETENTION: model.RetentionPolicies(400, -1)}, True, ""),
        (
            record(),
            {"s": CursorRecord(1, 3, cursor_ledger=8)},
            {model.RETENTION: model.RetentionPolicies(200, -1)},
            True,
            "retention",
        ),
        (record(), {"s": OLD}, {**KEPT, model.MESSAGE_TTL: 3 * 3_600}, True, "TTL"),
        (record(), {"s": CursorRecord(1, 9)}, {**KEPT, model.MESSAGE_TTL: 3 * 3_600}, True, ""),
        # Its last delayed message was due two hours ago.
        (delayed(NOW - 2 * HOUR_MS), {"s": OLD}, {**KEPT, model.MESSAGE_TTL: 3 * 3_600}, True, ""),
        (
            delayed(NOW - 3 * HOUR_MS),
            {"s": OLD},
            {**KEPT, model.MESSAGE_TTL: 3 * 3_600},
            True,
            "TTL",
        ),
        (
            delayed(NOW - 6 * HOUR_MS),
            {"s": OLD},
            {**KEPT, model.MESSAGE_TTL: 3 * 3_600},
            True,
            "TTL",
        ),
        (record(), {"pulsar.dedup": OLD}, {**KEPT, model.MESSAGE_TTL: 3 * 3_600}, True, ""),
        (
            record(),
            {"s": OLD},
            {**KEPT, model.SUBSCRIPTION_EXPIRATION_TIME: 60},
            True,
            "not known since when",
        ),
        (
            record(),
            {"s": CursorRecord(1, 3, last_active_ms=NOW - HOUR_MS)},
            {**KEPT, model.SUBSCRIPTION_EXPIRATION_TIME: 60},
            True,
            "",
        ),
        (
            record(),
            {"s": CursorRecord(1, 3, last_active_ms=NOW - 2 * HOUR_MS)},
            {**KEPT, model.SUBSCRIPTION_EXPIRATION_TIME: 60},
            True,
            "expired",
        ),
        (
            record(),
            {},
            {**KEPT, model.INACTIVE_TOPIC: model.InactiveTopicPolicies(True)},
            True,
            "not known since when it is unused",
        ),
        (
            record(inactive_since_ms=1),
            {},
            {**KEPT, model.INACTIVE_TOPIC: model.InactiveTopicPolicies(True)},
            True,
            "",
        ),
        (
            record(ledgers=(), inactive_since_ms=1),
            {},
            {**KEPT, model.INACTIVE_TOPIC: model.InactiveTopicPolicies(True)},
            True,
            "no client has used it",
        ),
        (
            record(),
            {"s": NEW},
            {**KEPT, model.INACTIVE_TOPIC: model.InactiveTopicPolicies(True)},
            True,
            "",
        ),
    ],
)
def test_what_is_due_in_a_topic_by_its_metadata(
    topic: TopicRecord,
    cursors: dict[str, CursorRecord],
    values: dict[model.Policy[object], object],
    owned: bool,
    words: str,
) -> None:
    reason = due(
        topic, cursors, Effective(DEFAULTS, values), NOW, owned=owned, interval_seconds=60.0
    )
    assert words in reason
    assert bool(words) == bool(reason), reason


@pytest.mark.parametrize(
    ("topic", "cursors", "minutes", "hours"),
    [
        (record(), {}, 60, 4),
        (record(), {}, 0, 5),
        (record(), {}, 300, 0),
        (record(), {}, -1, 0),
        (record(), {"s": OLD}, 60, 0),
        (record(), {"s": CursorRecord(1, 9)}, 60, 4),
        # Its node may be behind its ledger, so the node's position counts.
        (record(), {"s": CursorRecord(1, 3, cursor_ledger=8)}, 60, 0),
        (record(deleted=True), {}, 60, 0),
        (record(ledgers=()), {}, 60, 0),
        (record(compacted=CompactedView(1, 3)), {}, 60, 0),
        (record(compacted=CompactedView(1, 9)), {}, 60, 4),
    ],
)
def test_how_long_a_topic_keeps_a_ledger_beyond_its_policy(
    topic: TopicRecord, cursors: dict[str, CursorRecord], minutes: int, hours: int
) -> None:
    policies = Effective(
        DEFAULTS, {model.RETENTION: model.RetentionPolicies(minutes, -1 if minutes else 0)}
    )
    assert overdue_ms(topic, cursors, policies, NOW) == hours * HOUR_MS


@pytest.mark.parametrize(
    ("retention", "quota", "contradict"),
    [
        ((0, 0), model.BacklogQuota("producer_exception", 5 << 30), False),
        ((-1, -1), model.BacklogQuota("producer_exception", 5 << 30), False),
        ((60, 10), model.BacklogQuota("producer_exception", 10 << 20), True),
        ((60, 10), model.BacklogQuota("producer_exception", (10 << 20) - 1), False),
        ((60, -1), model.BacklogQuota("producer_exception", limit_time_seconds=3_600), True),
        ((60, -1), model.BacklogQuota("producer_exception", limit_time_seconds=3_599), False),
    ],
)
def test_limited_retention_must_exceed_the_backlog_quota(
    retention: tuple[int, int], quota: model.BacklogQuota, contradict: bool
) -> None:
    kept = model.RetentionPolicies(*retention)
    if contradict:
        with pytest.raises(InvalidArgument, match="must exceed the backlog quota"):
            model.check_together(kept, {"destination_storage": quota})
    else:
        model.check_together(kept, {"destination_storage": quota})


@pytest.mark.parametrize(
    ("minutes", "megabytes", "count", "fits"),
    [
        (-1, -1, 1, True),
        (60, 10, 100, True),
        (60, -1, -1, True),
        (0, 0, -1, True),
        (0, 0, 100, False),
        (0, 0, 0, False),
        (-1, -1, 0, False),
        (-1, -1, -2, False),
    ],
)
def test_a_retention_by_count(minutes: int, megabytes: int, count: int, fits: bool) -> None:
    raw = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
    given = {**raw, "retentionCountLimit": count}
    if fits:
        value = model.RETENTION.value(given)
        assert value == model.RetentionPolicies(minutes, megabytes, count)
        # A client of Apache Pulsar sees the field only where it is used.
        assert msgspec.to_builtins(value) == (given if count > 0 else raw)
    else:
        with pytest.raises(InvalidArgument, match="retentionCountLimit"):
            model.RETENTION.value(given)
