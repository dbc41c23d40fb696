"""Which ledgers retention lets go, by clocks that do not agree."""

from __future__ import annotations

from typing import Final

import pytest

from pulsarish.managed_ledger.chain import Chain
from pulsarish.managed_ledger.options import Retention
from pulsarish.managed_ledger.trim import CLOCK_TOLERANCE_MS, trimmable
from pulsarish.metadata.records import TopicLedger
from pulsarish.model.position import LATEST

MINUTE_MS: Final = 60_000
CLOSED_MS: Final = 1_000 * MINUTE_MS


def chain() -> Chain:
    return Chain((TopicLedger(1, 10, 1_000, CLOSED_MS), TopicLedger(2)))


@pytest.mark.parametrize("skew_ms", [-CLOCK_TOLERANCE_MS, 0, CLOCK_TOLERANCE_MS])
def test_nothing_goes_before_its_time_though_its_closer_had_another_clock(skew_ms: int) -> None:
    """The broker that closed the ledger and the one that trims may differ by the tolerance;
    ``skew_ms`` is how far the second is ahead.
    """
    retention = Retention(minutes=10, mb=100)
    closed_ms_here = CLOSED_MS + skew_ms
    too_early = closed_ms_here + 10 * MINUTE_MS - 1
    assert trimmable(chain(), LATEST, retention, too_early) == 0
    late_enough = closed_ms_here + 10 * MINUTE_MS + 2 * CLOCK_TOLERANCE_MS
    assert trimmable(chain(), LATEST, retention, late_enough) == 1


@pytest.mark.parametrize(
    ("retention", "count"),
    [
        (Retention(-1, -1, 1), 2),
        (Retention(-1, -1, 5), 2),
        (Retention(-1, -1, 6), 1),
        (Retention(-1, -1, 15), 1),
        (Retention(-1, -1, 16), 0),
        (Retention(-1, -1, -1), 0),
        (Retention(10, -1, 1_000), 1),
        (Retention(10, -1, 6), 1),
        (Retention(10, -1, 5), 2),
        (Retention(-1, 1, 6), 1),
    ],
)
def test_the_newest_entries_are_kept_as_far_as_all_limits_allow(
    retention: Retention, count: int
) -> None:
    ledgers = Chain(
        (
            TopicLedger(1, 10, 1_000, CLOSED_MS),
            TopicLedger(2, 10, 1_000, CLOSED_MS + 30 * MINUTE_MS),
            TopicLedger(3),
        )
    )
    ledgers.grow(5, 500)
    now_ms = CLOSED_MS + 20 * MINUTE_MS
    assert trimmable(ledgers, LATEST, retention, now_ms) == count


def test_what_is_not_retained_goes_at_once() -> None:
    assert trimmable(chain(), LATEST, Retention(), CLOSED_MS) == 1
