"""Asyncio programs that cancel what they await, at any moment."""

from __future__ import annotations

import pytest

from pulsarish.sim.workloads.cancellations import run_cancellations


@pytest.mark.parametrize("seed", range(6))
def test_cancelled_calls_lose_double_and_leave_nothing(seed: int) -> None:
    run_cancellations(seed)


def test_every_call_is_cancelled_at_some_time() -> None:
    counts: dict[str, int] = {}
    for seed in range(6, 9):
        for kind, count in run_cancellations(seed).counts.items():
            counts[kind] = counts.get(kind, 0) + count
    assert set(counts) == {
        "acknowledge",
        "batch_receive",
        "consumer.close",
        "create_producer",
        "create_reader",
        "create_table_view",
        "producer.close",
        "reader.close",
        "receive",
        "send",
        "subscribe",
        "table_view.close",
    }
