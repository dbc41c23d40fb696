"""Hours of a cluster that is hardly used, and minutes of one whose brokers' clocks are apart:
seeds, each judged by its own program.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from pulsarish.sim.workloads.quiet_hours import HOURS, RETENTION, run_hours


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(3))
def test_after_hours_what_should_be_deleted_is_and_the_rest_is_there(seed: int) -> None:
    counts = run_hours(seed, HOURS)
    assert counts.uses > 10
    assert counts.faults > 0
    assert counts.trimmed > 20


@pytest.mark.parametrize("seed", range(2))
def test_a_message_is_kept_as_long_as_retention_says_whichever_broker_closed_its_ledger(
    seed: int,
) -> None:
    counts = run_hours(seed, RETENTION)
    assert counts.trimmed > 20
