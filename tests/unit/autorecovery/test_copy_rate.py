"""The rate of copying follows what copying takes."""

from __future__ import annotations

import pytest

from pulsarish.autorecovery.copy_rate import CopyRate
from pulsarish.autorecovery.options import AutoRecoveryOptions
from pulsarish.model.errors import ConfigError

MOST, BATCH = 32_000_000, 1_000_000


def _run(
    rate: CopyRate, start: float, seconds: int, took: float, batch_bytes: int = BATCH
) -> float:
    """Copy a batch each tenth of a second, each of which takes ``took``. Return the end."""
    now = start
    for _ in range(seconds * 10):
        now += 0.1
        rate.note(batch_bytes, took, now)
        rate.check()
    return now


def test_copying_begins_slowly_and_is_fast_where_nothing_waits() -> None:
    rate = CopyRate(MOST, BATCH, 2.0, 0.0)
    assert rate.per_second == MOST / 8
    _ = _run(rate, 0.0, 15, 0.02)
    assert rate.per_second == MOST


def test_it_slows_down_while_batches_wait_and_not_below_its_least() -> None:
    rate = CopyRate(MOST, BATCH, 2.0, 0.0)
    now = _run(rate, 0.0, 15, 0.02)
    now = _run(rate, now, 15, 0.05)
    assert rate.per_second == MOST / 8
    _ = _run(rate, now, 15, 0.03)
    assert rate.per_second == MOST


def test_what_is_slow_for_minutes_is_what_the_disks_give() -> None:
    rate = CopyRate(MOST, BATCH, 2.0, 0.0)
    now = _run(rate, 0.0, 15, 0.02)
    now = _run(rate, now, 900, 0.05)
    assert rate.per_second == MOST


def test_small_ledgers_after_large_ones_are_not_taken_for_slow_bookies() -> None:
    """A byte of a small batch takes twenty times as long where nothing waits."""
    rate = CopyRate(MOST, BATCH, 2.0, 0.0)
    now = _run(rate, 0.0, 15, 0.02)
    now = _run(rate, now, 15, 0.004, BATCH // 100)
    assert rate.per_second == MOST
    # That they wait, too, is still noticed.
    _ = _run(rate, now, 15, 0.02, BATCH // 100)
    assert rate.per_second == MOST / 8


def test_one_batch_a_second_is_always_copied_as_far_as_the_rate_allows() -> None:
    assert CopyRate(1_024, 1_024, 2.0, 0.0).per_second == 1_024
    assert CopyRate(1_024, 1_000_000, 2.0, 0.0).per_second == 1_024


def test_without_a_ratio_the_rate_stays() -> None:
    rate = CopyRate(MOST, BATCH, 0.0, 0.0)
    now = _run(rate, 0.0, 5, 0.02)
    _ = _run(rate, now, 5, 5.0)
    assert rate.per_second == MOST


@pytest.mark.parametrize("ratio", [0.1, 1.0])
def test_a_ratio_by_which_the_best_is_slow_is_refused(ratio: float) -> None:
    with pytest.raises(ConfigError, match=r"replication_slow_ratio = .* must be 0 or above 1"):
        AutoRecoveryOptions(replication_slow_ratio=ratio).validate()
    for fine in (0.0, 1.5):
        AutoRecoveryOptions(replication_slow_ratio=fine).validate()
