"""Metrics, read back by the Prometheus library's own parser."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pulsarish.runtime.metrics import Histogram, Metrics


def _samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for family in families for sample in family.samples}


def test_what_is_counted_is_rendered() -> None:
    metrics = Metrics(labels={"cluster": "c"})
    metrics.read("adds_total", "counter", "Adds.", lambda: 3)
    metrics.read("depth", "gauge", "Depth.", lambda: 1.5)
    topics = metrics.gauges("topic_backlog", "Messages.", ["topic"], series_max=10)
    topics.at('odd "name"\\\n').value += 7
    samples = _samples(metrics)
    assert samples["adds_total", (("cluster", "c"),)] == 3
    assert samples["depth", (("cluster", "c"),)] == 1.5
    assert samples["topic_backlog", (("cluster", "c"), ("topic", 'odd "name"\\\n'))] == 7
    assert samples["process_resident_memory_bytes", (("cluster", "c"),)] > 1_000_000


def test_a_histogram_is_cumulative_and_bounds_are_inclusive() -> None:
    metrics = Metrics()
    histogram = Histogram(bounds=(1.0, 2.0))
    metrics.histogram("latency_seconds", "Latency.", histogram)
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    histogram.observe(2.0, count=3)
    samples = _samples(metrics)
    assert [samples["latency_seconds_bucket", (("le", bound),)] for bound in ("1.0", "2.0", "+Inf")] == [2, 6, 7]
    assert samples["latency_seconds_sum", ()] == 18.0
    assert samples["latency_seconds_count", ()] == 7


def test_labels_beyond_the_limit_share_one_series() -> None:
    metrics = Metrics()
    family = metrics.gauges("backlog", "Backlog.", ["topic"], series_max=2)
    for topic in ("a", "b", "c", "d", "a"):
        family.at(topic).value += 1
    assert [(labels["topic"], gauge.value) for labels, gauge in family.series()] == [("a", 2), ("b", 1), ("overflow", 2)]
    family.remove("a")
    assert [labels["topic"] for labels, _ in family.series()] == ["b", "overflow"]


def test_a_name_is_registered_once() -> None:
    metrics = Metrics()
    metrics.gauges("x", "X.", [], series_max=1)
    with pytest.raises(AssertionError, match="twice"):
        metrics.gauges("x", "X.", [], series_max=1)
