"""Metrics, read back by the Prometheus library's own parser."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pulsarish.runtime.metrics import Family, Histogram, Metrics, Operation, Page

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def _samples(metrics: Metrics) -> Samples:
    families = text_string_to_metric_families(asyncio.run(metrics.scrape()).decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_what_is_counted_is_written() -> None:
    metrics = Metrics(labels={"cluster": "c"}, lag_seconds=lambda: 0.25)
    metrics.read("adds_total", "counter", "Adds.", lambda: 3)
    metrics.read("depth", "gauge", "Depth.", lambda: 1.5)
    metrics.read_each("states", "gauge", "States.", "state", lambda: {"a": 1, 'odd "name"\\\n': 7})
    samples = _samples(metrics)
    assert samples["adds_total", (("cluster", "c"),)] == 3
    assert samples["depth", (("cluster", "c"),)] == 1.5
    assert samples["states", (("cluster", "c"), ("state", 'odd "name"\\\n'))] == 7
    assert samples["process_resident_memory_bytes", (("cluster", "c"),)] > 1_000_000
    assert samples["pulsarish_loop_lag_seconds", (("cluster", "c"),)] == 0.25
    assert samples["python_gc_collections_total", (("cluster", "c"), ("generation", "0"))] >= 0


def test_a_histogram_is_cumulative_and_bounds_are_inclusive() -> None:
    metrics = Metrics()
    histogram = Histogram(bounds=(1.0, 2.0))
    metrics.histogram("latency_seconds", "Latency.", histogram)
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    histogram.observe(2.0, count=3)
    samples = _samples(metrics)
    assert [
        samples["latency_seconds_bucket", (("le", bound),)] for bound in ("1.0", "2.0", "+Inf")
    ] == [2, 6, 7]
    assert samples["latency_seconds_sum", ()] == 18.0
    assert samples["latency_seconds_count", ()] == 7


def test_an_operation_is_counted_apart_by_outcome() -> None:
    metrics = Metrics()
    adds = Operation()
    metrics.operation("ADD_ENTRY", "Adds.", adds)
    adds.succeeded.observe(0.25, 4)
    adds.failed.observe(1.0)
    samples = _samples(metrics)
    assert samples["ADD_ENTRY_count", (("success", "true"),)] == 4
    assert samples["ADD_ENTRY_sum", (("success", "true"),)] == 1.0
    assert samples["ADD_ENTRY_count", (("success", "false"),)] == 1


def test_a_scrape_lets_the_loop_run_between_slices_and_is_shared() -> None:
    metrics = Metrics()
    slices = 0

    def collect(page: Page) -> Iterator[None]:
        nonlocal slices
        for number in range(10):
            page.put("topic_backlog", page.labels({"topic": str(number)}), number)
            slices += 1
            yield

    metrics.source([Family("topic_backlog", "gauge", "Backlog.", ("topic",))], collect)

    async def main() -> None:
        seen: list[int] = []

        async def beside() -> None:
            while len(seen) < 10:
                seen.append(slices)
                await asyncio.sleep(0)

        texts = await asyncio.gather(metrics.scrape(), beside(), metrics.scrape())
        assert texts[0] == texts[2]
        assert slices == 10, "one scrape for both"
        assert len(dict.fromkeys(seen)) > 5, "the loop ran between the slices"
        await metrics.scrape()
        assert slices == 20, "the next one is a scrape of its own"

    asyncio.run(main())


def test_a_failed_scrape_is_everybodys_failure_and_not_for_ever() -> None:
    metrics = Metrics()
    broken = True

    def value() -> float:
        if broken:
            raise ZeroDivisionError
        return 1

    metrics.read("x", "gauge", "X.", value)

    async def main() -> None:
        nonlocal broken
        results = await asyncio.gather(metrics.scrape(), metrics.scrape(), return_exceptions=True)
        assert [type(result) for result in results] == [ZeroDivisionError, ZeroDivisionError]
        broken = False
        assert b"\nx 1\n" in await metrics.scrape()

    asyncio.run(main())


def test_a_name_is_registered_once() -> None:
    metrics = Metrics()
    metrics.read("x", "gauge", "X.", lambda: 1)
    with pytest.raises(AssertionError, match="twice"):
        metrics.read("x", "gauge", "X.", lambda: 2)
