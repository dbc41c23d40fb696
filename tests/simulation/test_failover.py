"""Fifty topics whose owner dies, is stopped, or lets go of them, while faults are around: seeds,
each judged by its own program.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from pulsarish.sim.workloads.failover import SERVED_SECONDS, TOPICS_COUNT, run_failover

SEEDS = range(4)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_fifty_topics_are_served_by_another_broker_and_nothing_is_lost_or_doubled(
    seed: int,
) -> None:
    counts = run_failover(seed)
    assert counts.sent > 10 * TOPICS_COUNT
    assert counts.delivered == counts.sent
    assert 0 < counts.slowest_seconds < SERVED_SECONDS
