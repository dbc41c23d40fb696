"""When the watch over backlog quotas has nothing to do and nothing to read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsarish.broker.topics.policy_enforcement import is_quota_kept
from pulsarish.broker.topics.topic import Topic
from pulsarish.model.errors import ProducerBlockedQuotaExceededError
from pulsarish.model.policies import BacklogQuota
from pulsarish.model.position import Position

NOW_MS = 1_000_000
YOUNG_MS, OLD_MS = NOW_MS - 9_000, NOW_MS - 11_000


def kept(
    *,
    size: int = -1,
    age: int = -1,
    behind_bytes: int = 0,
    backlog: int = 1,
    oldest: tuple[Position, int] | None = None,
    error: Exception | None = None,
    durable: bool = True,
) -> bool:
    cursor = SimpleNamespace(
        durable=durable,
        mark_delete=Position(1, 4),
        read_from=Position(1, 5),
        backlog=lambda: backlog,
    )
    quotas = {
        "destination_storage": BacklogQuota("producer_exception", limit_size_bytes=size),
        "message_age": BacklogQuota("producer_exception", limit_time_seconds=age),
    }
    topic: Any = SimpleNamespace(
        subscriptions={"s": SimpleNamespace(cursor=cursor, oldest=oldest)},
        log=SimpleNamespace(bytes_above=lambda _position: behind_bytes),
        topic_limits=SimpleNamespace(
            quota_error=error, policies=SimpleNamespace(quotas=lambda: quotas)
        ),
    )
    return is_quota_kept(cast("Topic", topic), NOW_MS)


@pytest.mark.parametrize(("behind_bytes", "is_kept"), [(100, True), (101, False)])
def test_bytes_are_compared_with_the_limit(behind_bytes: int, is_kept: bool) -> None:
    assert kept(size=100, behind_bytes=behind_bytes) is is_kept
    assert kept(size=100, behind_bytes=behind_bytes, durable=False)


@pytest.mark.parametrize(
    ("oldest", "is_kept"),
    [
        (None, False),  # it must be read
        ((Position(1, 5), YOUNG_MS), True),
        ((Position(1, 5), OLD_MS), False),
        ((Position(1, 2), YOUNG_MS), True),  # what comes after it is younger
        ((Position(1, 2), OLD_MS), False),  # what comes after it must be read
        ((Position(1, 6), YOUNG_MS), False),  # a seek went back
    ],
)
def test_an_age_is_read_only_when_it_may_be_too_high(
    oldest: tuple[Position, int] | None, is_kept: bool
) -> None:
    assert kept(age=10, oldest=oldest) is is_kept
    assert kept(age=10, oldest=oldest, backlog=0)
    assert kept(oldest=oldest)


def test_a_topic_whose_producers_are_held_is_always_looked_at() -> None:
    assert not kept(size=100, error=ProducerBlockedQuotaExceededError("held"))
    assert not kept(error=ProducerBlockedQuotaExceededError("the quota was removed"))
